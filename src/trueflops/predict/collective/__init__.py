"""One collective: what each algorithm of it takes, and who sends what to whom at which step.

compare.py    the algorithms side by side, on one group and by the number of ranks
schedule.py   the messages of an algorithm, step by step
trees.py      NCCL's pair of binary trees
"""

from trueflops.predict.collective.compare import CollectiveCompared as CollectiveCompared
from trueflops.predict.collective.compare import Compared as Compared
from trueflops.predict.collective.compare import compare_collective as compare_collective
from trueflops.predict.collective.schedule import Schedule as Schedule
from trueflops.predict.collective.schedule import schedule as schedule
