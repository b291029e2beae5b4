"""A product explained: its tiles and its traffic, down to the instruction."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from trueflops import units
from trueflops.language import mark, say
from trueflops.predict.explain import MatmulExplained, TileShape
from trueflops.predict.explain.padding import PaddedProduct
from trueflops.predict.odd_sides import oddness
from trueflops.report.explain.page import (
    count_units,
    encode_kernel,
    show_answer,
    show_bytes,
    show_curve,
    show_limits,
    show_roofline,
)
from trueflops.report.grid import grid
from trueflops.report.tables import filled

BOUND = {
    "compute": mark("the units' arithmetic"),
    "memory": mark("bandwidth of memory and cache"),
    "serial": mark("one tile's chain over k"),
    "start": mark("the launch, joining a split k"),
}
LIMIT = {
    "compute": mark("padded flop, waves, filling the pipe"),
    "memory": mark("each matrix once"),
    "serial": mark("one tile alone, step by step over k"),
    "start": mark("launch, first loads, joining a split k"),
}


def show_matmul(out: Console, p: MatmulExplained) -> None:
    """Everything, from the answer down to the instruction."""
    out.print(Text(say("{name} on {chip}", name=p.name, chip=p.chip.name), style="bold"))
    out.print(Text(f"y[m,n] = x[m,k]·W[n,k]ᵀ, {units.show(p.flop, 'flop')}"))
    if p.form != p.dtype:
        out.print(
            say(
                "{form}: weights are stored so and multiplied in {dtype}",
                form=p.form,
                dtype=p.dtype,
            )
        )
    out.print()
    show_answer(out, p, BOUND)
    if p.padded is not None:
        out.print(Text(filled(out, _padding(p.padded))))
        out.print()
    show_limits(out, p, LIMIT)
    show_roofline(out, p, _beyond(p))
    _show_tiling(out, p)
    _show_shapes(out, p)
    _show_traffic(out, p)
    _show_levels(out, p)
    out.print()
    show_curve(out, p)


def _padding(found: PaddedProduct) -> str:
    """'k 50257 is odd: padded to 50304 it takes 1.36 ms, 5.94 ms less'."""
    said = " and ".join(
        say("{name} {size} is {why}", name=s.name, size=s.size, why=oddness(s.size))
        for s in found.sides
    )
    to = " and ".join(str(side.to) for side in found.sides)
    low, saved, high = found.saved.low, found.saved.seconds, found.saved.high
    less = say(
        "{saved} less ({low})",
        saved=units.show(saved, "seconds"),
        low=units.show_between(low, saved, high, "seconds"),
    )
    return say(
        "{said}: padded to {to} it takes {seconds}, {less}",
        said=said,
        to=to,
        seconds=units.show(found.seconds, "seconds"),
        less=less,
    )


def _beyond(p: MatmulExplained) -> str:
    """Why another limit binds than flop and compulsory bytes show."""
    if p.bound == "compute" and p.best.padding_lost > 0.1:
        return say(
            "{padding_lost:.0f} % of the flop computed are padding",
            padding_lost=100 * p.best.padding_lost,
        )
    return say(
        "{bound} takes longer than {roofline_side}",
        bound=BOUND[p.bound],
        roofline_side=p.roofline_side,
    )


def _show_tiling(out: Console, p: MatmulExplained) -> None:
    t = p.best
    out.print(
        Text(
            say("Tiles of {rows}×{columns}, the fastest shape", rows=t.rows, columns=t.columns),
            style="bold",
        )
    )
    table = grid("", "")
    table.add_row(
        "tiles",
        say(
            "{down:,} down × {across:,} across = {tiles:,}",
            down=t.down,
            across=t.across,
            tiles=t.tiles,
        ),
    )
    fill = say("the last fills {last_wave:.0f} %", last_wave=100 * t.last_wave)
    if t.waves <= 1.0:
        fill = say("{last_wave:.0f} % of them have work", last_wave=100 * t.last_wave)
    known = "" if p.units_known else " (assumed)"
    table.add_row(
        "waves",
        say(
            "{waves} over {p}{known}; {fill}",
            waves=units.digits(t.waves),
            p=count_units(p),
            known=known,
            fill=fill,
        ),
    )
    charged = 1.0 - t.quantised ** -p.law["wave_loss"] if t.waves > 1.0 else t.quantisation_lost
    lost = say(
        "{quantisation_lost:.1f} % of the units' time idle",
        quantisation_lost=100 * t.quantisation_lost,
    )
    table.add_row(
        "quantisation",
        say("{lost}; this chip's law charges {charged:.1f} %", lost=lost, charged=100 * charged),
    )
    table.add_row(
        "edges",
        say(
            "{padding_lost:.1f} % of the computed flop are padding",
            padding_lost=100 * t.padding_lost,
        ),
    )
    split = say("not split: there are tiles enough")
    if t.split > 1.0:
        split = say(
            "split {split} ways on average, {tile_k:,.0f} elements each",
            split=units.digits(t.split),
            tile_k=p.tile_k,
        )
    elif t.waves < 1.0:
        split = say("not split: too short to divide")
    table.add_row("k", split)
    out.print(table)
    out.print()


def _show_shapes(out: Console, p: MatmulExplained) -> None:
    names = ("tiles", "waves", say("last wave"), "padding", say("k split"), "time", "")
    table = grid("", *((name, "right") for name in names), title="All tile shapes")
    fastest = p.best.seconds
    for t in p.shapes:
        table.add_row(
            f"{t.rows}×{t.columns}",
            f"{t.tiles:,}",
            units.digits(t.waves),
            f"{100 * t.last_wave:.0f} %",
            f"{100 * t.padding_lost:.1f} %",
            units.digits(t.split) if t.split > 1.0 else "–",
            units.show(t.seconds, "seconds"),
            "[green]best[/]" if t is p.best else f"+{100 * (t.seconds / fastest - 1):.0f} %",
        )
    out.print(table)
    out.print()


def _show_traffic(out: Console, p: MatmulExplained) -> None:
    t = p.traffic
    table = grid("", ("bytes", "right"), ("flop/byte", "right"), "", title="Traffic")
    x, w, y = (show_bytes(b) for b in (t.input_bytes, t.weight_bytes, t.output_bytes))
    table.add_row("compulsory", show_bytes(t.compulsory_bytes), units.digits(p.intensity),
                  say("x {x} + W {w} + y {y}, once", x=x, w=w, y=y))  # fmt: skip
    if t.memory_bytes is not None:
        again = f"x {_times(t.input_loads)}, W {_times(t.weight_loads)}"
        again += say(
            "; {p} keeps {kept_bytes}", p=_cache(p), kept_bytes=show_bytes(t.kept_bytes or 0.0)
        )
        table.add_row("memory, about", show_bytes(t.memory_bytes),
                      units.digits(p.flop / t.memory_bytes), again)  # fmt: skip
    reads = f"x {_times(t.input_reads)}, W {_times(t.weight_reads)}"
    table.add_row(
        "block tiles read", show_bytes(t.cache_bytes), units.digits(p.flop / t.cache_bytes), reads
    )
    out.print(table)
    if t.memory_bytes is None:
        out.print(Text(say("no cache size on record: memory serves between the two"), style="dim"))
    charged = say("the law charges memory for the compulsory bytes")
    if t.hot_share >= 0.005:
        charged += say(", {hot_share:.0f} % of W from cache", hot_share=100 * t.hot_share)
    out.print(Text(charged, style="dim"))
    out.print()


def _show_levels(out: Console, p: MatmulExplained) -> None:
    title = say("Down to the tensor core") if p.mapping else say("Down to the unit")
    table = grid("", "", ("flop/byte", "right"), "reads from", title=title, gives_way=1)
    for level in levels(p):
        table.add_row(*level)
    out.print(table)
    if p.flop_per_cycle is not None:
        cycles = units.show(p.tile_flop / p.flop_per_cycle, "count")
        rate = say("{flop_per_cycle} flop a cycle", flop_per_cycle=units.digits(p.flop_per_cycle))
        out.print(
            say(
                "one tile at peak: {cycles} cycles of one {unit}, {rate}",
                cycles=cycles,
                unit=p.unit,
                rate=rate,
            )
        )
    if p.mapping is None:
        why = say(
            "no mapping below the {unit} on record for {dtype} on {name}",
            unit=p.unit,
            dtype=p.dtype,
            name=p.chip.name,
        )
        if p.chip.vendor == "NVIDIA" and p.dtype == "fp32":
            why = say("fp32 runs on the vector units: no matrix instruction")
        out.print(Text(why, style="dim"))
    else:
        swap = say("W's columns are its m; ") if p.mapping.swapped else ""
        said = say("{swap}the standard mapping (CUTLASS, PTX ISA), libraries vary", swap=swap)
        out.print(Text(said, style="dim"))


def levels(p: MatmulExplained) -> list[tuple[str, str, str, str]]:
    """Name, shape and count, intensity, source: product, block, warp, instruction."""
    t, at = p.best, p.mapping
    found = [
        ("product", f"{p.m}×{p.n}×{p.k}", units.digits(p.intensity), say("memory, once")),
        (
            say("block tile"),
            say(
                "{rows}×{columns}, {tiles:,} of them over {p}",
                rows=t.rows,
                columns=t.columns,
                tiles=t.tiles,
                p=count_units(p),
            ),
            units.digits(p.tile_intensity(t.rows, t.columns)),
            _cache(p),
        ),
    ]
    if at is None:
        return found
    if at.worker != "thread block":
        share = units.digits(p.tile_intensity(at.rows, at.columns))
        parts = say(
            "{rows}×{columns}, {workers} a block",
            rows=at.rows,
            columns=at.columns,
            workers=at.workers,
        )
        found.append((say("{worker} tile", worker=at.worker), parts, share, say("shared memory")))
    count = say(
        "{instruction}, {tile_k:,.0f} a block",
        instruction=at.instruction,
        tile_k=at.instructions(p.tile_k),
    )
    source = "registers" if at.worker == "warp" else say("shared memory")
    found.append((say("instruction"), count, "", source))
    return found


def _times(count: int) -> str:
    return {1: say("once"), 2: say("twice")}.get(count, say("{count:,} times", count=count))


def _cache(p: MatmulExplained) -> str:
    """What serves the block tiles."""
    if p.traffic.kept_bytes is None:
        return "memory"
    return "L2" if p.chip.vendor in ("NVIDIA", "AMD") else say("cache")


def encode_matmul(p: MatmulExplained) -> dict[str, Any]:
    """The same for JSON, SI units in the key names."""
    t, at = p.traffic, p.mapping
    return {
        **encode_kernel(p),
        "m": p.m,
        "n": p.n,
        "k": p.k,
        "format": p.form,
        "compute_dtype": p.dtype,
        "weight_copies": p.copies,
        "tile": encode_shape(p.best),
        "tile_shapes": [encode_shape(shape) for shape in p.shapes],
        "traffic": {
            "input_bytes": t.input_bytes,
            "weight_bytes": t.weight_bytes,
            "output_bytes": t.output_bytes,
            "compulsory_bytes": t.compulsory_bytes,
            "memory_bytes_estimated": t.memory_bytes,
            "cache_bytes": t.cache_bytes,
            "input_reads": t.input_reads,
            "weight_reads": t.weight_reads,
            "cache_kept_bytes": t.kept_bytes,
            "weight_share_cached_before": t.hot_share,
        },
        "block_tile": {
            "intensity_flop_per_byte": p.tile_intensity(p.best.rows, p.best.columns),
            "flop": p.tile_flop,
            "unit_flop_per_cycle": p.flop_per_cycle,
            "cycles_at_peak": p.tile_flop / p.flop_per_cycle if p.flop_per_cycle else None,
        },
        "padded": p.padded and {
            **{side.name: side.to for side in p.padded.sides},
            "seconds": p.padded.seconds,
            "saves_seconds": {"value": p.padded.saved.seconds, "low": p.padded.saved.low,
                              "high": p.padded.saved.high},
        },
        "mapping": at and {
            "worker": at.worker,
            "workers_per_block": at.workers,
            "rows": at.rows,
            "columns": at.columns,
            "intensity_flop_per_byte": p.tile_intensity(at.rows, at.columns),
            "instruction": str(at.instruction),
            "instructions_per_block": at.instructions(p.tile_k),
            "operands_swapped": at.swapped,
        },
    }  # fmt: skip


def encode_shape(t: TileShape) -> dict[str, Any]:
    """One tile shape."""
    return {
        "rows": t.rows,
        "columns": t.columns,
        "tiles_down": t.down,
        "tiles_across": t.across,
        "tiles": t.tiles,
        "waves": t.waves,
        "last_wave_share": t.last_wave,
        "padding_lost_share": t.padding_lost,
        "quantisation_lost_share": t.quantisation_lost,
        "k_split": t.split,
        "seconds": t.seconds,
    }
