"""The captured graph as IR: ops before and after fusion, work and intensity by module."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from trueflops import units
from trueflops.language import mark, say
from trueflops.predict.captured.groups import alike_layers
from trueflops.predict.captured.program import CapturedProgram
from trueflops.predict.captured.step import CapturedStep
from trueflops.report.grid import grid
from trueflops.report.tables import console


@dataclass
class ModuleWork:
    """What the ops of one module (or of all alike ones) do."""

    kernels: int = 0
    flop: float = 0.0
    moved_bytes: float = 0.0
    seconds: float = 0.0

    @property
    def intensity(self) -> float:
        """Flop per byte."""
        return self.flop / self.moved_bytes if self.moved_bytes else 0.0


def by_module(found: CapturedProgram) -> dict[tuple[str, str], ModuleWork]:
    """(module, phase) -> its work, layers of one kind together."""
    total: dict[tuple[str, str], ModuleWork] = defaultdict(ModuleWork)
    for each in found.step.ran:
        at = total[alike_layers(each.kernel.call.module), each.kernel.call.phase]
        at.kernels += 1
        at.flop += float(each.kernel.work.flop) if each.kernel.matrix else 0.0
        at.moved_bytes += float(each.kernel.work.bytes_read + each.kernel.work.bytes_written)
        at.seconds += each.end - each.start
    return dict(sorted(total.items(), key=lambda pair: -pair[1].seconds))


def encode_graph(found: CapturedProgram) -> dict[str, Any]:
    """For JSON: every op in order, and the work by module."""
    return {
        "fusion": {
            name: {"kernels": len(step.ran), "bytes": moved_bytes(step),
                   "seconds": float(step.seconds.value)}
            for name, step in (("as_it_runs", found.step), ("if_compiled", found.fused))
        },
        "graph": [
            {
                "op": each.kernel.name,
                "kind": each.kernel.op.kind if each.kernel.op else each.kernel.cause,
                "module": each.kernel.call.module,
                "phase": each.kernel.call.phase,
                "reads": [t.name for t in each.kernel.op.inputs] if each.kernel.op else [],
                "makes": [t.name for t in each.kernel.op.outputs] if each.kernel.op else [],
                "fused": [part.name for part in each.kernel.op.fused] if each.kernel.op else [],
                "flop": float(each.kernel.work.flop),
                "bytes": float(each.kernel.work.bytes_read + each.kernel.work.bytes_written),
                "seconds": each.end - each.start,
            }
            for each in found.step.ran
        ],
        "modules": [
            {"module": module, "phase": phase, "kernels": w.kernels, "flop": w.flop,
             "bytes": w.moved_bytes, "intensity": w.intensity, "seconds": w.seconds}
            for (module, phase), w in by_module(found).items()
        ],
    }  # fmt: skip


def moved_bytes(step: CapturedStep) -> float:
    """What all its kernels read and write."""
    return sum(float(r.kernel.work.bytes_read + r.kernel.work.bytes_written) for r in step.ran)


def _show_fusion(out: Console, found: CapturedProgram) -> None:
    """The graph as it runs, and as a compiler would fuse it."""
    table = grid("", ("kernels", "right"), ("moved", "right"), ("time", "right"), title="Fusion")
    for name, step in (
        (mark("as it runs"), found.step),
        (mark("if all were compiled"), found.fused),
    ):
        table.add_row(name, f"{len(step.ran):,}", units.show(moved_bytes(step), "bytes"),
                      units.show(float(step.seconds.value), "seconds"))  # fmt: skip
    out.print(table)
    out.print()


def show_graph(found: CapturedProgram, top: int) -> None:
    """Work by module, then the ops of the costliest one."""
    out = console()
    work = by_module(found)
    heads = ("n", "GFLOP", "bytes", "FLOP/B", "time")
    numbers = [(head, "right") for head in heads]
    table = grid("module", "phase", *numbers, title="Work by module", gives_way=0)  # type: ignore[arg-type]
    for (module, phase), w in list(work.items())[:top]:
        table.add_row(Text(module or "–"), phase, f"{w.kernels:,}",
                      units.digits(w.flop / units.GIGA) if w.flop else "",
                      units.show(w.moved_bytes, "bytes"),
                      units.digits(w.intensity) if w.flop else "",
                      units.show(w.seconds, "seconds"))  # fmt: skip
    out.print(table)
    out.print()
    _show_fusion(out, found)
    ran = found.step.ran
    title = say("The graph, its first {top} kernels (--json has them all)", top=4 * top)
    rows = grid(("", "right"), "op", "module", "phase", ("FLOP/B", "right"), title=title,
                 gives_way=2)  # fmt: skip
    for i, each in enumerate(ran[: 4 * top]):
        moved = float(each.kernel.work.bytes_read + each.kernel.work.bytes_written) or 1.0
        op = each.kernel.op
        name = "+".join(part.name for part in op.fused) if op and op.fused else each.kernel.name
        intensity = units.digits(float(each.kernel.work.flop) / moved)
        rows.add_row(str(i), Text(name), Text(each.kernel.call.module), each.kernel.call.phase,
                      intensity)  # fmt: skip
    out.print(rows)
