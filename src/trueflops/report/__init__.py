"""Predictions for readers: tables, bars and JSON. No prediction is made here.

waterfall.py  from the number on the box to the number you get
training.py   a training answer          serving/    a serving answer, and how to serve
pipeline.py   a simulated pipeline: every stage over time; timeline.py: task by task, its trace
compare.py    chips side by side         catalog.py  a record with its sources (catalog_json.py)
compare_model.py  a model on several chips
verify.py     predicted beside measured  progress.py while an answer is worked out
explain/      one kernel                 diagnosis.py  where the time of a real run went
provenance.py which curve priced what, from which measurements
ops.py        every op of a step under the chip's roofs
captured/     a captured program, and what would help it
measured.py   a measured profile (measured_plot.py)
grid.py       tables that fit            tables.py   how numbers look
encode.py     JSON with SI units in the key names
tuning.py     what is trained, in words
roofline.py   in a terminal               plots.py   pictures (the plot extra)
collective.py  a collective's algorithms (collective_steps.py, collective_plot.py)
stragglers.py  slow ranks and links, by mode of update
served.py     a parameter server, DataParallel   compared.py  ways to run one plan
found.py      what a search found beside the best plan (front_plot.py)
buying.py     which chips, and how many   models.py  the largest models that a cluster holds
sweep.py      what a sweep would ask, and what became of its rows
guard.py      a step beside the one that was accepted
ran.py        a run beside its prediction; run_log.py: its lines while it goes on
correction.py what real steps correct of a profile
whole_bill.py failures, goodput, dollars, energy, buying
what_helps.py the gain from more of each resource, and why one chip beats another
"""
