"""trueflops compare: the fair table."""

from __future__ import annotations

import argparse

from rich.text import Text

from trueflops import units
from trueflops.catalog import Accelerator, accelerator, accelerators
from trueflops.cli.question import check_length
from trueflops.errors import BadInput, UnknownName
from trueflops.model import read_model
from trueflops.report import encode
from trueflops.report.compare import (
    chip_record,
    chips_table,
    model_table,
    reasons,
    sort_chips,
)
from trueflops.report.tables import console
from trueflops.search.chips import ChipAnswer, try_chip


def run(options: argparse.Namespace) -> int:
    """Show chips side by side, and with --for what a model does on them."""
    chips = choose(options)
    chips = (
        sort_chips(chips, options.sort or "bf16") if options.sort or not options.chips else chips
    )
    answers = []
    if options.model is not None:
        model = read_model(options.model)
        seq = units.parse_count("4096" if options.seq is None else options.seq, what="--seq")
        if options.seq is None:
            seq = min(seq, model.max_positions)
        check_length(model, seq, "--seq")
        answers = [try_chip(model, chip, seq) for chip in chips]
    if options.json:
        padded: list[ChipAnswer | None] = [*answers] or [None] * len(chips)
        rows = [chip_record(c, a) for c, a in zip(chips, padded, strict=True)]
        print(encode.to_json({"for": options.model, "chips": rows}))
        return 0
    out = console()
    out.print(chips_table(chips))
    out.print(
        "[dim]dense TFLOP/s (TOP/s for int8) per device as software sees it; X no such path, "
        "· not known, italic unconfirmed[/]"
    )
    if options.model:
        out.print()
        out.print(model_table(answers, model.name))
        for reason in reasons(answers):
            out.print(Text(f"no: {reason}", style="dim"))
        out.print(
            "[dim]training: mixed-precision AdamW, best plan found, 4 M tokens a step; serving: "
            "16-bit weights, 1024 tokens in, 256 out, 16 requests a chip[/]"
        )
    return 0


def choose(options: argparse.Namespace) -> list[Accelerator]:
    """The chips named, or all that ship, narrowed by vendor and year."""
    chips = [accelerator(name) for name in options.chips] or [
        chip for chip in accelerators() if options.all or chip.status == "shipping"
    ]
    if options.vendor is not None:
        vendors = {chip.vendor.casefold(): chip.vendor for chip in accelerators()}
        if options.vendor.casefold() not in vendors:
            raise UnknownName("vendor", options.vendor, vendors.values())
        chips = [c for c in chips if c.vendor.casefold() == options.vendor.casefold()]
    since, until = options.since or 0, options.until or 9999
    chips = [c for c in chips if since <= c.year <= until]
    if not chips:
        raise BadInput("no chip is left after these filters")
    return chips
