"""Decode context parallelism: ranks that would hold the same keys each hold some of a sequence's.

In: the graph of one rank of tp, whose cached keys other ranks hold as well (a latent has no heads
to split, and of fewer key/value heads than ranks each lies on several). Out: the same, with the
keys of a sequence dealt out token by token over `dcp` of these ranks (vLLM's docs/serving/
context_parallel_deployment.md; arXiv 2507.07120).

A decode step gathers the queries of all heads of the group, attends with the rank's own keys, and
merges the answers by their log-sum-exps: these are gathered, the answers scaled and summed, each
rank keeps its heads (vLLM's v1/attention/ops/dcp.py, cp_lse_ag_out_rs; SGLang's cp_lse_ag_out_rs_
mla). A prompt with tokens before it gathers their latents, and does otherwise as a decode step does
(mla_attention.py, _context_parallel_compute_prefill_context; flash_attn.py, _forward_with_dcp); one
without any needs nobody else.

Where an indexer chooses keys, each rank scores its own and names the best of them; all candidates
are gathered, and of those chosen among them each rank reads its own, of prompts as of decode steps
(sparse_attn_indexer.py, _merge_dcp_topk_global; mla/sparse_utils.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from trueflops.graph.ir import Collective, Graph, Node, Op, Tensor
from trueflops.graph.kinds import CollectiveKind, Kind
from trueflops.graph.rules import STATISTIC_BITS
from trueflops.sizes import Size

AXIS: Final = "dcp"
_SCORING: Final = frozenset({Kind.ATTENTION, Kind.ATTENTION_DECODE})
_CANDIDATE_BITS: Final = 64.0  # a score and a place
_READ: Final = ("cache_bytes",)
_SHARED: Final = ("keys", "seen", *_READ)
"""Facts of an attention of which each rank has a part; of a kernel that masks, what it reads."""


def spread_keys(graph: Graph, ranks: int, *, decoding: bool, masks: bool = False) -> Graph:
    """The same graph with its cached keys spread over so many ranks; a kernel that `masks` chosen
    keys of others walks over them all the same.
    """
    core = [n for n in graph.forward if isinstance(n, Op) and n.part == "core"]
    if ranks == 1 or not core:
        return graph
    nodes = list(_choosing(graph.forward, ranks))
    # A prompt whose keys are chosen reads the latents themselves, as a decode step does.
    reads_cache = decoding or core[0].kind is not Kind.SCORES
    shared = _READ if masks else _SHARED
    spread = _decoding(nodes, core, ranks, shared) if reads_cache else _reading(nodes, core, ranks)
    return replace(graph, forward=tuple(spread))


def _choosing(nodes: Iterable[Node], ranks: int) -> Iterator[Node]:
    """The best of the rank's own keys, then the best of these candidates."""
    scores: dict[str, Tensor] = {}  # of the rank's own keys, by what they are called over all
    for node in nodes:
        if isinstance(node, Op) and node.kind in _SCORING and node.inputs[0].has("index_heads"):
            whole = node.outputs[0]
            scores[whole.name] = _of_group(whole, ranks)
            yield node.changed(outputs=(scores[whole.name],), facts=_parted(node, ranks, _SHARED))
        elif node.inputs and (own := scores.get(node.inputs[0].name)):
            chosen = node.outputs[0]
            dims = (("ranks", float(ranks)), *chosen.dims)
            candidates = Tensor(f"{chosen.name}.candidates", dims, _CANDIDATE_BITS, chosen.role)
            named = chosen.renamed(f"{chosen.name}.own")
            yield node.changed(inputs=(own,), outputs=(named,))
            yield _exchange(CollectiveKind.ALL_GATHER, ranks, candidates, named, candidates)
            yield Op(f"{chosen.name}.merge", Kind.STREAM, (candidates,), (chosen,), part="merge")
        else:
            yield node


def _parted(op: Op, ranks: int, shared: tuple[str, ...]) -> dict[str, Any]:
    """Facts of an attention over the rank's own part of the keys."""
    return {name: fact / ranks if name in shared else fact for name, fact in op.facts.items()}


