"""DeepSpeed, Trainer, TRL with PEFT, Accelerate: captured from their own code, bytes by arithmetic.

A framework keeps state in its modules, so each program runs in a process of its own.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
from collections import Counter
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import pytest

import trainer_programs as programs
from trueflops.capture.lower import base_name
from trueflops.capture.pretend.machine import Machine
from trueflops.capture.program import capture
from trueflops.predict.captured.memory import categories_of
from trueflops.records.recording import Allocated, Call, Freed, Recording
from trueflops.units import GIBI, MEBI

H100 = Machine("NVIDIA H100 80GB HBM3", 80 * int(GIBI), 132, (9, 0), 50 * int(MEBI))
HALF, SINGLE, MOMENTS = 2, 4, 8  # bytes of a number, and of Adam's two
pytestmark = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="processes are forked"
)


def needs(*packages: str) -> None:
    """Skip where one is missing. None is imported: DeepSpeed then looks for a device, and once."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


def captured(program: Callable[[], programs.Step], world: int, rank: int = 0) -> Recording:
    """What it does as one rank, in a process of its own."""
    context: Any = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def run() -> None:
        try:
            theirs.send(capture(lambda: program, H100, world=world, rank=rank))
        except BaseException as error:
            theirs.send(f"{type(error).__name__}: {error}")

    child = context.Process(target=run)
    child.start()
    found = ours.recv()
    child.join()
    assert isinstance(found, Recording), found
    return found


def between_steps(recording: Recording) -> Counter[str]:
    """Bytes on the device when the recorded step begins, by category."""
    categories = categories_of(recording)
    alive: dict[int, Allocated] = {}
    for event in recording.events[: -len(recording.step())]:
        if isinstance(event, Allocated):
            alive[event.storage] = event
        elif isinstance(event, Freed):
            alive.pop(event.storage, None)
    found: Counter[str] = Counter()
    for storage, event in alive.items():
        found[categories[storage]] += event.size_bytes
    return found


def most(recording: Recording, category: str) -> int:
    """Bytes of a category in the recorded step, at most."""
    categories, sizes, peak = categories_of(recording), Counter[int](), 0
    for event in recording.step():
        if isinstance(event, Allocated) and categories[event.storage] == category:
            sizes[event.storage] = event.size_bytes
            peak = max(peak, sizes.total())
        elif isinstance(event, Freed):
            sizes.pop(event.storage, None)
    return peak


