"""The judge: measured results in, predictions of the same beside them, errors out.

findings.py  Finding, Refusal, Findings: what every reader of truth returns
score.py     errors by group and over all groups

inference.py   published tokens per second and latencies; serving.py: points of loaded servers
deployment.py  a model on a server, each load predicted once
run_chip.py    free text to a chip; run_model.py: to a model; run_format.py: to formats, engine
stand_in.py    a model of which only the size is known
cells.py       numbers in cells
"""
