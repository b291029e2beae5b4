"""What each framework's own code holds in training, captured; and what `train` predicts of it.

    python benchmarks/framework_memory.py capture [WORD…]   with the frameworks that are installed
    python benchmarks/framework_memory.py compare           anywhere, from truth/captured/memory.csv
    python benchmarks/framework_memory.py reserve           likewise: what PyTorch's allocator keeps
Scripts of framework_programs/ run on tensors without data as one rank of an H100 cluster; bytes are
those at the step's peak of allocated memory. Cases whose framework is missing are left as they are
in the table, and one line says so.
"""

from __future__ import annotations

import csv
import json
import multiprocessing
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

import trueflops as tf
from framework_programs.cases import (
    AGAIN,
    ALONE,
    DEEP,
    EIGHT_B,
    EXPERTS,
    LISTS,
    MIXED,
    ONE_B,
    SMALL,
    SUMS,
    THREE_B,
    WIDE,
    Case,
    Fields,
    case_of,
)
from trueflops.model.config import Config
from trueflops.model.read import model_from
from trueflops.predict.training.peaks import peak_of
from trueflops.profile import CurveKey
from trueflops.profile.frameworks import habits
from trueflops.units import GIBI

HERE: Final = Path(__file__).parent
TABLE: Final = HERE.parent / "truth" / "captured" / "memory.csv"
PARTS: Final = ("weights", "gradients", "states", "rest", "peak", "reserved")
SOFTWARE: Final = {
    "alone": ("torch", "transformers"),
    "ddp": ("torch", "transformers"),
    "fsdp1": ("torch", "transformers"),
    "fsdp2": ("torch", "transformers"),
    "trainer": ("torch", "transformers", "accelerate", "datasets"),
    "deepspeed": ("torch", "transformers", "deepspeed"),
    "megatron": ("torch", "megatron-core"),
}


# ── the cases ────────────────────────────────────────────────────────────────────────────────────


def cases() -> Iterator[Case]:
    """All of them."""
    yield from _torch()
    yield from _fsdp()
    yield from _deepspeed()
    yield from _megatron()
    yield from _apart()


def _torch() -> Iterator[Case]:
    yield Case(**ALONE, **SMALL, seq=2048, micro_batch=4)
    yield Case(**ALONE, **SMALL, seq=1024, micro_batch=8, **MIXED)
    yield Case(**ALONE, **{**SMALL, "tied": 1}, seq=512, micro_batch=2)
    yield Case(**ALONE, **ONE_B, seq=2048)
    yield Case(**ALONE, **DEEP, seq=512)
    yield Case(**ALONE, **DEEP, seq=2048, micro_batch=2, accumulation=2)
    yield Case(**ALONE, **THREE_B, seq=4096, **AGAIN)
    ddp: Fields = {"engine": "ddp", **LISTS}
    yield Case(**ddp, **ONE_B, seq=2048, **MIXED)
    yield Case(**ddp, **DEEP, seq=2048, micro_batch=2, accumulation=2, **MIXED)
    yield Case(**ddp, **SMALL, seq=1024, micro_batch=4, world=64)
    yield Case(**ddp, **THREE_B, seq=4096, micro_batch=2, **AGAIN)
    trainer: Fields = {"engine": "trainer"}
    yield Case(**trainer, **SMALL, seq=1024, micro_batch=4, **MIXED)
    yield Case(**trainer, **SMALL, seq=2048, micro_batch=2, autocast=1, world=1)
    yield Case(**trainer, **ONE_B, seq=2048, micro_batch=2, autocast=1, **AGAIN)
    yield Case(**trainer, **ONE_B, seq=1024, micro_batch=1, **MIXED, **AGAIN)
    yield Case(**trainer, **DEEP, seq=512, accumulation=2, **MIXED)
    yield Case(**trainer, **THREE_B, seq=2048, autocast=1, accumulation=4, **AGAIN)
    yield Case(**trainer, **THREE_B, seq=512, micro_batch=4, autocast=1, world=16)


