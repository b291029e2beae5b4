"""How one attention kernel runs on a chip: blocks, waves, pairs visited, and which limit binds.

In: a Clock and an attention Op: a prompt, the backward of one, or a step of decoding. Out:
AttentionExplained. Seconds are those of `price_kernels`, the rest is what the laws of
`clock/attention.py` see.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from trueflops.clock import Clock, op_class
from trueflops.clock.attention import (
    ATTENTION,
    DECODE,
    AttentionWork,
    decode_limits,
    efficiency,
    prompt_limits,
    query_blocks,
    split_keys,
)
from trueflops.clock.law import Law
from trueflops.clock.works import law_work, pricing_of
from trueflops.graph.ir import Op
from trueflops.graph.rules import work
from trueflops.predict.explain.kernel import KernelExplained, check_room, curve_of, one
from trueflops.predict.kernels import price_kernels
from trueflops.profile import fact_of_die


@dataclass(frozen=True)
class PromptBlocks:
    """Blocks of queries, dealt to the units in waves."""

    block: float  # queries of one
    blocks: float
    visited: float  # keys that each query is multiplied with, masked ones included
    seen: float  # keys that it may see, on average
    waves: float

    @property
    def wasted(self) -> float:
        """Share of the multiplied pairs that a mask, or an edge, throws away."""
        return max(0.0, 1.0 - self.seen / self.visited)


@dataclass(frozen=True)
class DecodeShares:
    """Stretches of the cache, one to a unit."""

    splits: float  # stretches of one sequence and key head
    shares: float
    waves: float
    busy: float  # part of the units that have work
    hot: float  # share of keys and values that the last-level cache still holds
    group: float  # rows of a tensor core's product for the queries of one key head
    queries_per_group: float  # of those, the ones in use


@dataclass(frozen=True, kw_only=True)
class AttentionExplained(KernelExplained):
    """Everything that `trueflops explain attention` shows, in SI units."""

    kind: str  # attention, attention_backward, attention_decode
    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int  # that are read
    head_dim: int
    seen: float  # keys that a query sees, on average
    cache_bytes: float  # keys and values
    other_bytes: float  # queries and results
    prompt: PromptBlocks | None  # of a prompt or its backward
    decode: DecodeShares | None  # of a step of decoding

    @property
    def name(self) -> str:
        """'attention bf16 1×32×8×4096×128': sequences, heads, key heads, length, head dimension."""
        length = self.keys if self.decode else self.queries
        sizes = (self.batch, self.heads, self.kv_heads, length, self.head_dim)
        return f"{self.kind.replace('_', ' ')} {self.dtype} {'×'.join(map(str, sizes))}"

    @property
    def pairs(self) -> float:
        """Queries times the keys that each sees, over all heads."""
        return self.batch * self.heads * self.queries * self.seen


def explain_attention(clock: Clock, op: Op) -> AttentionExplained:
    """Gather what the law, the chip and the profile say of one attention kernel."""
    chip, silicon, kind = clock.chip, clock.silicon, op_class(op)
    law: Law = DECODE if kind == "attention_decode" else ATTENTION
    choice = curve_of(clock, op, law)
    curve = choice.curve
    asked: AttentionWork = law_work(pricing_of(op), [op], [work(op)])
    cache, others = one(asked.cache_bytes), one(asked.other_bytes)
    check_room(chip, cache + others, "queries, keys, values and results")
    priced = price_kernels(clock, [op], None, 1)
    seconds = priced.seconds.pick(0)
    shape = asked.shape
    prompt, decode = None, None
    if law is DECODE:
        limits = decode_limits(asked, silicon, curve.values)
        at = split_keys(asked, silicon)
        each = one(shape.heads) / one(shape.kv_heads)
        decode = DecodeShares(
            one(at.splits),
            one(at.shares),
            one(at.waves),
            one(at.busy),
            one(at.hot),
            one(at.group),
            queries_per_group=each,
        )
        reached = curve["efficiency"]
    else:
        limits = prompt_limits(asked, silicon, curve.values)
        block, blocks, visited = map(one, query_blocks(asked, curve.values))
        prompt = PromptBlocks(block, blocks, visited, one(shape.seen), blocks / silicon.units)
        reached = one(efficiency(shape.head_dim, curve.values))
    plain = one(law.formula(asked, silicon, curve.values))
    return AttentionExplained(
        chip=chip,
        profile=clock.profile.name,
        choice=choice,
        form=op.dtype,
        dtype=op.dtype,
        seconds=seconds,
        flop=one(priced.flop),
        moved_bytes=cache + others,
        peak=chip.peak_flop_per_second(op.dtype),
        bandwidth=silicon.bandwidth,
        efficiency=reached,
        units=silicon.units,
        units_known=fact_of_die(chip, "compute.units") is not None,
        limits={limit: one(taken) for limit, taken in limits._asdict().items() if one(taken)},
        correction=float(seconds.value) / plain,
        kind=kind,
        batch=round(one(shape.batch)),
        heads=round(one(shape.heads)),
        kv_heads=round(one(shape.kv_heads)),
        queries=round(one(shape.queries)),
        keys=ceil(one(shape.keys)),
        head_dim=round(one(shape.head_dim)),
        seen=one(shape.seen),
        cache_bytes=cache,
        other_bytes=others,
        prompt=prompt,
        decode=decode,
    )
