"""Which weights are frozen, and the low-rank products that are trained beside them.

LoRA (Hu et al. 2021, arXiv 2106.09685 eq. 3): y = W·x + (α/r)·B·A·x with W frozen. Laid out as PEFT
calls it (peft/tuners/lora/layer.py, Linear.forward): a product with A, one with B, a scaling, an
addition. Adapters are kept in fp32 beside 16-bit weights (tuners_utils.py, cast_adapter_dtype), so
their input is widened, and autocast narrows it again for the product. What bitsandbytes' layer made
is copied first (tuners/lora/bnb.py), and is as wide as its input (bitsandbytes/nn/modules.py,
Linear4bit.forward).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from trueflops.graph.ir import Op, Tensor
from trueflops.graph.kinds import Kind, Role
from trueflops.model import (
    ADDED,
    SCALED,
    Parameter,
    adapted_together,
    adapter_parameters,
    is_target,
)


@dataclass(frozen=True)
class Tuning:
    """What is trained of a layer: everything, or adapters beside frozen weights."""

    freezes: bool = False
    rank: int = 0  # 0: no adapters
    targets: tuple[str, ...] = ()  # which linear layers have one
    dropout: float = 0.0
    bits: float = 32.0  # of an adapter's weights
    frozen_bits: float = 16.0  # of the others, as they are stored
    casts: bool = True  # PEFT's two casts of an adapter's input
    clones: bool = False  # what a packed layer made is copied before it is added to
    returns_wide: bool = False  # a packed layer's result is as wide as its input
    fused: bool = False  # scaling and sum within the second product, as Unsloth's functions do

    def adapts(self, name: str) -> bool:
        """Whether this linear layer has an adapter."""
        return self.rank > 0 and is_target(name, self.targets)

    def together(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """Which of some linear layers have adapters, by which of them share one."""
        return adapted_together(names, self.targets) if self.rank else []

    def base_of(self, result: Tensor, name: str) -> Tensor:
        """What the frozen product makes: the result itself, or a term of it."""
        return result.renamed(f"{result.name}.base") if self.adapts(name) else result

    def of_frozen_layer(self) -> Tuning:
        """The same for a layer of which nothing is trained."""
        return replace(self, freezes=True, rank=0)

    def of_ends(self) -> Tuning:
        """The same for embedding and head, which have no adapters."""
        return replace(self, rank=0)


TRAIN_ALL: Final = Tuning()


def adapter_ops(
    tuning: Tuning,
    base: Op,
    layers: Sequence[Parameter],
    x: Tensor,
    made: Sequence[Tensor],
    results: Sequence[Tensor],
) -> list[Op]:
    """What adds an adapter's product with x to what its frozen `layers` `made` by `base`."""
    bits, name = base.inputs[0].bits, layers[0].name
    down, *ups = (
        Tensor(p.name, p.dims, bits, role=Role.WEIGHT)
        for p in adapter_parameters(layers, tuning.rank)
    )
    ops: list[Op] = []

    def op(name: str, kind: Kind, read: Sequence[Tensor], wrote: Sequence[Tensor]) -> Tensor:
        ops.append(Op(name, kind, tuple(read), tuple(wrote), dtype=base.dtype, part=base.part))
        return wrote[0]

    def product(weights: Sequence[Tensor], read: Sequence[Tensor], wrote: Sequence[Tensor]) -> None:
        op(weights[0].name, Kind.MATMUL, read, wrote)
        ops[-1] = ops[-1].changed(weights=tuple(weights), facts=base.facts)

    if tuning.casts and tuning.bits > x.bits and not tuning.fused:
        wide = f"{down.name}.wide"
        x = op(wide, Kind.CAST, [x], [Tensor(wide, x.dims, tuning.bits)])
    if x.bits > bits:  # autocast's own copy
        narrow = f"{down.name}.in"
        x = op(narrow, Kind.CAST, [x], [Tensor(narrow, x.dims, bits)])
    if tuning.dropout:
        dropped = f"{name}.lora_dropout"
        left = Tensor(f"{dropped}.out", x.dims, bits)
        mask = Tensor(f"{dropped}.mask", x.dims, 8.0, role=Role.INDEX)
        # Fused functions see from what is left, which they keep anyway, what was dropped
        # (fms-acceleration, fused_ops/unsloth_lora/bnb/fast_lora.py).
        x = op(dropped, Kind.DROPOUT, [x], [left] if tuning.fused else [left, mask])
    summed = dict(layers[0].dims[-layers[0].inputs :])
    rest = tuple(dim for dim in x.dims if dim[0] not in summed)
    low = Tensor(f"{down.name}.y", (*rest, ("lora_rank", float(tuning.rank))), bits)
    product([down], [x], [low])
    if tuning.fused:  # accumulated into what is there, by the product itself
        product(ups, [low, *made], results)
        return ops
    if tuning.clones:
        copies = [t.renamed(f"{t.name}.clone") for t in made]
        op(f"{name}.clone", Kind.ADD, made, copies)
        made = copies
    term = [replace(t, name=f"{t.name}.lora", bits=bits) for t in results]
    scaled = [replace(t, name=f"{t.name}.lora_scaled", bits=bits) for t in results]
    product(ups, [low], term)
    op(f"{name}{SCALED}", Kind.SCALE, term, scaled)
    op(f"{name}{ADDED}", Kind.ADD, [*made, *scaled], results)
    return ops