def _fsdp() -> Iterator[Case]:
    two: Fields = {"engine": "fsdp2", **LISTS}
    yield Case(**two, **ONE_B, seq=2048, **WIDE)
    yield Case(**two, **DEEP, seq=512, **WIDE)
    yield Case(**two, **DEEP, seq=2048, micro_batch=2, accumulation=2, **WIDE, **AGAIN)
    yield Case(**two, **DEEP, seq=1024, zero=3, world=16)
    yield Case(**two, **THREE_B, seq=2048, micro_batch=2, **WIDE)
    yield Case(**two, **THREE_B, seq=1024, **{**WIDE, "gradient_dtype": "bf16"}, world=32)
    yield Case(**two, **EIGHT_B, seq=4096, **WIDE, **AGAIN)
    yield Case(**two, **EIGHT_B, seq=8192, **WIDE, world=64)
    one: Fields = {"engine": "fsdp1", **LISTS}
    yield Case(**one, **ONE_B, seq=2048, **{**WIDE, "gradient_dtype": "bf16"})
    yield Case(**one, **DEEP, seq=512, **{**WIDE, "gradient_dtype": "bf16"})
    yield Case(**one, **DEEP, seq=2048, micro_batch=2, **WIDE, **AGAIN)
    yield Case(**one, **THREE_B, seq=1024, **WIDE, world=32)
    yield Case(**one, **EIGHT_B, seq=4096, **{**WIDE, "gradient_dtype": "bf16"}, **AGAIN)


def _deepspeed() -> Iterator[Case]:
    ours: Fields = {"engine": "deepspeed"}
    half: Fields = {"parameter_dtype": "fp16", "gradient_dtype": "fp16"}
    small: Fields = {"bucket": 50_000_000}
    away: Fields = {"offload_optimizer": 1}
    yield Case(**ours, **ONE_B, seq=2048, zero=1)
    yield Case(**ours, **DEEP, seq=512, zero=1)
    yield Case(**ours, **DEEP, seq=512, zero=1, **small, accumulation=2)
    yield Case(**ours, **THREE_B, seq=2048, micro_batch=2, zero=1, **half, **AGAIN)
    yield Case(**ours, **THREE_B, seq=1024, zero=1, **half, accumulation=2, world=16)
    yield Case(**ours, **ONE_B, seq=2048, zero=2, **half)
    yield Case(**ours, **DEEP, seq=512, zero=2)
    yield Case(**ours, **DEEP, seq=512, zero=2, **small, accumulation=2)
    yield Case(**ours, **THREE_B, seq=2048, micro_batch=2, zero=2)
    yield Case(**ours, **EIGHT_B, seq=4096, zero=2, **AGAIN)
    yield Case(**ours, **ONE_B, seq=2048, zero=3)
    yield Case(**ours, **DEEP, seq=512, zero=3)
    yield Case(**ours, **DEEP, seq=512, zero=3, **half, **small, accumulation=2)
    yield Case(**ours, **THREE_B, seq=2048, zero=3, **small)
    yield Case(**ours, **EIGHT_B, seq=4096, zero=3, **AGAIN)
    yield Case(**ours, **EIGHT_B, seq=4096, zero=3, **small, world=64, **AGAIN)
    yield Case(**ours, **DEEP, seq=512, zero=2, **away)
    yield Case(**ours, **THREE_B, seq=2048, zero=2, **away, **small, **AGAIN)
    yield Case(**ours, **DEEP, seq=512, zero=3, **away, offload_parameters=1)
    yield Case(**ours, **EIGHT_B, seq=2048, zero=3, **away, **AGAIN)


