"""Profiles from measurements: one command rebuilds every shipped profile from a truth folder.

datasets.py     where measured rows come from
profiles.py     every shipped profile, and what transfers to chips without data
samples.py      folders of measured kernels as samples, chip by chip and curve by curve
kernels.py      curves of single kernels        collectives.py  curves of collectives
fit.py          a law's parameters, then landmarks of what is left
device.py       the chip that was measured, and rows that it cannot have
power.py        energy per flop and byte        measured.py     a profile of one machine's own rows
"""
