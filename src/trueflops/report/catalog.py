"""Records of the catalog: every fact with its origin and source, errata beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from trueflops import units
from trueflops.catalog import DTYPES, Accelerator, Cluster, Fact, errata_about, price
from trueflops.catalog.accelerators import accelerators
from trueflops.catalog.facts import sources
from trueflops.catalog.formats import NumberFormat, formats, number_format
from trueflops.catalog.links import Link, links
from trueflops.catalog.models import model_names
from trueflops.catalog.names import index
from trueflops.catalog.nodes import Node
from trueflops.catalog.peaks import DEPARTURES, computed_peak
from trueflops.catalog.prices import purchases, rents
from trueflops.errors import printable
from trueflops.measure.record import data_folder
from trueflops.model import read_model
from trueflops.profile.library import profiles
from trueflops.report.tables import grid


def print_overview(out: Console) -> None:
    """What the catalog holds, by kind."""
    by_vendor: dict[str, list[str]] = {}
    for chip in accelerators():
        by_vendor.setdefault(chip.vendor, []).append(chip.name)
    vendors = {vendor: ", ".join(names) for vendor, names in by_vendor.items()}
    _wrapped(out, f"{len(accelerators())} accelerators", vendors)
    models: dict[str, list[str]] = {}
    for name in model_names():
        models.setdefault(name.partition("-")[0], []).append(name)
    families = {f: ", ".join(n) for f, n in models.items()}
    _wrapped(out, f"{len(model_names())} models", families)
    rest = {
        "nodes": ", ".join(p.stem for p in index("nodes").values()),
        "clusters": ", ".join(p.stem for p in index("clusters").values()),
        "formats": ", ".join(formats()),
        "links": ", ".join(known.name for known in links()),
    }
    _wrapped(out, "Nodes, clusters, formats, links", rest)
    shelves = {
        "shipped": ", ".join(p.name for p in profiles() if p.shipped) or "none",
        "yours": ", ".join(p.name for p in profiles() if not p.shipped)
        or f"none in {printable(str(data_folder() or '~'))}; trueflops measure makes one",
    }
    _wrapped(out, "Measured profiles, for --profile", shelves)
    out.print("[dim]trueflops catalog NAME shows one of them with its sources;[/]")
    out.print("[dim]trueflops measure show NAME a profile[/]")


def _wrapped(out: Console, title: str, rows: Mapping[str, str]) -> None:
    out.print(Text(title, style="bold"))
    for name, text in rows.items():
        out.print(Text.assemble((f"  {name}: ", "cyan"), text), soft_wrap=False)
    out.print()


def print_accelerator(out: Console, chip: Accelerator) -> None:
    """One chip: facts, the peak recomputed, other figures that circulate, errata, prices."""
    out.print(f"[bold]{chip.name}[/]  {chip.vendor} {chip.architecture}, {chip.year}, {chip.form}")
    if chip.status != "shipping":
        out.print(f"[yellow]{chip.status}[/]")
    if chip.devices_per_package > 1:
        out.print(f"published per package of {chip.devices_per_package} devices; used per device")
    out.print(_facts(chip.facts))
    _print_peaks(out, chip)
    for other in chip.alternatives:
        out.print(
            Text(f"also seen: {other.field} {other.value} ({other.source}): {other.why}", "yellow")
        )
    for note in chip.notes:
        out.print(Text(f"note: {note}", style="dim"))
    _print_errata(out, chip.name)
    _print_prices(out, chip)
    _print_sources(out, chip.facts)


def _print_peaks(out: Console, chip: Accelerator) -> None:
    """Units × FMA × 2 × clock beside the printed peak."""
    for dtype in ("bf16", "fp16"):
        computed, printed = computed_peak(chip, dtype), chip.get(f"peak.{dtype}")
        if computed and printed:
            count, clock = chip.need("compute.units"), chip.need("compute.clock")
            fma = computed / count / clock / 2.0
            why = ""
            if abs(computed / printed - 1) > 0.015 and chip.name in DEPARTURES:
                why = f"; {DEPARTURES[chip.name][1]}"
            out.print(
                f"[cyan]check[/] {dtype}: {count:.0f} units × {fma:.0f} FMA/clock × 2 × "
                f"{units.show(clock, 'hertz')} = {units.show(computed, 'flop_per_second')}"
                f" (printed: {units.show(printed, 'flop_per_second')}{why})"
            )
            return


def _print_errata(out: Console, name: str) -> None:
    for erratum in errata_about(name):
        out.print(
            Text.assemble(
                ("erratum ", "red"),
                f"document {erratum.document} says: {erratum.says} ",
                ("It is: ", "bold"),
                erratum.is_,
            )
        )


def _print_prices(out: Console, chip: Accelerator) -> None:
    going = price(chip)
    if going:
        out.print(
            f"[cyan]rent[/] {units.show(going.usd_per_hour, 'usd_per_hour')} "
            f"({units.show(going.low, 'usd')} – {units.show(going.high, 'usd')}), {going.kind}, "
            f"{going.date}; {len(rents(chip.name))} rows on record"
        )
    for bought in purchases(chip.name):
        out.print(f"[cyan]purchase[/] {bought['price']}, {bought.get('date', 'no date')}")


def _facts(facts: Mapping[str, Fact]) -> Any:
    table = grid("fact", ("value", "right"), "origin", "source")
    for path, fact in facts.items():
        said = f"{fact.source}: {fact.note}" if fact.note else fact.source
        table.add_row(
            path,
            Text(fact.text),
            Text(fact.origin, style=_style(fact.origin)),
            Text(said, style="dim"),
        )
    return table


def _style(origin: str) -> str:
    return {"assumed": "yellow", "measured": "green"}.get(origin, "")


def _print_sources(out: Console, facts: Mapping[str, Fact]) -> None:
    out.print(Text("sources", style="bold"))
    for key in sorted({fact.source for fact in facts.values()}):
        out.print(Text(f"  {key}: {sources().get(key, {}).get('citation', key)}", style="dim"))


def print_node(out: Console, node: Node) -> None:
    """One host."""
    out.print(
        f"[bold]{node.name}[/]  {node.count} × {node.accelerator.name}, "
        f"{node.topology or 'single'}, domain of {node.domain}"
    )
    if node.aliases:
        out.print(f"also: {', '.join(node.aliases)}")
    out.print(_facts(node.facts))
    for note in node.notes:
        out.print(Text(f"note: {note}", style="dim"))
    _print_sources(out, node.facts)


def print_cluster(out: Console, cluster: Cluster) -> None:
    """One installation and the tiers of its fabric."""
    out.print(
        f"[bold]{cluster.name}[/]  {cluster.count:,} × {cluster.accelerator.name} in "
        f"{cluster.nodes:,} × {cluster.node_name}"
    )
    table = grid(
        "tier", ("joins", "right"), ("per accelerator, one way", "right"), "wiring", "origin"
    )
    for tier in cluster.tiers:
        reach = "all" if tier.reach == float("inf") else f"{tier.reach:,.0f}"
        table.add_row(
            tier.name,
            reach,
            units.show(tier.bandwidth, "bytes_per_second"),
            tier.topology,
            tier.origin,
        )
    out.print(table)


def print_link(out: Console, link: Link) -> None:
    """One kind of link."""
    out.print(f"[bold]{link.name}[/]  {link.scope}{', ' + link.layout if link.layout else ''}")
    out.print(_facts(link.facts))
    for note in link.notes:
        out.print(Text(f"note: {note}", style="dim"))
    _print_sources(out, link.facts)


def print_format(out: Console, of: NumberFormat) -> None:
    """One number format, what it loses, and who computes in it."""
    out.print(f"[bold]{of.name}[/]  {of.about}")
    table = grid("", ("", "right"))
    kind = "two's complement" if of.is_integer else f"1 + {of.exponent} + {of.mantissa}"
    table.add_row("bits (sign, exponent, mantissa)", kind)
    table.add_row("bytes in memory", f"{of.bytes:g}")
    table.add_row("largest", f"{of.maximum:.6g}")
    table.add_row("smallest normal", f"{of.smallest_normal:.6g}")
    table.add_row("smallest above zero", f"{of.smallest:.6g}")
    table.add_row("epsilon (gap after 1)", f"{of.epsilon:.6g}")
    out.print(table)
    if not of.is_integer:
        weight, update = 2.0**-3, 2.0**-14
        rounded = of.round(weight + update)
        lost = "the update is lost" if rounded == weight else "the update survives"
        out.print(f"2⁻³ + 2⁻¹⁴ = {rounded:.10g}: {lost}. This is why weights have an fp32 copy.")
    dtype = next((d for d in DTYPES if number_format(d.removesuffix("_tensor")) == of), "")
    chips = [chip.name for chip in accelerators() if dtype and chip.computes(dtype)]
    if chips:
        out.print(Text(f"computed by {len(chips)} chips: {', '.join(chips)}", style="dim"))


def print_model(out: Console, record: Mapping[str, Any]) -> None:
    """One model: size, shape, source, and the config's own fields."""
    model = read_model(record["name"])
    out.print(
        f"[bold]{model.name}[/]  {model.parameter_count:,} parameters"
        + (f", {model.active_parameter_count:,} active" if model.is_moe else "")
        + (
            f" (published: {record['published_parameters']})"
            if "published_parameters" in record
            else ""
        )
    )
    table = grid("field", "value")
    for field, value in record["config"].items():
        shown = str(value)
        table.add_row(Text(field), Text(shown if len(shown) < 50 else shown[:49] + "…"))
    out.print(table)
    _print_errata(out, model.name)
    for note in record.get("notes", ()):
        out.print(Text(f"note: {note}", style="dim"))
    out.print(Text(f"source: {record['source']}", style="dim"))
