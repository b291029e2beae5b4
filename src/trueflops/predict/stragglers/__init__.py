"""A slow rank or link under synchronous, half-synchronous and asynchronous updates.

simulate.py   workers by events: gradients a second, staleness, waiting
cluster.py    the workers of a cluster, with the clock's communication
"""

from trueflops.predict.stragglers.cluster import Straggled as Straggled
from trueflops.predict.stragglers.cluster import Straggling as Straggling
from trueflops.predict.stragglers.cluster import predict_straggling as predict_straggling
