"""Lay out the forward graph of a model, unsharded and unfused, as its paper would write it.

layout.py        the Pass (how much work) and the collector of ops
adapters.py      which weights are frozen, and the low-rank products beside them
attention.py     projections, latent attention, the attention core
core.py          what all kinds of attention share
indexing.py      which keys a query of sparse attention sees
pooled.py        attention over a window and pooled keys
streams.py       several residual streams that mix
own.py           inputs that layers are given of their own
recurrent.py     linear attention and state spaces: a state instead of a cache
chunks.py        how a prompt passes such a layer
feed_forward.py  dense FFN and routed experts
blocks.py        one layer; the embedding; the head with its loss
Sharding, fusion, differentiation and recomputation are passes over what is built here.
"""

from trueflops.graph.build.adapters import TRAIN_ALL as TRAIN_ALL
from trueflops.graph.build.adapters import Tuning as Tuning
from trueflops.graph.build.blocks import build_block as build_block
from trueflops.graph.build.blocks import build_embedding as build_embedding
from trueflops.graph.build.blocks import build_head as build_head
from trueflops.graph.build.layout import Pass as Pass
from trueflops.graph.build.layout import SparseKernel as SparseKernel
