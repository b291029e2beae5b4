"""How an engine runs requests: what it may fill, what one step takes in, which come first.

In: an engine's name, its release, and the chip it runs on. Out: an Engine, the defaults of that
release as data/engines.toml states them with their sources; any of them can be set by whoever
deploys it. What its kernels and its host cost is a framework's business (frameworks.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from trueflops.catalog import Accelerator
from trueflops.catalog.facts import read_toml
from trueflops.plan import Plan, shares_experts
from trueflops.units import GIBI

_DATA: Final = Path(__file__).parent / "data" / "engines.toml"
USUAL: Final = "serving"  # where none is named, or nothing is known of it
BOLDER: Final = 0.3  # SGLang's schedule_conservativeness where attention is replicated
CHUNKED_FROM: Final = 32768  # tokens of a context above which vLLM's first engine reads in chunks
MANY_RANKS: Final = 4  # from which SGLang captures graphs of larger batches
_UNTAGGED: Final = (0.0, 0.0, 0.0)
_NUMBER: Final = re.compile(r"\d{1,9}")

Policy = Literal["mixed", "prefill-first"]
"""Mixed: a step takes the tokens of requests that write, and prompts as far as its budget goes.
Prefill-first: while there is room for a waiting prompt it is read, and those that write wait."""

Pool = Literal["profiled", "static", "free", "asked"]
"""Which memory the KV cache gets. Profiled: the share of the whole, less weights and what a trial
pass at start needed. Static: the share of what is free at start, less weights. Free: the share of
what is free after weights and a trial pass. Asked: the context asked for, and no more."""

Counted = Literal["allocated", "process", "device"]
"""What a profiled pool is the rest of. Allocated: weights and activations as torch allocates them.
Process: also what libraries and communicators take since the engine began. Device: all that the
driver says is taken, the context included."""


@dataclass(frozen=True)
class Engine:
    """Settings of one deployment of an engine."""

    name: str
    memory_share: float  # of the accelerator's memory that it may fill; of what: pool
    block: int  # tokens of the KV cache that are given out together
    step_tokens: int  # that one step takes in at most, or one pass over prompts
    most_sequences: int  # that run at once in a replica
    most_drafting: int  # the same with drafts, where nobody says how many; 0: as without
    policy: Policy
    chunked: bool  # whether a prompt may be read in parts
    reserve: float  # of what a request may still write, cache set aside when it is let in
    reserve_at_first: float  # the same of an idle engine: it falls to `reserve` within …
    reserve_steps: int  # … so many decode steps
    ahead: int  # steps that are issued before the one which runs has ended (async scheduling)
    serial_token: float  # seconds for each token between two steps, where none is issued ahead
    serial_spread: float  # ln of how many times longer or shorter another host's processor takes
    parses_template: bool  # whether the server parses the chat template anew for every request
    poll: int  # decode steps between two looks at what has come in
    waiting_ratio: float  # of those that write: fewer that wait do not stop them …
    waiting_steps: int  # … for so many decode steps
    pool: Pool
    counted: Counted
    captured: bool  # whether decode steps run as captured graphs, where the framework has them
    graphs_by_requests: bool  # whether no graph is of more tokens than twice most_sequences
    prompt_graph: int  # tokens of a pass over prompts up to which captured graphs run between …
    prompt_graph_latent: int  # … attention, and the same over latents; 0: the host issues all of it
    eager: bool  # whether passes run as Python calls them: nothing is compiled
    sampler_bytes: float  # that the trial pass holds for each logit of most_sequences rows
    windows: Literal["own", "groups", "ratio", "whole"]  # what layers with a window keep: cache.py
    window_ratio: float  # tokens of such a layer for one of the others, where windows = "ratio"
    states_kept: int  # blocks of a request in a layer that keeps a state
    capacity_in: Literal["blocks", "requests"]  # what the tokens it prints are counted by
    graph_bytes: float  # of captured graphs, where they are counted before the cache is sized
    latent_align: int  # bytes that a token's latent is rounded up to
    checkpoint_cache: bool  # whether a checkpoint that asks for an fp8 cache gets it unasked
    absorbs: bool  # whether products of latent attention's projections are kept beside them
    ties: bool  # whether a table that embedding and head share is held once
    dense_over_all: bool  # whether replicas of attention share dense layers, as they do experts
    two_batches: bool  # whether half of a batch computes while the other goes to its experts
    shared_beside: bool  # whether a decode step runs shared experts beside the routed ones
    expert_kernels: Literal["", "marlin", "triton"]  # of MXFP4 on Hopper; "": sides are not padded
    expert_block: int  # rows that block-fp8 experts' shares are rounded up to; 0: they are not
    short_dense: bool  # whether a prompt that an indexer would choose whole is read as dense
    sparse_whole: bool  # whether the kernel of chosen keys walks over all that can be chosen
    sparse_paged: bool  # whether decode steps read chosen keys by paged attention, unpadded
    nccl: bool  # whether cards talk by it: its buffers take memory on each
    table_on_host: bool  # whether tokens are looked up in host memory: a card holds no embedding
    offloads: Literal["layers", "weights", "nothing"]  # what it can keep in host memory
    copies_from: int  # tokens of a pass from which accelerators compute the host's layers, too
    copy_rate: float  # bytes a second at most, from host memory that is not pinned
    splits: Literal["evenly", "by memory", "in order"]  # how unlike cards get layers: splitting.py
    staggered: bool  # whether stages of a pipeline work on different requests at once
    spreads: Literal["nothing", "plain", "chosen"]
    """Which cached keys it can spread over ranks that would all hold them: none, those of attention
    that sees every key, those that an indexer chooses from, too."""
    hands_over: bool  # whether a worker that read a prompt can hand its cache to one that writes
    experts: Literal["some", "all", "nothing"]
    """What it spreads the experts of a layer over (runnable.py): some of the ranks that hold them,
    the others splitting each; all of them or none; nothing: a replica's ranks split each."""
    splits_shared: bool  # whether replicas of attention that share experts may split it over ranks
    crosses: bool  # whether tensor and pipeline parallelism go together
    spans_nodes: bool  # whether the accelerators of one replica may be of several nodes
    weight_block: int  # of an expert in blocks of fp8 a rank must hold multiples of so many columns
    same_vocabulary: bool  # whether a draft model must know as many tokens as the model
    divides: bool  # whether replicas of attention that share experts divide its budgets
    source: str
    shares: tuple[tuple[int, float], ...] = ()  # memory_share from so many ranks on, most first
    padded_graphs: tuple[int, ...] = ()  # requests of the largest graph, on few ranks and on many
    typed: frozenset[str] = frozenset()  # settings that were named, which nothing else changes

    def but(self, **changes: Any) -> Engine:
        """The same engine, otherwise set."""
        return replace(self, **changes)

    def naming(self, **settings: Any) -> Engine:
        """The same with settings that whoever deploys it named; its share is of any ranks then."""
        shares = () if "memory_share" in settings else self.shares
        return self.but(**settings, shares=shares, typed=self.typed.union(settings))

    def told(self, most: int) -> Engine:
        """The same with --max-num-seqs or its kin: so many requests at once, with drafts, too."""
        return self.naming(most_sequences=most, most_drafting=0)

    def drafting(self) -> Engine:
        """The same with drafts."""
        most = self.most_sequences
        return self.but(most_sequences=min(most, self.most_drafting or most))

    def captures_up_to(self, *, latent: bool) -> int:
        """Tokens of a pass over prompts up to which the pieces between attention are captured."""
        most = self.prompt_graph_latent if latent else self.prompt_graph
        return min(most, 2 * self.most_sequences) if self.graphs_by_requests else most

    def uncaptured(self) -> Engine:
        """The same with vLLM's --enforce-eager or SGLang's --disable-cuda-graph: no step is a
        captured graph, none is counted beside the cache, and nothing is compiled.
        """
        return self.but(
            captured=False, prompt_graph=0, prompt_graph_latent=0, graph_bytes=0.0, eager=True
        )

    def share(self, ranks: int) -> float:
        """The share of a replica of so many ranks."""
        return next((share for least, share in self.shares if ranks >= least), self.memory_share)


