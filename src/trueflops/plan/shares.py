"""Which part of every weight one rank of a plan holds, before ZeRO divides it between replicas.

In: a Model's parameters by named dimension, and a Plan. Out: Shares, matrices as products read
them: [outputs, inputs], of routed experts [experts, outputs, inputs]. What tensor parallelism
splits are the dimensions heads, kv_heads, ffn and vocab (Shoeybi 2019, arXiv 1909.08053 §3).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final, Literal

from trueflops.model import Model
from trueflops.model.parameters import Parameter
from trueflops.plan.plan import Plan

SPLIT_BY_TP: Final = frozenset({"heads", "kv_heads", "ffn", "vocab"})


@dataclass(frozen=True, slots=True)
class Share:
    """A weight or a bias: its whole shape, and which dimension is cut between ranks of an axis."""

    name: str
    whole: tuple[int, ...]
    axis: Literal["", "tp", "ep"] = ""
    cut: int = 0  # the dimension that the axis cuts, where there is one
    ways: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the part that one rank holds."""
        sizes = list(self.whole)
        if self.axis:
            sizes[self.cut] //= self.ways
        return tuple(sizes)

    @property
    def elements(self) -> int:
        """Of that part."""
        return prod(self.shape)

    def padded(self, ways: int) -> int:
        """Elements where so many ranks hold equal pieces of the first dimension, as FSDP2 cuts it
        (torch/distributed/fsdp/_fully_shard/_fsdp_param.py, padded_sharded_param_size).
        """
        first, *rest = self.shape
        return -(-first // ways) * ways * prod(rest)


def shares(parameter: Parameter, plan: Plan) -> tuple[Share, ...]:
    """A parameter's matrix and, where it has one, its bias."""
    dims = parameter.dims
    into = dims[-parameter.inputs :] if len(dims) > 1 else ()
    out = dims[: len(dims) - len(into)]
    experts, out = (out[:1], out[1:]) if parameter.routed else ((), out)
    sizes = tuple(prod(size for _, size in group) for group in (experts, out, into) if group)
    made = [_share(parameter.name, sizes, [g for g in (experts, out, into) if g], plan)]
    if parameter.bias:
        bias = parameter.bias[1:] if parameter.routed else parameter.bias
        groups = [g for g in (parameter.bias[:1] if parameter.routed else (), bias) if g]
        whole = tuple(prod(size for _, size in group) for group in groups)
        made.append(_share(f"{parameter.name}.bias", whole, groups, plan))
    return tuple(made)


def _share(
    name: str, whole: tuple[int, ...], groups: list[tuple[tuple[str, int], ...]], plan: Plan
) -> Share:
    for place, group in enumerate(groups):
        names = {dim for dim, _ in group}
        if "experts" in names:
            return Share(name, whole, "ep", place, int(plan.ep))
        if names & SPLIT_BY_TP:
            return Share(name, whole, "tp", place, int(plan.tp))
    return Share(name, whole)


def block_shares(model: Model, plan: Plan, layer: int) -> list[Share]:
    """Every weight of a layer."""
    block = model.blocks[model.pattern[layer]]
    return [s for p in block.parameters(model.hidden) for s in shares(p, plan)]


def embedding_shares(model: Model, plan: Plan) -> list[Share]:
    """Those before the first layer."""
    return [s for p in model.embedding_parameters() for s in shares(p, plan)]


def head_shares(model: Model, plan: Plan) -> list[Share]:
    """Those behind the last; a tied head owns no matrix."""
    return [s for p in model.head_parameters() for s in shares(p, plan)]
