"""trueflops compare: the fair table."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console

from trueflops import units
from trueflops.catalog import Accelerator, accelerator, accelerators
from trueflops.cli.question import check_length, given_profile
from trueflops.cli.replies import Compared, give
from trueflops.errors import BadInput, UnknownName
from trueflops.language import say
from trueflops.model import Model, read_model
from trueflops.predict import TrainingStep
from trueflops.profile import Profile
from trueflops.report.compare import chip_record, chips_table, footnotes, sort_chips
from trueflops.report.compare_model import encode_answer, print_comparison
from trueflops.report.progress import Waiting
from trueflops.report.tables import console
from trueflops.report.what_helps import encode_helps, encode_why, print_chip_helps, print_why
from trueflops.search.chips import Comparison, best_training, compare_chips
from trueflops.search.hardware import Hardware, Resource
from trueflops.search.what_helps import Help, what_helps, why_faster

USUAL_SEQ: Final = 4096
SHOWN: Final = 6  # chips that an error names
MOST_HELPED: Final = 6  # chips, each of which is searched some forty times


def run(options: argparse.Namespace) -> int:
    """Show chips side by side, and with --for what a model does on them."""
    chips = choose(options)
    if options.what_helps and (options.model is None or len(chips) > MOST_HELPED):
        raise BadInput(
            say(
                "--what-helps predicts again and again: name a model with --for and at most "
                "{most_helped} chips, as compare H100 RTX4090 --for Llama-3.1-8B --what-helps",
                most_helped=MOST_HELPED,
            )
        )
    chips = (
        sort_chips(chips, options.sort or "bf16") if options.sort or not options.chips else chips
    )
    found = None
    if options.model is not None:
        model = read_model(options.model)
        with Waiting(
            say("trying {name} on {number} chips", name=model.name, number=len(chips))
        ) as wait:
            found = compare_chips(
                model,
                chips,
                sequence(options, model),
                count=options.count,
                given=profile_among(options, chips),
                say=wait.say,
            )
    elif options.count or options.profile or options.seq:
        raise BadInput(
            say("--count, --profile and --seq say how a model runs: name one with --for")
        )
    helped = None
    if found is not None and options.what_helps:
        with Waiting(say("what would help")) as wait:
            helped = Helped.of(model, sequence(options, model), found, wait.say)
    if options.json:
        answer = answer_of(options, chips, found)
        give(answer | helped.encode() if helped else answer, Compared(chips, found))
        return 0
    out = console()
    out.print(chips_table(chips))
    out.print(f"[dim]{footnotes(chips)}[/]")
    if found is not None:
        out.print()
        print_comparison(out, found, model.name, options.count)
    if helped is not None:
        helped.show(out)
    return 0


@dataclass(frozen=True)
class Helped:
    """What would help each chip, and why the first is faster or slower than each other."""

    helps: Mapping[str, Sequence[Help]]
    whys: Sequence[tuple[str, str, Mapping[Resource, float]]]  # faster, slower, factors

    @classmethod
    def of(cls, model: Model, seq: int, found: Comparison, say: Callable[[str], None]) -> Helped:
        """Predict each chip with more of each resource, and mixtures of the first with each."""
        steps = {a.chip.name: a.training.result for a in found.answers if a.training.result}

        def best(there: Hardware) -> TrainingStep | None:
            return best_training(model, seq, there)

        def saying(chip: str) -> Callable[[str], None]:
            return lambda text: say(f"{chip}: {text}")

        helps = {name: what_helps(step, best, say=saying(name)) for name, step in steps.items()}
        whys = []
        for name in list(steps)[1:]:
            pair = [next(iter(steps)), name]
            slow, fast = sorted(pair, key=lambda n: -float(steps[n].step.value))
            factors = why_faster(
                steps[slow],
                steps[fast],
                best,
                saying(f"{fast}, {slow}"),
            )
            whys.append((fast, slow, factors))
        return cls(helps, whys)

    def show(self, out: Console) -> None:
        """Two kinds of tables."""
        if self.helps:
            out.print()
            print_chip_helps(out, self.helps)
        for fast, slow, factors in self.whys:
            out.print()
            print_why(out, fast, slow, factors)

    def encode(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "what_helps": {chip: encode_helps(each) for chip, each in self.helps.items()},
            "why_faster": [encode_why(*each) for each in self.whys],
        }


def sequence(options: argparse.Namespace, model: Model) -> int:
    """Tokens of a training sequence."""
    if options.seq is None:
        return min(USUAL_SEQ, model.max_positions)
    seq = units.parse_count(options.seq, what="--seq")
    check_length(model, seq, "--seq")
    return seq


def profile_among(options: argparse.Namespace, chips: Sequence[Accelerator]) -> Profile | None:
    """What --profile names; it must be of one of the chips."""
    given = given_profile(options)
    if given is not None and given.accelerator not in [chip.name for chip in chips]:
        names = ", ".join(chip.name for chip in chips[:SHOWN])
        raise BadInput(
            say(
                "--profile is of {accelerator}, which is none of {names}",
                accelerator=given.accelerator,
                names=names,
            )
        )
    return given


def answer_of(
    options: argparse.Namespace, chips: Sequence[Accelerator], found: Comparison | None
) -> dict[str, Any]:
    """The whole answer for JSON."""
    if found is None:
        return {"for": None, "chips": [chip_record(chip) for chip in chips]}
    return {
        "for": options.model,
        "training_accelerators": found.training_count,
        "serving_accelerators": found.serving_count,
        "chips": [chip_record(a.chip) | encode_answer(a) for a in found.answers],
    }


def choose(options: argparse.Namespace) -> list[Accelerator]:
    """The chips named, or all that ship but for hosts' own, narrowed by vendor and year."""
    chips = [accelerator(name) for name in options.chips] or [
        chip
        for chip in accelerators()
        if not chip.is_cpu and (options.all or chip.status == "shipping")
    ]
    if options.vendor is not None:
        vendors = {chip.vendor.casefold(): chip.vendor for chip in accelerators()}
        if options.vendor.casefold() not in vendors:
            raise UnknownName("vendor", options.vendor, vendors.values())
        chips = [c for c in chips if c.vendor.casefold() == options.vendor.casefold()]
    since, until = options.since or 0, options.until or 9999
    chips = [c for c in chips if since <= c.year <= until]
    if not chips:
        raise BadInput(say("no chip is left after these filters"))
    return chips