@cache
def _described() -> dict[str, dict[str, Any]]:
    return read_toml(_DATA)


@cache
def engine_of(name: str, release: str = "") -> Engine:
    """The defaults of an engine by its name; of one that is not described, those of most.

    Without a release it is the newest that is described.
    """
    said = _described()[USUAL] | _described().get(name, {})
    left = ("older", "by_memory", "share_by", "graphs_on")  # read below
    newest = Engine(name=name, **{key: value for key, value in said.items() if key not in left})
    return newest.but(**_older(said, release))


def engine_on(name: str, chip: Accelerator, release: str = "") -> Engine:
    """The same on a chip: engines choose steps, sequences and share by its memory.

    >>> import trueflops as tf
    >>> from trueflops.profile.engines import engine_on
    >>> engine_on("vllm", tf.accelerator("RTX 4090")).step_tokens
    2048
    """
    said, engine = _described().get(name, {}), engine_of(name, release)
    if chip.vendor not in said.get("graphs_on", (chip.vendor,)):
        engine = engine.but(prompt_graph=0, prompt_graph_latent=0)
    memory = (chip.get("memory.capacity") or 0.0) / GIBI
    if not memory or "by_memory" not in said:
        return engine
    row = next(row for row in said["by_memory"] if _is_of(row, memory, chip.name, release))
    own = {key: row[key] for key in row if key in Engine.__annotations__}
    engine = engine.but(**own | _older(said, release))
    if "share_by" not in said:
        return engine
    if not _rule(said, release):
        engine = engine.but(padded_graphs=tuple(row["graphs"]))
    ranks = (32, 16, 8, 4, 2, 1)
    return engine.but(shares=tuple((n, _share(said, row, memory, n, release)) for n in ranks))


