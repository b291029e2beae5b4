"""A program run with one change, as its owner would make it: in Python, on the program itself."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest import mock

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.utils import checkpoint as checkpoints
from torch.utils._pytree import tree_map_only

from trueflops.capture.change import Change
from trueflops.capture.recorder import Recorder

BUILT: Final = (Change.CHECKPOINTED, Change.NARROW, Change.CHANNELS_LAST)
"""Changes of modules that a program has built: not of a script, which is one run."""
REPEATED: Final = 3  # modules of one class beside each other: the layers of a model


@contextmanager
def changed(change: Change | None) -> Iterator[None]:
    """Inside this context, a program is built and runs with the change."""
    with ExitStack() as stack:
        if change is Change.FUSED_OPTIMIZER:
            init = _fused(torch.optim.Optimizer.__init__)
            stack.enter_context(mock.patch.object(torch.optim.Optimizer, "__init__", init))
        elif change is Change.UNCHECKPOINTED:
            around = "_checkpoint_without_reentrant_generator"
            stack.enter_context(mock.patch.object(checkpoints, around, _keeping))
            stack.enter_context(mock.patch.object(checkpoints.CheckpointFunction, "apply", _plain))
        elif change is Change.AUTOCAST:
            stack.enter_context(_autocast_forward())
        elif change is Change.NARROW:
            stack.enter_context(_given(_floats_narrow))
        elif change is Change.CHANNELS_LAST:
            stack.enter_context(_given(_images_last))
        yield


def change_built(change: Change | None, recorder: Recorder) -> None:
    """What a change does to the modules of a program that has just been built."""
    if change not in BUILT:
        return
    found = [
        each
        for each in gc.get_objects()
        if issubclass(type(each), nn.Module)
        and any(recorder.number_of(p) is not None for p in each.parameters())  # of this program
    ]
    if change is Change.CHECKPOINTED:
        for layer in _layers(found):
            layer.forward = functools.partial(
                checkpoints.checkpoint, layer.forward, use_reentrant=False
            )
        return
    inner = {id(child) for module in found for child in module.children()}
    for module in found:
        if id(module) not in inner:
            if change is Change.NARROW:
                module.to(torch.bfloat16)
            else:
                module.to(memory_format=torch.channels_last)


def _layers(modules: list[nn.Module]) -> list[nn.Module]:
    """Of modules that stand in a row, alike and holding others: each once."""
    found: dict[int, nn.Module] = {}
    for module in modules:
        if isinstance(module, (nn.ModuleList, nn.Sequential)):
            alike: dict[type, list[nn.Module]] = {}
            for child in module:
                alike.setdefault(type(child), []).append(child)
            for kind, members in alike.items():
                if (
                    len(members) >= REPEATED
                    and kind is not nn.Linear
                    and any(members[0].children())
                ):
                    found.update({id(member): member for member in members})
    inside = {id(m) for layer in found.values() for m in layer.modules() if m is not layer}
    return [layer for number, layer in found.items() if number not in inside]


# ── the optimizer ────────────────────────────────────────────────────────────────────────────────


def _fused(real: Callable[..., None]) -> Callable[..., None]:
    """An optimizer's constructor that prefers one kernel over lists of them."""

    @functools.wraps(real)
    def init(self: Any, params: Any, defaults: dict[str, Any]) -> None:
        if "fused" in defaults and not defaults.get("differentiable"):
            defaults = {**defaults, "fused": True, "foreach": False}
        real(self, params, defaults)

    return init


# ── checkpoints ──────────────────────────────────────────────────────────────────────────────────


def _keeping(*_: Any, **__: Any) -> Iterator[None]:
    """What stands around a checkpointed function, doing nothing: autograd keeps what it needs."""
    yield


def _plain(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
    return function(*args)


# ── dtypes and layouts ───────────────────────────────────────────────────────────────────────────


@contextmanager
def _autocast_forward() -> Iterator[None]:
    """Autocast from the first module that a step calls to its backward: around model and loss."""
    active: list[Any] = []

    def begin(module: Any, args: Any) -> None:
        in_backward = torch._C._current_graph_task_id() != -1  # what is computed again knows itself
        if not active and not in_backward:
            active.append(torch.autocast("cuda", torch.bfloat16))
            active[0].__enter__()

    def end() -> None:
        if active:
            active.pop().__exit__(None, None, None)

    real = torch.autograd.backward

    def backward(*args: Any, **kwargs: Any) -> None:
        end()
        real(*args, **kwargs)

    handle = hooks.register_module_forward_pre_hook(begin)
    try:
        with mock.patch.object(torch.autograd, "backward", backward):
            yield
    finally:
        end()
        handle.remove()


@contextmanager
def _given(convert: Callable[[Any], Any]) -> Iterator[None]:
    """Convert what the program itself hands to modules; what those hand on follows from it."""
    inside = 0

    def enter(module: Any, args: Any) -> Any:
        nonlocal inside
        inside += 1
        return convert(args) if inside == 1 else None

    def leave(module: Any, args: Any, result: Any) -> None:
        nonlocal inside
        inside -= 1

    handles = (
        hooks.register_module_forward_pre_hook(enter),
        hooks.register_module_forward_hook(leave, always_call=True),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _floats_narrow(args: Any) -> Any:
    def narrow(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.bfloat16() if tensor.dtype is torch.float32 else tensor

    return tree_map_only(torch.Tensor, narrow, args)


def _images_last(args: Any) -> Any:
    def last(tensor: torch.Tensor) -> torch.Tensor:
        images = tensor.dim() == 4 and tensor.is_floating_point()
        return tensor.contiguous(memory_format=torch.channels_last) if images else tensor

    return tree_map_only(torch.Tensor, last, args)
