"""Speculative decoding for the terminal and as JSON: with and without, best length, limit."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from trueflops import units
from trueflops.language import say, word
from trueflops.predict import ServingPoint
from trueflops.predict.serving.point import SpeculativeGain
from trueflops.predict.serving.speculator import Outlook
from trueflops.report.encode import estimate, term
from trueflops.report.grid import grid
from trueflops.report.tables import plural, ranged


def print_speculation(out: Console, point: ServingPoint, outlook: Outlook) -> None:
    """What drafts bring at this load, which length is best, and at which batch they stop paying."""
    gain = point.gain
    assert gain is not None, "asked of a point without drafts"
    s = gain.speculation
    table = grid("", ("", "right"), ("90 % interval", "right"), "", title="Speculative decoding")

    def row(name: str, value: str, between: str = "", note: str = "") -> None:
        table.add_row(name, value, between, Text(word(note), style="dim"))

    verified = say("{drafted} drafted", drafted=plural(s.drafted, "token"))
    if gain.drafter_bytes:
        verified += say(
            ", drafter {drafter_bytes} of weights",
            drafter_bytes=units.show(gain.drafter_bytes, "memory"),
        )
    row("tokens a step", f"{gain.tokens:.2f}", note=f"{s.method.name}, {verified}")
    row(
        "step without drafts",
        *ranged(gain.plain.estimate, "seconds"),
        say("batch {running:,}", running=point.running),
    )
    row("step with drafts", *ranged(gain.step.estimate, "seconds"), _parts(gain))
    low, value, high = (float(x) for x in (gain.speedup.low, gain.speedup.value, gain.speedup.high))
    row("speed-up", f"{value:.2f} ×", f"{low:.2f} … {high:.2f}", "tokens/s, prompts aside")
    if outlook.best:
        best = outlook.best
        row(
            "best length",
            plural(best.drafted, "token"),
            note=say(
                "{value:.2f} × with {tokens:.2f} tokens a step",
                value=float(best.speedup.value),
                tokens=best.tokens,
            ),
        )
    note = say("requests at once in a replica")
    if outlook.no_gain_from is None:
        note = say(
            "drafts pay up to the {tried:,} requests that a replica has room for",
            tried=outlook.tried,
        )
    row("no gain from", _limit(outlook), note=note)
    out.print(table)


def _parts(gain: SpeculativeGain) -> str:
    """How a step divides into verification and the rest."""
    rest = float(gain.step.value) - float(gain.step["verification"].value)
    verified = units.show(float(gain.step["verification"].value), "seconds")
    return say(
        "{verified} to verify, {rest} to draft", verified=verified, rest=units.show(rest, "seconds")
    )


def _limit(outlook: Outlook) -> str:
    return (
        "–"
        if outlook.no_gain_from is None
        else say("batch {no_gain_from:,}", no_gain_from=outlook.no_gain_from)
    )


def encode_speculation(gain: SpeculativeGain, outlook: Outlook) -> dict[str, Any]:
    """The same as JSON."""
    s = gain.speculation
    return {
        "method": s.method.name,
        "drafted_tokens": s.drafted,
        "drafting_passes": s.passes if s.drafter else 0,
        "tokens_per_step": gain.tokens,
        "acceptance_why": s.why,
        "acceptance_source": "" if s.acceptance.is_given else s.method.source,
        "drafter_weight_bytes": gain.drafter_bytes,
        **estimate("speedup", gain.speedup),
        "step": term(gain.step),
        "step_without_drafts": term(gain.plain),
        "no_gain_from_batch": outlook.no_gain_from,
        "by_drafted_tokens": [
            {
                "drafted_tokens": each.drafted,
                "tokens_per_step": each.tokens,
                "speedup": float(each.speedup.value),
            }
            for each in outlook.lengths
        ],
    }
