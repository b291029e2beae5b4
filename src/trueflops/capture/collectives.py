"""Collectives of a program that runs as one rank of many, the others of which do not exist."""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import GroupName

from trueflops.capture.ghosts import ghost_of, home_of, shade_of

COLLECTIVES: Final = ("c10d", "_c10d_functional", "c10d_functional", "_dtensor")


def meet(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], device: str) -> Any:
    """What a collective returns: results of the right shape, at once."""
    if func.namespace == "c10d":  # the fake process group touches no data
        return func(*args, **kwargs)

    def shaded(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return shade_of(value) if home_of(value) is not None else value
        if isinstance(value, (list, tuple)):
            return type(value)([shaded(each) for each in value])
        return value

    def back(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return ghost_of(value, device)
        if isinstance(value, (list, tuple)):
            return type(value)([back(each) for each in value])
        return value

    if str(func).startswith("_c10d_functional.wait_tensor"):
        return args[0]
    if func._schema.is_mutable and func._schema.name.endswith("_"):
        return args[0]
    return back(func(*[shaded(a) for a in args], **{k: shaded(v) for k, v in kwargs.items()}))


def group_ranks(func: Any, args: tuple[Any, ...]) -> tuple[int, ...]:
    """The ranks that take part."""
    for value in args:
        if isinstance(value, torch.ScriptObject):
            group = dist.ProcessGroup.unbox(value)
            return tuple(dist.get_process_group_ranks(group))
    names = [value for value in args if isinstance(value, str)]
    for name in reversed(names):
        try:
            group = torch._C._distributed_c10d._resolve_process_group(GroupName(name))
        except (LookupError, RuntimeError, ValueError):
            continue
        return tuple(dist.get_process_group_ranks(group))
    return ()
