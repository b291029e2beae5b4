"""Muon's Newton–Schulz steps as products of the IR, priced by the clock (Jordan 2024).

Each of five steps makes of a matrix X [r,c] with r ≤ c
    A = X·Xᵀ           2·r²·c flop
    B = b·A + c·A²     2·r³
    X = a·X + B·X      2·r²·c
The embedding, the head and vectors stay with AdamW.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from trueflops.clock import Clock
from trueflops.graph import Op, Tensor
from trueflops.graph.kinds import Kind, Role
from trueflops.model import Model
from trueflops.model.parameters import Parameter, sides_of
from trueflops.plan import BYTES, Plan
from trueflops.predict.training.memory import Held
from trueflops.sizes import Size
from trueflops.units import BITS_PER_BYTE

STEPS: Final = 5


class Matrix(NamedTuple):
    """A weight by its shorter and its longer side."""

    short: float
    long: float


def newton_schulz_seconds(model: Model, plan: Plan, held: Held, clock: Clock) -> Size:
    """Seconds that a rank spends on the matrices whose states it owns.

    A matrix is orthogonalised whole: the ranks that hold parts of some matrices take a share of
    these matrices each (distributed Muon, arXiv 2502.16982), so that what one parameter costs is
    the same under every plan. Gathering the parts is not priced.
    """
    of_dense, of_experts = (
        _seconds_a_parameter(model, plan.wide_dtype, clock, routed=routed)
        for routed in (False, True)
    )
    dense_ways, expert_ways = held.ways[0]
    return of_dense * held.dense / dense_ways + of_experts * held.experts / expert_ways


def products(matrix: Matrix, dtype: str = "bf16") -> tuple[Op, ...]:
    """The three products of one step."""
    bits = BITS_PER_BYTE * BYTES.get(dtype, BYTES["fp32"])
    (r, c) = matrix

    def product(name: str, m: float, n: float, k: float) -> Op:
        x = Tensor(f"{name}.x", (("rows", m), ("inner", k)), bits)
        w = Tensor(f"{name}.w", (("columns", n), ("inner", k)), bits, role=Role.WEIGHT)
        y = Tensor(f"{name}.y", (("rows", m), ("columns", n)), bits)
        return Op(name, Kind.MATMUL, (x,), (y,), weights=(w,), dtype=dtype)

    return (
        product("muon.gram", r, r, c),
        product("muon.square", r, r, r),
        product("muon.update", r, c, r),
    )


def matrices_of(part: Parameter) -> Counter[Matrix]:
    """The matrices of a weight tensor, one for each expert; none of a vector."""
    sides = sides_of(part.name, part.dims)
    if sides is None or min(sides.one, sides.other) == 1:
        return Counter()
    short, long = sorted((float(sides.one), float(sides.other)))
    return Counter({Matrix(short, long): int(sides.matrices)})


def _seconds_a_parameter(model: Model, dtype: str, clock: Clock, *, routed: bool) -> float:
    """Seconds of all steps over all parameters of experts, or over all others."""
    matrices: Counter[Matrix] = Counter()
    elements = 0.0
    for part, layers in _parameters(model):
        if part.routed != routed:
            continue
        elements += layers * part.elements
        if not part.name.startswith(("embedding", "head")):
            matrices.update({m: layers * count for m, count in matrices_of(part).items()})
    if not matrices:
        return 0.0
    ops = [op for matrix in matrices for op in products(matrix, dtype)]
    taken = [float(priced.seconds) for priced in clock.price_ops(ops)]
    each = [sum(taken[at : at + 3]) for at in range(0, len(ops), 3)]
    spent = sum(s * n for s, n in zip(each, matrices.values(), strict=True))
    return STEPS * spent / elements


def _parameters(model: Model) -> Iterator[tuple[Parameter, int]]:
    """Every weight tensor with how often the model has it."""
    for kind, block in enumerate(model.blocks):
        for part in block.parameters(model.hidden):
            yield part, model.pattern.count(kind)
    for part in (*model.embedding_parameters(), *model.head_parameters()):
        yield part, 1