def _decoding(
    nodes: Iterable[Node], core: list[Op], ranks: int, shared: tuple[str, ...]
) -> Iterator[Node]:
    """All heads of the group, with the keys that the rank has."""
    first, last = core[0], core[-1]
    queries, own = first.inputs[0], last.outputs[0]
    made = {t.name: _of_group(t, ranks) for op in core for t in op.outputs[:1]}
    made[queries.name] = asked = _of_group(queries, ranks)
    for node in nodes:
        if node is first:
            yield _exchange(CollectiveKind.ALL_GATHER, ranks, asked, queries, asked)
        if not (isinstance(node, Op) and node.part == "core"):
            yield node
            continue
        inputs = tuple(made.get(t.name, t) for t in node.inputs)
        outputs = tuple(made.get(t.name, t) for t in node.outputs)
        yield node.changed(inputs=inputs, outputs=outputs, facts=_parted(node, ranks, shared))
        if node is last:
            yield from _merged(made[own.name], own, ranks, ranks)


def _reading(nodes: Iterable[Node], core: list[Op], ranks: int) -> Iterator[Node]:
    """What a prompt needs of the keys before it."""
    first, last = core[0], core[-1]
    queries, own = first.inputs[0], last.outputs[0]
    tokens = dict(queries.dims)["seq"]
    before = np.maximum(first.facts["keys"] - tokens, 0.0)
    any_before = np.minimum(before, 1.0)
    group = 1.0 + (ranks - 1.0) * any_before  # of one where nothing comes before
    cached: list[Tensor] = []
    for node in nodes:
        if isinstance(node, Op) and node.kind is Kind.CACHE:
            cached = list(node.outputs)
        latent = any(t.has("kv_rank") for t in cached)
        if node is first and latent:
            for t in cached:
                elements = t.elements / tokens * before
                # Widened before it is sent (mla_attention.py, gather_and_maybe_dequant_cache).
                there = Tensor(
                    f"{t.name}.gathered", (("elements", elements),), queries.bits, t.role
                )
                yield _exchange(CollectiveKind.ALL_GATHER, group, there, t, there)
        elif node is first:
            asked = _of_group(queries, ranks)
            yield _exchange(CollectiveKind.ALL_GATHER, group, asked, queries, asked)
        yield node
        if node is last and not latent:
            answers = _of_group(own, ranks)
            answers = replace(answers, dims=(("any_before", any_before), *answers.dims))
            yield from _merged(answers, own, ranks, group)


def _merged(answers: Tensor, own: Tensor, ranks: int, group: Size) -> Iterator[Node]:
    """From answers of all heads, each over a part of the keys, to those of the rank's own heads."""
    rows = tuple((n, s) for n, s in answers.dims if n not in ("value_dim", "kv_rank"))
    sums = Tensor(f"{own.name}.logsumexp", rows, STATISTIC_BITS)
    of_all = Tensor(f"{sums.name}.gathered", (("ranks", float(ranks)), *rows), STATISTIC_BITS)
    yield _exchange(CollectiveKind.ALL_GATHER, group, of_all, sums, of_all)
    scaled = answers.renamed(f"{answers.name}.scaled")
    yield Op(f"{own.name}.merge", Kind.STREAM, (answers, of_all), (scaled,), part="merge")
    yield _exchange(CollectiveKind.REDUCE_SCATTER, group, scaled, scaled, own)


def _of_group(t: Tensor, ranks: int) -> Tensor:
    """What a rank has of its own heads, of all heads of the group and its part of the keys."""
    by = {"heads": float(ranks), "keys": 1.0 / ranks}
    dims = tuple((name, size * by.get(name, 1.0)) for name, size in t.dims)
    return Tensor(f"{t.name}.group", dims, t.bits, t.role)


def _exchange(
    kind: CollectiveKind, group: Size, payload: Tensor, source: Tensor, out: Tensor
) -> Collective:
    name = f"{payload.name}.{kind}"
    return Collective(
        name,
        kind,
        axis=AXIS,
        group=group,
        payload=payload,
        source=source,
        outputs=(out,),
        part=AXIS,
    )
