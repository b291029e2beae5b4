"""Run a program under the recorder: FILE.py:FUNCTION, or a whole script, -> Recording."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from trueflops.capture.change import Change
from trueflops.capture.changed import BUILT, change_built, changed
from trueflops.capture.named import named_program, no_function
from trueflops.capture.pretend.attention import fused_attention
from trueflops.capture.pretend.autocast import autocast_fakes
from trueflops.capture.pretend.compiled import marked_compile
from trueflops.capture.pretend.extensions import stand_ins
from trueflops.capture.pretend.flex import followed_flex
from trueflops.capture.pretend.machine import Machine, pretended
from trueflops.capture.pretend.numbers import UnknownNumber
from trueflops.capture.pretend.overrides import FunctionOverrides
from trueflops.capture.pretend.reads import reads
from trueflops.capture.ranks.board import CAN_FORK, Board
from trueflops.capture.ranks.distributed import as_rank, note_world
from trueflops.capture.ranks.messages import Messages, NotYetSent, follow_pipelines
from trueflops.capture.recorder import Recorder
from trueflops.capture.roles import Roles
from trueflops.capture.script import ScriptSteps, run_script
from trueflops.capture.trouble import CannotCapture, place_of
from trueflops.errors import BadInput, TrueflopsError, printable, shorten
from trueflops.language import say
from trueflops.records.recording import HOST, Recording

Step = Callable[[], Any]


def load(text: str) -> Callable[[], Step]:
    """The function that FILE.py:FUNCTION names, its file run as a module."""
    path, name = named_program(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise BadInput(say("{file}: not a Python file", file=printable(str(path))))
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.resolve()))
    with _told(say("running {file}", file=path.name)):
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
    run = partial(run_function, build, change=change)
    record = partial(_capture, run, machine, world, per_node)
    try:
        return record(rank, Messages())
    except NotYetSent:
        if not CAN_FORK:
            raise
    gc.collect()  # the program so far, before it is built again
    return Board(record).record(rank)[rank]


def capture_script(
    path: Path,
    words: list[str],
    machine: Machine,
    *,
    world: int = 1,
    rank: int = 0,
    per_node: int = 8,
    change: Change | None = None,
) -> Recording:
    """Run a script with these arguments until the first of its steps that is like the others."""
    run = partial(run_file, path, words, change=change)
    record = partial(_capture, run, machine, world, per_node)
    if world == 1 or not CAN_FORK:
        return record(rank, Messages())
    return Board(record).record(rank)[rank]


Run = Callable[[Recorder, ExitStack], None]


def capture_stages(
    run: Run, machine: Machine, *, world: int, rank: int = 0, per_node: int = 8
) -> dict[int, Recording]:
    """Capture all stages of the pipeline that a rank is in, by rank.

    `run`: run_function or run_file, with its program given. Each rank runs in its own process.
    """
    if not CAN_FORK:
        raise BadInput(say("several ranks need processes that can fork: Linux or macOS"))
    record = partial(_capture, run, machine, world, per_node)
    return dict(sorted(Board(record, together=True).record(rank).items()))


def _capture(
    run: Run, machine: Machine, world: int, per_node: int, rank: int, messages: Messages
) -> Recording:
    device = HOST if machine.on_host else "cuda"
    recorder = Recorder(device)
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[]))
        torch.default_generator.manual_seed(0)  # the same program draws the same numbers
        stack.enter_context(as_rank(rank, world, per_node, recorder, messages))
        stack.enter_context(pretended(machine, recorder))
        stack.enter_context(marked_compile(recorder))
        stack.enter_context(followed_flex(recorder))
        stack.enter_context(fused_attention(machine.capability, on_host=machine.on_host))
        stack.enter_context(autocast_fakes())
        if not machine.on_host:
            stack.enter_context(stand_ins())
        stack.enter_context(recorder.places.followed())
        stack.enter_context(Roles(recorder).followed())
        overrides = FunctionOverrides(reads(recorder), recorder)
        stack.enter_context(overrides.in_backward())
        stack.enter_context(overrides)
        stack.enter_context(recorder)
        run(recorder, stack)
        note_world(recorder, rank, world)
        recorder.recording.expandable = _has_expandable_segments()
    recorder.recording.modules = recorder.places.classes
    recorder.recording.torch = torch.__version__
    return recorder.recording


def _has_expandable_segments() -> bool:
    """Whether the script, or the shell that it runs in, asks PyTorch's allocator for them."""
    said = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    return "expandable_segments:True" in said.replace(" ", "")


