"""Serving: what a deployment of a model does under a load.

passes.py   what one pass of an engine takes
memory.py   weights, KV cache, room for requests
server.py   the steady state in closed form: TTFT, TPOT, tokens per second, dollars, joules
point.py    the answer
"""

from trueflops.predict.serving.point import ServingPoint as ServingPoint
from trueflops.predict.serving.server import Server as Server
