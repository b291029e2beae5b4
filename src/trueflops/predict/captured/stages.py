"""The stages of a pipeline, captured one by one and replayed together.

A stage that was captured alone never waits: messages come at once. Replayed with the others, it
goes on when a message is there, and every collective that several of them take part in begins when
all have come. So the bubble of the program's own schedule comes out, and which stage is slowest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from trueflops.capture.lower import base_name
from trueflops.clock import Clock
from trueflops.predict.captured.compiled import fuse_regions
from trueflops.predict.captured.lowering import Lowering
from trueflops.predict.captured.program import CapturedProgram, program_of
from trueflops.predict.captured.step import as_step, price_step
from trueflops.records.recording import Call, Recording
from trueflops.runtime.replay import replay_together


@dataclass
class CapturedStages:
    """Ranks of one program whose steps were replayed together."""

    ranks: dict[int, CapturedProgram]

    @property
    def seconds(self) -> float:
        """From the first kernel of any rank to the last of all."""
        return max(float(found.step.seconds.value) for found in self.ranks.values())

    @property
    def slowest(self) -> int:
        """The rank that waits least for the others."""
        return min(self.ranks, key=lambda rank: self.ranks[rank].step.waited_seconds)

    @property
    def fullest(self) -> int:
        """The rank with the highest peak of memory."""
        return max(self.ranks, key=lambda rank: self.ranks[rank].memory.peak_allocated_bytes)


def predict_stages(recordings: Mapping[int, Recording], clock: Clock) -> CapturedStages:
    """Price every rank, replay them together, and predict the memory of each."""
    lowering = {rank: Lowering() for rank in recordings}
    fused = {rank: fuse_regions(each, lowering[rank]) for rank, each in recordings.items()}
    meetings = meetings_of(fused)
    priced = {
        rank: price_step(each, clock, lowering[rank], meetings[rank])
        for rank, each in fused.items()
    }
    scores = {rank: each.score for rank, each in priced.items()}
    found = replay_together(scores, clock.host.law, clock.power, one_thread=clock.chip.is_cpu)
    return CapturedStages(
        {
            rank: program_of(
                each,
                fused[rank],
                as_step(priced[rank], found[rank], clock),
                clock,
                lowering[rank],
            )
            for rank, each in recordings.items()
        }
    )


def meetings_of(recordings: Mapping[int, Recording]) -> dict[int, dict[int, Hashable]]:
    """By rank and event of the step, what several of these ranks take part in.

    The nth collective of one kind between the same ranks is the same for all of them; so is the nth
    message from one rank to another, which the one sends and the other receives.
    """
    found: dict[int, dict[int, Hashable]] = {}
    for rank, recording in recordings.items():
        seen: Counter[Hashable] = Counter()
        mine = found[rank] = {}
        for i, event in enumerate(recording.step()):
            if not isinstance(event, Call) or len(event.group) < 2:
                continue
            name = base_name(event.op).strip("_")
            kind = "message" if name.startswith(("send", "recv")) else name
            key = kind, event.group
            seen[key] += 1
            mine[i] = (*key, seen[key])
    taking_part = Counter(key for mine in found.values() for key in mine.values())
    return {
        rank: {i: key for i, key in mine.items() if taking_part[key] > 1}
        for rank, mine in found.items()
    }
