"""What a model does on several chips, equally many of each: two tables, and the same as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from trueflops import units
from trueflops.catalog import price
from trueflops.language import mark, say, word
from trueflops.plan.usual import BATCH_TOKENS
from trueflops.predict import TrainingStep, training_bill
from trueflops.report.grid import Column, Grid, grid
from trueflops.report.tables import MARK, NO_PRICE, count, plural
from trueflops.search.chips import (
    OUTPUT,
    PROMPT,
    REQUESTS_PER_CHIP,
    ChipAnswer,
    Comparison,
    Outcome,
)

RATE: Final[Column] = ("tokens/s", "right")
RESTS_ON: Final = (
    "peak.bf16", "peak.fp16", "compute.units", "compute.clock", "memory.capacity",
    "memory.bandwidth", "links.scale_up_bandwidth",
)  # fmt: skip
"""Facts of a chip that every prediction uses."""
COST: Final[Column] = (mark("$/M tokens"), "right")
FEWEST: Final[Column] = ("fewest", "right")


def print_comparison(out: Console, found: Comparison, model: str, asked: int | None) -> None:
    """Training, then serving; then why some cannot, and under which conditions."""
    answers = found.answers
    fewest = [[a.training.fewest for a in answers], [a.serving.fewest for a in answers]]
    heading = _heading(
        say("Training {model} on", model=model), found.training_count, asked, fewest[0]
    )
    out.print(_training(found, heading, asked))
    tokens = units.show(BATCH_TOKENS, "count")
    out.print(
        Text(
            say(
                "mixed-precision AdamW, best plan found, at least {tokens} tokens a step",
                tokens=tokens,
            ),
            "dim",
        )
    )
    out.print()
    heading = _heading(
        say("Serving {model} from", model=model), found.serving_count, asked, fewest[1]
    )
    out.print(_serving(found, heading, asked))
    formats = _formats(answers)
    weights = (
        say("{formats} weights", formats=formats[0])
        if len(formats) == 1
        else say("weights as released, or as narrow")
    )
    asked_of = [a.serving.result.workload for a in answers if a.serving.result]
    prompt = asked_of[0].input if asked_of else PROMPT
    load = say(
        "{prompt:,} tokens in, {output} out, {requests_per_chip} requests a chip",
        prompt=prompt,
        output=OUTPUT,
        requests_per_chip=REQUESTS_PER_CHIP,
    )
    out.print(Text(f"{weights}, {load}", style="dim"))
    fewest_means = "" if asked else say("; fewest: of this chip that can")
    out.print(
        Text(say("tokens/s are per chip{fewest_means}", fewest_means=fewest_means), style="dim")
    )
    for line in _reasons(answers):
        out.print(Text(line, style="dim"))
    if any(_marked(answer) for answer in answers):
        out.print(
            Text(say("{mark} rests on unconfirmed figures of the chip", mark=MARK), style="dim")
        )


def _marked(answer: ChipAnswer) -> str:
    """A mark where no source is at hand for what the answer rests on."""
    return MARK if set(RESTS_ON) & set(answer.chip.unconfirmed) else ""


def _name(answer: ChipAnswer) -> str:
    return answer.chip.name + _marked(answer)


def _heading(does: str, common: int | None, asked: int | None, fewest: Sequence[int | None]) -> str:
    """'Training Llama-3.1-8B on 16 of each, the fewest on which all can'."""
    if common is None:
        return say(
            "{does} {asked} of each: none of them can", does=does, asked=asked or say("any number")
        )
    if asked:
        return say("{does} {asked:,} of each", does=does, asked=asked)
    able = [size for size in fewest if size is not None]
    who = say("all can") if max(able) <= common else say("three in four can")
    if len(able) < len(fewest) and max(able) <= common:
        who = say("all can that can at all")
    if len(fewest) == 1:
        many = plural(common, "chip")
        return say("{does} {many}, the fewest that can", does=does, many=many)
    return say(
        "{does} {common:,} of each, the fewest on which {who}", does=does, common=common, who=who
    )


def _formats(answers: Sequence[ChipAnswer]) -> list[str]:
    return list(dict.fromkeys(answer.weights.name for answer in answers))


def _training(found: Comparison, title: str, asked: int | None) -> Grid:
    more = () if asked else (FEWEST,)
    table = grid("chip", RATE, ("MFU", "right"), COST, *more, title=title)
    for answer in found.answers:
        step = answer.training.result
        cells = [_no(answer.training), "", ""]
        if step:
            bill = training_bill(step)
            each = float(bill.tokens_per_second.value) / step.cluster.count
            mfu = f"{100 * float(bill.mfu.value):.0f} %"
            cells = [count(each), mfu, _usd(training_usd_per_million(step))]
        table.add_row(_name(answer), *cells, *([] if asked else [_fewest(answer.training)]))
    return table


def _serving(found: Comparison, title: str, asked: int | None) -> Grid:
    mixed = len(_formats(found.answers)) > 1
    more = [*([] if asked else [FEWEST]), *(["weights"] if mixed else [])]
    table = grid("chip", RATE, ("per token", "right"), COST, *more, title=title)
    for answer in found.answers:
        point = answer.serving.result
        cells = [_no(answer.serving), "", ""]
        if point:
            each = float(point.tokens_per_second.value) / point.cluster.count
            usd = point.usd_per_million_tokens
            tpot = units.show(float(point.tpot.value), "seconds")
            cells = [count(each), tpot, _usd(float(usd.value) if usd else None)]
        cells += [] if asked else [_fewest(answer.serving)]
        table.add_row(_name(answer), *cells, *([answer.weights.name] if mixed else []))
    return table


def _no(outcome: Outcome[Any]) -> str:
    return say("needs more") if outcome.fewest else say("no")


def _fewest(outcome: Outcome[Any]) -> str:
    return f"{outcome.fewest:,}" if outcome.fewest else "–"


def _usd(dollars: float | None) -> str:
    return word(NO_PRICE) if dollars is None else units.show(dollars, "usd")


def _reasons(answers: Sequence[ChipAnswer]) -> list[str]:
    """Why some chips cannot at all, one line each."""
    lines = []
    for answer in answers:
        why = [o.why for o in (answer.training, answer.serving) if o.fewest is None and o.why]
        if why:
            lines.append(
                say(
                    "no: {name}: {names}",
                    name=answer.chip.name,
                    names=say("; ").join(dict.fromkeys(why)),
                )
            )
    return lines


def training_usd_per_million(step: TrainingStep) -> float | None:
    """Dollars per million tokens trained on."""
    rent = price(step.cluster.accelerator)
    if rent is None:
        return None
    per_second = rent.usd_per_hour * step.cluster.count / units.SECONDS_PER_HOUR
    return per_second / float(training_bill(step).tokens_per_second.value) * units.MILLION


def encode_answer(answer: ChipAnswer) -> dict[str, Any]:
    """One chip's training and serving for JSON."""
    step, point = answer.training.result, answer.serving.result
    bill = training_bill(step) if step else None
    usd = point.usd_per_million_tokens if point else None
    return {
        "training": step and bill and {
            "accelerators": step.cluster.count,
            "tokens_per_second": float(bill.tokens_per_second.value),
            "mfu": float(bill.mfu.value),
            "usd_per_million_tokens": training_usd_per_million(step),
        },
        "training_fewest_accelerators": answer.training.fewest,
        "why_not_training": answer.training.why or None,
        "serving": point and {
            "accelerators": point.cluster.count,
            "weights": point.weights.name,
            "tokens_per_second": float(point.tokens_per_second.value),
            "ttft_seconds": float(point.ttft.value),
            "tpot_seconds": float(point.tpot.value),
            "usd_per_million_tokens": float(usd.value) if usd else None,
        },
        "serving_fewest_accelerators": answer.serving.fewest,
        "why_not_serving": answer.serving.why or None,
    }  # fmt: skip
