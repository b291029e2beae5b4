"""Ops in, seconds out: the one place of time. In: a Cluster and a Profile. Out: a Clock.

clock.py        Clock: prices whole graphs, op class by op class
works.py        which law prices an op, and what that law asks of it
law.py          what a law is: a formula with few parameters, and landmarks of its error
matmul.py, attention.py, experts.py, streams.py   the laws
power.py        energy of work, and the clock that a power cap leaves
given.py        profiles that a user names, held to the laws and to the chip
silicon.py      what the laws know of a chip
algorithms.py   how the ranks of a collective share its work
collectives.py  rings, trees and hierarchies over the cluster's tiers
ways.py         other ways of a collective, beside the library's own
host.py         what the host needs to issue work, and how long a device waits for it
transfer.py     what a communication takes, and how long its links are busy
"""

from trueflops.clock.algorithms import Algorithm as Algorithm
from trueflops.clock.clock import Clock as Clock
from trueflops.clock.clock import Priced as Priced
from trueflops.clock.clock import PricedOp as PricedOp
from trueflops.clock.collectives import Placement as Placement
from trueflops.clock.power import CLOCKED_CAUSES as CLOCKED_CAUSES
from trueflops.clock.power import PowerLaw as PowerLaw
from trueflops.clock.transfer import NOTHING as NOTHING
from trueflops.clock.transfer import Transfer as Transfer
from trueflops.clock.transfer import either as either
from trueflops.clock.ways import Way as Way
from trueflops.clock.works import curve_key as curve_key
from trueflops.clock.works import op_class as op_class
