"""Quantisation: narrower numbers for weights, matmuls and the cast ops that feed them.

A Format names how matmuls run. Where inputs are narrowed too (fp8, int8, fp4) each gains a cast
kernel before it; weight-only formats just read fewer bytes and multiply in the wide dtype.
Router, norms, embedding, head and adapters stay wide, as most recipes keep them; GGUF narrows the
head too.
"""

from __future__ import annotations

from dataclasses import replace
from math import isinf
from typing import Final

from trueflops.graph.formats import EIGHT_BIT_DTYPES, FORMATS, Format
from trueflops.graph.ir import Graph, Node, Op, Tensor
from trueflops.graph.kinds import Kind, Role
from trueflops.graph.rules import trains
from trueflops.graph.variants import ProductKernel
from trueflops.model import is_adapter

HEAD: Final = "head.logits"
# vLLM's qwen3_next.py: "ba_proj doesn't support blockwise fp8 quantization".
WIDE: Final = (
    "experts.router", "shared.weigh", "attention.index_weigh", "recurrent.rates",
    # DeepSeek-V4's pools (vLLM's DeepseekCompressor: quant_config=None) and mixes of streams
    "attention.pool_kv", "attention.index_kv", "attention.mix", "ffn.mix", "head.mix",
    HEAD, "embedding.",
)  # fmt: skip


def quantise(graph: Graph, to: Format, *, training: bool = False) -> Graph:
    """Narrow the weights of every projection, and its input where the format says so.

    In training a cast writes its result twice, once transposed: the weight gradient sums over
    tokens, and narrow tensor cores read both operands along the summed dimension. A frozen weight
    has no gradient.
    """
    nodes: list[Node] = []
    narrowed: dict[str, Tensor] = {}
    experts, dense = to, FORMATS[to.dense] if to.dense else to
    for node in graph.forward:
        if not isinstance(node, Op) or node.kind is not Kind.MATMUL:
            nodes.append(node)
            continue
        if node.name.startswith(WIDE) or is_adapter(node.name):
            nodes.append(_narrow_head(node, to) if node.name.startswith(HEAD) else node)
            continue
        routed = any(w.has("experts") for w in node.weights)
        to = experts if routed else dense
        if to.wide and node.name.startswith(to.wide):
            nodes.append(node)
            continue
        bits = to.weight_bits
        if to.dense_bits and not routed:
            bits = to.dense_bits
        if isinf(bits):
            nodes.append(node)
            continue
        weights = tuple(replace_bits(w, bits) for w in node.weights)
        x = node.inputs[0]
        if to.input_bits:
            if x.name not in narrowed:
                cast = _cast(node, to, training=training)
                nodes.append(cast)
                narrowed[x.name] = cast.outputs[0]
            x = narrowed[x.name]
        variant = ProductKernel.STORED if by_library(to, training) else to
        dtype = to.compute or node.dtype
        nodes.append(node.changed(inputs=(x,), weights=weights, dtype=dtype, variant=variant))
    return replace(graph, forward=tuple(nodes))


def by_library(to: Format, training: bool) -> bool:
    """Whether the vendor's library multiplies what was narrowed before."""
    return training and to.compute in EIGHT_BIT_DTYPES


def _cast(node: Op, to: Format, *, training: bool) -> Op:
    """The kernel that narrows a product's input."""
    x = node.inputs[0]
    made = [Tensor(f"{x.name}.{to.name}", x.dims, to.input_bits)]
    if training and trains(node):
        made.append(Tensor(f"{made[0].name}.transposed", x.dims, to.input_bits, role=Role.INDEX))
    variant = None if by_library(to, training) else to
    return Op(
        f"{x.name}.cast",
        Kind.CAST,
        (x,),
        tuple(made),
        dtype=node.dtype,
        part=node.part,
        variant=variant,
    )


def _narrow_head(node: Op, to: Format) -> Op:
    """The projection onto the vocabulary, for formats that narrow it as well."""
    if not to.head_bits:
        return node
    return node.changed(weights=tuple(replace_bits(w, to.head_bits) for w in node.weights))


def replace_bits(tensor: Tensor, bits: float) -> Tensor:
    """The same tensor in another width; biases stay as they are."""
    if tensor.name.endswith(".bias"):
        return tensor
    return replace(tensor, bits=bits)
