"""Quantisation: narrower numbers for weights, matmuls and the cast ops that feed them.

A Format names how matmuls run. Where inputs are narrowed too (fp8, int8, fp4) each gains a cast
kernel before it; weight-only formats just read fewer bytes and multiply in the wide dtype.
Router, norms, embedding and head stay wide, as every recipe keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from trueflops.errors import UnknownName
from trueflops.graph.ir import Graph, Node, Op, Tensor


@dataclass(frozen=True)
class Format:
    """`weight_bits` include the scales; `compute` is the product's dtype, "" the pass's own."""

    name: str
    weight_bits: float
    compute: str = ""
    input_bits: float = 0.0  # 0: inputs are not narrowed


# Block scales: int4 groups of 128 with an fp16 scale and zero point (AWQ, GPTQ): 4.25 bits;
# MXFP4 one E8M0 per 32: 4.25; NVFP4 one E4M3 per 16: 4.5; fp8 one fp32 per 128×128 weights, and per
# 128 of an input.
FORMATS: Final[Mapping[str, Format]] = MappingProxyType(
    {
        f.name: f
        for f in (
            Format("fp32", 32.0, "fp32"),
            Format("bf16", 16.0),
            Format("fp16", 16.0),
            Format("fp8", 8.0, "fp8", 8.0),
            Format("fp8_block", 8.002, "fp8", 8.25),
            Format("int8", 8.0, "int8", 8.0),
            Format("w8a16", 8.0),
            Format("int4", 4.25),
            Format("mxfp4", 4.25),
            Format("mxfp4_fp8", 4.25, "fp8", 8.25),
            Format("nvfp4", 4.5, "fp4", 4.5),
        )
    }
)


def number_format(name: str) -> Format:
    """Look a format up; an unknown one is an error that names the near ones."""
    if name not in FORMATS:
        raise UnknownName("weight format", name, FORMATS)
    return FORMATS[name]


WIDE: Final = ("experts.router", "shared.weigh", "head.logits", "embedding.")


def quantise(graph: Graph, to: Format) -> Graph:
    """Narrow the weights of every projection, and its input where the format says so."""
    nodes: list[Node] = []
    narrowed: dict[str, Tensor] = {}
    for node in graph.forward:
        if not isinstance(node, Op) or node.kind != "matmul" or node.name.startswith(WIDE):
            nodes.append(node)
            continue
        weights = tuple(replace_bits(w, to.weight_bits) for w in node.weights)
        x = node.inputs[0]
        if to.input_bits:
            if x.name not in narrowed:
                narrow = Tensor(f"{x.name}.{to.name}", x.dims, to.input_bits)
                cast = Op(f"{x.name}.cast", "cast", (x,), (narrow,), part=node.part)
                nodes.append(replace(cast, dtype=node.dtype, form=to.name))
                narrowed[x.name] = narrow
            x = narrowed[x.name]
        dtype = to.compute or node.dtype
        nodes.append(replace(node, inputs=(x,), weights=weights, dtype=dtype, form=to.name))
    return graph.having(forward=tuple(nodes))


def replace_bits(tensor: Tensor, bits: float) -> Tensor:
    """The same tensor in another width; biases stay as they are."""
    if tensor.name.endswith(".bias"):
        return tensor
    return Tensor(tensor.name, tensor.dims, bits, tensor.role)
