"""Overrides of torch functions that need a driver or data before the dispatcher sees them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol
from unittest import mock

import torch
from torch.autograd import graph
from torch.overrides import TorchFunctionMode
from torch.utils import _device

from trueflops.capture.pretend.fake_tensors import META, claimed_device, fake_of
from trueflops.capture.pretend.numbers import UnknownNumber

DEVICE: Final = torch.device("cuda", 0)
_HOST: Final = torch.device("cpu")
_PLAIN: Final = (torch.Tensor, torch.nn.Parameter)
_FROM_DATA: Final = {torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor}


class AsksForMeta(Protocol):
    """Who must know that the program itself, not autograd, asks for a meta tensor."""

    on_meta: bool


class FunctionOverrides(TorchFunctionMode):
    """Gives a device without an index one, so that no driver is asked for the current device.

    Tensors of Python numbers are made on the host, then moved.
    """

    def __init__(self, reads: dict[Any, Any], recorder: AsksForMeta) -> None:
        super().__init__()
        self._reads = reads  # what to call for a fake tensor, by torch function that reads values
        self._recorder = recorder

    @contextmanager
    def in_backward(self) -> Iterator[None]:
        """Inside this context, the backward of a user's own function is overridden, too.

        `backward()` is a torch function itself, and torch puts a mode aside while it answers one.
        """
        real = graph._engine_run_backward

        def run(*args: Any, **kwargs: Any) -> Any:
            with self:
                return real(*args, **kwargs)

        with (
            mock.patch.object(graph, "_engine_run_backward", run),
            mock.patch.object(torch.autograd, "_engine_run_backward", run),
        ):
            yield

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Answer what would ask a driver; call everything else as it is."""
        kwargs = kwargs or {}
        read = self._reads.get(func)
        if read is not None and type(args[0]) in _PLAIN and claimed_device(args[0]) is not None:
            with torch._C.DisableTorchFunction():
                return read(*args, **kwargs)
        if func is torch.Tensor.cuda:
            return _to(args[0], DEVICE)
        if _asks_for_meta(func, args, kwargs) and not self._recorder.on_meta:
            self._recorder.on_meta = True
            try:
                return func(*args, **kwargs)
            finally:
                self._recorder.on_meta = False
        if func is torch.Tensor.to:
            return _to(*args, **kwargs)
        if func is torch.device and type(args[0]) is int:
            return DEVICE
        if kwargs.get("device") is not None:
            kwargs = {**kwargs, "device": numbered(kwargs["device"])}
        return _from_data(func, args, kwargs) if func in _FROM_DATA else func(*args, **kwargs)


def _to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """`tensor.to(…)`: a fake tensor already on that device stays, though C++ sees it on meta."""
    if args and isinstance(args[0], torch.Tensor):
        args = (args[0].device, args[0].dtype, *args[1:])
    asked = kwargs.pop("device", None)
    rest = list(args)
    if rest and isinstance(rest[0], (str, torch.device, int)) and not isinstance(rest[0], bool):
        asked = rest.pop(0)
    if asked is None:
        return torch.Tensor.to(tensor, *rest, **kwargs)
    device = torch.device(numbered(asked))
    if type(tensor) in _PLAIN and claimed_device(tensor) is not None and device == tensor.device:
        dtype = (rest.pop(0) if rest else kwargs.pop("dtype", None)) or tensor.dtype
        return torch.Tensor.to(tensor, dtype, *rest, **kwargs)
    return torch.Tensor.to(tensor, device, *rest, **kwargs)


def _asks_for_meta(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    asked = kwargs.get("device", args[1] if func is torch.Tensor.to and len(args) > 1 else None)
    return isinstance(asked, (str, torch.device)) and torch.device(asked).type == "meta"


def numbered(device: Any) -> Any:
    """A device with its index: this rank has one accelerator, however the program names it."""
    if isinstance(device, int) and not isinstance(device, bool):
        return DEVICE
    return DEVICE if torch.device(device).type == "cuda" else device


def _from_data(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    device, grad = kwargs.pop("device", None), kwargs.pop("requires_grad", False)
    if func is torch.Tensor.new_tensor:
        device, args = device or args[0].device, args[1:]
        func = torch.tensor
    if func is not torch.tensor and isinstance(args[0], torch.Tensor):
        return args[0].to(device=device, dtype=kwargs.get("dtype"))
    device = _device.CURRENT_DEVICE if device is None else device
    if _has_fakes(args[0]):
        made = _from_fakes(func, args, kwargs)
    else:
        made = func(*args, device=_HOST, **kwargs)
    if device is not None and torch.device(device) != _HOST:
        made = made.to(numbered(device))
    return made.requires_grad_() if grad else made


def _has_fakes(data: Any) -> bool:
    if isinstance(data, (list, tuple)):
        return any(_has_fakes(each) for each in data)
    return isinstance(data, torch.Tensor) and claimed_device(data) is not None


def _from_fakes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """`torch.tensor` of lists of fake tensors reads each; one unknown makes all unknown."""
    data = _read(args[0])
    if not _has_unknown(data):
        made: torch.Tensor = func(data, *args[1:], device=_HOST, **kwargs)
        return made
    return fake_of(torch.empty(_shape(data), dtype=kwargs.get("dtype"), device=META), _HOST.type)


def _read(data: Any) -> Any:
    if isinstance(data, (list, tuple)):
        return [_read(each) for each in data]
    return data.item() if isinstance(data, torch.Tensor) else data


def _has_unknown(data: Any) -> bool:
    if isinstance(data, list):
        return any(_has_unknown(each) for each in data)
    return isinstance(data, UnknownNumber)


def _shape(data: Any) -> tuple[int, ...]:
    return (len(data), *_shape(data[0])) if isinstance(data, list) else ()
