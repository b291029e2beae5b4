"""A cache of output shapes: the layers of a model ask for the same ones again and again.

torch's meta kernels are partly Python and take most of a capture's time. What an op makes depends
on the shapes, types and plain arguments it gets, and on nothing else.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import torch

from trueflops.capture.pretend.fake_tensors import META, fake_of

_PLAIN: Final = (
    int, float, bool, str, type(None), torch.dtype, torch.layout, torch.memory_format, torch.device,
)  # fmt: skip
Form = tuple[tuple[int, ...], tuple[int, ...], torch.dtype] | None


class ShapeCache:
    """Shapes, strides and types of results, by op and the shapes and types of its arguments."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[type | None, list[Form]]] = {}

    def key(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable | None:
        """What decides the shape of the result; None where something else might."""
        found: list[Hashable] = [func]
        for value in (*args, *kwargs.items()):
            part = _part(value)
            if part is None:
                return None
            found.append(part)
        return tuple(found)

    def get(self, key: Hashable, device: str) -> Any:
        """New fake tensors like the results cached for this key; None if there are none."""
        known = self._known.get(key)
        if known is None:
            return None
        kind, forms = known
        made = [None if form is None else fake_of(_empty(form), device) for form in forms]
        return made[0] if kind is None else kind(made)

    def put(self, key: Hashable, made: Any, given: list[torch.Tensor]) -> None:
        """Cache the forms of the results, if none of them shares memory with an argument."""
        several = isinstance(made, (tuple, list))
        results = list(made) if several else [made]
        if not all(r is None or isinstance(r, torch.Tensor) for r in results):
            return
        old = {t.untyped_storage()._cdata for t in given}
        tensors = [r for r in results if r is not None]
        if any(t.layout != torch.strided or t.untyped_storage()._cdata in old for t in tensors):
            return
        if len({t.untyped_storage()._cdata for t in tensors}) < len(tensors):
            return
        forms = [None if r is None else (tuple(r.shape), r.stride(), r.dtype) for r in results]
        self._known[key] = ((type(made) if several else None), forms)


def _part(value: Any) -> Hashable | None:
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:
            return None
        return (tuple(value.shape), value.stride(), value.dtype)
    if isinstance(value, (list, tuple)):
        parts = tuple(_part(each) for each in value)
        return None if any(part is None for part in parts) else parts
    # The type is part of the key: 1 and 1.0 are equal and give different results.
    return (type(value), value) if isinstance(value, _PLAIN) else None


def _empty(form: tuple[tuple[int, ...], tuple[int, ...], torch.dtype]) -> torch.Tensor:
    shape, strides, dtype = form
    return torch.empty_strided(shape, strides, dtype=dtype, device=META)
