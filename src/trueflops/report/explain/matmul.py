"""A product explained: its tiles and its traffic, down to the instruction."""

from __future__ import annotations

import textwrap
from typing import Any

from rich.console import Console
from rich.text import Text

from trueflops import units
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

BOUND = {
    "compute": "the units' arithmetic",
    "memory": "bandwidth of memory and cache",
    "serial": "one tile's chain over k",
    "start": "the launch, joining a split k",
}
LIMIT = {
    "compute": "padded flop, waves, filling the pipe",
    "memory": "each matrix once",
    "serial": "one tile alone, step by step over k",
    "start": "launch, first loads, joining a split k",
}


def show_matmul(out: Console, p: MatmulExplained) -> None:
    """Everything, from the answer down to the instruction."""
    out.print(Text(f"{p.name} on {p.chip.name}", style="bold"))
    out.print(Text(f"y[m,n] = x[m,k]·W[n,k]ᵀ, {units.show(p.flop, 'flop')}"))
    if p.form != p.dtype:
        out.print(f"{p.form}: weights are stored so and multiplied in {p.dtype}")
    out.print()
    show_answer(out, p, BOUND)
    if p.padded is not None:
        out.print(Text(textwrap.fill(_padding(p.padded), out.width)))
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
    said = " and ".join(f"{s.name} {s.size} is {oddness(s.size)}" for s in found.sides)
    to = " and ".join(str(side.to) for side in found.sides)
    low, saved, high = found.saved.low, found.saved.seconds, found.saved.high
    less = (
        f"{units.show(saved, 'seconds')} less ({units.show_between(low, saved, high, 'seconds')})"
    )
    return f"{said}: padded to {to} it takes {units.show(found.seconds, 'seconds')}, {less}"


def _beyond(p: MatmulExplained) -> str:
    """Why another limit binds than flop and compulsory bytes show."""
    if p.bound == "compute" and p.best.padding_lost > 0.1:
        return f"{100 * p.best.padding_lost:.0f} % of the flop computed are padding"
    return f"{BOUND[p.bound]} takes longer than {p.roofline_side}"


def _show_tiling(out: Console, p: MatmulExplained) -> None:
    t = p.best
    out.print(Text(f"Tiles of {t.rows}×{t.columns}, the fastest shape", style="bold"))
    table = grid("", "")
    table.add_row("tiles", f"{t.down:,} down × {t.across:,} across = {t.tiles:,}")
    fill = f"the last fills {100 * t.last_wave:.0f} %"
    if t.waves <= 1.0:
        fill = f"{100 * t.last_wave:.0f} % of them have work"
    known = "" if p.units_known else " (assumed)"
    table.add_row("waves", f"{units.digits(t.waves)} over {count_units(p)}{known}; {fill}")
    charged = 1.0 - t.quantised ** -p.law["wave_loss"] if t.waves > 1.0 else t.quantisation_lost
    lost = f"{100 * t.quantisation_lost:.1f} % of the units' time idle"
    table.add_row("quantisation", f"{lost}; this chip's law charges {100 * charged:.1f} %")
    table.add_row("edges", f"{100 * t.padding_lost:.1f} % of the computed flop are padding")
    split = "not split: there are tiles enough"
    if t.split > 1.0:
        split = f"split {units.digits(t.split)} ways on average, {p.tile_k:,.0f} elements each"
    elif t.waves < 1.0:
        split = "not split: too short to divide"
    table.add_row("k", split)
    out.print(table)
    out.print()


def _show_shapes(out: Console, p: MatmulExplained) -> None:
    names = ("tiles", "waves", "last wave", "padding", "k split", "time", "")
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
                  f"x {x} + W {w} + y {y}, once")  # fmt: skip
    if t.memory_bytes is not None:
        again = f"x {_times(t.input_loads)}, W {_times(t.weight_loads)}"
        again += f"; {_cache(p)} keeps {show_bytes(t.kept_bytes or 0.0)}"
        table.add_row("memory, about", show_bytes(t.memory_bytes),
                      units.digits(p.flop / t.memory_bytes), again)  # fmt: skip
    reads = f"x {_times(t.input_reads)}, W {_times(t.weight_reads)}"
    table.add_row(
        "block tiles read", show_bytes(t.cache_bytes), units.digits(p.flop / t.cache_bytes), reads
    )
    out.print(table)
    if t.memory_bytes is None:
        out.print(Text("no cache size on record: memory serves between the two", style="dim"))
    charged = "the law charges memory for the compulsory bytes"
    if t.hot_share >= 0.005:
        charged += f", {100 * t.hot_share:.0f} % of W from cache"
    out.print(Text(charged, style="dim"))
    out.print()


def _show_levels(out: Console, p: MatmulExplained) -> None:
    title = "Down to the tensor core" if p.mapping else "Down to the unit"
    table = grid("", "", ("flop/byte", "right"), "reads from", title=title, gives_way=1)
    for level in levels(p):
        table.add_row(*level)
    out.print(table)
    if p.flop_per_cycle is not None:
        cycles = units.show(p.tile_flop / p.flop_per_cycle, "count")
        rate = f"{units.digits(p.flop_per_cycle)} flop a cycle"
        out.print(f"one tile at peak: {cycles} cycles of one {p.unit}, {rate}")
    if p.mapping is None:
        why = f"no mapping below the {p.unit} on record for {p.dtype} on {p.chip.name}"
        if p.chip.vendor == "NVIDIA" and p.dtype == "fp32":
            why = "fp32 runs on the vector units: no matrix instruction"
        out.print(Text(why, style="dim"))
    else:
        swap = "W's columns are its m; " if p.mapping.swapped else ""
        said = f"{swap}the standard mapping (CUTLASS, PTX ISA), libraries vary"
        out.print(Text(said, style="dim"))


def levels(p: MatmulExplained) -> list[tuple[str, str, str, str]]:
    """Name, shape and count, intensity, source: product, block, warp, instruction."""
    t, at = p.best, p.mapping
    found = [
        ("product", f"{p.m}×{p.n}×{p.k}", units.digits(p.intensity), "memory, once"),
        ("block tile", f"{t.rows}×{t.columns}, {t.tiles:,} of them over {count_units(p)}",
         units.digits(p.tile_intensity(t.rows, t.columns)), _cache(p)),
    ]  # fmt: skip
    if at is None:
        return found
    if at.worker != "thread block":
        share = units.digits(p.tile_intensity(at.rows, at.columns))
        parts = f"{at.rows}×{at.columns}, {at.workers} a block"
        found.append((f"{at.worker} tile", parts, share, "shared memory"))
    count = f"{at.instruction}, {at.instructions(p.tile_k):,.0f} a block"
    source = "registers" if at.worker == "warp" else "shared memory"
    found.append(("instruction", count, "", source))
    return found


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def _cache(p: MatmulExplained) -> str:
    """What serves the block tiles."""
    if p.traffic.kept_bytes is None:
        return "memory"
    return "L2" if p.chip.vendor in ("NVIDIA", "AMD") else "cache"


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
