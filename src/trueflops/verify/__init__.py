"""The judge: measured results in, predictions of the same beside them, errors out.

findings.py    Finding, Refusal, Findings: what every reader of truth returns
recognise.py   which reader a table needs, by its header
training.py    published training runs, row by row a Case
  cells.py       cells as numbers, or why not    frameworks.py  free texts as keys, and their habits
  run_model.py   the model of a row              run_cluster.py its chips and network
  run_plan.py    its plan                        run_measured.py what it measured, as seconds
vtrain.py      iteration times of vTrain, on one node
profiles.py    which profile a run is predicted with
score.py       errors by group and over all groups
split.py       which rows are held out
"""
