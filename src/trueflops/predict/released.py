"""The format that weights are served in where nobody says: as the checkpoint is released.

A chip that cannot multiply in the released format keeps the weights as narrow as they are and
multiplies in 16 bits, as engines do (vLLM's Marlin kernels for fp8 on Ampere).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from trueflops.catalog import Accelerator
from trueflops.errors import BadInput
from trueflops.graph.passes import format_named
from trueflops.language import say
from trueflops.model import Model

WIDE: Final = "bf16"
SPARSE: Final = "-2:4"  # formats of which two weights in four are zero
_WEIGHTS_ONLY: Final = {"fp8": "w8a16", "int8": "w8a16", "fp4": "nvfp4-weights"}
_OF_NVIDIA, _OF_AMD = "nvfp4", "mxfp4_fp4"
"""What a chip multiplies whose narrowest products are of four bits: AMD's scale 32 at a time."""


class Weights(NamedTuple):
    """A weight format, and why it is this one."""

    name: str
    why: str


def multiplies(chip: Accelerator, name: str) -> bool:
    """Whether the chip has products of a format."""
    own = chip.computes(format_named(name).compute or WIDE)
    return own and not (name == _OF_NVIDIA and chip.vendor == "AMD")


def weights_alone(name: str) -> str:
    """The format whose weights are as narrow as this one's and are multiplied in 16 bits."""
    own = format_named(name)
    narrow = _WEIGHTS_ONLY[format_named(own.dense).compute if own.dense else own.compute]
    if own.name.startswith(_OF_AMD):
        return own.name.replace(_OF_AMD, "mxfp4")
    return f"{own.kernels}-experts-{narrow}" if own.dense else narrow


def served_weights(model: Model, chip: Accelerator, asked: str | None = None) -> Weights:
    """The format asked for; else the released one; else 16 bits."""
    if asked is not None:
        name = format_named(asked).name
        if name == _OF_NVIDIA and chip.computes("fp4") and not multiplies(chip, name):
            raise BadInput(
                say(
                    "{name} multiplies MXFP4, not NVFP4: use --weights {instead}",
                    name=chip.name,
                    instead=_OF_AMD,
                )
            )
        if not name.endswith(SPARSE):
            return Weights(name, say("as asked for"))
        if chip.sparse_factor <= 1.0:
            plain = name.removesuffix(SPARSE)
            raise BadInput(
                say(
                    "{name} has no 2:4 sparsity: use --weights {plain}", name=chip.name, plain=plain
                )
            )
        return Weights(name, say("as asked for; fewer bytes to read, products at the dense rate"))
    released = model.released
    if not released.format:
        if released.method:
            said = say(
                "its quantization_config ({method}) is of no known kind: --weights",
                method=released.method,
            )
            return Weights(WIDE, say("taken as 16 bits, since {said} says better", said=said))
        return Weights(WIDE, say("{name} is released in 16 bits", name=model.name))
    own, name = format_named(released.format), released.checkpoint or model.name
    compute = format_named(own.dense).compute if own.dense else own.compute
    if compute and not multiplies(chip, own.dense or own.name):
        why = say(
            "{name} is released in {format}, and {chip} has no {compute}",
            name=name,
            format=released.format,
            chip=chip.name,
            compute=compute,
        )
        return Weights(
            weights_alone(own.name), say("{why}: stored narrow, multiplied in 16 bits", why=why)
        )
    if released.checkpoint:
        return Weights(released.format, say("as {name} is named", name=name))
    return Weights(
        released.format, say("as {name} is released (its quantization_config)", name=model.name)
    )