def _megatron() -> Iterator[Case]:
    ours: Fields = {"engine": "megatron"}
    yield Case(**ours, **DEEP, seq=512, zero=1, **SUMS, accumulation=2)
    yield Case(**ours, **DEEP, seq=2048, **SUMS, accumulation=2, **AGAIN)
    yield Case(**ours, **DEEP, seq=4096, zero=1, tp=2, sp=1, **SUMS, accumulation=2)
    yield Case(**ours, **DEEP, seq=4096, zero=1, tp=2)
    yield Case(**ours, **DEEP, seq=2048, zero=1, pp=4, **SUMS, accumulation=8)
    yield Case(**ours, **DEEP, seq=2048, zero=1, pp=4, **SUMS, accumulation=8, rank=7)
    yield Case(**ours, **DEEP, seq=2048, zero=1, pp=4, vpp=2, **SUMS, accumulation=8)
    yield Case(**ours, **ONE_B, seq=4096, zero=1, tp=2, sp=1, **SUMS, accumulation=4)
    yield Case(**ours, **ONE_B, seq=4096, zero=1, pp=2, **SUMS, accumulation=8)
    yield Case(**ours, **ONE_B, seq=4096, zero=1, pp=2, **SUMS, accumulation=8, rank=7)
    yield Case(**ours, **THREE_B, seq=2048, micro_batch=2, zero=1, tp=2, sp=1, accumulation=2)
    yield Case(**ours, **THREE_B, seq=2048, tp=4, sp=1, **SUMS, accumulation=2)
    yield Case(**ours, **EIGHT_B, seq=8192, zero=1, tp=4, sp=1, **SUMS, accumulation=2, world=32)
    yield Case(**ours, **EIGHT_B, seq=8192, zero=1, tp=8, sp=1, **AGAIN, accumulation=2, world=64)
    staged: Fields = {"tp": 2, "sp": 1, "pp": 4, "accumulation": 8, "world": 16, **SUMS}
    yield Case(**ours, **EIGHT_B, seq=4096, zero=1, **staged)
    yield Case(**ours, **EIGHT_B, seq=4096, zero=1, **staged, rank=15)
    yield Case(**ours, **EXPERTS, seq=2048, zero=1, ep=4, **SUMS, accumulation=2)
    yield Case(**ours, **EXPERTS, seq=4096, zero=1, ep=8, **SUMS, accumulation=2, **AGAIN)


def _apart() -> Iterator[Case]:
    """Captured after every law was written: none was changed for them."""
    ends: Fields = {
        "layers": 20, "hidden": 1536, "heads": 12, "kv_heads": 2, "ffn": 8960, "vocab": 151936,
        "tied": 1,
    }  # fmt: skip
    yield Case(engine="alone", **ends, seq=1024, micro_batch=2, world=1, **LISTS, **MIXED)
    yield Case(engine="ddp", **ends, seq=1024, accumulation=3, **LISTS)
    yield Case(engine="trainer", **ends, seq=512, micro_batch=3, autocast=1, accumulation=2)
    yield Case(engine="fsdp2", **ends, seq=4096, world=16, **LISTS, **WIDE, **AGAIN)
    yield Case(engine="fsdp1", **ends, seq=1024, micro_batch=2, world=4, **LISTS, **WIDE)
    yield Case(engine="deepspeed", **ends, seq=2048, micro_batch=2, zero=2, accumulation=2)
    yield Case(engine="deepspeed", **ends, seq=1024, zero=3, world=32, **AGAIN)
    split: Fields = {"tp": 2, "sp": 1, "pp": 2, "zero": 1, "accumulation": 4, **SUMS}
    yield Case(engine="megatron", **ends, seq=2048, **split)
    yield Case(engine="megatron", **ends, seq=2048, **split, rank=7)


# ── capturing ────────────────────────────────────────────────────────────────────────────────────


def captured(case: Case) -> dict[str, int]:
    """Bytes at the peak of the recorded step, by what they are for."""
    from trueflops.capture.pretend.machine import Machine
    from trueflops.capture.program import capture_script
    from trueflops.predict.captured.compiled import fuse_regions
    from trueflops.predict.captured.lowering import Lowering
    from trueflops.predict.captured.memory import captured_memory

    chip = tf.accelerator("H100")
    script = "megatron_llama.py" if case.engine == "megatron" else "hugging_face.py"
    recording = capture_script(
        HERE / "framework_programs" / script,
        [json.dumps(asdict(case))],
        Machine.like(chip),
        world=case.world,
        rank=case.rank,
    )
    found = captured_memory(
        fuse_regions(recording, Lowering()),
        workspace=int(chip.architecture.blas_workspace_bytes),
    )
    held = found.by("category")
    return {
        "weights": held.pop("parameters", 0),
        "gradients": held.pop("gradients", 0),
        "states": held.pop("optimizer state", 0),
        "rest": sum(held.values()),
        "peak": found.peak_allocated_bytes,
        "reserved": found.peak_reserved_bytes,
    }


def apart(case: Case) -> dict[str, int]:
    """The same in a process of its own: frameworks keep state in their modules."""
    context: Any = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def run() -> None:
        try:
            theirs.send(captured(case))
        except BaseException as error:
            theirs.send(f"{type(error).__name__}: {error}")

    child = context.Process(target=run)
    child.start()
    found = ours.recv()
    child.join()
    if isinstance(found, str):
        raise RuntimeError(f"{case.name}: {found}")
    return dict(found)


