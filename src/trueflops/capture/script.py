"""A user's script, run as it is: its steps are found by the optimizer that closes them.

A step ends with the optimizer's step, and the next begins when after it a module is first called,
or a message between stages of a pipeline is sent or received: what a framework does in between
(copies of weights, gathering them, the next batch) every step of a loop has once. Where several
optimizers are stepped, as those of dense and of expert weights or of two networks, the one that was
stepped first counts.
"""

from __future__ import annotations

import runpy
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final
from unittest import mock

from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from trueflops.capture.recorder import Recorder
from trueflops.capture.trouble import CannotCapture
from trueflops.language import say

MOST_STEPS: Final = 6
"""After so many, a step is taken as it is, though an optimizer is new in it: it always is."""


class StepRecorded(BaseException):
    """The step is recorded: the script need not run any further.

    Not an Exception: a script that catches errors of its loop must not catch this.
    """


class ScriptSteps:
    """Follows the steps of a script, and has one of them recorded."""

    def __init__(self, recorder: Recorder, before: Callable[[], None]) -> None:
        self.closed = 0  # steps of the optimizer that counts
        self.recording = self.recorded = False
        self._recorder, self._before = recorder, before
        self._counts: weakref.ref[Any] | None = None
        self._pending = False  # it has stepped, and no module was called since
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()  # optimizers that have stepped
        self._cold = False  # one of them stepped for the first time in the step so far

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Inside this context, hooks follow every optimizer and every module."""
        with ExitStack() as stack:
            for handle in (
                optimizers.register_optimizer_step_pre_hook(self._stepping),
                optimizers.register_optimizer_step_post_hook(self._stepped),
                modules.register_module_forward_pre_hook(self._called),
            ):
                stack.callback(handle.remove)
            told = mock.patch.object(self._recorder.collectives, "before_message", self._called)
            stack.enter_context(told)
            yield

    def end(self) -> None:
        """The script has ended: with the recorded step, or too early."""
        if self.recording and self._pending and not self._cold:
            self._end_step()
        if not self.recorded:
            raise self._too_few()

    def _end_step(self) -> None:
        self.recording, self.recorded = False, True
        self._recorder.listening, self._recorder.ended = False, True

    def _counting(self, optimizer: Any) -> bool:
        return self._counts is not None and self._counts() is optimizer

    def _stepping(self, optimizer: Any, *_: Any) -> None:
        if self._pending and self._counting(optimizer):  # a program without modules
            self._begin()

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        if self._counts is None or self._counts() is None:
            self._counts = weakref.ref(optimizer)
        self._cold = self._cold or optimizer not in self._known
        self._known.add(optimizer)
        if self._counting(optimizer):
            self.closed, self._pending = self.closed + 1, True

    def _called(self, *_: Any) -> None:
        if self._pending and not self._recorder.places.in_optimizer:
            self._begin()

    def _begin(self) -> None:
        """The step before is complete; the next begins."""
        cold, self._pending, self._cold = self._cold, False, False
        if self.recording and (not cold or self.closed > MOST_STEPS):
            self._end_step()
        if self.recorded:
            raise StepRecorded
        if not self._recorder.collectives.is_warm(self.closed):
            self._recorder.begin("warmup", listening=False)
            return
        if not self.recording:
            self._before()
        self.recording = True  # from here on, if an optimizer has just made its states
        self._recorder.begin("step", listening=True)

    def _too_few(self) -> CannotCapture:
        if self.closed == 0:
            return CannotCapture(
                say(
                    "the script ended, and no optimizer of torch.optim was stepped: write a "
                    "function that returns the step, and name it, as in train.py:build"
                )
            )
        several = self.closed > 1
        steps = say("{number} steps", number=self.closed) if several else say("1 step")
        return CannotCapture(
            say(
                "the script ended after {steps}: the first ones warm up and a later one is "
                "recorded; let it run four or more",
                steps=steps,
            )
        )


def run_script(path: Path, words: list[str]) -> None:
    """Run a file as `python FILE WORDS` would, until it ends or its step is recorded."""
    folder = str(path.parent.resolve())
    with (
        mock.patch.object(sys, "argv", [str(path), *words]),
        mock.patch.object(sys, "path", [folder, *sys.path]),
    ):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except StepRecorded:
            pass
        except SystemExit as error:
            if error.code not in (None, 0):
                raise