def run_function(
    build: Callable[[], Callable[[], Step]],
    recorder: Recorder,
    stack: ExitStack,
    change: Change | None = None,
) -> None:
    """Build the program and run the step that it returns."""
    stack.enter_context(changed(change))
    function = build()
    with _told(say("building the program")):
        step = function()
    if not callable(step):
        raise BadInput(
            say(
                "{name} returned {kind}; it must return the step, a function without arguments",
                name=getattr(function, "__name__", say("the function")),
                kind=type(step).__name__,
            )
        )
    with _told(say("changing the program")):
        change_built(change, recorder)
    _name_parameters(recorder)
    follow_pipelines(stack)
    recorder.begin("warmup", listening=False)
    done = 0
    with _told(say("the first step")):
        while not recorder.collectives.is_warm(done):
            step()
            done += 1
    _name_parameters(recorder)  # a trainer moves and shards them when it first runs
    recorder.begin("step", listening=True)
    with _told(say("the recorded step")):
        step()
    recorder.ended = True


def run_file(
    path: Path,
    words: list[str],
    recorder: Recorder,
    stack: ExitStack,
    change: Change | None = None,
) -> None:
    """Run the script until one of its steps is recorded."""
    if change in BUILT:
        raise CannotCapture(
            say("{file}: a script's modules are changed only by itself", file=path.name)
        )
    stack.enter_context(changed(change))
    steps = ScriptSteps(recorder, lambda: _name_parameters(recorder))
    with suppress(ImportError):  # the script may use them, but has not imported them yet
        importlib.import_module("torch.distributed.pipelining.stage")
    follow_pipelines(stack)
    with steps.followed(), _told(say("running {file}", file=path.name)):
        run_script(path, words)
    steps.end()


def _name_parameters(recorder: Recorder) -> None:
    """Which storages are weights: every Parameter that is alive once the program is built."""
    found = [each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module)]
    inner = {id(child) for module in found for child in module.children()}
    recording, roles = recorder.recording, Roles(recorder)
    counted: dict[int, int] = {}
    for module in found:
        if id(module) in inner:
            continue
        for name, parameter in module.named_parameters():
            whole, part = _part_here(parameter)
            number = recorder.number_of(part)
            if number is None:  # of another program in this process, or on the host
                continue
            recording.parameters[number] = name
            roles.ask_parameter(parameter)
            counted[id(parameter)] = whole
    recording.parameter_count = max(recording.parameter_count, sum(counted.values()))


def _part_here(parameter: Any) -> tuple[int, torch.Tensor]:
    """The elements of a parameter, and the tensor that holds this rank's part of them.

    A DTensor wraps it; ZeRO-3 leaves an empty parameter, with its part beside it.
    """
    part = getattr(parameter, "ds_tensor", None)
    if part is not None:
        return parameter.ds_numel, part
    return parameter.numel(), getattr(parameter, "_local_tensor", parameter)


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
        raise CannotCapture(
            say(
                "{doing}{at}: the program ended itself ({code})",
                doing=doing,
                at=at,
                code=error.code,
            )
        ) from None
    except BaseException as error:
        cause: BaseException | None = error
        seen: set[int] = set()
        while cause is not None and id(cause) not in seen:  # `raise e from e` is its own cause
            if isinstance(cause, TrueflopsError):
                raise cause from None
            seen.add(id(cause))
            cause = cause.__cause__ or cause.__context__
        if UnknownNumber.__name__ in str(error):  # where torch wants whole numbers
            raise CannotCapture(
                say(
                    "{doing}{at}: a size is a number that was read from a tensor, and nobody knows "
                    "its value: give it with --assume FILE.py:LINE=NUMBER (of a list: "
                    "NUMBER,NUMBER) and the line that reads it (.item() or .tolist())",
                    doing=doing,
                    at=place_of(error),
                )
            ) from error
        said = shorten(" ".join(f"{type(error).__name__}: {error}".split()), 300)
        raise CannotCapture(f"{doing}{place_of(error)}: {said}") from error


@contextmanager
def arguments(words: list[str]) -> Iterator[None]:
    """What the program finds in sys.argv."""
    with mock.patch.object(sys, "argv", words):
        yield