def installed(engine: str) -> str:
    """Versions of what an engine needs; "" where some of it is missing."""
    try:
        return " ".join(f"{name} {metadata.version(name)}" for name in SOFTWARE[engine])
    except metadata.PackageNotFoundError:
        return ""


def capture_all(words: list[str]) -> None:
    """Capture the cases whose names have all these words, or without any those that the table
    lacks, and put them into it.
    """
    table = {row.case: row for row in rows()}
    missing = set()
    for case in cases():
        if not all(word in case.name for word in words) or (not words and case in table):
            continue
        software = installed(case.engine)
        if not software:
            missing.add(case.engine)
            continue
        print(case.name, flush=True)
        try:
            table[case] = Row(case, apart(case), software)
        except RuntimeError as error:
            print(f"  {str(error)[-300:]}")
            continue
        write([table[each] for each in cases() if each in table])
    for engine in sorted(missing):
        print(f"{engine}: left as it is; needs {', '.join(SOFTWARE[engine])}")


# ── the table ────────────────────────────────────────────────────────────────────────────────────


class Row(NamedTuple):
    """A case that was captured: bytes by part, and by which software."""

    case: Case
    parts: dict[str, int]
    software: str


def rows() -> list[Row]:
    """The table as it is."""
    if not TABLE.exists():
        return []
    found = []
    with TABLE.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            parts = {part: int(line[f"{part}_bytes"]) for part in PARTS}
            found.append(Row(case_of(line), parts, line["software"]))
    return found


def write(found: list[Row]) -> None:
    """The table anew."""
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        lines = [
            {
                **asdict(row.case),
                **{f"{part}_bytes": row.parts[part] for part in PARTS},
                "software": row.software,
            }
            for row in found
        ]
        writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


# ── predicting ───────────────────────────────────────────────────────────────────────────────────

FRAMEWORKS: Final = {
    "alone": "transformers", "ddp": "transformers", "fsdp1": "fsdp", "fsdp2": "fsdp2",
    "deepspeed": "deepspeed", "trainer": "trainer", "megatron": "megatron",
}  # fmt: skip
KEEPERS: Final = {
    "alone": "torch", "ddp": "torch", "trainer": "torch", "fsdp1": "fsdp1", "fsdp2": "fsdp2",
    "deepspeed": "deepspeed", "megatron": "megatron",
}  # fmt: skip
"""Whose code holds what: cases of one share their settings of the allocator."""


def model_of(case: Case) -> tf.Model:
    """Its config.json."""
    config: dict[str, Any] = {
        "model_type": "mixtral" if case.experts else "llama",
        "hidden_size": case.hidden,
        "intermediate_size": case.expert_ffn or case.ffn,
        "num_hidden_layers": case.layers,
        "num_attention_heads": case.heads,
        "num_key_value_heads": case.kv_heads,
        "vocab_size": case.vocab,
        "tie_word_embeddings": bool(case.tied),
        "max_position_embeddings": case.seq,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
    }
    if case.experts:
        config |= {"num_local_experts": case.experts, "num_experts_per_tok": case.per_token}
    return model_from(Config(config, case.name), case.name)


def plan_of(case: Case) -> tf.Plan:
    """The same plan in the words of `train`."""
    dp = case.world // (case.tp * case.pp)
    eager = case.engine != "megatron"
    wide = case.parameter_dtype == "fp32" or case.engine in ("deepspeed", "megatron")
    return tf.Plan(
        tp=case.tp,
        sp=bool(case.sp),
        pp=case.pp,
        vpp=case.vpp,
        ep=case.ep,
        dp_replicate=1 if case.zero else dp,
        dp_shard=dp if case.zero else 1,
        zero=case.zero,
        micro_batch=case.micro_batch,
        recompute=case.recompute,
        offload_optimizer=float(case.offload_optimizer),
        offload_parameters=float(case.offload_parameters),
        optimizer="adamw" if wide else "adamw-bf16",
        compute="fp16" if case.parameter_dtype == "fp16" else "bf16",
        parameter_dtype=case.parameter_dtype,
        gradient_dtype=case.gradient_dtype,
        mixed="autocast" if case.autocast else "engine",
        implementation="eager" if eager else "library",
        fused=not eager,
        reduce_bucket=float(case.bucket),
        overlap=habits(case.engine).overlaps(case.zero) if case.engine == "deepspeed" else True,
    )


