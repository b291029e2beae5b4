"""The largest models that a cluster trains or serves: a row each, largest first."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from trueflops import units
from trueflops.catalog import Cluster
from trueflops.language import say, word
from trueflops.plan.words import describe_plan, serving_words
from trueflops.predict import ServingPoint, TrainingStep
from trueflops.report import encode
from trueflops.report.grid import grid
from trueflops.report.tables import plural
from trueflops.search.largest import Models


def print_trained_models(out: Console, models: Models[TrainingStep], where: Cluster) -> None:
    """What each step takes, by which plan."""
    out.print(say("[bold]The largest models that {where} surely trains[/]", where=_named(where)))
    table = grid("", ("parameters", "right"), ("memory", "right"), ("tokens/s", "right"), "plan")
    for model, step in models.found:
        table.add_row(
            model.name,
            units.show(model.parameter_count, "count"),
            units.show(float(step.memory.value), "memory"),
            units.show(step.workload.tokens_per_step / float(step.step.value), "count"),
            describe_plan(step.plan),
        )
    out.print(table)
    _print_rest(out, models)


def print_served_models(out: Console, models: Models[ServingPoint], where: Cluster) -> None:
    """How fast each answers, in which format."""
    asked = models.found[0].result.workload
    out.print(
        say(
            "[bold]The largest models that {where} serves[/], {requests} at a time, "
            "{input:,} tokens in, {output:,} out",
            where=_named(where),
            requests=plural(asked.concurrency, "request"),
            input=asked.input,
            output=asked.output,
        )
    )
    table = grid(
        "",
        ("parameters", "right"),
        "weights",
        ("memory", "right"),
        ("first token", "right"),
        ("tokens/s each", "right"),
        ("KV cache tokens", "right"),
        "plan",
    )
    for model, point in models.found:
        table.add_row(
            model.name,
            units.show(model.parameter_count, "count"),
            point.weights.name,
            units.show(float(point.memory.value), "memory"),
            units.show(float(point.ttft.value), "seconds"),
            f"{1.0 / float(point.tpot.value):.1f}",
            units.show(float(point.kv_cache.tokens.value), "count"),
            " · ".join(serving_words(point.plan)),
        )
    out.print(table)
    _print_rest(out, models)


def why_without(models: Models[Any]) -> str:
    """How many fell out, by the reason."""
    said = [f"{count} {word(reason)}" for reason, count in models.without.most_common()]
    first = say("; the first: {why}", why=models.refusal) if models.refusal else ""
    return ", ".join(said) + first


def encode_models(models: Models[Any]) -> dict[str, Any]:
    """As JSON."""
    return {
        "models": [
            {"model": model.name, "parameters": model.parameter_count} | _encode(result)
            for model, result in models.found
        ],
        "without": dict(models.without),
        "first_refusal": models.refusal,
        "smaller": models.smaller,
    }


def _encode(result: TrainingStep | ServingPoint) -> dict[str, Any]:
    common = {"plan": encode.plan(result.plan), "memory_bytes": result.memory.value}
    if isinstance(result, TrainingStep):
        return common | {"step_seconds": result.step.value}
    return common | {
        "weights": result.weights.name,
        "ttft_seconds": result.ttft.value,
        "tpot_seconds": result.tpot.value,
        "kv_cache_tokens": result.kv_cache.tokens.value,
    }


def _named(where: Cluster) -> str:
    return f"{where.count} × {where.accelerator.name}"


def _print_rest(out: Console, models: Models[Any]) -> None:
    fell = why_without(models)
    rest = say(
        "{smaller} smaller ones were not looked at: --top N lists more", smaller=models.smaller
    )
    out.print(Text(f"{fell}; {rest}" if fell else rest, style="dim"))
    first = models.found[0]
    out.print(say("\nMore of one: name it instead of any, as {name}", name=first.model.name))
