"""Serving: what a deployment of a model does under a load.

passes.py   what one pass of an engine takes
memory.py   weights, what a pass holds, the KV cache that an engine makes of the rest
padding.py  sides of narrow experts, rounded up for their kernels
cache.py    blocks, what a request takes of them; trial.py: a pass at its fullest
offloading.py  layers or weights in host memory
sparse.py   which kernel attends to keys that an indexer chose
stages.py   a pipeline of unlike cards    stage_memory.py  what each of them holds
splitting.py  how engines deal layers out to cards, and the fastest way
cards.py    what accelerators draw, and what each card of such a pipeline does
mix.py      which passes a load is made of
interleaved.py  two-batch overlap    ranks.py  those that wait for the fullest
server.py   the steady state in closed form: TTFT, TPOT, tokens per second, dollars, joules
pools.py    prefill and decode on workers of their own (flow.py: their closed loop)
point.py    the answer
speculation.py  what is drafted and accepted   speculator.py  steps that verify drafts
"""

from trueflops.predict.serving.offloading import Offload as Offload
from trueflops.predict.serving.passes import Stage as Stage
from trueflops.predict.serving.point import Point as Point
from trueflops.predict.serving.point import Pool as Pool
from trueflops.predict.serving.point import PooledPoint as PooledPoint
from trueflops.predict.serving.point import ServingPoint as ServingPoint
from trueflops.predict.serving.pools import Pools as Pools
from trueflops.predict.serving.server import Server as Server
from trueflops.predict.serving.speculation import Acceptance as Acceptance
from trueflops.predict.serving.speculation import Speculation as Speculation
from trueflops.predict.serving.speculator import Speculator as Speculator
