"""Enumerate, prune, rank plans.

enumerate.py  every training plan of a space that breaks no rule
rank.py       price them in chunks, keep the best that fit
chips.py      the same model on chips of different kinds, at equal counts
serving.py    how to cut a cluster into replicas
advice.py     what would make a plan fit
"""

from trueflops.search.advice import what_would_fit as what_would_fit
from trueflops.search.enumerate import Space as Space
from trueflops.search.enumerate import enumerate_plans as enumerate_plans
from trueflops.search.rank import Found as Found
from trueflops.search.rank import search_plans as search_plans
from trueflops.search.serving import Limits as Limits
from trueflops.search.serving import search_serving as search_serving
