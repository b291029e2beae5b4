"""How layers are dealt out to the cards of a pipeline: as engines do it, as asked for, the fastest.

llama.cpp   layer i of L to the first card whose cumulated share exceeds i / (L + 1), as the head
            counts as one more; shares are --tensor-split, or free memory (llama-model.cpp,
            load_tensors)
ExLlama     to the first card until it is full, then to the next (exllamav2/model.py,
            load_autosplit_gen)
vLLM        evenly; what is left to those before the last one, as that has the head
            (distributed/utils.py, get_pp_indices), or VLLM_PP_LAYER_PARTITION
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, permutations

from trueflops.catalog.visible import visible_bytes
from trueflops.plan import Plan, serving_plan
from trueflops.predict.serving.point import ServingPoint
from trueflops.predict.serving.server import Server
from trueflops.profile import Engine


def pipeline_plan(server: Server) -> Plan:
    """One stage on every card."""
    return serving_plan(server.model, server.dtype, pp=len(server.stages))


def by_shares(layers: int, shares: Sequence[float]) -> list[int]:
    """As llama.cpp deals them out.

    >>> from trueflops.predict.serving.splitting import by_shares
    >>> by_shares(80, [1, 1]), by_shares(80, [30, 51])
    ([41, 39], [30, 50])
    """
    ends = list(accumulate(shares))
    found = Counter(bisect_right([end / ends[-1] for end in ends], i / (layers + 1))
                    for i in range(layers))  # fmt: skip
    return [found[card] for card in range(len(shares))]


def split_words(engine: Engine, layers: Sequence[int]) -> str:
    """What is typed for so many layers on each card; llama.cpp counts the head to the last."""
    head = engine.splits == "by memory"
    return ",".join(
        str(count + (head and card == len(layers) - 1)) for card, count in enumerate(layers)
    )


def evenly(layers: int, cards: int) -> list[int]:
    """As vLLM deals them out.

    >>> from trueflops.predict.serving.splitting import evenly
    >>> evenly(80, 3)
    [27, 27, 26]
    """
    each, left = divmod(layers, cards)
    return [each + (cards - 1 - left <= card < cards - 1) for card in range(cards)]


def usual_split(server: Server) -> list[int]:
    """As the engine deals layers out where nobody says how; every card gets one at least."""
    layers, cards = server.model.layers, [stage.chip for stage in server.stages]
    match server.engine.splits:
        case "by memory":
            return at_least_one(by_shares(layers, [visible_bytes(card) for card in cards]))
        case "in order":
            return at_least_one(_in_order(server))
        case "evenly":
            return evenly(layers, len(cards))


def asked_split(server: Server, shares: Sequence[float]) -> list[int]:
    """So many layers on each card: llama.cpp takes shares, whatever their sum; others' are layers
    where they sum to all of them.
    """
    layers = [round(share) for share in shares]
    if (
        server.engine.splits == "by memory"
        or layers != shares
        or sum(layers) != server.model.layers
    ):
        return by_shares(server.model.layers, shares)
    return layers


def at_least_one(layers: list[int]) -> list[int]:
    """The same with a layer on every card, from the card that has most of them."""
    found = list(layers)
    for card, count in enumerate(found):
        if count < 1:
            found[found.index(max(found))] -= 1
            found[card] = 1
    return found


def _in_order(server: Server) -> list[int]:
    """Each card filled with layers and their cache before the next; the last takes the rest."""
    plan, asked, memory = pipeline_plan(server), server.workload, server.memory
    reading = server.passes.costs(plan, 1.0, float(asked.input), 0.0)
    found, left = [], server.model.layers
    for room in memory.rooms(plan, reading, asked.concurrency)[:-1]:
        found.append(min(room, left))
        left -= found[-1]
    return [*found, left]


def fastest_split(server: Server) -> tuple[Server, ServingPoint]:
    """Layers moved from card to card, ever fewer at a time, as long as it fits and writes faster.

    What a layer takes on a card does not depend on how many others it holds: from any split on,
    moves that help lead to the best one.
    """
    plan = pipeline_plan(server)

    def worth(point: ServingPoint) -> tuple[bool, float]:
        if point.fits:
            return True, float(point.tokens_per_second.value)
        return False, point.capacity_bytes - float(point.memory.value)

    best, at = server.predict(plan), [stage.layers for stage in server.stages]
    step = 1 << max(server.model.layers.bit_length() - 2, 0)
    while step:
        for moved in _moves(at, step):
            point = server.split(moved).predict(plan)
            if worth(point) > worth(best):
                best, at = point, moved
                break
        else:
            step //= 2
    return server.split(at), best


def _moves(layers: Sequence[int], step: int) -> Iterator[list[int]]:
    """Every way to move so many layers from one card to another."""
    for giver, taker in permutations(range(len(layers)), 2):
        if layers[giver] > step:
            moved = list(layers)
            moved[giver] -= step
            moved[taker] += step
            yield moved
