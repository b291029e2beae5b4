"""Write docs/which-card.md: is the RTX 4090 the best value for inference? Every number is computed.

python docs/which_card.py           write the page
python docs/which_card.py --check   exit 1 if it would change
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from trueflops import units
from trueflops.catalog import accelerator, cluster_of, price
from trueflops.model import read_model
from trueflops.plan.words import serving_words
from trueflops.predict import Estimate, Server, ServingPoint
from trueflops.profile import engine_of, profile_of
from trueflops.search import Limits, search_serving
from trueflops.search.hardware import Hardware, Resource, more_of
from trueflops.workload import Serving

PAGE = Path(__file__).parent / "which-card.md"
CARDS = ("RTX4090", "RTX3090", "RTX5090", "L40S", "A100", "H100", "H200", "MI300X")
COUNTS = (1, 2, 4, 8)
BATCHES = (1, 4, 16, 64, 256)
INPUT, OUTPUT = 1024, 256
ENGINE = "vllm"


@dataclass(frozen=True)
class Case:
    """A model in a format."""

    model: str
    weights: str

    @property
    def title(self) -> str:
        return f"{self.model}, {self.weights}"


CASES = (
    Case("Llama-2-7B", "bf16"),
    Case("Llama-2-13B", "bf16"),
    Case("Llama-2-13B", "fp8"),
    Case("Llama-2-70B", "bf16"),
    Case("Llama-2-70B", "int4"),
)


@cache
def deployed(
    case: Case, card: str, count: int, batch: int, changed: tuple[Resource, float] | None = None
) -> ServingPoint | None:
    """So many cards, cut as writes most for so many requests; None if they do not hold the model.

    A card that cannot multiply in fp8 keeps such weights narrow and multiplies in 16 bits.
    """
    chip = accelerator(card)
    hardware = Hardware(cluster_of(chip, count), profile_of(chip, ENGINE))
    if changed is not None:
        hardware = more_of(hardware, *changed)
    narrow = case.weights == "fp8" and not chip.computes("fp8")
    server = Server(
        read_model(case.model),
        Serving(INPUT, OUTPUT, batch),
        *hardware,
        weights="w8a16" if narrow else case.weights,
        engine=engine_of(ENGINE),
    )
    (point,) = search_serving(server, Limits(), most=1)
    return point if point.most_requests > 0 else None


@cache
def served(case: Case, card: str, batch: int) -> ServingPoint | None:
    """The number of a card whose tokens are the cheapest; None if 8 do not hold the model."""
    found = [point for count in COUNTS if (point := deployed(case, card, count, batch))]
    return min(found, key=lambda point: float(usd(point).value), default=None)


def usd(point: ServingPoint) -> Estimate:
    assert point.usd_per_million_tokens is not None
    return point.usd_per_million_tokens


def ranged(estimate: Estimate) -> str:
    """'0.42 (0.20–0.91)'."""
    value, low, high = (float(x) for x in (estimate.value, estimate.low, estimate.high))
    return f"{units.digits(value)} ({units.digits(low)}–{units.digits(high)})"


def best_card(case: Case, batch: int) -> str:
    found = {card: point for card in CARDS if (point := served(case, card, batch))}
    return min(found, key=lambda card: float(usd(found[card]).value))


def price_table(case: Case) -> Iterable[str]:
    """Dollars for a million tokens written, a row a card."""
    yield f"| {case.title} | " + " | ".join(f"{batch} at once" for batch in BATCHES) + " |"
    yield "|---" * (len(BATCHES) + 1) + "|"
    for card in CARDS:
        cells = []
        for batch in BATCHES:
            point = served(case, card, batch)
            if point is None:
                cells.append("8 do not hold it")
                continue
            text = f"{ranged(usd(point))} × {point.cluster.count}"
            if point.waiting:
                text += f", {point.running * point.replicas} run"
            cells.append(f"**{text}**" if best_card(case, batch) == card else text)
        yield f"| {card} | " + " | ".join(cells) + " |"


SHARED = ("framework", "batching", "request")
"""Causes of error that two cards have in common: the engine. Kernels and rents have their own."""


def ratio(case: Case, card: str, batch: int) -> Estimate | None:
    """What a token of a card costs over what it costs on the 4090; common errors cancel."""
    own, other = served(case, "RTX4090", batch), served(case, card, batch)
    if own is None or other is None:
        return None
    dollars = usd(other)
    apart = {
        cause if cause in SHARED else f"{cause} of {card}": spread
        for cause, spread in dollars.spreads.items()
    }
    return replace(dollars, spreads=apart).over(usd(own))


def ratio_table(batch: int) -> Iterable[str]:
    yield "| card | " + " | ".join(case.title for case in CASES) + " |"
    yield "|---" * (len(CASES) + 1) + "|"
    for card in CARDS[1:]:
        found = [ratio(case, card, batch) for case in CASES]
        cells = [ranged(each) if each else "does not hold it" for each in found]
        yield f"| {card} | " + " | ".join(cells) + " |"


def verdict(case: Case) -> str:
    """Who is the cheapest at which load, and what is sure of the 4090 at the largest."""
    runs: list[tuple[str, list[int]]] = []
    for batch in BATCHES:
        card = best_card(case, batch)
        if not runs or runs[-1][0] != card:
            runs.append((card, []))
        runs[-1][1].append(batch)
    said = [
        f"{card} at {batches[0]}" + (f" to {batches[-1]}" if len(batches) > 1 else "")
        for card, batches in runs
    ]
    first, last = (place(case, batch) for batch in (BATCHES[0], BATCHES[-1]))
    ratios = {card: each for card in CARDS[1:] if (each := ratio(case, card, BATCHES[-1]))}
    sure = [
        f"surely {word} than a 4090 at {BATCHES[-1]}: {', '.join(cards)}"
        for word, cards in (
            ("cheaper", [card for card, each in ratios.items() if float(each.high) < 1.0]),
            ("dearer", [card for card, each in ratios.items() if float(each.low) > 1.0]),
        )
        if cards
    ]
    sure = sure or [f"none of the differences from a 4090 at {BATCHES[-1]} is beyond doubt"]
    place_said = f"the 4090 is number {first} of {len(CARDS)} at {BATCHES[0]} and {last} at "
    whole = [f"cheapest is {', '.join(said)} requests at once", f"{place_said}{BATCHES[-1]}", *sure]
    return f"- **{case.title}**: {'; '.join(whole)}."


def place(case: Case, batch: int) -> int:
    """Which place the 4090 has among all cards, the cheapest first."""
    own = served(case, "RTX4090", batch)
    others = (served(case, card, batch) for card in CARDS)
    assert own is not None
    return 1 + sum(1 for p in others if p and float(usd(p).value) < float(usd(own).value))


def speed_table() -> Iterable[str]:
    """What one user sees."""
    yield "| card | " + " | ".join(f"{case.title}" for case in CASES) + " |"
    yield "|---" * (len(CASES) + 1) + "|"
    for card in CARDS:
        cells = []
        for case in CASES:
            point = served(case, card, 1)
            if point is None:
                cells.append("does not hold it")
                continue
            words = " ".join(serving_words(point.plan))
            each = point.tpot.under(1.0)
            cells.append(f"{ranged(each)}, {point.cluster.count} × {words}")
        yield f"| {card} | " + " | ".join(cells) + " |"


CHANGES = ((Resource.BANDWIDTH, 2.0), (Resource.FLOPS, 2.0), (Resource.LINKS, 2.0),
           (Resource.LINKS, 14.0))  # fmt: skip
"""Fourteen times its PCIe 4.0 is an H100's NVLink: 450 GB/s each way over 32."""


