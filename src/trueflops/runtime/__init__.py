"""The runtime: priced kernels, a host and a power cap in; a timeline, or a Term, out.

terms.py   Term, a prediction as a tree whose parts sum, and Estimate, a value with its errors
closed.py  a stretch of kernels as a formula, for many plans at once
replay.py  the same as a simulation, where there is a recording: host and streams on two clocks,
           of one rank or of several that meet
orders.py  pipeline schedules: what every rank runs, in which order
stepped.py a pipeline's step, event by event: when every rank runs what, and how much it holds
floor.py   what no step goes below: its busiest link or lane, the chip's own products
"""

from trueflops.runtime.closed import Beside as Beside
from trueflops.runtime.closed import Ran as Ran
from trueflops.runtime.closed import Stretch as Stretch
from trueflops.runtime.closed import run_closed as run_closed
from trueflops.runtime.floor import achievable as achievable
from trueflops.runtime.floor import busy_seconds as busy_seconds
from trueflops.runtime.floor import floor_seconds as floor_seconds
from trueflops.runtime.orders import Order as Order
from trueflops.runtime.orders import Part as Part
from trueflops.runtime.orders import Task as Task
from trueflops.runtime.orders import order_of as order_of
from trueflops.runtime.stepped import StageSeconds as StageSeconds
from trueflops.runtime.stepped import Stepped as Stepped
from trueflops.runtime.stepped import run_orders as run_orders
from trueflops.runtime.terms import COMMUNICATION as COMMUNICATION
from trueflops.runtime.terms import COMPUTE as COMPUTE
from trueflops.runtime.terms import Estimate as Estimate
from trueflops.runtime.terms import Term as Term
from trueflops.runtime.terms import exact as exact
from trueflops.runtime.terms import leaf as leaf
from trueflops.runtime.terms import lopsided as lopsided
from trueflops.runtime.terms import reaching as reaching
from trueflops.runtime.terms import total as total
