"""Many questions into one table: models × clusters × workloads × plans × prices.

flags.py      what a question may be made of: the flags of train or infer
spec.py       a TOML file -> axes, what is fixed, what is left out, what is added
questions.py  their product, in the order of the file
rows.py       an answer as a row of the table
journal.py    rows that are finished, kept while a sweep runs and after it was killed
local.py      answered by processes of this machine
on_ray.py     answered by a Ray cluster (the ray extra)
table.py      rows -> CSV or Parquet (the parquet extra)
A question becomes an answer in cli/sweep.py, by the code of the commands themselves.
"""
