"""What all kinds of attention share: the cache that is written, and softmax(QKᵀ)V op by op."""

from __future__ import annotations

from typing import Any, NamedTuple

from trueflops.graph.build.layout import Layout, Pass
from trueflops.graph.ir import Tensor
from trueflops.graph.kinds import Kind, Role
from trueflops.model import Attention, Block
from trueflops.sizes import Size


class Keys(NamedTuple):
    """Keys of a sequence: those there are, that some query needs, that one sees on average."""

    there: Size
    read: Size
    seen: Size

    @classmethod
    def under(cls, run: Pass, a: Attention) -> Keys:
        """Under the causal mask and the layer's window."""
        return cls(run.keys, run.keys_read(a.window, a.chunked), run.keys_seen(a.window, a.chunked))


def write_cache(at: Layout, *new: Tensor) -> None:
    """When serving, write the new keys and values (or their latents) behind the old ones."""
    if not at.run.training:
        cached = [
            Tensor(f"{t.name}.cached", t.dims, at.run.cache_bits, role=Role.INDEX) for t in new
        ]
        at.op(Kind.CACHE, "attention.cache", new, cached)


def core(
    at: Layout, block: Block, q: Tensor, k: Tensor, v: Tensor, keys: Keys | None = None
) -> Tensor:
    """softmax(QKᵀ)V with every intermediate; the fuse pass turns it into flash attention."""
    run, a = at.run, block.attention
    assert a is not None
    found = keys or Keys.under(run, a)
    q, k, v = at.narrowed(q), at.narrowed(k), at.narrowed(v)
    square = (("batch", run.batch), ("heads", a.heads), ("seq", run.seq), ("keys", found.there))
    scores, weights = Tensor("scores", square, run.bits), Tensor("attended", square, run.bits)
    facts: dict[str, Any] = {
        "keys": found.read,
        "seen": found.seen,
        # A latent cache is widened to keys and values of the usual dtype before a prompt reads it.
        "key_bits": run.bits if run.training or a.latent else run.cache_bits,
        "window": 0.0 if keys else float(a.window),  # a window is all that is seen
    }
    at.op(Kind.SCORES, "attention.scores", [q, k], [scores], part="core", inner=a.head_dim, **facts)
    sinks = at.weights("attention.sinks") if a.sinks else ()
    at.op(
        Kind.SOFTMAX,
        "attention.softmax",
        [scores],
        [weights],
        sinks,
        part="core",
        flop_per_element=5.0,
    )
    weights = at.dropout("attention.core_dropout", weights, block.attention_dropout, part="core")
    mixed = at.tensor("mixed", ("heads", a.heads), ("value_dim", a.value_dim))
    return at.op(
        Kind.CONTEXT,
        "attention.context",
        [weights, v],
        [mixed],
        part="core",
        inner=a.value_dim,
        **facts,
    )
