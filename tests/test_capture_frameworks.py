"""megatron-core and torchtitan from their own code: bytes per rank are those of arithmetic.

Skipped where they are not installed: pip install megatron-core==0.16.1 torchtitan==0.2.2.
"""

from __future__ import annotations

from functools import partial
from importlib import metadata
from math import lcm
from pathlib import Path
from typing import NamedTuple

import pytest

from trueflops.capture.pretend.machine import Machine
from trueflops.capture.program import capture_script, capture_stages, run_file
from trueflops.predict.captured.memory import captured_memory
from trueflops.records.recording import Allocated, Recording
from trueflops.units import GIBI, MEBI

H100 = Machine("NVIDIA H100 80GB HBM3", 80 * int(GIBI), 132, (9, 0), 50 * int(MEBI))
EXAMPLES = Path(__file__).parents[1] / "examples"


def has(package: str, version: str) -> bool:
    """Whether such a version is installed."""
    try:
        return metadata.version(package).startswith(version)
    except metadata.PackageNotFoundError:
        return False


# ── megatron-core ────────────────────────────────────────────────────────────────────────────────

megatron = pytest.mark.skipif(not has("megatron-core", "0.16"), reason="needs megatron-core 0.16")
VOCABULARY, WIDTH, LAYERS, MICRO_BATCHES = 50304, 256, 4, 4
SIZES = f"--hidden {WIDTH} --heads 8 --layers {LAYERS} --seq 128 --microbatches {MICRO_BATCHES}"


class Split(NamedTuple):
    """How a model is spread over ranks."""

    world: int
    tp: int = 1
    pp: int = 1
    ep: int = 1
    experts: int = 0
    words: str = ""

    @property
    def flags(self) -> list[str]:
        """For the example."""
        own = f"--tp {self.tp} --pp {self.pp} --ep {self.ep} --experts {self.experts}"
        return f"{SIZES} {own} {self.words}".split()

    def dense(self, stage: int) -> int:
        """Parameters of one rank that all data-parallel ranks share."""
        h, tp = WIDTH, self.tp
        each = 4 * h * h // tp + 2 * h  # queries, keys, values, projection; two norms
        if self.experts:
            each += self.experts * h  # the router
        else:
            each += 8 * h * h // tp + (3 * h + 4 * h) // tp + 2 * h  # the rest, and all biases
        ends = VOCABULARY * h // tp * ((stage == 0) + (stage == self.pp - 1))
        return LAYERS // self.pp * each + ends + (h if stage == self.pp - 1 else 0)

    def sparse(self) -> int:
        """Parameters of the experts of one rank."""
        local = self.experts // self.ep
        return LAYERS // self.pp * local * 8 * WIDTH * WIDTH


class Shared(NamedTuple):
    """Parameters in a buffer of megatron's, of which every data-parallel rank updates a part."""

    parameters: int
    ranks: int

    @property
    def buffer(self) -> int:
        """Its elements: padded so that all parts are alike and begin at 256 bytes (bf16)."""
        step = lcm(self.ranks, 128)
        return -(-self.parameters // step) * step

    def share(self, place: int) -> int:
        """Parameters that one rank updates; the last may have fewer."""
        part = self.buffer // self.ranks
        return max(0, min(part, self.parameters - place * part))


@megatron
@pytest.mark.parametrize(
    ("split", "rank"),
    [
        (Split(8, tp=2, pp=2, words="--sp"), 0),
        (Split(8, tp=2, pp=2, words="--sp --recompute --overlap"), 7),
        (Split(8, pp=2, words="--vpp 2"), 4),
        (Split(256, tp=4, pp=4, words="--sp"), 255),
        (Split(8, tp=2, ep=4, experts=8, words="--sp"), 0),
        (Split(64, pp=2, ep=8, experts=16, words="--topk 4 --dispatcher allgather"), 63),
    ],
    ids=str,
)
def test_bytes_of_a_megatron_rank_are_those_of_arithmetic(split: Split, rank: int) -> None:
    found = capture_script(
        EXAMPLES / "megatron_gpt.py", split.flags, H100, world=split.world, rank=rank
    )
    stage = rank * split.pp // split.world
    dense, sparse = split.dense(stage), split.sparse()
    assert found.parameter_count == dense + sparse
    held = captured_memory(found).by("category")
    ranks, places = split.world // split.pp, rank % (split.world // split.pp)
    whole = Shared(dense, ranks // split.tp), Shared(sparse, ranks // split.ep)
    buffers = sum(each.buffer for each in whole)
    assert held["parameters"] == 2 * buffers
    assert held["gradients"] == 4 * buffers
    # Weights in fp32 and two moments, each rank its share; steps are counted on the host.
    own = whole[0].share(places // split.tp) + whole[1].share(places // split.ep)
    assert held["optimizer state"] == 12 * own
    out = [c for c in found.calls() if c.op == "c10d.send.default"]
    chunks = 2 if "--vpp" in split.words else 1
    sides = 2 * chunks - 2 if chunks > 1 else 0
    expected = sides + (stage > 0) + (stage < split.pp - 1)
    assert len(out) == MICRO_BATCHES * expected


@megatron
def test_stages_of_megatron_send_what_the_others_receive() -> None:
    flags = Split(4, pp=4).flags
    run = partial(run_file, EXAMPLES / "megatron_gpt.py", flags)
    found = capture_stages(run, H100, world=4, rank=2)
    assert sorted(found) == [0, 1, 2, 3]

    def routes(word: str) -> list[tuple[int, ...]]:
        calls = (c for each in found.values() for c in each.calls())
        return sorted(c.group for c in calls if c.op.startswith(f"c10d.{word}"))

    assert routes("send") == routes("recv")
    assert len(routes("send")) == 6 * MICRO_BATCHES


# ── torchtitan ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.skipif(not has("torchtitan", "0.2"), reason="needs torchtitan 0.2")
@pytest.mark.parametrize("rank", [0, 7])
def test_bytes_of_a_torchtitan_stage_are_those_of_arithmetic(rank: int) -> None:
    flags = (
        "--model.flavor debugmodel --parallelism.pipeline_parallel_degree 2 "
        "--training.local_batch_size 4 --training.seq_len 128"
    )
    found = capture_script(
        EXAMPLES / "torchtitan_llama.py", flags.split(), H100, world=8, rank=rank
    )
    held = captured_memory(found).by("category")
    local = 4 * found.parameter_count // 4  # fp32, over the four ranks of a stage
    assert held["parameters"] == local
    assert 0 <= held["optimizer state"] - 2 * local <= 4 * 64
    assert gradient_bytes(found) == local
    assert sum(c.op == "c10d.send.default" for c in found.calls()) == 4


def gradient_bytes(recording: Recording) -> int:
    """Bytes of the gradients that the recorded step made for its optimizer."""
    return sum(
        event.size_bytes
        for event in recording.step()
        if isinstance(event, Allocated) and recording.roles.get(event.storage) == "gradients"
    )
