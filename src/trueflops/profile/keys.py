"""The key of a curve: which kernels it is of, and which more general keys stand in for it.

In files a key is a dotted name, `matmul.fp8.fp8_block`: `CurveKey.parse` and `str` are the only
places that read and write it. Its parts go from the general to the particular, so that the more
general key is the one without the last of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Final

ATTENTION: Final = ("attention", "attention_backward", "attention_decode")
PRODUCTS: Final = ("matmul", "experts")
# What products are computed in; 16 bits go without saying, as bf16 and fp16 have the same rates.
COMPUTED: Final = ("fp64", "fp32", "tf32", "fp8", "fp6", "fp4", "int8")
STREAMS: Final = ("memory", "eager")
CONVOLUTIONS: Final = ("convolution", "convolution_input", "convolution_weight")
"""Windows as implicit products, and their gradients: each way is a kernel of its own."""
LAID_OUT: Final = "laid_out"
"""Experts whose rows are laid out in blocks: clock/experts.py."""
BETWEEN: Final = "between"
"""A collective whose ranks are on several nodes, where an engine's own kernel serves one node."""
UNALIGNED: Final = ("narrow", "odd")
"""Products whose rows start at no multiple of 16 bytes: see graph/alignment.py."""
_SAID_BY_NAME: Final = {"cache8": "kv8", "odd_heads": "odd_heads", "grouped": "grouped"}


@dataclass(frozen=True)
class CurveKey:
    """Which kernels a curve is of. Parts that a kind of kernel does not have stay empty.

    >>> key = CurveKey("matmul", dtype="fp8", format="fp8_block", grouped=True)
    >>> " → ".join(map(str, key.chain()))
    'matmul.fp8.fp8_block.grouped → matmul.fp8.fp8_block → matmul.fp8 → matmul'
    """

    kind: str  # the class of op, hence the law: matmul, attention, collective, power …
    operation: str = ""  # of a collective: all_reduce …
    dtype: str = ""  # of COMPUTED; empty for 16 bits
    format: str = ""  # how a product's operands are stored, where that is not the dtype itself
    cache8: bool = False  # an attention over keys and values of 8 bits
    kernel: str = ""  # fa2, cudnn, triton …; of a collective the library
    odd_heads: bool = False  # heads of a dimension that the engine's best kernels are not built for
    grouped: bool = False  # products of routed experts, one after another

    def __str__(self) -> str:
        return ".".join(filter(None, (self._word(field.name) for field in fields(self))))

    def _word(self, name: str) -> str:
        value = getattr(self, name)
        return (_SAID_BY_NAME[name] if value else "") if isinstance(value, bool) else value

    @classmethod
    def parse(cls, text: str) -> CurveKey:
        """The key that a dotted name spells; ValueError where it spells none."""
        return _parsed(text)

    def chain(self) -> Iterator[CurveKey]:
        """This key, then the more general ones, one part fewer each time."""
        at: CurveKey = self
        yield at
        for field in reversed(fields(self)):
            if field.name != "kind" and getattr(at, field.name):
                at = replace(at, **{field.name: field.default})
                yield at


@lru_cache(maxsize=1024)
def _parsed(text: str) -> CurveKey:
    kind, *words = text.split(".")
    key = CurveKey(kind)
    for word in words:
        part = _part(kind, word, key)
        said: Any = True if part in _SAID_BY_NAME else word
        key = replace(key, **{part: said})
    if str(key) != text:
        raise ValueError(f"curve {text!r}: its parts must be written {str(key)!r}")
    return key


def _part(kind: str, word: str, before: CurveKey) -> str:
    """Which part of a key a word is, after those that came before it."""
    if kind == "collective":
        return "kernel" if before.operation else "operation"
    if kind == "cast":
        return "format"
    if kind in ATTENTION:
        return {"kv8": "cache8", "odd_heads": "odd_heads"}.get(word, "kernel")
    if kind in STREAMS:
        return "kernel"
    if kind in PRODUCTS:
        if word in COMPUTED:
            return "dtype"
        return (
            "kernel"
            if word in (*CONVOLUTIONS, *UNALIGNED, LAID_OUT)
            else "grouped"
            if word == "grouped"
            else "format"
        )
    raise ValueError(f"curve {kind}.{word}: {kind} has no kinds of its own; write {kind!r}")
