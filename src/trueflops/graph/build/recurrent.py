"""Recurrent layers, linear attention and state spaces: a state instead of a cache that grows.

A decode step reads the state of every head, and writes it back; each rule of `model/layers.py` says
how it changes on the way. A prompt is read in chunks, whose tokens are first brought into the form
of products: chunks.py. Around both stand projections, a short causal convolution, and a norm that
is gated, as engines that serve and libraries that train lay them out:
    vLLM          layers/mamba: gdn/qwen_gdn_linear_attn.py, mamba_mixer2.py, mamba_mixer.py,
                  gdn/kda_linear_attn.py, linear/minimax_linear_attn.py
    transformers  Qwen3NextGatedDeltaNet, Mamba2Mixer, JambaMambaMixer, KimiLinearDeltaAttention,
                  MiniMaxLightningAttention
"""

from __future__ import annotations

from typing import Final, NamedTuple

from trueflops.graph.build.chunks import read_in_chunks
from trueflops.graph.build.layout import Layout
from trueflops.graph.ir import Tensor
from trueflops.graph.kinds import Kind, Role
from trueflops.model.layers import Recurrent, Rule

Channels = tuple[tuple[str, float], ...]
# Of a number of the state: forgotten, looked up under the key, corrected, added to, asked.
STEP_FLOP: Final[dict[Rule, float]] = {"delta": 6.0, "decay": 5.0, "scan": 6.0, "filter": 0.0}


class Made(NamedTuple):
    """What a layer makes of its input, before tokens are mixed."""

    q: Tensor
    k: Tensor
    v: Tensor
    gate: Tensor
    rates: tuple[Tensor, ...]  # none where α is fixed


def recur(at: Layout, r: Recurrent, x: Tensor) -> Tensor:
    """From the normed residual stream to the output projection."""
    if r.rule == "filter":
        return _gated_filter(at, r, x)
    made = _scanned(at, r, x) if r.rule == "scan" else _projected(at, r, x)
    mix = _one_token if at.run.decoding else read_in_chunks
    gates = (made.gate,) if r.rule == "scan" else ()  # its kernels multiply by the gate themselves
    mixed = mix(at, r, made.q, made.k, made.v, (*made.rates, *gates))
    if r.rule != "scan":
        mixed = _gated(at, r, mixed, made.gate)
    return at.linear(["recurrent.out"], mixed, [at.branch("recurrent.out.y", mixed)])


def _gated_filter(at: Layout, r: Recurrent, x: Tensor) -> Tensor:
    """LFM2's: one product makes all three (vLLM's layers/mamba/short_conv.py, in_proj)."""
    _, value = _dims(r)
    q, k, v = (at.tensor(f"state.{name}", *value) for name in "qkv")
    at.linear(["recurrent.q", "recurrent.k", "recurrent.v"], x, [q, k, v])
    before = at.op(
        Kind.MULTIPLY, "recurrent.before", [k, v], [Tensor("state.v.gated", v.dims, v.bits)]
    )
    (kept,) = _filter(at, r, "recurrent.conv", (before.renamed("state.v"),))
    behind = at.op(
        Kind.MULTIPLY, "recurrent.gating", [q, kept], [Tensor("state.gated", v.dims, v.bits)]
    )
    return at.linear(["recurrent.out"], behind, [at.branch("recurrent.out.y", behind)])


def _dims(r: Recurrent) -> tuple[Channels, Channels]:
    """Of queries and keys, and of values."""
    keys = (("kv_heads", r.key_heads), ("head_dim", r.key_dim))
    return keys, (("heads", r.heads), ("value_dim", r.value_dim))


def _projected(at: Layout, r: Recurrent, x: Tensor) -> Made:
    """Queries, keys, values, a gate and rates, each of its own channels, then filtered."""
    key, value = _dims(r)
    q, k = at.tensor("state.q", *key), at.tensor("state.k", *key)
    v, gate = at.tensor("state.v", *value), at.tensor("state.gate", *value)
    made = {"recurrent.q": q, "recurrent.k": k, "recurrent.v": v, "recurrent.gate": gate}
    rates: tuple[Tensor, ...] = ()
    if r.rates:
        rates = (at.tensor("state.rates", ("heads", r.heads), ("rates", r.rates)),)
        made["recurrent.rates"] = rates[0]
    if r.rank:
        made.pop("recurrent.gate")
        _through(at, "gate", x, gate)
        channels = at.tensor("state.channels", ("heads", r.heads), ("head_dim", r.key_dim))
        rates = (*rates, _through(at, "rate", x, channels))
    for names in _together(r):
        at.linear(names, x, [made[name] for name in names])
    if r.rule == "delta" and not r.rank and not at.run.training:
        q, k, v = _apart(at, q, k, v)
    q, k, v = _filtered(at, r, q, k, v) if r.conv else _acted(at, q, k, v)
    return Made(q, k, v, gate, rates)


def _together(r: Recurrent) -> list[list[str]]:
    """Projections that are one product: Mamba's in_proj is all of them; the others have the gate,
    or the rates, apart.
    """
    if r.rank:
        return [["recurrent.q"], ["recurrent.k"], ["recurrent.v"], ["recurrent.rates"]]
    names = ["recurrent.q", "recurrent.k", "recurrent.v", "recurrent.gate"]
    if not r.rates:
        return [names[:3], names[3:]]
    if r.rule == "delta":
        return [names, ["recurrent.rates"]]
    return [[*names, "recurrent.rates"]]


