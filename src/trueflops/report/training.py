"""A training answer for the terminal: waterfall, memory, bill, runners-up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.text import Text

from trueflops import units
from trueflops.catalog import Cluster
from trueflops.language import say, word
from trueflops.plan.words import describe_plan
from trueflops.predict import Bill, Term, TrainingStep
from trueflops.report.grid import Bar, grid
from trueflops.report.tables import NO_PRICE, count, percent, plural, ranged
from trueflops.report.tuning import describe_tuning
from trueflops.report.waterfall import training_waterfall


def print_training(out: Console, step: TrainingStep, bill: Bill, notes: Sequence[str] = ()) -> None:
    """The whole answer for one plan."""
    model, asked = step.model, step.workload
    active = ""
    if model.is_moe:
        active = say(
            ", {active_parameter_count} active",
            active_parameter_count=units.show(model.active_parameter_count, "count"),
        )
    out.print(
        Text.assemble(
            (model.name, "bold"),
            say(
                " ({parameter_count} parameters{active}) on ",
                parameter_count=units.show(model.parameter_count, "count"),
                active=active,
            ),
            describe_cluster(step.cluster),
        )
    )
    out.print(
        say(
            "{tokens} tokens, sequence {seq:,}, global batch {global_batch:,} = "
            "{tokens_per_step} tokens a step",
            tokens=units.show(asked.tokens, "count"),
            seq=asked.seq,
            global_batch=asked.global_batch,
            tokens_per_step=units.show(asked.tokens_per_step, "count"),
        )
    )
    print_plan(out, describe_plan(step.plan), notes)
    if trained := describe_tuning(model, step.plan):
        out.print(trained, highlight=False)
    out.print()
    out.print(waterfall_table(step))
    out.print()
    out.print(memory_table(step.memory, step.capacity_bytes))
    out.print()
    out.print(bill_table(step, bill))


def print_plan(out: Console, plan: str, notes: Sequence[str]) -> None:
    """The plan in a line, and under it why things are as they are where nobody said so."""
    table = grid("", "")
    table.add_row(Text(say("plan"), style="bold"), Text(plan))
    for note in notes:
        table.add_row("", Text(word(note), style="dim"))
    out.print(table)


def describe_cluster(cluster: Cluster) -> str:
    """'64 × H100-SXM5-80GB (8 × DGX-H100)'; a cluster of the user's own by its name too."""
    if cluster.cards:
        kinds = Counter(card.name for card in cluster.cards)
        return " + ".join(name if n == 1 else f"{n} × {name}" for name, n in kinds.items())
    nodes = f"{cluster.nodes:,} × {cluster.node_name}" if cluster.node_name else ""
    own = cluster.name if cluster.own else ""
    more = ", ".join(filter(None, (own, nodes)))
    return f"{cluster.count:,} × {cluster.accelerator.name}" + (f" ({more})" if more else "")


def waterfall_table(step: TrainingStep) -> RenderableType:
    """Bars from the advertised rate to the run's own."""
    falls = training_waterfall(step)
    top = falls[0].flop_per_second
    table = grid("", ("TFLOP/s", "right"), "", "", title="From the box to your run")
    for fall in falls:
        strong = fall.name in ("advertised", "yours")
        rate = units.digits(fall.flop_per_second / units.TERA)
        table.add_row(
            Text(word(fall.name), style="bold" if strong else ""),
            rate,
            Bar(fall.flop_per_second / top, 18, "green" if strong else "cyan"),
            Text(word(fall.why), style="dim"),
        )
    return table


def memory_table(memory: Term, capacity: float) -> RenderableType:
    """Parts of the fullest accelerator, largest bar is its capacity."""
    whole = float(memory.value)
    table = grid("", ("GiB", "right"), "", title="Memory of the fullest accelerator")
    longest = max(capacity, whole)
    for part in memory.parts:
        size = float(part.value)
        if size >= 0.05 * units.GIBI:
            gibi = f"{size / units.GIBI:,.1f}"
            table.add_row(part.name, gibi, Bar(size / longest, 40, "magenta"))
    sure = float(memory.estimate.high) <= capacity
    verdict = (
        "fits"
        if sure
        else say("fits, but could need {high}", high=_gib(float(memory.estimate.high)))
    )
    if whole > capacity:
        verdict = say("[red]{whole} too many[/]", whole=_gib(whole - capacity))
    table.add_row(
        "[bold]sum[/]",
        f"[bold]{whole / units.GIBI:,.1f}[/]",
        say("of {capacity}: {verdict}", capacity=_gib(capacity), verdict=verdict),
    )
    return table


