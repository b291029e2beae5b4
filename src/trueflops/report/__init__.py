"""Predictions for readers: tables, bars and JSON. No prediction is made here.

waterfall.py  from the number on the box to the number you get
training.py   a training answer          serving.py  a serving answer
compare.py    chips side by side         catalog.py  a record with its sources
ops.py        priced kernels             tables.py   how numbers and tables look
encode.py     JSON with SI units in the key names
diagnosis.py  where the time of a real run went
plots.py      pictures (the plot extra)
"""
