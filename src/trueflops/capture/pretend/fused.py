"""Ops that are other kernels on a GPU than torch would take for a fake tensor.

A composite op asks in C++ on which device its tensor is, and C++ sees a meta tensor: dropout, RMS
norm and recurrent layers would be recorded as they run on a CPU. In a capture, fake tensors take
the CUDA branch (aten/src/ATen/native: Dropout, layer_norm, RNN, SoftMax, WeightNorm). Every
other op decomposes the same way on both. An op that autograd sees whole and that runs as others
(`OPENED`) is recorded as those.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from trueflops.capture.pretend.shapes import GATES, tell_shapes
from trueflops.capture.schema import FUSED_ON_CUDA

_ATEN: Final = torch.ops.aten
_CUDNN_MODES: Final = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}


def keep_fused(library: torch.library.Library) -> None:
    """Register the branches that torch takes on CUDA."""
    for op in FUSED_ON_CUDA:
        library.impl(op, _never, "CUDA")
    for name, run in _BRANCHES.items():
        for key in ("AutogradCUDA", "CUDA"):
            library.impl(name, run, key)
    for name in _CUDNN_MODES:
        for key in ("AutogradCUDA", "CUDA"):
            library.impl(f"{name}.input", _recurrent(name, packed=False), key)
            library.impl(f"{name}.data", _recurrent(name, packed=True), key)
    tell_shapes(library)


def decomposed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], device: str) -> Any:
    """Run a composite op that autograd did not decompose, as under inference mode."""
    key = device.upper()
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key):
        keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
        return torch.library.get_kernel(func, key).call_boxed(keys, *args, **kwargs)
    return func.decompose(*args, **kwargs)


def allows_tf32(op: str) -> bool:
    """Whether an fp32 product may run as tf32 under the program's current settings."""
    backends: Any = torch.backends
    if "_rnn" in op:
        return bool(backends.cudnn.rnn.fp32_precision == "tf32")
    if "convolution" in op:
        return bool(backends.cudnn.conv.fp32_precision == "tf32")
    return "mm" in op and bool(backends.cuda.matmul.fp32_precision == "tf32")


def _never(*_: Any) -> Any:
    raise AssertionError("the recorder answers before any kernel is reached")


def _dropout(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    if not train or p == 0.0 or x.numel() == 0:
        return x
    if p == 1.0:
        return x.mul(x.new_zeros(()))
    made: torch.Tensor = _ATEN.native_dropout(x, p, train)[0]
    return made


def _softmax(x: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The kernel itself converts fp16 to fp32; bfloat16 is cast before it."""
    if x.dtype == torch.float16 and dtype == torch.float32:
        return torch._softmax(x, dim, True)
    return torch._softmax(x if dtype is None else x.to(dtype), dim, False)


def _log_softmax(x: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    if x.dtype == torch.float16 and dtype == torch.float32:
        return torch._log_softmax(x, dim, True)
    return torch._log_softmax(x if dtype is None else x.to(dtype), dim, False)


def _safe_softmax(x: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The softmax of rows of which all may be masked: zeros there, found by a pass of their own."""
    made = _softmax(x, dim, dtype)
    masked = x.isneginf()
    rows = masked.all(dim, keepdim=True)
    zero = torch.scalar_tensor(0.0, dtype=made.dtype, device=made.device)
    return torch.where(rows, zero, made, out=made)


def _weight_norm(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> torch.Tensor:
    if dim in (0, v.dim() - 1):
        return torch._weight_norm_interface(v.contiguous(), g.contiguous(), dim)[0]
    return v * (g / torch.norm_except_dim(v, 2, dim))


def _lstm_cell(x: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    linear = torch.nn.functional.linear
    h, c, _ = _ATEN._thnn_fused_lstm_cell(linear(x, w_ih), linear(hx[0], w_hh), hx[1], b_ih, b_hh)
    return h, c


def _gru_cell(x: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    linear = torch.nn.functional.linear
    return _ATEN._thnn_fused_gru_cell(linear(x, w_ih), linear(hx, w_hh), hx, b_ih, b_hh)[0]


# ── recurrent layers, as cuDNN runs them: all steps of all layers in one call ────────────────────


def _recurrent(name: str, *, packed: bool) -> Any:
    """One of torch's recurrent functions; with a packed batch, `batch_sizes` precedes the state."""
    mode = _CUDNN_MODES[name]

    def run(
        x: torch.Tensor, hx: Any, params: list[torch.Tensor], has_biases: bool, layers: int,
        dropout: float, train: bool, bidirectional: bool, batch_first: bool = False,
        sizes: tuple[int, ...] = (),
    ) -> Any:  # fmt: skip
        h, c = hx if name == "lstm" else (hx, None)
        if torch.is_autocast_enabled("cuda"):
            to = torch.get_autocast_dtype("cuda")
            x, h, c = x.to(to), h.to(to), None if c is None else c.to(to)
            params = [p.to(to) for p in params]
        # With projections, a layer has one more matrix and the state is narrower than the gates.
        hidden = params[1].shape[0] // GATES[mode]
        projected = h.shape[2] if name == "lstm" and h.shape[2] != hidden else 0
        each = (4 if has_biases else 2) + bool(projected)
        made = _ATEN._cudnn_rnn(
            x, params, each, x.new_empty(0), h, c, mode, hidden, projected, layers, batch_first,
            dropout, train, bidirectional, sizes, None,
        )  # fmt: skip
        return made[:3] if name == "lstm" else made[:2]

    def run_packed(x: torch.Tensor, sizes: torch.Tensor, hx: Any, *rest: Any) -> Any:
        given: Any = (x, hx, *rest, False, tuple(sizes.tolist()))
        return run(*given)

    return run_packed if packed else run


def _pack(x: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> Any:
    """The time steps of a batch without padding, longest sequence first; lengths are on the CPU."""
    x = x.transpose(0, 1) if batch_first else x
    ends = lengths.tolist()
    sizes = [sum(end > t for end in ends) for t in range(ends[0])]
    steps, begun = [], 0
    for end in sorted(set(ends)):  # between two ends, every step has the same number of rows
        part = x[begun:end, : sizes[begun]]
        steps.append(part.reshape(-1, *x.shape[2:]))
        begun = end
    return torch.cat(steps), torch.tensor(sizes)


_BRANCHES: Final = {
    "dropout": _dropout,
    "softmax.int": _softmax,
    "log_softmax.int": _log_softmax,
    "_weight_norm": _weight_norm,
    "lstm_cell": _lstm_cell,
    "gru_cell": _gru_cell,
    "_pack_padded_sequence": _pack,
}
OPENED: Final = {_ATEN._safe_softmax.default: _safe_softmax}
"""What the recorder runs instead of an op, below autograd (transformers/attention.cpp)."""
