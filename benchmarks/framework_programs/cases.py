"""What is trained and by whose code: cases of the programs here, and the Llamas they train.

Passed to a program as JSON, kept in tables as columns. benchmarks/device_memory.py needs this on a
machine that has torch alone: nothing here imports trueflops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, how it is trained, and by whose code."""

    engine: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    tied: int = 0
    experts: int = 0
    per_token: int = 0
    expert_ffn: int = 0
    seq: int
    micro_batch: int = 1
    accumulation: int = 1
    world: int = 8
    rank: int = 0
    tp: int = 1
    sp: int = 0
    pp: int = 1
    vpp: int = 1
    ep: int = 1
    zero: int = 0
    parameter_dtype: str = "bf16"
    gradient_dtype: str = "bf16"
    autocast: int = 0
    recompute: str = "none"
    optimizer: str = "fused"  # AdamW's kernels: fused, or foreach
    bucket: int = 0  # elements; 0: the framework's own
    bucket_view: int = 0  # DDP's gradients are views of its buckets
    offload_optimizer: int = 0
    offload_parameters: int = 0

    @property
    def name(self) -> str:
        """Engine, model and whatever departs from the usual."""
        said = [self.engine, f"{self.layers}x{self.hidden}", f"{self.micro_batch}x{self.seq}"]
        for field in fields(self)[field_index("accumulation") :]:
            value = getattr(self, field.name)
            if value != field.default:
                said.append(f"{field.name}={value}")
        if self.experts:
            said.append(f"experts={self.experts}")
        return " ".join(said)


def field_index(name: str) -> int:
    """Where a field of a case stands."""
    return [field.name for field in fields(Case)].index(name)


def case_of(row: Mapping[str, str]) -> Case:
    """The case of a table's row; what the table has no column for is as usual."""
    given: dict[str, Any] = {
        field.name: row[field.name] if field.type == "str" else int(row[field.name])
        for field in fields(Case)
        if field.name in row
    }
    return Case(**given)


Fields = dict[str, Any]
SMALL: Final[Fields] = {
    "layers": 12, "hidden": 768, "heads": 12, "kv_heads": 12, "ffn": 2048, "vocab": 32000,
}  # fmt: skip
DEEP: Final[Fields] = {
    "layers": 24, "hidden": 2048, "heads": 16, "kv_heads": 16, "ffn": 5632, "vocab": 8192,
}  # fmt: skip
ONE_B: Final[Fields] = {
    "layers": 16, "hidden": 2048, "heads": 32, "kv_heads": 8, "ffn": 8192, "vocab": 128256,
}  # fmt: skip
THREE_B: Final[Fields] = {
    "layers": 28, "hidden": 3072, "heads": 24, "kv_heads": 8, "ffn": 8192, "vocab": 32000,
}  # fmt: skip
EIGHT_B: Final[Fields] = {
    "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128256,
}  # fmt: skip
EXPERTS: Final[Fields] = {
    "layers": 8, "hidden": 2048, "heads": 16, "kv_heads": 16, "ffn": 5632, "vocab": 32000,
    "experts": 8, "per_token": 2, "expert_ffn": 4096,
}  # fmt: skip
LISTS: Final[Fields] = {"optimizer": "foreach"}  # torch.optim's default
ALONE: Final[Fields] = {"engine": "alone", "world": 1, **LISTS}
MIXED: Final[Fields] = {"parameter_dtype": "fp32", "autocast": 1}
WIDE: Final[Fields] = {"zero": 3, "parameter_dtype": "fp32", "gradient_dtype": "fp32"}  # sharded
AGAIN: Final[Fields] = {"recompute": "full"}
SUMS: Final[Fields] = {"gradient_dtype": "fp32"}
