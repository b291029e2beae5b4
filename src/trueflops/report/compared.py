"""Ways to run one plan, side by side: engines of data parallelism, and precisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from trueflops import units
from trueflops.language import mark, say
from trueflops.predict.stragglers.simulate import Mode
from trueflops.report.grid import grid
from trueflops.report.served import mode_name
from trueflops.report.tables import show_list
from trueflops.run.job import Job
from trueflops.run.rounded import Precision, Rounded


@dataclass(frozen=True)
class Way:
    """One run, as its JSON told it."""

    name: str
    answer: Mapping[str, Any]

    @property
    def served(self) -> Mapping[str, Any]:
        """What a parameter server saw; empty where there was none."""
        return self.answer.get("served") or {}

    @property
    def sent_bytes(self) -> float | None:
        """That leave the busiest process in a step; None in a run too short to be counted."""
        out = [e["counted_bytes"] for e in self.answer["passed"] if e["way"] == "out"]
        return sum(out) + sum(e["ring_sends_bytes"] for e in self.answer["collectives"]) or None

    def rates(self, job: Job) -> tuple[float | None, float | None]:
        """Tokens a second, predicted and measured."""
        tokens = job.workload.tokens_per_step
        wanted, took = (self.answer[f"{k}_step_seconds"] for k in ("predicted", "measured"))
        predicted = tokens / wanted if wanted else None
        if self.served:
            simulated = self.served["predicted_tokens_per_second"]
            return simulated or predicted, self.served["tokens_per_second"]
        return predicted, tokens / took if took else None


def way_name(engine: str, updates: Mode, staleness: int, drop: int) -> str:
    """For a row."""
    if engine == "parameter-server":
        return say("server {mode}", mode=mode_name(updates, staleness, drop))
    return {"ddp": "DDP", "dataparallel": "DataParallel"}[engine]


def show_engines(out: Console, job: Job, ways: Sequence[Way], notes: Sequence[str]) -> None:
    """Throughput, staleness, and the loss after the same tokens."""
    title = say(
        "{name}, {replicas} replicas, the same {tokens:,.0f} tokens each way",
        name=job.model.name,
        replicas=int(job.plan.dp),
        tokens=job.workload.tokens_per_step * job.steps,
    )
    out.print()
    out.print(Text(title, "bold"))
    table = grid(
        "engine", ("tokens/s", "right"), ("predicted", "right"), ("stale by", "right"),
        ("at most", "right"), ("loss", "right"), ("sends", "right"),
    )  # fmt: skip
    for way in ways:
        predicted, measured = way.rates(job)
        table.add_row(
            way.name, _rate(measured), _rate(predicted),
            f"{way.served.get('mean_staleness', 0.0):.1f}",
            str(way.served.get("most_staleness", 0)), f"{way.answer['losses'][-1]:.5f}",
            "–" if way.sent_bytes is None else units.show(way.sent_bytes, "bytes"),
        )  # fmt: skip
    out.print(table)
    means = say(
        "loss: of the last batch, the same sequences each way; stale by: updates of others between "
        "reading and changing weights; sends: the busiest process, in a step"
    )
    out.print(Text(means, "dim"))
    for note in notes:
        out.print(Text(f"· {note}"))


def _rate(tokens: float | None) -> str:
    return "–" if tokens is None else f"{tokens:,.0f}"


def encode_engines(job: Job, ways: Sequence[Way], notes: Sequence[str]) -> dict[str, Any]:
    """The same as JSON, with each run's whole answer."""
    rows = []
    for way in ways:
        predicted, measured = way.rates(job)
        rows.append({
            "name": way.name, "tokens_per_second": measured,
            "predicted_tokens_per_second": predicted, "loss": way.answer["losses"][-1],
            "mean_staleness": way.served.get("mean_staleness", 0.0),
            "most_staleness": way.served.get("most_staleness", 0),
            "busiest_sends_bytes": way.sent_bytes, "run": dict(way.answer),
        })  # fmt: skip
    return {"model": job.model.name, "notes": list(notes), "ways": rows}


def show_precisions(out: Console, job: Job, every: Sequence[Rounded], notes: Sequence[str]) -> None:
    """What each precision lost."""
    out.print()
    title = say(
        "{name}, {steps} steps of {tokens:,.0f} tokens in each precision; {optimizer}, learning "
        "rate {rate:g}",
        name=job.model.name,
        steps=job.steps,
        tokens=job.workload.tokens_per_step,
        optimizer=job.plan.optimizer,
        rate=job.learning_rate,
    )
    out.print(Text(title, "bold"))
    table = grid(
        "products", "weights", ("loss scale", "right"), ("left out", "right"),
        ("gradients 0", "right"), ("swamped", "right"), ("distance", "right"), ("loss", "right"),
    )  # fmt: skip
    for each in every:
        of = each.precision
        table.add_row(
            of.compute, of.weights, f"{each.loss_scale:,.0f}" if of.scaled else "none",
            str(each.skipped), f"{each.zero_share:.1%}", f"{each.swamped_share:.1%}",
            f"{each.moved:.4f}", f"{each.losses[-1]:.5f}",
        )  # fmt: skip
    out.print(table)
    out.print()
    show_list(out, "what that means", _meaning(every))
    for note in notes:
        out.print(Text(f"· {note}"))


def _meaning(every: Sequence[Rounded]) -> list[tuple[str, str]]:
    by = {each.precision: each for each in every}
    wide = by[Precision("fp32", "fp32")]
    plain, scaled = by[Precision("fp16", "fp32")], by[Precision("fp16", "fp32", scaled=True)]
    return [
        ("left out", mark("steps whose scaled gradients overflowed: the scale is halved")),
        (
            "gradients 0",
            say(
                "below fp16's smallest number, 6e-8, a gradient is lost: of all of them "
                "{plain:.1%} more than in fp32 without a scale, {scaled:.1%} with it",
                plain=max(plain.zero_share - wide.zero_share, 0.0),
                scaled=max(scaled.zero_share - wide.zero_share, 0.0),
            ),
        ),
        (
            "swamped",
            mark(
                "weights with a gradient that the last step left as they were: the update was "
                "below half of their last bit. A wide copy adds such updates up"
            ),
        ),
        ("distance", mark("how far all weights came from where they began")),
    ]


def encode_precisions(job: Job, every: Sequence[Rounded], notes: Sequence[str]) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "model": job.model.name,
        "notes": list(notes),
        "precisions": [
            {
                "compute": each.precision.compute, "weights": each.precision.weights,
                "loss_scaled": each.precision.scaled, "loss_scale": each.loss_scale,
                "skipped_steps": each.skipped, "zero_gradients": each.zero_share,
                "swamped_updates": each.swamped_share, "moved": each.moved,
                "losses": list(each.losses),
            }
            for each in every
        ],
    }  # fmt: skip