def sharing_experts(engine: Engine, chip: Accelerator, plan: Plan) -> Engine:
    """An engine on a chip as it sets itself up for a plan.

    SGLang with --enable-dp-attention, where some of its ranks have attention of their own: a chunk
    is divided among them, admission is bolder, and since 0.5.3 more memory is left for what is
    padded: 3 MiB for each request of the largest graph and replica, and half as much again above
    300 requests (server_args.py, _handle_data_parallelism and reserve_for_graph_mb).
    Requests that run at once are those of all replicas, where a number is set
    (kv_cache_configurator.py, attn_dp_size).
    """
    if not (engine.divides and shares_experts(plan)):
        return engine
    together = plan.ep * plan.etp
    replicas, ranks = int(together / plan.tp), int(together * plan.pp)
    memory = (chip.get("memory.capacity") or 0.0) / GIBI
    graphs = engine.padded_graphs[ranks >= MANY_RANKS] if engine.padded_graphs else 0
    padded = graphs * replicas * (4.5 if graphs > 300 else 3.0) / 1024
    divided: dict[str, Any] = {
        "step_tokens": max(engine.step_tokens // replicas, 1),
        "most_drafting": engine.most_drafting // replicas,
        "memory_share": round(engine.share(ranks) - padded / max(memory, 1.0), 3),
    }
    return engine.but(
        **{key: value for key, value in divided.items() if key not in engine.typed},
        shares=(),
        reserve=BOLDER * engine.reserve,
        reserve_at_first=BOLDER * engine.reserve_at_first,
    )


def _is_of(row: dict[str, Any], memory: float, chip: str, release: str) -> bool:
    """Whether a row is of so many GiB on that chip in that release."""
    if is_before(release, row.get("since", "")):
        return False
    return memory >= row["least_gib"] and not any(n in chip for n in row.get("not_on", []))


def release_on(name: str, day: str) -> str:
    """The release that was out on a day such as 2025-07-22, as far as it matters here."""
    older = sorted(_described().get(name, {}).get("older", []), key=lambda o: str(o["date"]))
    return next((f"{o['before']}rc" for o in older if day < str(o["date"])), "")


def is_before(release: str, other: str) -> bool:
    """Whether a release is older than another one; of one that is not stated nothing is known.

    Neither is of 0.0.0.dev1+g1a2b3c4: setuptools-scm calls a build so that has no tag behind it.
    """
    own = _number(release)
    return own > _UNTAGGED and own < _number(other)


def _older(said: dict[str, Any], release: str) -> dict[str, Any]:
    """What a release has otherwise than the newest; empty text is the newest."""
    found: dict[str, Any] = {}
    for older in sorted(said.get("older", []), key=lambda o: _number(o["before"]), reverse=True):
        if is_before(release, older["before"]):
            found |= {key: older[key] for key in older if key in Engine.__annotations__}
    return found


def _rule(said: dict[str, Any], release: str) -> dict[str, Any]:
    """How a release chose its share, if otherwise than the newest."""
    return next((r for r in said["share_by"] if is_before(release, r["before"])), {})


def _share(
    said: dict[str, Any], row: dict[str, Any], memory: float, ranks: int, release: str
) -> float:
    """What SGLang keeps for weights and cache: 1 − reserved / memory, or a table by ranks."""
    rule = _rule(said, release)
    if "by_ranks" in rule:
        return float(next(share for least, share in rule["by_ranks"] if ranks >= least))
    if rule:
        base, each = next(rest for below, *rest in rule["reserved_gib"] if memory < below)
        return float(round(1.0 - (base + each * ranks) / memory, 3))
    # reserved MiB = 512 + 1.5 · chunk + 2 · largest batch of graphs + ranks / 8 · 1024
    graphs = row["graphs"][ranks >= MANY_RANKS]
    reserved = (512 + 1.5 * row["step_tokens"] + 2 * graphs) / 1024 + ranks / 8
    reserved = max(reserved, 10.0) if memory > 60 else reserved
    return float(round(1.0 - reserved / memory, 3))


def _number(release: str) -> tuple[float, ...]:
    """'0.8.5.dev274' and 'v0.8.5.post1' as numbers; a candidate comes before its release."""
    numbers = [float(n) for n in _NUMBER.findall(release.partition("+")[0])[:3]]
    if numbers and ("rc" in release or "dev" in release):
        numbers[-1] -= 0.5
    return (*numbers, 0.0, 0.0, 0.0)[:3]
