"""A captured step beside the one that was accepted: what grew, down to kernels and tensors.

A kernel is found again by op, phase and module, a tensor by category and place: shapes and lines
may move. Predictions of one release are exact functions of the program, so that what differs
between two of them is the program's, whatever error both share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from trueflops import __version__
from trueflops.capture.lower import base_name
from trueflops.dtypes import short_name
from trueflops.errors import BadInput, printable, shorten
from trueflops.language import say
from trueflops.predict.captured.groups import alike_layers, shapes_of
from trueflops.predict.captured.memory import Holding
from trueflops.predict.captured.program import CapturedProgram
from trueflops.predict.captured.step import Ran
from trueflops.records.baseline import Baseline, KernelRow, TensorRow, rounded

NAMED: Final = 0.02  # of all that grew: below this a kernel or tensor is not named


def baseline_of(
    found: CapturedProgram, program: str, arguments: Sequence[str] = (), assumed: Sequence[str] = ()
) -> Baseline:
    """What is kept of a captured step."""
    parts = {part.name: rounded(float(part.value)) for part in found.step.told()}
    return Baseline(
        program=program,
        arguments=tuple(arguments),
        assumed=tuple(sorted(assumed)),
        on=found.clock.cluster.name,
        world=found.recording.world,
        rank=found.recording.rank,
        profile=found.clock.profile.name,
        trueflops=__version__,
        torch=found.recording.torch.partition("+")[0],  # the build (+cpu) computes nothing here
        step_seconds=rounded(float(found.step.seconds.value)),
        peak_allocated_bytes=found.memory.peak_allocated_bytes,
        parts={name: seconds for name, seconds in parts.items() if seconds},
        kernels=_kernels(found.step.ran),
        tensors=_tensors(found.memory.alive),
    )


def _kernels(ran: Iterable[Ran]) -> tuple[KernelRow, ...]:
    groups: dict[tuple[str, str, str], list[Ran]] = defaultdict(list)
    for each in ran:
        call = each.kernel.call
        name = each.kernel.name if call.group else base_name(call.op).strip("_")
        groups[name, call.phase, alike_layers(call.module)].append(each)
    found = []
    for key, members in groups.items():
        first = max(members, key=lambda r: r.seconds).kernel.call
        operands = first.inputs or first.outputs
        shapes = f"{short_name(operands[0].dtype)} {shapes_of(operands)}" if operands else ""
        seconds = sum(r.seconds for r in members)
        found.append(KernelRow(*key, shapes, len(members), rounded(seconds), first.source))
    return tuple(sorted(found))


def _tensors(alive: Iterable[Holding]) -> tuple[TensorRow, ...]:
    groups: dict[tuple[str, str], list[Holding]] = defaultdict(list)
    for each in alive:
        groups[each.category, alike_layers(each.place)].append(each)
    found = []
    for key, members in groups.items():
        size = sum(h.size_bytes for h in members)
        largest = max(members, key=lambda h: h.size_bytes)
        found.append(TensorRow(*key, len(members), size, largest.source))
    return tuple(sorted(found))


class Growth(NamedTuple):
    """Seconds or bytes that grew, and whose they are."""

    name: str
    before: float
    now: float
    detail: str = ""  # shapes, or how many: as they were → as they are
    source: str = ""

    @property
    def grew(self) -> float:
        """How much was added."""
        return self.now - self.before


@dataclass(frozen=True)
class Comparison:
    """A step beside its baseline."""

    before: Baseline
    now: Baseline
    tolerance: float
    parts: tuple[Growth, ...]
    kernels: tuple[Growth, ...]
    tensors: tuple[Growth, ...]

    @property
    def slower(self) -> bool:
        """Whether the step takes longer than is tolerated."""
        return self._beyond(self.before.step_seconds, self.now.step_seconds)

    @property
    def larger(self) -> bool:
        """Whether the peak is higher than is tolerated."""
        return self._beyond(self.before.peak_allocated_bytes, self.now.peak_allocated_bytes)

    @property
    def passed(self) -> bool:
        """Whether neither grew."""
        return not (self.slower or self.larger)

    @property
    def better(self) -> bool:
        """Whether one shrank by more than is tolerated, and neither grew by so much."""
        pairs = (
            (self.now.step_seconds, self.before.step_seconds),
            (self.now.peak_allocated_bytes, self.before.peak_allocated_bytes),
        )
        return self.passed and any(self._beyond(now, before) for now, before in pairs)

    def _beyond(self, before: float, now: float) -> bool:
        return now > before * (1.0 + self.tolerance)

    @property
    def releases(self) -> str:
        """What else than the program may have moved the answer."""
        moved = [
            f"{name} {before}, now {now}"
            for name, before, now in (
                ("trueflops", self.before.trueflops, self.now.trueflops),
                ("torch", self.before.torch, self.now.torch),
            )
            if before != now
        ]
        return "; ".join(moved)


def compare(before: Baseline, now: Baseline, tolerance: float) -> Comparison:
    """Hold a step against its baseline, and find what grew."""
    parts = [
        Growth(name, before.parts.get(name, 0.0), seconds) for name, seconds in now.parts.items()
    ]
    return Comparison(
        before, now, tolerance,
        _grown(parts),
        _grown(_kernel_growth(before.kernels, now.kernels)),
        _grown(_tensor_growth(before.tensors, now.tensors)),
    )  # fmt: skip


def _grown(rows: Iterable[Growth]) -> tuple[Growth, ...]:
    """The most first; what is a small part of all that grew is left out."""
    found = sorted((r for r in rows if r.grew > 0.0), key=lambda r: (-r.grew, r.name))
    whole = sum(row.grew for row in found)
    return tuple(row for row in found if row.grew >= NAMED * whole)


def _kernel_growth(before: Iterable[KernelRow], now: Iterable[KernelRow]) -> Iterable[Growth]:
    known = {(row.kernel, row.phase, row.module): row for row in before}
    for row in now:
        old = known.get((row.kernel, row.phase, row.module))
        name = " ".join(filter(None, (row.kernel, row.phase, row.module and f"in {row.module}")))
        detail = f"new: {row.calls:,} × {row.shapes}"
        if old is not None:
            detail = _moved(f"{old.calls:,} × {old.shapes}", f"{row.calls:,} × {row.shapes}")
        yield Growth(name, old.seconds if old else 0.0, row.seconds, detail, row.source)


def _tensor_growth(before: Iterable[TensorRow], now: Iterable[TensorRow]) -> Iterable[Growth]:
    known = {(row.category, row.where): row for row in before}
    for row in now:
        old = known.get((row.category, row.where))
        name = f"{row.category}: {row.where}" if row.where else row.category
        detail = f"new: {row.storages:,} × a storage"
        if old is not None:
            detail = f"{_moved(f'{old.storages:,}', f'{row.storages:,}')} × a storage"
        size = float(old.size_bytes) if old else 0.0
        yield Growth(name, size, float(row.size_bytes), detail, row.source)


def _moved(before: str, now: str) -> str:
    return now if before == now else f"{before} → {now}"


def check_question(before: Baseline, now: Baseline, path: Path) -> None:
    """Refuse to compare answers to different questions."""
    then, asked = before.question, now.question
    differ = [name for name in asked if asked[name] != then[name]]
    if differ:
        name = differ[0]
        raise BadInput(
            say(
                "{path}: {name} is {then!r} there and {asked!r} here; name another "
                "--baseline, or accept this step with --update",
                path=printable(str(path)),
                name=name,
                then=shorten(str(then[name]), 60),
                asked=shorten(str(asked[name]), 60),
            )
        )
