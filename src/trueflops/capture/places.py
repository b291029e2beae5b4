"""Where in the program an op is called: phase of the step, module, compiled region.

For a forward op, module hooks tell. A backward op has the place of the forward op that it
differentiates: both have the same sequence number of autograd.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.modules import module as hooks
from torch.optim import optimizer as optimizers

from trueflops.capture.pretend.engine import issued_by_engine
from trueflops.capture.trouble import source
from trueflops.records.recording import StepPhase


class Places:
    """Follows a program through its modules, its optimizers and its compiled regions."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.classes: dict[str, str] = {}
        self.region = -1
        self.in_optimizer = 0
        self.follows_lines = False  # of the recorded step alone: looking costs time
        self.entered = 0  # modules entered since the last recorded call
        self._stack: list[str] = []
        self._made: dict[int, tuple[str, int]] = {}  # by sequence number: module, region
        self._kept: list[Any] = []  # keeps named modules alive, so that their ids stay unique
        self._regions = 0
        self._lines: dict[int, str] = {}  # by sequence number: the user's line
        self.graphed: set[int] = set()  # regions
        self._autocast: dict[int, torch.dtype] = {}  # of regions, where it was on when they ran

    def now(self) -> tuple[StepPhase, str, int]:
        """Phase, module and region of the op that is being called."""
        node = torch._C._current_autograd_node()
        here = self._stack[-1] if self._stack else ""
        if node is None:
            if torch._C._current_graph_task_id() != -1:  # the engine's callbacks, at its end
                return "backward", here, self.region
            if self.in_optimizer:
                return "optimizer", here, self.region
            self._remember(here)
            return "forward", here, self.region
        module, region = self._made.get(node._sequence_nr(), ("", -1))
        if torch.is_grad_enabled() and not issued_by_engine():
            here = here or module
            self._remember(here)
            return "recompute", here, max(region, self.region)
        return "backward", module, region

    def lowered(self) -> torch.dtype | None:
        """The type that products of a compiled backward are cast to.

        torch.compile traces forward and backward as one, under the forward's autocast.
        """
        phase, _, region = self.now()
        return None if phase == "forward" else self._autocast.get(region)

    def _remember(self, here: str) -> None:
        """Note the place of the newest autograd node, which belongs to the op being called."""
        newest = torch._C._autograd._get_sequence_nr() - 1
        if newest not in self._made:
            self._made[newest] = here, self.region
            if self.follows_lines:
                self._lines[newest] = source()

    def line(self) -> str:
        """The user's line of the op that is being called; of a backward op, its forward op's."""
        if not self.follows_lines:
            return ""
        node = torch._C._current_autograd_node()
        return source() if node is None else self._lines.get(node._sequence_nr(), "")

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Inside this context, hooks follow every module and optimizer."""
        with ExitStack() as stack:
            for handle in (
                hooks.register_module_forward_pre_hook(self._enter),
                hooks.register_module_forward_hook(self._leave, always_call=True),
                optimizers.register_optimizer_step_pre_hook(self._step_begins),
                optimizers.register_optimizer_step_post_hook(self._step_ends),
            ):
                stack.callback(handle.remove)
            yield

    @contextmanager
    def compiled(self, *, graphed: bool = False) -> Iterator[None]:
        """Ops inside belong to one region of torch.compile, which may run as CUDA graphs."""
        if self.region >= 0:  # a compiled function inside another is part of it
            yield
            return
        self._regions += 1
        self.region = self._regions
        if graphed:
            self.graphed.add(self.region)
        if torch.is_autocast_enabled("cuda"):
            self._autocast[self.region] = torch.get_autocast_dtype("cuda")
        try:
            yield
        finally:
            self.region = -1

    def _enter(self, module: Any, args: Any) -> None:
        if id(module) not in self.names:
            self._name(module)
        self.entered += 1
        self._stack.append(self.names[id(module)])

    def _leave(self, module: Any, args: Any, result: Any) -> None:
        if self._stack:
            self._stack.pop()

    def _name(self, root: Any) -> None:
        above = self._stack[-1] + "." if self._stack else ""
        for name, module in root.named_modules():
            if id(module) not in self.names:
                own = type(module).__name__
                path = f"{above}{name}" if name else f"{above}{own}"
                self.names[id(module)] = path
                self.classes[path] = own
                self._kept.append(module)

    def _step_begins(self, *_: Any) -> None:
        self.in_optimizer += 1

    def _step_ends(self, *_: Any) -> None:
        self.in_optimizer -= 1
