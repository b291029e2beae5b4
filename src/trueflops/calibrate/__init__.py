"""Profiles from measurements: one command rebuilds every shipped profile from a truth folder.

datasets.py    where measured rows come from   samples.py  tables as samples of each curve
fit.py         a law's parameters and landmarks, fitted to samples
kernels.py     curves of single kernels        collectives.py, power.py   of the others
profiles.py    every shipped profile           measured.py  one from a machine's own rows
"""
