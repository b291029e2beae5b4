"""Frozen weights that lie packed in memory and are written out, 16 bits wide, for each product.

nf4              bitsandbytes: 4 bits, an 8-bit scale for 64 of them and an fp32 one for 256 scales:
                 4 + 8/64 + 32/(64·256) = 4.127 bits (QLoRA, arXiv 2305.14314 §3); one kernel
                 (bitsandbytes/autograd/_functions.py, MatMul4Bit)
gptq-int4        GPTQ in groups of 128 with an fp16 scale and a 4-bit zero point; AutoGPTQ's Triton
                 kernel writes the weights out (auto_gptq/nn_modules/triton_utils/dequant.py)
gptq-int4-torch  the same by PyTorch's functions: shifted apart as int32, narrowed to int8, masked,
                 less the zero points, times the scales (qlinear_cuda_old.py); the product is
                 PyTorch's own and saves them for its gradient
Every linear layer of a block is packed; head, norms and embedding stay wide. A frozen weight that
is wider than its product is narrowed by autocast for each, and that copy is kept for the gradient:
only those of trained weights are made once (torch's autocast_mode.cpp). Run after sharding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from trueflops.errors import UnknownName
from trueflops.graph.functions import call
from trueflops.graph.ir import Graph, Node, Op, Tensor
from trueflops.graph.kinds import Kind, Role
from trueflops.graph.passes.quantise import HEAD
from trueflops.graph.variants import EagerKernel


@dataclass(frozen=True)
class Packed:
    """How weights lie in memory, and which kernels write them out."""

    bits: float
    steps: tuple[tuple[EagerKernel, float], ...] = ()  # eager kernels, with the bits each writes
    saved: bool = False  # what was written out is kept for the backward


_GPTQ_BITS: Final = 4.0 + (16.0 + 4.0) / 128.0
PACKED: Final[Mapping[str, Packed]] = MappingProxyType(
    {
        "nf4": Packed(4.0 + 8.0 / 64.0 + 32.0 / (64.0 * 256.0)),
        "gptq-int4": Packed(_GPTQ_BITS),
        "gptq-int4-torch": Packed(
            _GPTQ_BITS,
            (
                (EagerKernel.STRIDED, 32.0),
                (EagerKernel.VECTOR, 8.0),
                (EagerKernel.VECTOR, 8.0),
                (EagerKernel.STRIDED, 8.0),
            ),
            saved=True,
        ),
    }
)


def packed_named(name: str) -> Packed:
    """Look a packed format up; an unknown one is an error that names the near ones."""
    if name not in PACKED:
        raise UnknownName("format of frozen weights", name, PACKED)
    return PACKED[name]


def dequantise(graph: Graph, name: str) -> Graph:
    """Pack the frozen weights of linear layers, and write each out before its product.

    Without a format only those are written out that are wider than their product.
    """
    to = packed_named(name) if name else None
    nodes: list[Node] = []
    for node in graph.forward:
        if isinstance(node, Op) and node.kind is Kind.MATMUL:
            weights = []
            for weight in node.weights:
                written = _write_out(node, weight, None if node.name.startswith(HEAD) else to)
                nodes += written
                weights.append(written[-1].outputs[0] if written else weight)
            node = node.changed(weights=tuple(weights))
        nodes.append(node)
    return replace(graph, forward=tuple(nodes))


def _write_out(node: Op, weight: Tensor, to: Packed | None) -> list[Op]:
    """The kernels that make of frozen weights what a product reads; none where it reads them."""
    name, bits = f"{weight.name}.dequantised", node.inputs[0].bits
    if weight.role is not Role.FROZEN or weight.name.endswith(".bias"):
        return []
    if to is None:
        if weight.bits <= bits:
            return []
        to = Packed(weight.bits, saved=True)
    wide = Tensor(name, weight.dims, bits, role=Role.INDEX)
    held: tuple[Tensor, ...] = (replace(weight, bits=to.bits),)
    read: tuple[Tensor, ...] = ()
    made: list[Op] = []
    for i, (kernel, width) in enumerate(to.steps):
        step = Tensor(f"{name}.{i}", weight.dims, width, role=Role.INDEX)
        made.append(call(f"{name}.{i}", kernel, read, (step,), weights=held, like=node))
        held, read = (), (step,)
    last = Op(name, Kind.DEQUANTISE, read, (wide,), weights=held, dtype=node.dtype, part=node.part)
    return [*made, last.changed(facts={"saved": float(to.saved)})]
