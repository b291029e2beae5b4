"""torch.autocast("cuda") for fake tensors.

torch's own autocast asks C++ whether a tensor is on a GPU, and C++ says that a fake one is not. So
its policies (aten/src/ATen/autocast_mode.h) are registered again, in Python, while a capture lasts:
matrix products run in the lower type, ops of mixed inputs in the widest of their types, every other
op that torch casts for in fp32. Weights that were cast once are cached until the outermost region
ends, as torch caches them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final
from unittest import mock

import torch

from trueflops.capture.pretend.fake_tensors import claimed_device

_LOWER: Final = (
    "_convolution", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "convolution", "prelu", "addmm", "addmv", "addr",
    "matmul", "einsum", "mm", "mv", "linalg_vecdot", "linear", "addbmm", "baddbmm", "bmm",
    "chain_matmul", "linalg_multi_dot", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell",
    "cudnn_convolution", "cudnn_convolution_transpose", "lstm_cell", "gru_cell",
    "rnn_tanh_cell", "rnn_relu_cell",
    "_scaled_dot_product_flash_attention", "scaled_dot_product_attention",
)  # fmt: skip
_SINGLE_RESULT: Final = ("prod", "softmax", "log_softmax", "cumprod", "cumsum", "sum",
                         "linalg_vector_norm", "linalg_matrix_norm")  # fmt: skip
_WIDEST: Final = (
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler",
    "index_put", "tensordot", "scatter_add",
)  # fmt: skip
_KEY: Final = "AutocastCUDA"
PRODUCTS: Final = {
    torch.ops.aten.mm.default, torch.ops.aten.bmm.default, torch.ops.aten.addmm.default,
    torch.ops.aten.baddbmm.default,
}  # fmt: skip
"""What a formula of autograd multiplies with."""
Cast = Callable[[torch.Tensor], torch.Tensor]


@contextmanager
def autocast_fakes() -> Iterator[None]:
    """While it lasts, autocast regions cast fake tensors."""
    library, kept = torch.library.Library("aten", "IMPL"), {}  # type: ignore[var-annotated]
    real_clear = torch.clear_autocast_cache

    def clear() -> None:
        kept.clear()
        real_clear()

    def lower(tensor: torch.Tensor) -> torch.Tensor:
        to = torch.get_autocast_dtype("cuda")
        keeps = (
            tensor.dtype == torch.float32
            and tensor.requires_grad
            and tensor.is_leaf
            and torch.is_autocast_cache_enabled()
        )
        if not keeps:
            return tensor.to(to)
        if id(tensor) not in kept:
            kept[id(tensor)] = (tensor, tensor.to(to))
        cast: torch.Tensor = kept[id(tensor)][1]
        return cast

    makers = {
        **dict.fromkeys(_LOWER, lambda op: _cast_arguments(op, lower)),
        **dict.fromkeys(_SINGLE_RESULT, _ask_single),
        **dict.fromkeys(_WIDEST, _promoted),
    }
    try:
        for op in _autocast_ops():
            make = makers.get(op._schema.name.removeprefix("aten::"), _in_single)
            library.impl(op, make(op), _KEY, allow_override=True)
        with mock.patch.object(torch, "clear_autocast_cache", clear):
            yield
    finally:
        library._destroy()


@cache
def _autocast_ops() -> list[Any]:
    """Every op that torch itself casts for."""
    registered = torch._C._dispatch_has_kernel_for_dispatch_key
    found = []
    for qualified in torch._C._dispatch_get_all_op_names():
        if qualified.startswith("aten::") and registered(qualified, _KEY):
            name, _, overload = qualified.removeprefix("aten::").partition(".")
            found.append(getattr(getattr(torch.ops.aten, name), overload or "default"))
    return found


def _in_single(op: Any) -> Callable[..., Any]:
    return _cast_arguments(op, lambda t: t.to(torch.float32))


def _plainly(op: Any, args: Any, kwargs: Any) -> Any:
    """Call an op below autocast."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
    with torch._C._ExcludeDispatchKeyGuard(keys):
        return op(*args, **kwargs)


def _cast_arguments(op: Any, cast: Cast) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return op(
                *[_mapped(a, cast) for a in args],
                **{k: _mapped(v, cast) for k, v in kwargs.items()},
            )

    return run


def _ask_single(op: Any) -> Callable[..., Any]:
    """Reductions are asked for a result in fp32; the kernel casts as it reads."""

    def run(*args: Any, **kwargs: Any) -> Any:
        names = [argument.name for argument in op._schema.arguments]
        given = dict(zip(names, args, strict=False)) | kwargs
        if _eligible(args[0]) and "dtype" in names and given.get("dtype") is None:
            given["dtype"] = torch.float32
            return _plainly(op, (given.pop(names[0]),), given)
        return _plainly(op, args, kwargs)

    return run


def _promoted(op: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
        wide = any(t.dtype == torch.float32 for t in tensors)
        to = torch.float32 if wide else torch.get_autocast_dtype("cuda")
        return _cast_arguments(op, lambda t: t.to(to))(*args, **kwargs)

    return run


def _mapped(value: Any, cast: Cast) -> Any:
    if isinstance(value, torch.Tensor):
        return cast(value) if _eligible(value) else value
    if isinstance(value, (list, tuple)):
        return type(value)([_mapped(each, cast) for each in value])
    return value


def _eligible(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and value.dtype != torch.float64
        and claimed_device(value) == "cuda"
    )


def cast_down(value: Any, to: torch.dtype) -> Any:
    """An argument of a product as autocast would hand it on."""
    if isinstance(value, torch.Tensor) and value.dtype == torch.float32:
        return torch.ops.aten._to_copy.default(value, dtype=to)
    return value
