"""flex_attention: one generated kernel where it is compiled, torch's own plain products where not.

Its mask is a function of two places. Where that needs no numbers of the device it is asked at a few
places of every block, so that the blocks that are skipped are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

import torch
from torch._higher_order_ops.flex_attention import math_attention, sdpa_dense_backward
from torch.nn.attention import flex_attention as public
from torch.utils._python_dispatch import _disable_current_modes

from trueflops.capture.recorder import Recorder
from trueflops.capture.schema import OpTraits
from trueflops.language import say
from trueflops.units import GIBI

_PLACES: Final = 9  # of a block in either direction, its edges among them
_MOST: Final = 2**24  # places to ask at; of longer sequences fewer in a block
_WHOLE: Final = int(GIBI)  # keys, the size of a block where there is no mask


@contextmanager
def followed_flex(recorder: Recorder) -> Iterator[None]:
    """Inside this context, every call of flex_attention is recorded."""

    class Generated(torch.autograd.Function):
        """A kernel that torch.compile generates, and that of its backward."""

        @staticmethod
        def forward(ctx: Any, q: Any, k: Any, v: Any, seen: float) -> Any:
            made = torch.empty_like(q[..., :1].expand(*q.shape[:-1], v.shape[-1]))
            sums = q.new_empty(q.shape[:-1], dtype=torch.float32)
            recorder._write(_FORWARD, (q, k, v), (made, sums), (seen,))
            ctx.save_for_backward(q, k, v, made, sums)
            ctx.seen = seen
            ctx.set_materialize_grads(False)
            ctx.mark_non_differentiable(sums)
            return made, sums

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor, _: Any) -> Any:
            q, k, v, made, sums = ctx.saved_tensors
            inner = (made.float() * grad.float()).sum(-1)
            found = tuple(torch.empty_like(t) for t in (q, k, v))
            recorder._write(_BACKWARD, (grad, q, k, v, sums, inner), found, (ctx.seen,))
            return (*found, None)

    class Plain(torch.autograd.Function):
        """What torch runs where nothing compiles it: the scores, in fp32, forward and backward."""

        @staticmethod
        def forward(ctx: Any, q: Any, k: Any, v: Any, score: Any, rest: tuple[Any, ...]) -> Any:
            made = math_attention(q, k, v, score, *rest)
            ctx.save_for_backward(q, k, v, *made[:2])
            ctx.score, ctx.rest = score, rest
            ctx.set_materialize_grads(False)
            ctx.mark_non_differentiable(*made[1:])
            return made

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor, *_: Any) -> Any:
            score, (mask, scale, options) = ctx.score, ctx.rest
            q, k, v, made, sums = ctx.saved_tensors
            found = sdpa_dense_backward(
                q, k, v, made, sums, grad, None, score, _gradient(score), mask, scale, options,
                (), (),
            )  # fmt: skip
            return (*found[:3], None, None)

    def attend(
        q: Any, k: Any, v: Any, score: Any, mask: Any, scale: float, options: Any, *_: Any
    ) -> Any:
        if recorder.places.region < 0:
            return Plain.apply(q, k, v, score, (mask, scale, options))
        seen = _seen(mask, q.shape[-2], k.shape[-2])
        if seen is None:
            recorder.warn(
                say(
                    "which blocks a mask of flex_attention skips is not known, as it asks for "
                    "numbers of a tensor: none"
                )
            )
            seen = float(k.shape[-2])
        made, sums = Generated.apply(q, k, v, seen)
        return made, sums, sums

    with mock.patch.object(public, "flex_attention_hop", attend):
        yield


def _gradient(score: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """What a change of the scores means for what the program made of them."""

    def joint(
        value: torch.Tensor, b: Any, h: Any, q: Any, k: Any, grad: torch.Tensor, *_: Any
    ) -> list[Any]:
        back: Any = torch.func.vjp(lambda s: score(s, b, h, q, k), value)[1]
        return [back(grad)[0], None, None, None, None]

    return joint


def _seen(mask: tuple[Any, ...], queries: int, keys: int) -> float | None:
    """Keys whose block a query's block looks at, on average; None if that is not known."""
    rows, columns, asks = mask[-3], mask[-2], mask[-1]
    if min(rows, columns) >= _WHOLE:
        return float(keys)
    try:
        with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
            return _visited(asks, queries, keys, rows, columns) * keys
    except (RuntimeError, NotImplementedError, TypeError):
        return None


def _visited(asks: Callable[..., Any], queries: int, keys: int, rows: int, columns: int) -> float:
    """The share of blocks in which some place is not masked."""
    blocks = -(-queries // rows) * -(-keys // columns)
    each = max(2, min(_PLACES, int((_MOST / blocks) ** 0.5)))
    q, k = _places(queries, rows, each), _places(keys, columns, each)
    zero = torch.zeros((), dtype=torch.int64)
    over_keys = torch.vmap(asks, in_dims=(None, None, None, 0))
    open_ = torch.vmap(over_keys, in_dims=(None, None, 0, None))(
        zero, zero, q.flatten(), k.flatten()
    )
    found = open_.expand(q.numel(), k.numel()).view(q.shape[0], each, k.shape[0], each)
    return float(found.any(3).any(1).double().mean())


def _places(length: int, block: int, each: int) -> torch.Tensor:
    """Some places of every block, its first and last among them."""
    first = torch.arange(0, length, block)
    inside = torch.linspace(0, block - 1, each).round().long()
    return (first[:, None] + inside).clamp(max=length - 1)


def _traits(name: str) -> OpTraits:
    return OpTraits(
        name=f"higher_order.{name}",
        library="higher_order",
        is_view=False,
        is_inplace_view=False,
        is_factory=False,
        data_dependent=False,
        random=False,
        mutates=False,
        composite=False,
        returns_new=True,
    )


_FORWARD: Final = _traits("flex_attention")
_BACKWARD: Final = _traits("flex_attention_backward")
