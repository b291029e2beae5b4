"""Passes, Graph -> Graph, in the order in which `program` runs them.

quantise       narrower weights and matmuls
shard          one rank's part, collectives where layouts change
spread_keys    cached keys that ranks of tp would all hold, dealt out over them
dequantise     packed weights that are written out for their products
autocast       fp32 streams, a cast before every product
write_out      ops as the PyTorch functions that a program calls
fuse           flash attention and pointwise chains
run_beside     ops on a stream of their own
differentiate  backward ops, and what must be kept for them
merge_steps    what a ring of attention adds up
recompute      drop and run again
compile_graph  written ops as a compiler fuses them; compiled: which ones it merges
"""

from trueflops.graph.formats import FORMATS as FORMATS
from trueflops.graph.formats import Format as Format
from trueflops.graph.formats import format_named as format_named
from trueflops.graph.passes.autocast import autocast as autocast
from trueflops.graph.passes.beside import run_beside as run_beside
from trueflops.graph.passes.compile import compile_graph as compile_graph
from trueflops.graph.passes.dequantise import PACKED as PACKED
from trueflops.graph.passes.dequantise import dequantise as dequantise
from trueflops.graph.passes.differentiate import differentiate as differentiate
from trueflops.graph.passes.fuse import fuse as fuse
from trueflops.graph.passes.fuse import traffic_bytes as traffic_bytes
from trueflops.graph.passes.quantise import quantise as quantise
from trueflops.graph.passes.recompute import recompute as recompute
from trueflops.graph.passes.ring import merge_steps as merge_steps
from trueflops.graph.passes.shard import Degrees as Degrees
from trueflops.graph.passes.shard import shard as shard
from trueflops.graph.passes.spread import spread_keys as spread_keys
from trueflops.graph.passes.written import write_out as write_out
