"""Changes that a program can be run with, to learn what they would bring; without torch.

In: FILE.py:FUNCTION and its arguments, as text. Out: which number is its batch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from trueflops.capture.named import named_program
from trueflops.files import read_file


class Change(Enum):
    """One change; `changed.py` makes it."""

    FUSED_OPTIMIZER = "fused_optimizer"  # fused=True, where the optimizer knows it
    AUTOCAST = "autocast"  # modules run under torch.autocast
    NARROW = "bf16_weights"  # parameters, and so gradients and states, in bf16
    UNCHECKPOINTED = "fewer_checkpoints"  # nothing is computed again
    CHECKPOINTED = "checkpoint"  # every layer is
    CHANNELS_LAST = "channels_last"  # images and filters as NHWC


class Batch(NamedTuple):
    """Where a program is told its batch: a parameter of FUNCTION, or one of its arguments."""

    name: str
    size: int
    at: int | None  # the argument that holds it; None: a parameter
    joined: bool = False  # --batch=4

    def words(self, arguments: Sequence[str], size: int) -> list[str]:
        """The arguments with another batch."""
        found = list(arguments)
        if self.at is not None:
            found[self.at] = f"{self.name}={size}" if self.joined else str(size)
        return found

    def parameters(self, size: int) -> dict[str, int]:
        """What FUNCTION is called with."""
        return {} if self.at is not None else {self.name: size}


_BATCH: Final = re.compile(r"-{0,2}(?:\w+[_.-])*(?:batch|bs|batch[_-]?size)", re.IGNORECASE)


def batch_of(program: str, arguments: Sequence[str]) -> Batch | None:
    """The number that a program calls its batch; None where it names none.

    An argument such as --batch 4, --train-batch-size=4 or batch=4, else a parameter of FUNCTION
    that has a whole number as its default: def build(batch=4).
    """
    for i, word in enumerate(arguments):
        name, sign, value = word.partition("=")
        if not _BATCH.fullmatch(name):
            continue
        if sign and value.isdecimal() and int(value):
            return Batch(name, int(value), i, joined=True)
        after = arguments[i + 1] if i + 1 < len(arguments) else ""
        if not sign and after.isdecimal() and int(after):
            return Batch(name, int(after), i + 1)
    path, function = named_program(program)
    for node in ast.parse(read_file(path)).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return _parameter(node.args)
    return None


def _parameter(of: ast.arguments) -> Batch | None:
    plain = [*of.posonlyargs, *of.args]
    defaults: list[tuple[ast.arg, ast.expr | None]] = [
        *zip(plain[len(plain) - len(of.defaults) :], of.defaults, strict=True),
        *zip(of.kwonlyargs, of.kw_defaults, strict=True),
    ]
    for parameter, value in defaults:
        size = value.value if isinstance(value, ast.Constant) else None
        named = _BATCH.fullmatch(parameter.arg) and parameter not in of.posonlyargs
        if named and isinstance(size, int) and not isinstance(size, bool) and size > 0:
            return Batch(parameter.arg, size, None)
    return None