def updated(recording: Recording) -> list[tuple[str, int]]:
    """Type and elements of every weight, gradient and moment that fused Adam walks over."""
    calls = [c for c in recording.calls() if base_name(c.op) == "_fused_adamw"]
    assert calls
    lists = [call.inputs[: len(call.inputs) * 4 // 5] for call in calls]
    return [(array.dtype, array.elements) for arrays in lists for array in arrays]


def sums(recording: Recording, kind: str) -> list[Call]:
    return [call for call in recording.calls() if call.group and kind in call.op]


def parts(world: int) -> int:
    """Elements of a rank's shares, where every parameter is divided by itself."""
    return sum(-(-prod(shape) // world) for shape in programs.parameter_shapes())


def whole() -> int:
    return sum(prod(shape) for shape in programs.parameter_shapes())


# ── DeepSpeed ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("world", [8, 256])
@pytest.mark.parametrize("stage", [1, 2])
def test_zero_1_and_2_divide_the_optimizer_states(stage: int, world: int) -> None:
    """One flat buffer of all weights, padded so that every rank has an even share of it."""
    needs("deepspeed", "transformers")
    padded = -(-whole() // (2 * world)) * 2 * world
    recording = captured(partial(programs.deepspeed_step, stage), world, rank=world - 1)
    held = between_steps(recording)
    assert recording.parameter_count == whole()
    assert held["parameters"] == HALF * padded
    assert held["optimizer state"] == (SINGLE + MOMENTS) * padded // world
    assert set(updated(recording)) == {("float32", padded // world)}
    bucket = HALF * programs.BUCKET
    if stage == 1:
        assert most(recording, "gradients") == HALF * whole() + bucket
    else:
        assert most(recording, "gradients") < HALF * whole() // world + 1.5 * bucket
    (said,) = recording.warnings
    assert "no step is skipped for an overflow" in said


@pytest.mark.parametrize(("world", "half"), [(8, "bf16"), (8, "fp16"), (256, "bf16")])
def test_zero_3_divides_weights_and_gradients_too(world: int, half: str) -> None:
    needs("deepspeed", "transformers")
    part = parts(world)
    program = partial(programs.deepspeed_step, 3, half=half)
    recording = captured(program, world, rank=world - 1)
    held = between_steps(recording)
    assert recording.parameter_count == whole()
    assert held["parameters"] == HALF * part
    assert held["optimizer state"] == (SINGLE + MOMENTS) * part
    assert most(recording, "gradients") == SINGLE * part  # widened, for the optimizer
    # Gradients of this rank in half precision, and a bucket to reduce them in, are kept.
    assert 0 <= held["inputs and buffers"] - HALF * (part + programs.BUCKET) < 4096
    assert sum(count for _, count in updated(recording)) == 4 * part
    assert sums(recording, "allgather")
    assert sums(recording, "reduce_scatter")


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_what_zero_offloads_is_not_on_the_device(stage: int) -> None:
    needs("deepspeed", "transformers")
    recording = captured(partial(programs.deepspeed_step, stage, offload=True), 8)
    held = between_steps(recording)
    assert recording.parameter_count == whole()
    assert held["optimizer state"] == 0
    assert held["parameters"] == (0 if stage == 3 else HALF * whole())
    assert any("adam_update runs on the host" in said for said in recording.warnings)
    devices = [{array.device for array in c.inputs + c.outputs} for c in recording.calls()]
    assert {"cpu", "cuda"} in devices


def test_a_trainer_with_zero_3() -> None:
    """The step builds its trainer each time, as `train` of one trainer runs only once."""
    needs("deepspeed", "transformers", "accelerate", "datasets")
    config = programs.zero_config(3, offload=False)
    recording = captured(partial(programs.trainer_anew, deepspeed=config), 8)
    assert sum(count for _, count in updated(recording)) == 4 * parts(8)


# ── Hugging Face ─────────────────────────────────────────────────────────────────────────────────


def test_a_trainer_by_itself_is_replicated() -> None:
    needs("transformers", "accelerate", "datasets")
    recording = captured(programs.trainer_step, 64, rank=9)
    held = between_steps(recording)
    assert recording.parameter_count == whole()
    assert held["parameters"] == SINGLE * whole()
    assert held["optimizer state"] - MOMENTS * whole() < 4096  # and counters
    assert sum(c.inputs[0].elements for c in sums(recording, "allreduce")) >= whole()


def test_a_step_that_builds_its_trainer_anew_ends() -> None:
    needs("transformers", "accelerate", "datasets")
    recording = captured(programs.trainer_anew, 8)
    assert sums(recording, "allreduce")


@pytest.mark.parametrize("program", [programs.sharded_trainer_step, programs.accelerate_step])
@pytest.mark.parametrize("world", [8, 256])
def test_fsdp2_by_way_of_accelerate(program: Callable[[], programs.Step], world: int) -> None:
    """Every weight is divided by its first dimension; the first rank has a full share of each."""
    needs("transformers", "accelerate", "datasets")
    part = sum(-(-shape[0] // world) * prod(shape[1:]) for shape in programs.parameter_shapes())
    recording = captured(program, world)
    held = between_steps(recording)
    assert recording.parameter_count == whole()
    assert held["parameters"] == SINGLE * part
    assert 0 <= held["optimizer state"] - MOMENTS * part < 4096


def test_an_adapter_alone_has_gradients_and_states() -> None:
    needs("trl", "peft", "transformers", "accelerate", "datasets")
    rank = 16
    recording = captured(partial(programs.lora_step, rank), 8)
    held = between_steps(recording)
    adapter = 4 * rank * ((256 + 256) + (256 + 128))  # queries and values of four layers
    assert recording.parameter_count == whole() + adapter
    assert held["parameters"] == SINGLE * (whole() + adapter)
    assert 0 <= held["optimizer state"] - MOMENTS * adapter < 4096
