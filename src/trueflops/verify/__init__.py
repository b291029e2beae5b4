"""The judge: measured results in, predictions of the same beside them, errors out.

findings.py  Finding, Refusal, Findings: what every reader of truth returns
score.py     errors by group and over all groups
"""
