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
_PLAIN: Final = (torch.Tensor, torch.nn.Parameter)
_OVERWRITTEN: Final = "_trueflops_overwritten"  # set on a storage
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
    """The kind of device that a fake tensor claims to be on; None for a tensor with data.

    A tensor of the host into which something unknown was written counts as one without data.
    """
    keys: Any = torch._C._dispatch_keys(tensor)
    if keys.has(_KEYS["cuda"]):  # while a capture lasts, nothing else has it
        return "cuda"
    if has_memory(tensor):
        return "cpu" if type(tensor) in _PLAIN and is_overwritten(tensor) else None
    return "cpu" if keys.has(_KEYS["cpu"]) else "meta"


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor of the host has numbers in memory, known or not."""
    if torch._C._dispatch_keys(tensor).has(_KEYS["cuda"]):  # the usual case, and quicker to ask
        return False
    with torch._C.DisableTorchFunction():  # a mode of ours may listen, if C++ has called
        return _real_device(tensor).type != "meta"


def is_overwritten(tensor: torch.Tensor) -> bool:
    """Whether something unknown was written into the storage of a tensor."""
    strided = tensor.layout == torch.strided
    return strided and getattr(tensor.untyped_storage(), _OVERWRITTEN, False)


def mark_overwritten(tensor: torch.Tensor, unknown: bool = True) -> None:
    """Note that something unknown was written into the storage of a tensor, or known numbers."""
    if tensor.layout == torch.strided:
        setattr(tensor.untyped_storage(), _OVERWRITTEN, unknown)


def flat(value: Any) -> list[torch.Tensor]:
    """Every tensor of nested lists."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in flat(each)]
    return []


def any_meta(tensor: torch.Tensor) -> torch.Tensor:
    """A meta tensor of the same shape, of a fake tensor or of a real one."""
    if not has_memory(tensor):
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


def with_values(answer: Any, device: str) -> Any:
    """Real results as fake tensors whose values are known."""
    if isinstance(answer, torch.Tensor):
        made = fake_of(any_meta(answer), device)
        made._known_values = answer  # type: ignore[attr-defined]
        return made
    if isinstance(answer, tuple):
        return type(answer)(with_values(a, device) for a in answer)
    return answer