def _through(at: Layout, name: str, x: Tensor, out: Tensor) -> Tensor:
    """By way of few numbers to many: two products."""
    down, up = f"recurrent.{name}_down", f"recurrent.{name}_up"
    low = at.tensor(f"state.{name}_low", at.parameters[down].dims[0])
    return at.linear([up], at.linear([down], x, [low]), [out])


def _scanned(at: Layout, r: Recurrent, x: Tensor) -> Made:
    """Mamba: only values are filtered; of them come rates, keys and queries (JambaMambaMixer)."""
    _, value = _dims(r)
    v, gate = at.tensor("state.v", *value), at.tensor("state.gate", *value)
    at.linear(["recurrent.v", "recurrent.gate"], x, [v, gate])
    (v,) = _filtered(at, r, v)
    both = at.tensor("state.narrow", at.parameters["recurrent.narrow"].dims[0])
    at.linear(["recurrent.narrow"], v, [both])
    low = at.tensor("state.rate_low", ("rank", r.rank))
    key = ("head_dim", r.key_dim)
    q, k = at.tensor("state.q", key), at.tensor("state.k", key)
    at.op(Kind.STREAM, "recurrent.cut", [both], [low, q, k])
    if r.inner_norms != "none":
        low, q, k = (
            at.norm(f"recurrent.{name}_norm", t) for name, t in (("rate", low), ("q", q), ("k", k))
        )
    rates = at.tensor("state.rates", ("heads", r.heads))
    return Made(q, k, v, gate, (at.linear(["recurrent.rate_up"], low, [rates]),))


def _apart(at: Layout, *made: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What one product made, head by head, is laid out anew (SGLang's fused_qkvzba_split_reshape_
    cat; vLLM's fix_query_key_value_ordering).
    """
    q, k, v = (Tensor(f"{t.name}.apart", t.dims, t.bits) for t in made)
    at.op(Kind.RECURRENCE, "recurrent.split", made, [q, k, v])
    return q, k, v


def _acted(at: Layout, *made: Tensor) -> tuple[Tensor, ...]:
    """Lightning attention has an activation in the place of the filter."""
    out = tuple(Tensor(f"{t.name}.acted", t.dims, t.bits) for t in made)
    at.op(Kind.ACTIVATION, "recurrent.act", made, out, flop_per_element=5.0)
    return out


def _filtered(at: Layout, r: Recurrent, *made: Tensor) -> tuple[Tensor, ...]:
    """A causal filter for each channel: one kernel over all, or, where they are made apart, one for
    each of queries, keys and values.
    """
    if not r.rank or r.rule == "scan":
        return _filter(at, r, "recurrent.conv", made)
    return tuple(_filter(at, r, f"recurrent.conv_{_letter(t)}", (t,))[0] for t in made)


def _letter(t: Tensor) -> str:
    """q, k or v."""
    return t.name.split(".")[1]


def _filter(at: Layout, r: Recurrent, name: str, taken: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """One kernel; a server keeps the last tokens of each sequence."""
    made = tuple(Tensor(f"{t.name}.filtered", t.dims, t.bits) for t in taken)
    behind: tuple[Tensor, ...] = ()
    if not at.run.training:
        kept, batch = ("kept", r.conv - 1.0), ("batch", at.run.batch)
        behind = tuple(
            Tensor(f"{t.name}.behind", (batch, kept, *t.dims[2:]), t.bits, role=Role.INDEX)
            for t in taken
        )
    after = tuple(t.renamed(f"{t.name}.next") for t in behind)
    at.op(Kind.RECURRENCE, name, [*taken, *behind], [*made, *after],
          at.weights(*(f"recurrent.conv_{_letter(t)}" for t in taken)),
          flop_per_element=2.0 * r.conv, again=float(r.rule == "decay"))  # fmt: skip
    return made


def _one_token(
    at: Layout, r: Recurrent, q: Tensor, k: Tensor, v: Tensor, rates: tuple[Tensor, ...]
) -> Tensor:
    """The fused kernel of a decode step (fused_recurrent_gated_delta_rule, fused_recurrent_kda,
    selective_state_update, linear_decode_forward_triton).
    """
    dims = (("batch", at.run.batch), ("heads", r.heads), ("head_dim", r.key_dim))
    before = Tensor("state", (*dims, ("value_dim", r.value_dim)), r.bits, role=Role.INDEX)
    mixed = at.tensor("state.mixed", ("heads", r.heads), ("value_dim", r.value_dim))
    learned = at.weights("recurrent.decay") if "recurrent.decay" in at.parameters else ()
    return at.op(Kind.RECURRENCE, "recurrent.state", [q, k, v, *rates, before],
                 [mixed, before.renamed("state.next")], learned,
                 flop_per_element=STEP_FLOP[r.rule])  # fmt: skip


def _gated(at: Layout, r: Recurrent, mixed: Tensor, gate: Tensor) -> Tensor:
    """Normed and multiplied by the gate, in one kernel; Falcon-H1's are multiplied alone.

    Ranks that split the width of one norm sum its squares (vLLM's Mixer2RMSNormGated where there is
    one group, MiniMaxText01RMSNormTP).
    """
    out = Tensor("state.gated", mixed.dims, mixed.bits)
    if r.norm == "none":
        return at.op(Kind.MULTIPLY, "recurrent.gating", [mixed, gate], [out], flop_per_element=6.0)
    return at.op(Kind.NORM, "recurrent.out_norm", [mixed, gate], [out],
                 at.weights("recurrent.out_norm"), part="norm", flop_per_element=8.0,
                 sums_across=float(r.norm == "width"))  # fmt: skip