def gains_table() -> Iterable[str]:
    """Tokens a second of the 4090 with more of something, over those without."""
    asked = [(case, batch) for case in CASES for batch in (1, 64)]
    yield "| with | " + " | ".join(f"{case.title}, {batch} at once" for case, batch in asked) + " |"
    yield "|---" * (len(asked) + 1) + "|"
    for resource, factor in CHANGES:
        cells = []
        for case, batch in asked:
            own = served(case, "RTX4090", batch)
            assert own is not None
            if resource is Resource.LINKS and own.cluster.count == 1:
                cells.append("one card")
                continue
            more = deployed(case, "RTX4090", own.cluster.count, batch, (resource, factor))
            assert more is not None
            gain = float(more.tokens_per_second.value) / float(own.tokens_per_second.value)
            cells.append(f"{gain:.2f}×")
        yield f"| {factor:g}× {resource.value} | " + " | ".join(cells) + " |"


def rents() -> str:
    """'RTX4090 $0.57, …'."""
    found = ((card, price(accelerator(card))) for card in CARDS)
    return ", ".join(f"{card} ${rent.usd_per_hour:.2f}" for card, rent in found if rent)


def page() -> str:
    tables = "\n\n".join("\n".join(price_table(case)) for case in CASES)
    return f"""# Is the RTX 4090 the best value for inference?

Written by `docs/which_card.py`: every number below is a prediction of this release, for {ENGINE},
prompts of {INPUT:,} tokens and {OUTPUT} written, with its 90 % interval. A deployment is that of
{", ".join(map(str, COUNTS))} cards whose tokens are the cheapest, cut into replicas, tensor or
pipeline ranks as writes most. Rents an hour, on demand, from the catalog, which names their source
(`trueflops catalog RTX4090`): {rents()}. A market changes faster than a chip: `--price` asks again.
Kernels of L40S, A100, H100 and H200 were measured, and most of MI300X's; those of the others follow
laws fitted across chips.

## In short

{chr(10).join(verdict(case) for case in CASES)}

Decoding a few requests is nothing but reading weights, and a 4090 reads 1.01 TB/s for little rent.
A batch is what makes a token cheap, and for that its 24 GiB leave little room beside the weights;
what does not fit on one card is cut over PCIe, through the host's memory. So the answer to "is it
the best value" turns at the batch that still fits: below it the card is close to the cheapest,
above it cards with more memory are.

## Dollars for a million tokens written

Behind × the number of cards; the cheapest of each column is bold. "run" is how many requests there
is room for; others wait.

{tables}

## Over the 4090

Dollars for a token over those on the 4090 at {BATCHES[-1]} requests at once: above 1 the 4090 is
cheaper. What both share, the engine's own error, cancels; errors of kernels and rents do not.

{chr(10).join(ratio_table(BATCHES[-1]))}

## What one user sees

Tokens a second of a single request, and how the model is cut for it where tokens are cheapest.

{chr(10).join(speed_table())}

## What would more of something bring?

The same deployment of 4090s with more of one resource (`search/hardware.py`): tokens a second over
those of the real card.

{chr(10).join(gains_table())}

## What is not in these numbers

What a card costs to buy, cool and keep, and whether its licence allows it in a data centre. Fewer
bits than stated, and what they lose. Speculative decoding.
"""


def main() -> int:
    """Write or check."""
    text = page()
    if "--check" in sys.argv:
        stale = not PAGE.exists() or PAGE.read_text() != text
        if stale:
            print(f"{PAGE.name} is stale: run python docs/which_card.py")
        return int(stale)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
