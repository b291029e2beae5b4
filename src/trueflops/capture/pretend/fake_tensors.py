"""Fake tensors: tensors without data that claim to be on an accelerator.

A fake tensor is a meta tensor with the dispatch keys of the device that it claims: autocast and
autograd treat it as that device's, while every shape comes from torch's own meta kernels. It has no
memory, needs no driver, and its storage lives exactly as long as a real one would. It does what
PyTorch's FakeTensor does, without FakeTensorMode, which needs a build with CUDA (docs/log.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import torch

META: Final = torch.device("meta")
_KEYS: Final = {"cuda": torch._C.DispatchKey.CUDA, "cpu": torch._C.DispatchKey.CPU}
_real_device: Final = torch._C.TensorBase.device.__get__


def fake_of(tensor: torch.Tensor, kind: str) -> torch.Tensor:
    """The same storage, seen as a tensor on a device of this kind."""
    return _with_keys(tensor, torch.device(kind))


def meta_of(tensor: torch.Tensor) -> torch.Tensor:
    """The same storage, seen as the meta tensor that it is."""
    return _with_keys(tensor, META)


def _with_keys(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    made: torch.Tensor = torch.Tensor._make_subclass(
        torch.Tensor, tensor, False, device_for_backend_keys=device
    )
    return made


def claimed_device(tensor: torch.Tensor) -> str | None:
    """The kind of device that a fake tensor claims to be on; None for a tensor with data."""
    keys: Any = torch._C._dispatch_keys(tensor)
    if keys.has(_KEYS["cuda"]):  # while a capture lasts, nothing else has it
        return "cuda"
    with torch._C.DisableTorchFunction():  # a mode of ours may listen, if C++ has called
        if _real_device(tensor).type != "meta":
            return None
    return "cpu" if keys.has(_KEYS["cpu"]) else "meta"


def any_meta(tensor: torch.Tensor) -> torch.Tensor:
    """A meta tensor of the same shape, of a fake tensor or of a real one."""
    if claimed_device(tensor) is not None:
        return meta_of(tensor)
    return torch.empty_strided(
        tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=META
    )


# Functions, not closures: a closure that calls itself is a reference cycle, and would keep
# the tensors it has seen alive until the garbage collector runs.


def as_meta(values: Iterable[Any], given: dict[int, torch.Tensor]) -> list[Any]:
    """Arguments with every tensor as a meta tensor; `given` maps its id to the original."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            meta = any_meta(value)
            given[id(meta)] = value
            found.append(meta)
        elif isinstance(value, (list, tuple)):
            found.append(type(value)(as_meta(value, given)))
        else:
            found.append(META if isinstance(value, torch.device) else value)
    return found


def as_fake(value: Any, given: dict[int, torch.Tensor], target: str) -> Any:
    """Results as fake tensors, or as the arguments that they are."""
    if isinstance(value, torch.Tensor):
        known = given.get(id(value))
        return known if known is not None else fake_of(value, target)
    if isinstance(value, (list, tuple)):
        return type(value)([as_fake(each, given, target) for each in value])
    return value
