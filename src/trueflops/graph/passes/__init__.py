"""Passes, Graph -> Graph, in the order in which `program` runs them.

quantise       narrower weights and matmuls
shard          one rank's part, collectives where layouts change
fuse           flash attention and pointwise chains
differentiate  backward ops, and what must be kept for them
recompute      drop and run again
"""

from trueflops.graph.formats import FORMATS as FORMATS
from trueflops.graph.formats import Format as Format
from trueflops.graph.formats import number_format as number_format
from trueflops.graph.passes.differentiate import differentiate as differentiate
from trueflops.graph.passes.fuse import fuse as fuse
from trueflops.graph.passes.fuse import traffic_bytes as traffic_bytes
from trueflops.graph.passes.quantise import quantise as quantise
from trueflops.graph.passes.recompute import recompute as recompute
from trueflops.graph.passes.shard import Degrees as Degrees
from trueflops.graph.passes.shard import shard as shard
