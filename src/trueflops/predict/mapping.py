"""From a block tile to tensor-core instructions: the standard mapping of NVIDIA's libraries.

In: a chip, a dtype, a block tile. Out: how many warps share the tile, and which instruction each
issues. Shapes: PTX ISA 8.7 (mma, wgmma.mma_async, tcgen05.mma); shares of a tile: CUTLASS's usual
warp counts. Other vendors' chips have units and no warps that this knows of: None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from trueflops.catalog import Accelerator
from trueflops.dtypes import BY_NAME

# Block tile -> warps down and across; each then holds at most 64×64 sums in its registers.
_WARPS: Final[Mapping[tuple[int, int], tuple[int, int]]] = {
    (16, 128): (1, 4),
    (64, 64): (2, 2),
    (128, 64): (2, 2),
    (64, 128): (2, 2),
    (128, 128): (2, 2),
    (256, 128): (4, 2),
    (128, 256): (2, 4),
}
_ON_TENSOR_CORES: Final = ("tf32", "fp16", "bf16", "fp8", "int8", "fp4", "int4")
_STEP_BITS: Final = 256  # of k in one instruction since Ampere: 16 of bf16, 32 of fp8, 8 of tf32
_WIDEST: Final = 256  # columns of one wgmma or tcgen05 instruction


class Instruction(NamedTuple):
    """One matrix instruction: [rows, depth]·[depth, columns]."""

    name: str
    rows: int
    columns: int
    depth: int

    @property
    def flop(self) -> int:
        """Multiplications and additions of one."""
        return 2 * self.rows * self.columns * self.depth

    def __str__(self) -> str:
        return f"{self.name}.m{self.rows}n{self.columns}k{self.depth}"


@dataclass(frozen=True)
class WarpMapping:
    """Who computes a block tile: `workers` of them, each a part of `rows` × `columns`."""

    worker: str  # warp (32 threads), warpgroup (128), or thread block
    workers: int
    rows: int
    columns: int
    instruction: Instruction
    swapped: bool  # W's columns are the instruction's rows: a tile flatter than those

    def instructions(self, k: float) -> float:
        """How many instructions one block tile takes over k elements."""
        area = self.rows * self.columns / (self.instruction.rows * self.instruction.columns)
        return self.workers * max(area, 1.0) * -(-k // self.instruction.depth)


def map_tile(chip: Accelerator, dtype: str, rows: int, columns: int) -> WarpMapping | None:
    """The standard mapping of a block tile, None where there is none to tell of."""
    built = chip.architecture
    if dtype not in _ON_TENSOR_CORES or dtype == built.matrix_instruction_lacks:
        return None
    if (rows, columns) not in _WARPS:
        return None
    bits = BY_NAME[dtype].bits
    depth = _STEP_BITS // bits
    match built.matrix_instruction:
        case "tcgen05":
            return _by_block(rows, columns, depth)
        case "wgmma":
            return _by_warpgroup(rows, columns, depth)
        case "mma.m16n8k16":
            return _by_warp(rows, columns, Instruction("mma", 16, 8, depth))
        case "mma.m16n8k8":
            shape = (16, 8) if bits == 16 else (8, 8)
            return _by_warp(rows, columns, Instruction("mma", *shape, depth // 2))
        case "mma.m8n8k4" if bits == 16:
            return _by_warp(rows, columns, Instruction("mma", 8, 8, 4))
    return None


def _by_warp(rows: int, columns: int, instruction: Instruction) -> WarpMapping:
    down, across = _WARPS[rows, columns]
    return WarpMapping(
        "warp", down * across, rows // down, columns // across, instruction, swapped=False
    )


def _by_warpgroup(rows: int, columns: int, depth: int) -> WarpMapping:
    """Hopper: four warps together issue m64; at most two groups compute, one more loads."""
    if rows < 64:
        swapped = Instruction("wgmma", 64, rows, depth)
        return WarpMapping("warpgroup", columns // 64, rows, 64, swapped, swapped=True)
    groups = 1 if rows == 64 else 2
    one = Instruction("wgmma", 64, min(columns, _WIDEST), depth)
    return WarpMapping("warpgroup", groups, rows // groups, columns, one, swapped=False)


def _by_block(rows: int, columns: int, depth: int) -> WarpMapping:
    """Blackwell of the data centre: one thread issues for the block, sums lie in tensor memory."""
    if rows < 64:
        swapped = Instruction("tcgen05", 128, rows, depth)
        return WarpMapping("thread block", 1, rows, columns, swapped, swapped=True)
    one = Instruction("tcgen05", min(rows, 128), min(columns, _WIDEST), depth)
    return WarpMapping("thread block", 1, rows, columns, one, swapped=False)