def trainer_of(case: Case, **allocator: float) -> tf.Trainer:
    """Who predicts a case, with these settings of the allocator in place of its framework's."""
    nodes, each = max(case.world // 8, 1), min(case.world, 8)
    where = tf.cluster(f"{nodes}x{each}xH100")
    profile = tf.profile_of(where.accelerator, FRAMEWORKS[case.engine])
    law = profile.curve("allocator")
    own = {CurveKey("allocator"): replace(law, values={**law.values, **allocator})}
    dp = case.world // (case.tp * case.pp)
    batch = case.micro_batch * case.accumulation * dp
    asked = tf.Training(seq=case.seq, global_batch=batch, tokens=1e9)
    return tf.Trainer(
        model_of(case), asked, where, replace(profile, curves={**profile.curves, **own})
    )


def stage_of(case: Case) -> int:
    """The pipeline stage of the case's rank."""
    return case.rank * case.pp // case.world


def predicted(case: Case) -> dict[str, float]:
    """What `trueflops train` says of the rank's stage, in the table's parts."""
    memory = trainer_of(case).memory_by_stage(plan_of(case))[stage_of(case)]
    held = {part.name: float(part.value) for part in peak_of(memory, "allocated").parts}
    peak = sum(held.values())
    parts = {
        "weights": held.pop("weights"),
        "gradients": held.pop("gradients"),
        "states": held.pop("optimizer states"),
    }
    return {**parts, "rest": sum(held.values()), "peak": peak}


# ── comparing ────────────────────────────────────────────────────────────────────────────────────


def compare() -> None:
    """Predicted against captured, part by part, and how far peaks are off."""
    errors: dict[str, list[float]] = defaultdict(list)
    for row in rows():
        ours = predicted(row.case)
        error = ours["peak"] / row.parts["peak"] - 1.0
        errors[row.case.engine].append(error)
        print(f"{100.0 * error:+6.1f} %  {row.case.name}")
        shown = ("weights", "gradients", "states", "rest", "peak")
        parts = (f"{p} {row.parts[p] / GIBI:.2f} → {ours[p] / GIBI:.2f}" for p in shown)
        print(f"          GiB: {', '.join(parts)}")
    errors["all"] = [error for found in errors.values() for error in found]
    print("engine      cases   mean   worst")
    for engine, found in errors.items():
        sizes = [abs(error) for error in found]
        mean, worst = 100.0 * sum(sizes) / len(sizes), 100.0 * max(sizes)
        print(f"{engine:10} {len(found):6} {mean:5.1f} % {worst:5.1f} %")


def cached(case: Case, **allocator: float) -> float:
    """Bytes that the allocator is predicted to keep beside the peak, slack included."""
    stored = trainer_of(case, slack=0.0, **allocator).stored_by_stage(plan_of(case))
    sizes = np.broadcast_to(stored.cached, np.shape(stored.memory.value))
    return float(sizes[stage_of(case)].item())


def reserve() -> None:
    """Captured reserved memory beside predicted, and which settings would miss it by least."""
    found: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for row in rows():
        own, passing = cached(row.case), cached(row.case, cached=1.0, unshared=0.0)
        apart = cached(row.case, cached=0.0, unshared=1.0)
        captured, peak = row.parts["reserved"], row.parts["peak"]
        miss = (peak + own) / captured - 1.0
        print(f"{100.0 * miss:+6.1f} %  {row.case.name}")
        found[KEEPERS[row.case.engine]].append((captured - peak, passing, apart, captured, miss))
    print("keeper     cases   mean   bias  without     cached, unshared that miss by least")
    for keeper, cases in found.items():
        extra, passing, apart, captured, miss = np.array(cases).T
        without, mean, bias = (np.mean(v) for v in (extra / captured, np.abs(miss), miss))
        shares = ((c / 100.0, u / 20.0) for c in range(41) for u in range(31))
        best = min(
            shares, key=lambda s: np.mean(np.abs(s[0] * passing + s[1] * apart - extra) / captured)
        )
        numbers = f"{100 * mean:5.1f} % {100 * bias:+5.1f} % {100 * without:6.1f} %"
        print(f"{keeper:10} {len(cases):6} {numbers}     {best[0]:.2f}, {best[1]:.2f}")


if __name__ == "__main__":
    command, *words = sys.argv[1:] or ["compare"]
    if command == "capture":
        capture_all(words)
    elif command == "reserve":
        reserve()
    else:
        compare()
