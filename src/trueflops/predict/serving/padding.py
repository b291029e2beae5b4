"""Sides of MXFP4 experts, which vLLM rounds up to what the kernels that multiply them take.

vllm/model_executor/layers/quantization/mxfp4.py, Mxfp4MoEMethod.create_weights, by the backend that
get_mxfp4_backend chooses: Marlin's products want inputs in multiples of 128 and outputs of 256,
FlashInfer's of Blackwell 256 on either side, Triton's 64 of the width. Triton's kernels run on
compute capability 9 and 10 alone, and came with vLLM 0.12 (pull request 28788); before, Hopper had
Marlin's, as all others still do. In: a model and a plan. Out: bytes on one rank.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from trueflops.catalog import Accelerator
from trueflops.graph.formats import Format
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.profile import Engine
from trueflops.units import BITS_PER_BYTE

PADDED: Final = "mxfp4"  # the format whose kernels want it


class Sides(NamedTuple):
    """What the sides of an expert's matrices are multiples of."""

    hidden: int
    width: int


MARLIN: Final = Sides(256, 128)
TRITON: Final = Sides(1, 64)
FLASHINFER: Final = Sides(256, 256)
HOPPER, BLACKWELL = 9, 10  # major compute capabilities


def sides_of(engine: Engine, chip: Accelerator) -> Sides:
    """Of the kernels that an engine multiplies such experts with on a chip."""
    capability = chip.architecture.compute_capability
    if not engine.expert_kernels or capability is None:
        return Sides(1, 1)
    if capability[0] == BLACKWELL:
        return FLASHINFER
    return TRITON if capability[0] == HOPPER and engine.expert_kernels == "triton" else MARLIN


def padding_bytes(
    model: Model, plan: Plan, weights: Format, engine: Engine, chip: Accelerator
) -> float:
    """What a rank holds of all experts beyond the sizes that the model states."""
    if not weights.name.startswith(PADDED):
        return 0.0
    sides, numbers = sides_of(engine, chip), 0.0
    for block in (model.blocks[index] for index in model.pattern):
        if block.experts is None:
            continue
        each, width = block.experts, block.experts.width / float(plan.etp)
        matrices = (3.0 if each.gated else 2.0) * each.count / float(plan.ep)
        padded = _up(model.hidden, sides.hidden) * _up(width, sides.width)
        numbers += matrices * (padded - model.hidden * width)
    return numbers * weights.weight_bits / BITS_PER_BYTE


def _up(size: float, multiple: int) -> float:
    return -(-size // multiple) * multiple
