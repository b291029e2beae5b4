"""What storages are for, where an optimizer or a parameter says so.

Elsewhere that follows from when a storage came and went. But frameworks keep gradients in buffers
of their own that live from the first step to the last (`main_grad`, as Megatron, apex and
Transformer Engine call it), and copies of the weights in fp32 that only their optimizer knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.optim import optimizer as optimizers
from torch.utils._pytree import tree_leaves

from trueflops.capture.recorder import Recorder


class Roles:
    """Asks every optimizer that is stepped what it updates, and with what."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Inside this context, hooks ask."""
        with ExitStack() as stack:
            for handle in (
                optimizers.register_optimizer_step_pre_hook(self._before),
                optimizers.register_optimizer_step_post_hook(self._after),
            ):
                stack.callback(handle.remove)
            yield

    def ask_parameter(self, parameter: torch.Tensor) -> None:
        """A model's own parameter says where its gradient is kept."""
        self._note(getattr(parameter, "main_grad", None), "gradients")

    def _before(self, optimizer: Any, *_: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._note(parameter.grad, "gradients")
                self._note(parameter, "weights")  # unless a module has it as its own

    def _after(self, optimizer: Any, *_: Any) -> None:
        for value in tree_leaves([dict(each) for each in optimizer.state.values()]):
            self._note(value, "optimizer state")

    def _note(self, value: Any, role: str) -> None:
        if isinstance(value, torch.Tensor):
            number = self._recorder.number_of(getattr(value, "_local_tensor", value))
            if number is not None:
                self._recorder.recording.roles[number] = role
