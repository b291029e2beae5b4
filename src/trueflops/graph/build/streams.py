"""Several residual streams: manifold-constrained hyper-connections (mHC).

From all streams of a token one product makes the numbers that mix them: one for each stream into
what a part reads, one for each out of what it makes, and a doubly stochastic matrix from each
stream to each (DeepseekV4HyperConnection of transformers). vLLM runs what stands between two parts
as one kernel (model_executor/kernels/mhc/tilelang.py, mhc_fused_post_pre_tilelang); here it is the
product and what the fuse pass makes of the rest. The norm of all streams and the Sinkhorn steps on
a 4 × 4 matrix are left out: some hundred flop a token within those kernels.
"""

from __future__ import annotations

from trueflops.graph.build.layout import Layout
from trueflops.graph.ir import Tensor
from trueflops.graph.kinds import Kind
from trueflops.graph.rules import STATISTIC_BITS


def collapse(at: Layout, part: str, streams: Tensor) -> tuple[Tensor, Tensor]:
    """What a part reads of all streams, and the numbers that mix them."""
    name = f"{part}.mix"
    made = at.tensor(f"{part}.mixes", at.parameters[name].dims[0], bits=STATISTIC_BITS)
    mixes = at.linear([name], streams, [made])
    read = at.tensor(f"{part}.collapsed", ("hidden", at.hidden), bits=streams.bits)
    flop = 2.0 * at.streams
    at.op(Kind.MULTIPLY, f"{part}.collapse", [streams, mixes], [read], flop_per_element=flop)
    return read, mixes


def spread(
    at: Layout, part: str, streams: Tensor, made: Tensor, mixes: Tensor | None, out: Tensor
) -> Tensor:
    """What a part made, added to the one stream, or spread over several that mix."""
    name = f"{part}.residual"
    if mixes is None:
        return at.op(Kind.ADD, name, [streams, made], [out], part="residual")
    mixed, each = out.renamed(f"{out.name}.mixed"), out.renamed(f"{out.name}.each")
    flop = 2.0 * at.streams
    at.op(Kind.MULTIPLY, f"{part}.remix", [streams, mixes], [mixed], flop_per_element=flop)
    at.op(Kind.MULTIPLY, f"{part}.expand", [made, mixes], [each])
    return at.op(Kind.ADD, name, [mixed, each], [out], part="residual")


def join_several(at: Layout) -> Tensor:
    """A prediction module's input: every stream beside the embedding of the next token, each normed
    and with a product of its own (vLLM's models/deepseek_v4/nvidia/mtp.py).
    """
    joined = ("joined", at.hidden)
    embedded = at.norm("join.embedding_norm", at.tensor("join.next", ("hidden", at.hidden)))
    streams = at.norm("join.stream_norm", at.stream("join.in"))
    several = ("streams", float(at.streams))
    first = at.linear(["join.embedding"], embedded, [at.tensor("join.embedded", joined)])
    others = at.linear(["join.stream"], streams, [at.tensor("join.streams", several, joined)])
    return at.op(Kind.ADD, "join.add", [others, first], [at.stream("block.in")])
