"""Published training runs: a row in, a Case out, and what was measured beside its prediction.

runs.py        row by row             vtrain.py      iteration times of one node
model.py       the model of a row     cluster.py     its chips and network
plan.py        its plan               measured.py    what it measured, as seconds
tuning.py      what of it was trained dtypes.py      in which dtypes
frameworks.py  free texts as keys     attention.py   whose attention it ran
scripts.py     what its script says beside           words.py  many words for a few things
written.py     functions or fused kernels
recipes.py     what NVIDIA's recipes set of it: recipes.csv
"""
