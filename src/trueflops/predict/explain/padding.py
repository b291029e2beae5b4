"""A product whose weights have odd sides, and the same padded: what that would save."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from trueflops.clock import Clock, PricedOp
from trueflops.graph.ir import Op
from trueflops.predict.advice import MATTERS, Saved, saving
from trueflops.predict.explain.kernel import one
from trueflops.predict.odd_sides import (
    best_padding,
    is_odd,
    padded_sizes,
    resized,
    weight_sides,
)
from trueflops.runtime.terms import Term


@dataclass(frozen=True)
class PaddedSide:
    """One side of the weights."""

    name: str  # n or k
    size: int
    to: int


@dataclass(frozen=True)
class PaddedProduct:
    """The product with its sides padded."""

    sides: tuple[PaddedSide, ...]
    seconds: float
    saved: Saved


def padded_product(clock: Clock, op: Op) -> PaddedProduct | None:
    """The fastest padding of n and k; None where none is surely faster."""
    names = weight_sides(op)
    odd = {side: size for side, (_, size) in names.items() if is_odd(size)}
    if not odd:
        return None
    before = _term(clock.price_ops([op])[0])
    whole = float(before.value)
    found: dict[int, PaddedProduct] = {}  # by the elements of the weights
    for choice in (0, -1):
        sides = tuple(PaddedSide(s, size, padded_sizes(size)[choice]) for s, size in odd.items())
        sizes = {names[side.name][0]: float(side.to) for side in sides}
        after = _term(clock.price_ops([resized(op, sizes)])[0])
        made = PaddedProduct(sides, float(after.value), saving(before, after))
        found[prod(side.to for side in sides)] = made
    best = found[best_padding({n: each.seconds / whole for n, each in found.items()})]
    sure = best.saved.low > 0.0 and best.saved.seconds >= MATTERS * whole
    return best if sure else None


def _term(priced: PricedOp) -> Term:
    return Term(
        "product", one(priced.seconds), cause=str(priced.pricing.key), spread=priced.curve.error
    )
