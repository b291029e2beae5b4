"""A serving answer for readers.

answer.py       one deployment: time, memory, money
speculation.py  steps with drafts beside steps without   cards.py  cards that share layers
configurations.py  how to serve: pools, the best of every kind, why not, the front
load.py         a simulated load: percentiles, its trace (loads.py: several)
"""
