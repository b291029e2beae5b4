"""Sides of products that matrix engines read slowly, and what to pad them to.

Kernels load vectors of 16 bytes, eight elements of 16 bits: a side that eight does not divide needs
narrower loads (NVIDIA, Matrix Multiplication Background, "Tensor Core Requirements").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from trueflops.graph.alignment import FULL
from trueflops.graph.ir import Op, Tensor

EVEN: Final = 8  # elements that must divide a side
TILE: Final = 64  # sides of tiles are multiples of this
LEAST: Final = 16  # a smaller side is no side of a large product, and many tensors share it
ALIGNED: Final = ("loads", "stores")  # facts of a product: at which bytes its rows start
CLOSE: Final = 0.005  # of the time: faster by less is no reason to prefer an odder size


def is_odd(size: int) -> bool:
    """Whether padding a side could help."""
    return size >= LEAST and size % EVEN != 0


def padded_sizes(size: int) -> list[int]:
    """What to pad to, the least first: the next multiple of 8, and of 64."""
    return sorted({-(-size // by) * by for by in (EVEN, TILE)})


def best_padding(shares: Mapping[int, float]) -> int:
    """Of sizes, each with the share of the time that it takes, the best to pad to.

    That is the largest of those that are about as fast as the fastest: a multiple of 64 suits every
    tile of every library.
    """
    least = min(shares.values())
    return max(size for size, share in shares.items() if share <= least + CLOSE)


def oddness(size: int) -> str:
    """'odd', or what divides it at most."""
    return "odd" if size % 2 else f"no multiple of {EVEN} but of {2 if size % 4 else 4}"


def weight_sides(op: Op) -> dict[str, tuple[str, int]]:
    """Of a product, n and k with the names of their dimensions: W[n,k] shares k with its input."""
    x, weight, y = op.inputs[0], op.weights[0], op.outputs[0]
    found: dict[str, tuple[str, int]] = {}
    for side, other in (("k", x), ("n", y)):
        for name, size in weight.dims:
            if other.has(name) and name != "batch":
                found[side] = name, round(float(np.ravel(size)[0]))
    return found


def resized(op: Op, sizes: Mapping[str, float]) -> Op:
    """The same op with dimensions of other sizes, by name; its rows then start where loads do."""

    def resize(tensor: Tensor) -> Tensor:
        dims = tuple((name, sizes.get(name, size)) for name, size in tensor.dims)
        return Tensor(tensor.name, dims, tensor.bits, tensor.role)

    inputs, outputs, weights = (
        tuple(map(resize, tensors)) for tensors in (op.inputs, op.outputs, op.weights)
    )
    facts = {name: FULL if name in ALIGNED else fact for name, fact in op.facts.items()}
    return replace(op, inputs=inputs, outputs=outputs, weights=weights, facts=facts)
