"""Enumerate, prune, rank plans.

space.py      what may be tried
families.py   every legal plan of a space, as keys × choices; choices.py: how replicas may share
bounds.py     what a plan takes at least; sharing.py: what a choice changes of it
branches.py   families with their bounds
best.py       the best of them, exactly, without predicting most; front.py: time against memory
chips.py      the same model on chips of different kinds, at equal counts
buying.py     which chips, and how many, at the least of something
serving.py    how to cut a cluster into replicas
pooled.py     pairs of pools: which workers read, which write, how many of each
configurations.py  all of these under goals; the front of speed against throughput
advice.py     what would make a plan fit
largest.py    the largest number, or models, of which an answer holds
what_helps.py the gain from more of each resource, and why one chip beats another
hardware.py   clusters with more of a resource, or with another's
"""

from trueflops.search.advice import what_would_fit as what_would_fit
from trueflops.search.best import Found as Found
from trueflops.search.best import Progress as Progress
from trueflops.search.best import search_plans as search_plans
from trueflops.search.configurations import Configurations as Configurations
from trueflops.search.configurations import pareto as pareto
from trueflops.search.configurations import search_configurations as search_configurations
from trueflops.search.families import legal_plans as legal_plans
from trueflops.search.serving import Limits as Limits
from trueflops.search.serving import search_serving as search_serving
from trueflops.search.space import OFFLOADS as OFFLOADS
from trueflops.search.space import Space as Space
