"""Ops in, seconds out: the one place of time. In: a Cluster and a Profile. Out: a Clock.

clock.py        Clock: prices whole graphs, op class by op class
roofline.py     the law of a kernel that computes and moves
collectives.py  rings, trees and hierarchies over the cluster's tiers
"""

from trueflops.clock.clock import PHYSICS as PHYSICS
from trueflops.clock.clock import Clock as Clock
from trueflops.clock.clock import Priced as Priced
from trueflops.clock.clock import op_class as op_class
from trueflops.clock.collectives import Placement as Placement
