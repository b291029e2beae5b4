"""Records of the catalog: every fact with its origin and source, errata beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from trueflops import units
from trueflops.catalog import DTYPES, Accelerator, Cluster, Fact, errata_about, price
from trueflops.catalog.accelerators import accelerators
from trueflops.catalog.facts import UNCONFIRMED, sources
from trueflops.catalog.formats import NumberFormat, number_format
from trueflops.catalog.links import Link
from trueflops.catalog.lookup import names_by_kind
from trueflops.catalog.models import model_names
from trueflops.catalog.nodes import Node
from trueflops.catalog.peaks import DEPARTURES, computed_peak
from trueflops.catalog.prices import purchases, rents
from trueflops.errors import printable
from trueflops.language import say, word
from trueflops.model import read_model
from trueflops.profile.library import profiles
from trueflops.records.measured import data_folder
from trueflops.report.grid import Grid, grid
from trueflops.report.tables import FOOTNOTE, MARK, plural

LISTED = 6  # values of a list


def print_overview(out: Console) -> None:
    """What the catalog holds, by kind."""
    by_vendor: dict[str, list[str]] = {}
    for chip in accelerators():
        by_vendor.setdefault(chip.vendor, []).append(chip.name)
    vendors = {vendor: ", ".join(names) for vendor, names in by_vendor.items()}
    _wrapped(out, say("{number} accelerators", number=len(accelerators())), vendors)
    models: dict[str, list[str]] = {}
    for name in model_names():
        models.setdefault(name.partition("-")[0], []).append(name)
    families = {f: ", ".join(n) for f, n in models.items()}
    _wrapped(out, say("{number} models", number=len(model_names())), families)
    kinds = names_by_kind()
    rest = {kind: ", ".join(kinds[kind]) for kind in ("nodes", "clusters", "formats", "links")}
    _wrapped(out, say("Nodes, clusters, formats, links"), rest)
    shelves = {
        "shipped": ", ".join(p.name for p in profiles() if p.shipped) or "none",
        "yours": ", ".join(p.name for p in profiles() if not p.shipped)
        or say(
            "none in {data_folder}; trueflops measure makes one",
            data_folder=printable(str(data_folder() or "~")),
        ),
    }
    _wrapped(out, say("Measured profiles, for --profile"), shelves)
    out.print(say("[dim]trueflops catalog NAME shows one of them with its sources;[/]"))
    out.print(say("[dim]trueflops measure show NAME a profile[/]"))


def _wrapped(out: Console, title: str, rows: Mapping[str, str]) -> None:
    table = grid("", "", title=title)
    for name, text in rows.items():
        table.add_row(Text(f"  {name}", style="cyan"), Text(text))
    out.print(table)
    out.print()


def print_accelerator(out: Console, chip: Accelerator) -> None:
    """One chip: facts, the peak recomputed, other figures that circulate, errata, prices."""
    built = f"{chip.vendor} {chip.architecture.name}, {chip.year}, {chip.form}"
    out.print(f"[bold]{chip.name}[/]  {built}")
    if chip.status != "shipping":
        out.print(f"[yellow]{chip.status}[/]")
    if chip.devices_per_package > 1:
        out.print(
            say(
                "published per package of {devices_per_package} devices; used per device",
                devices_per_package=chip.devices_per_package,
            )
        )
    out.print(_facts(chip.facts))
    if chip.architecture.facts:
        out.print(
            _facts(chip.architecture.facts, say("all of {name}", name=chip.architecture.name))
        )
    table = grid("", "")
    _add_peaks(table, chip)
    for other in chip.alternatives:
        mark = f" {MARK}" if other.source == UNCONFIRMED else ""
        said = f"{other.field} {other.value}{mark} ({other.source}): {other.why}"
        table.add_row(Text(say("also seen"), style="yellow"), Text(said))
    _add_notes(table, chip.notes)
    _add_errata(table, chip.name)
    _add_prices(table, chip)
    out.print(table)
    _print_sources(out, chip.facts, chip.architecture.facts)


def _add_peaks(table: Grid, chip: Accelerator) -> None:
    """Units × FMA × 2 × clock beside the printed peak."""
    for dtype in ("bf16", "fp16"):
        computed, printed = computed_peak(chip, dtype), chip.get(f"peak.{dtype}")
        if computed and printed:
            count, clock = chip.need("compute.units"), chip.need("compute.clock")
            fma = computed / count / clock / 2.0
            why = ""
            if abs(computed / printed - 1) > 0.015 and chip.name in DEPARTURES:
                why = f"; {DEPARTURES[chip.name][1]}"
            said = say(
                "{dtype}: {count:.0f} units × {fma:.0f} FMA/clock × 2 × {clock} = {computed} "
                "(printed: {printed}{why})",
                dtype=dtype,
                count=count,
                fma=fma,
                clock=units.show(clock, "hertz"),
                computed=units.show(computed, "flop_per_second"),
                printed=units.show(printed, "flop_per_second"),
                why=why,
            )
            table.add_row(Text(say("check"), style="cyan"), Text(said))
            return


def _add_notes(table: Grid, notes: Iterable[str]) -> None:
    for note in notes:
        table.add_row(Text(say("note"), style="dim"), Text(note, style="dim"))


def _print_notes(out: Console, notes: Iterable[str]) -> None:
    table = grid("", "")
    _add_notes(table, notes)
    out.print(table)


def _add_errata(table: Grid, name: str) -> None:
    for erratum in errata_about(name):
        wrong = Text.assemble((f"{erratum.title} ", "dim"), say("says: {says} ", says=erratum.says),
                              (say("It is: "), "bold"), erratum.is_)  # fmt: skip
        table.add_row(Text(say("erratum"), style="red"), wrong)


def _add_prices(table: Grid, chip: Accelerator) -> None:
    going = price(chip)
    if going:
        said = say(
            "{usd_per_hour} ({low}), {kind}, {date}; {number} on record",
            usd_per_hour=units.show(going.usd_per_hour, "usd_per_hour"),
            low=units.show_between(going.low, going.usd_per_hour, going.high, "usd"),
            kind=going.kind,
            date=going.date,
            number=plural(len(rents(chip.name)), "row"),
        )
        table.add_row(Text(say("rent"), style="cyan"), Text(said))
    for bought in purchases(chip.name):
        when = bought.get("date", "no date")
        table.add_row(Text(say("purchase"), style="cyan"), Text(f"{bought['price']}, {when}"))


def _facts(facts: Mapping[str, Fact], title: str = "") -> Any:
    table = grid("fact", ("value", "right"), "origin", "source", title=title)
    for path, fact in facts.items():
        said = f"{fact.source}: {fact.note}" if fact.note else fact.source
        table.add_row(
            path,
            Text(f"{fact.text} {MARK}" if fact.unconfirmed else fact.text),
            Text(word(fact.origin), style=_style(fact.origin)),
            Text(said, style="dim"),
        )
    return table


def _style(origin: str) -> str:
    return {"assumed": "yellow", "measured": "green"}.get(origin, "")


def _print_sources(out: Console, *facts: Mapping[str, Fact]) -> None:
    if any(fact.unconfirmed for each in facts for fact in each.values()):
        out.print(Text(word(FOOTNOTE), style="dim"))
    table = grid("", "", title="sources")
    for key in sorted({fact.source for each in facts for fact in each.values()}):
        cited = sources().get(key, {}).get("citation", key)
        table.add_row(Text(f"  {key}", style="dim"), Text(cited, style="dim"))
    out.print(table)


def print_node(out: Console, node: Node) -> None:
    """One host."""
    out.print(
        say(
            "[bold]{name}[/]  {count} × {chip}, {topology}, domain of {domain}",
            name=node.name,
            count=node.count,
            chip=node.accelerator.name,
            topology=node.topology or say("single"),
            domain=node.domain,
        )
    )
    if node.aliases:
        out.print(say("also: {names}", names=", ".join(node.aliases)))
    out.print(_facts(node.facts))
    _print_notes(out, node.notes)
    _print_sources(out, node.facts)


def print_cluster(out: Console, cluster: Cluster) -> None:
    """One installation and the tiers of its fabric."""
    out.print(
        say(
            "[bold]{name}[/]  {count:,} × {chip} in {nodes:,} × {node_name}",
            name=cluster.name,
            count=cluster.count,
            chip=cluster.accelerator.name,
            nodes=cluster.nodes,
            node_name=cluster.node_name,
        )
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
            f"{tier.origin} {MARK}" if tier.unconfirmed else tier.origin,
        )
    out.print(table)
    if any(tier.unconfirmed for tier in cluster.tiers):
        out.print(Text(word(FOOTNOTE), style="dim"))


def print_link(out: Console, link: Link) -> None:
    """One kind of link."""
    out.print(f"[bold]{link.name}[/]  {link.scope}{', ' + link.layout if link.layout else ''}")
    out.print(_facts(link.facts))
    _print_notes(out, link.notes)
    _print_sources(out, link.facts)


def print_format(out: Console, of: NumberFormat) -> None:
    """One number format, what it loses, and who computes in it."""
    out.print(f"[bold]{of.name}[/]  {of.about}")
    table = grid("", ("", "right"))
    kind = say("two's complement") if of.is_integer else f"1 + {of.exponent} + {of.mantissa}"
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
        lost = say("the update is lost") if rounded == weight else say("the update survives")
        out.print(
            say(
                "2⁻³ + 2⁻¹⁴ = {rounded:.10g}: {lost}. This is why weights have an fp32 copy.",
                rounded=rounded,
                lost=lost,
            )
        )
    dtype = next((d for d in DTYPES if number_format(d.removesuffix("_tensor")) == of), "")
    chips = [chip.name for chip in accelerators() if dtype and chip.computes(dtype)]
    if chips:
        out.print(
            Text(
                say(
                    "computed by {number} chips: {names}", number=len(chips), names=", ".join(chips)
                ),
                style="dim",
            )
        )


def _config_value(value: object) -> str:
    """A field of a config; a long list, such as a kind for each layer, by how often it has what."""
    if not isinstance(value, list) or len(value) <= LISTED:
        return str(value)
    counts = Counter(map(str, value)).most_common()
    often = ", ".join(f"{many} × {what}" for what, many in counts[:LISTED])
    others = say(", {number} others", number=len(counts) - LISTED) if len(counts) > LISTED else ""
    return say("{number} values: {often}{others}", number=len(value), often=often, others=others)


def print_model(out: Console, record: Mapping[str, Any]) -> None:
    """One model: size, shape, source, and the config's own fields."""
    model = read_model(record["name"])
    out.print(
        say(
            "[bold]{name}[/]  {parameter_count:,} parameters",
            name=model.name,
            parameter_count=model.parameter_count,
        )
        + (
            say(
                ", {active_parameter_count:,} active",
                active_parameter_count=model.active_parameter_count,
            )
            if model.is_moe
            else ""
        )
        + (
            say(" (published: {record})", record=record["published_parameters"])
            if "published_parameters" in record
            else ""
        )
    )
    table = grid("field", "value")
    for field, value in record["config"].items():
        table.add_row(Text(field), Text(_config_value(value)))
    out.print(table)
    remarks = grid("", "")
    _add_errata(remarks, model.name)
    if model.released.method:
        known = model.released.format or say("no format that is known here")
        said = say(
            "in {known} (quantization_config: {method})", known=known, method=model.released.method
        )
        remarks.add_row(Text(say("released"), style="cyan"), Text(said))
    _add_notes(remarks, record.get("notes", ()))
    remarks.add_row(Text(say("source"), style="dim"), Text(record["source"], style="dim"))
    out.print(remarks)
