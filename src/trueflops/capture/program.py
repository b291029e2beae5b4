"""Run a program under the recorder: FILE.py:FUNCTION -> Recording."""

from __future__ import annotations

import gc
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch

from trueflops.capture.change import Change
from trueflops.capture.changed import change_built, changed
from trueflops.capture.named import named_program, no_function
from trueflops.capture.pretend.attention import fused_attention
from trueflops.capture.pretend.autocast import autocast_fakes
from trueflops.capture.pretend.compiled import marked_compile
from trueflops.capture.pretend.flex import followed_flex
from trueflops.capture.pretend.machine import Machine, pretended
from trueflops.capture.pretend.overrides import FunctionOverrides
from trueflops.capture.pretend.reads import reads
from trueflops.capture.ranks.distributed import as_rank, note_world
from trueflops.capture.ranks.messages import Messages, follow_pipelines
from trueflops.capture.recorder import Recorder
from trueflops.capture.trouble import CannotCapture, place_of
from trueflops.errors import BadInput, TrueflopsError, printable, shorten
from trueflops.records.recording import HOST, Recording

Step = Callable[[], Any]


def load(text: str) -> Callable[[], Step]:
    """The function that FILE.py:FUNCTION names, its file run as a module."""
    path, name = named_program(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise BadInput(f"{printable(str(path))}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.resolve()))
    with _told(f"running {path.name}"):
        spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if not callable(found):
        functions = [
            k for k, v in vars(module).items()
            if inspect.isfunction(v) and v.__module__ == module.__name__ and not k.startswith("_")
        ]  # fmt: skip
        raise no_function(path, name, functions)
    return found


def capture(
    build: Callable[[], Callable[[], Step]],
    machine: Machine,
    *,
    world: int = 1,
    rank: int = 0,
    per_node: int = 8,
    change: Change | None = None,
) -> Recording:
    """Find the program, build it, run its step to warm up and once more recorded.

    As rank `rank` of `world`, `per_node` of which share a node; with a change, if one is asked for.
    """
    messages = Messages()
    return messages.run_as(
        rank, lambda place: _capture(build, machine, place, world, per_node, messages, change)
    )


def _capture(
    build: Callable[[], Callable[[], Step]],
    machine: Machine,
    rank: int,
    world: int,
    per_node: int,
    messages: Messages,
    change: Change | None,
) -> Recording:
    device = HOST if machine.on_host else "cuda"
    recorder = Recorder(device)
    with ExitStack() as stack:
        stack.enter_context(as_rank(rank, world, per_node, recorder, messages))
        stack.enter_context(pretended(machine, recorder))
        stack.enter_context(marked_compile(recorder))
        stack.enter_context(followed_flex(recorder))
        stack.enter_context(fused_attention(machine.capability, on_host=machine.on_host))
        stack.enter_context(autocast_fakes())
        stack.enter_context(recorder.places.followed())
        stack.enter_context(FunctionOverrides(reads(recorder)))
        stack.enter_context(recorder)
        stack.enter_context(changed(change))
        function = build()
        with _told("building the program"):
            step = function()
        if not callable(step):
            raise BadInput(
                f"{getattr(function, '__name__', 'the function')} returned "
                f"{type(step).__name__}; it must return the step, a function without arguments"
            )
        with _told("changing the program"):
            change_built(change, recorder)
        _name_parameters(recorder)
        follow_pipelines(stack)
        recorder.begin("warmup", listening=False)
        with _told("the first step"):
            while recorder.collectives.warmup_steps > 0:
                recorder.collectives.warmup_steps -= 1
                step()
        recorder.begin("step", listening=True)
        with _told("the recorded step"):
            step()
        recorder.ended = True
        note_world(recorder, rank, world)
    recorder.recording.modules = recorder.places.classes
    recorder.recording.torch = torch.__version__
    return recorder.recording


def _name_parameters(recorder: Recorder) -> None:
    """Which storages are weights: every Parameter that is alive once the program is built."""
    found = [each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module)]
    inner = {id(child) for module in found for child in module.children()}
    recording, counted = recorder.recording, set()
    for module in found:
        if id(module) in inner:
            continue
        for name, parameter in module.named_parameters():
            local = getattr(parameter, "_local_tensor", parameter)
            number = recorder.number_of(local)
            if number is None:  # of another program in this process, or on the host
                continue
            recording.parameters[number] = name
            if id(parameter) not in counted:
                counted.add(id(parameter))
                recording.parameter_count += parameter.numel()


@contextmanager
def _told(doing: str) -> Iterator[None]:
    """Turn whatever the program raises into an error with the user's line, without our frames."""
    try:
        yield
    except TrueflopsError:
        raise
    except KeyboardInterrupt:
        raise
    except SystemExit as error:
        at = place_of(error)
        raise CannotCapture(f"{doing}{at}: the program ended itself ({error.code})") from None
    except BaseException as error:
        cause: BaseException | None = error
        seen: set[int] = set()
        while cause is not None and id(cause) not in seen:  # `raise e from e` is its own cause
            if isinstance(cause, TrueflopsError):
                raise cause from None
            seen.add(id(cause))
            cause = cause.__cause__ or cause.__context__
        said = shorten(" ".join(f"{type(error).__name__}: {error}".split()), 300)
        raise CannotCapture(f"{doing}{place_of(error)}: {said}") from error


@contextmanager
def arguments(words: list[str]) -> Iterator[None]:
    """What the program finds in sys.argv."""
    with mock.patch.object(sys, "argv", words):
        yield
