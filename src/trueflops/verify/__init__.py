"""The judge: measured results in, predictions of the same beside them, errors out.

recognise.py   which reader a table needs, by its header
training/      published training runs            serving/  published results of servers
kernels.py     tables of measured kernels; measured.py: judged under a measured profile
bus.py         collectives among cards on PCIe
findings.py    Finding, Refusal, Findings: what every reader of truth returns
regimes.py     what accuracy is claimed; regime_rows.py: of which rows
cells.py       cells as numbers, or why not
profiles.py    which profile a run is predicted with
score.py       errors by group and over all groups
"""
