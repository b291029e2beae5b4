"""Sizes of many plans, each computed once for every distinct combination of the fields it reads.

A million plans share most of what they compute. A Batch knows in which columns they differ; a
Tabled size holds one value for each distinct combination of the columns that it depends on. Two of
them give one that depends on the columns of both; where nearly all plans differ in these, a plain
array. So one code serves one plan, an array of them, and a million.

batch.py      Batch: columns, and the tables of their distinct combinations
tabled.py     Tabled: a size over the rows of a table, which looks like an array over plans
functions.py  sums, the largest stage, laws of plain arrays: of sizes of either kind
"""

from typing import Final

from trueflops.tables.batch import Batch as Batch
from trueflops.tables.functions import by_row as by_row
from trueflops.tables.functions import by_value as by_value
from trueflops.tables.functions import column as column
from trueflops.tables.functions import on_rows as on_rows
from trueflops.tables.functions import rows_of as rows_of
from trueflops.tables.functions import summed as summed
from trueflops.tables.functions import where_largest as where_largest
from trueflops.tables.tabled import Tabled as Tabled
from trueflops.tables.tabled import joint as joint

MANY: Final = 2048  # plans from which on looking for what they share pays
