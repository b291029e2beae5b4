"""Enumerate, prune, rank plans.

enumerate.py  every plan of a space that breaks no rule
rank.py       price them in chunks, keep the best that fit
"""

from trueflops.search.enumerate import Space as Space
from trueflops.search.enumerate import enumerate_plans as enumerate_plans
from trueflops.search.rank import Found as Found
from trueflops.search.rank import search_plans as search_plans