def bill_table(step: TrainingStep, bill: Bill) -> RenderableType:
    """Time, throughput, money and energy with their intervals."""
    table = grid("", ("", "right"), ("90 % interval", "right"), "", title="What it takes")

    def row(name: str, value: tuple[str, str], note: str = "") -> None:
        table.add_row(name, *value, Text(word(note), style="dim"))

    row("step", ranged(bill.step_seconds, "seconds"), plural(bill.steps, "step"))
    row(
        "tokens/s",
        ranged(bill.tokens_per_second, "count"),
        say(
            "{value} per accelerator",
            value=count(float(bill.tokens_per_second.value) / step.cluster.count),
        ),
    )
    row("MFU", percent(bill.mfu), say("of the dense {compute} peak", compute=step.plan.compute))
    if step.plan.recompute != "none":
        row("HFU", percent(bill.hfu), "recomputation counted")
    row("time", ranged(bill.seconds, "seconds"))
    row("chip-hours", ranged(bill.accelerator_hours, "count"))
    if bill.usd and bill.price:
        when = f", {bill.price.date}" if bill.price.date else ""
        row(
            "cost",
            ranged(bill.usd, "usd"),
            f"{units.show(bill.price.usd_per_hour, 'usd_per_hour')} {word(bill.price.kind)}{when}",
        )
    else:
        table.add_row(
            "cost", "?", "", Text(say("{no_price}; give --price 2", no_price=NO_PRICE), style="dim")
        )
    if bill.kwh and bill.watts:
        energy = bill.kwh.times(units.JOULES_PER_KWH)
        row(
            "energy",
            ranged(energy, "joules"),
            say("{value} while it runs", value=units.show(float(bill.watts.value), "watts")),
        )
    else:
        table.add_row(
            "energy", "?", "", Text(say("no power figure known for this chip"), style="dim")
        )
    return table


def runners_up_table(best: Sequence[tuple[TrainingStep, Bill]]) -> RenderableType:
    """The plans a search kept, best first."""
    table = grid(
        "", ("step", "right"), ("MFU", "right"), ("GiB", "right"), "plan", title="Best plans"
    )
    for rank, (step, bill) in enumerate(best, 1):
        table.add_row(
            str(rank),
            units.show(float(bill.step_seconds.value), "seconds"),
            percent(bill.mfu)[0],
            f"{float(step.memory.value) / units.GIBI:.1f}",
            describe_plan(step.plan),
        )
    return table


def stages_table(stages: Sequence[Term], capacity: float) -> RenderableType:
    """Memory of every pipeline stage, part by part."""
    columns = {
        "weights": ["weights"],
        "grads": ["gradients"],
        "optim": ["optimizer states"],
        "activations": ["activations"],
        "logits": ["logits and loss"],
        "buffers": [
            "working tensors",
            "communication buffers",
            "library workspaces",
            "allocator slack",
            "communicators",
            "context",
        ],
    }
    table = grid(
        ("stage", "right"),
        *((name, "right") for name in columns),
        ("sum", "right"),
        title="Memory of every stage, GiB",
    )
    for index, stage in enumerate(stages):
        cells = [
            f"{sum(float(stage[name].value) for name in names) / units.GIBI:.1f}"
            for names in columns.values()
        ]
        whole = float(stage.value)
        over = " ✗" if whole > capacity else ""
        total = Text(f"{whole / units.GIBI:.1f}{over}", style="red" if over else "")
        table.add_row(str(index), *cells, total)
    return table


def tree_table(tree: Term) -> RenderableType:
    """A prediction's tree with the share, interval and origin of every part."""
    table = grid(
        "part",
        ("value", "right"),
        ("share", "right"),
        ("90 % interval", "right"),
        "origin",
        title=say("Every part of the {name}", name=tree.name),
    )
    whole = float(tree.value)
    dimension = "memory" if tree.unit == "bytes" else tree.unit

    def walk(term: Term, depth: int) -> None:
        value = float(term.value)
        if depth and value < 1e-6 * whole:
            return
        text, interval = ranged(term.estimate, dimension)
        certain = not term.deviations()
        table.add_row(
            "  " * depth + term.name,
            text,
            f"{100 * value / whole:.1f} %",
            Text(say("exact") if certain else interval, style="dim"),
            Text(word(term.claim), style="dim"),
        )
        for part in term.parts:
            walk(part, depth + 1)

    walk(tree, 0)
    return table


def _gib(size: float) -> str:
    return units.show(size, "memory")


def why_not(step: TrainingStep) -> str:
    """By how much a plan does not fit, and where."""
    over = float(step.memory.value) - step.capacity_bytes
    if over > 0:
        return say("{over} too many on the fullest accelerator", over=units.show(over, "memory"))
    # The accelerator has room; what it offloads does not fit the host.
    over = float(step.host_bytes) * step.cluster.per_node - (step.cluster.node_memory_bytes or 0.0)
    return say(
        "{over} too many in a node's memory, for what is offloaded", over=units.show(over, "memory")
    )
