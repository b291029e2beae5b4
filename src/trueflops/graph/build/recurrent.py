"""Linear attention by the gated delta rule: a state instead of a cache that grows.

    S ← S·(α·(1 − β·k·kᵀ)) + β·v·kᵀ,   o = S·q        (arXiv 2412.06464, equation 10)
A decode step reads the state of every head, and writes it back. A prompt is read in chunks, whose
tokens are first brought into the form of products: kernel by kernel as flash-linear-attention lays
it out (fla/ops/gated_delta_rule/chunk.py, chunk_gated_delta_rule_fwd), which vLLM and SGLang carry.
"""

from __future__ import annotations

from typing import Final

from trueflops.graph.build.layout import Layout
from trueflops.graph.ir import Tensor
from trueflops.graph.kinds import Kind, Role
from trueflops.model.layers import Attention, State

CHUNK: Final = 64  # tokens
WIDE_BITS: Final = 32.0


def recur(at: Layout, a: Attention, state: State, x: Tensor) -> Tensor:
    """From the normed residual stream to what the output projection reads."""
    key = ("kv_heads", a.kv_heads), ("head_dim", a.head_dim)
    value = ("heads", a.heads), ("value_dim", a.value_dim)
    q, k = at.tensor("q", *key), at.tensor("k", *key)
    v, gate = at.tensor("v", *value), at.tensor("gate", *value)
    names = ["attention.q", "attention.k", "attention.v", "attention.gate"]
    at.linear(names, x, [q, k, v, gate])
    rates = at.tensor("rates", ("heads", a.heads), ("rates", state.rates))
    at.linear(["attention.rates"], x, [rates])
    if not at.run.training:
        q, k, v = _apart(at, q, k, v)
    q, k, v = _convolved(at, state, q, k, v)
    step = _one_token if at.run.decoding else _chunks
    mixed = step(at, a, state, q, k, v, rates)
    out = at.tensor("mixed.normed", *value)
    weight = at.weights("attention.out_norm")
    return at.op(Kind.NORM, "attention.out_norm", [mixed, gate], [out], weight, part="norm",
                 flop_per_element=8.0)  # fmt: skip


def _apart(at: Layout, *made: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What one product made, head by head, is laid out anew (SGLang's fused_qkvzba_split_reshape_
    cat; vLLM's fix_query_key_value_ordering).
    """
    q, k, v = (Tensor(f"{t.name}.apart", t.dims, t.bits) for t in made)
    at.op(Kind.RECURRENCE, "attention.split", made, [q, k, v])
    return q, k, v


def _convolved(
    at: Layout, state: State, q: Tensor, k: Tensor, v: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """A causal filter for each channel; a server keeps the last tokens of each sequence."""
    made = tuple(Tensor(f"{t.name}.filtered", t.dims, t.bits) for t in (q, k, v))
    behind: tuple[Tensor, ...] = ()
    if not at.run.training:
        kept = ("kept", state.conv - 1.0)
        batch = ("batch", at.run.batch)
        behind = tuple(
            Tensor(f"{t.name}.behind", (batch, kept, *t.dims[2:]), t.bits, role=Role.INDEX)
            for t in (q, k, v)
        )
    after = tuple(t.renamed(f"{t.name}.next") for t in behind)
    weights = at.weights("attention.conv_q", "attention.conv_k", "attention.conv_v")
    taken = [q, k, v, *behind]
    at.op(Kind.RECURRENCE, "attention.conv", taken, [*made, *after], weights,
          flop_per_element=2.0 * state.conv)  # fmt: skip
    return made[0], made[1], made[2]


def _states(at: Layout, a: Attention, bits: float, name: str) -> Tensor:
    dims = (("batch", at.run.batch), ("heads", a.heads), ("head_dim", a.head_dim))
    return Tensor(name, (*dims, ("value_dim", a.value_dim)), bits, role=Role.INDEX)


def _one_token(
    at: Layout, a: Attention, state: State, q: Tensor, k: Tensor, v: Tensor, rates: Tensor
) -> Tensor:
    """The fused kernel of a decode step (fused_recurrent_gated_delta_rule)."""
    before = _states(at, a, state.bits, "state")
    after = before.renamed("state.next")
    mixed = at.tensor("mixed", ("heads", a.heads), ("value_dim", a.value_dim))
    return at.op(Kind.RECURRENCE, "attention.state", [q, k, v, rates, before], [mixed, after],
                 at.weights("attention.decay"), part="core", flop_per_element=6.0)  # fmt: skip


def _chunks(
    at: Layout, a: Attention, state: State, q: Tensor, k: Tensor, v: Tensor, rates: Tensor
) -> Tensor:
    """A prompt, chunk by chunk, in five kernels; what lies between them goes through memory."""
    heads = ("heads", a.heads)
    keys = (heads, ("head_dim", a.head_dim))
    values = (heads, ("value_dim", a.value_dim))
    inside = at.tensor("chunk.products", heads, ("chunk", CHUNK), bits=WIDE_BITS)
    solved = at.tensor("chunk.solved", heads, ("chunk", CHUNK))
    w, u = at.tensor("chunk.w", *keys), at.tensor("chunk.u", *values)
    rewritten = at.tensor("chunk.values", *values)
    # A state for each chunk, spread over its tokens.
    passing = at.tensor("chunk.states", *keys, ("value_dim", a.value_dim / CHUNK))
    mixed = at.tensor("mixed", *values)

    def kernel(
        name: str, taken: list[Tensor], made: list[Tensor], flop: float, *weights: str
    ) -> Tensor:
        return at.op(Kind.RECURRENCE, f"attention.{name}", taken, made, at.weights(*weights),
                     part="core", flop_per_element=flop)  # fmt: skip

    kernel("chunk_products", [k, rates], [inside], 2.0 * a.head_dim, "attention.decay")
    kernel("chunk_solve", [inside], [solved], float(CHUNK))
    kernel("chunk_rewrite", [k, v, rates, solved], [w, u], 2.0 * CHUNK)
    kernel("chunk_states", [k, w, u, rates], [rewritten, passing], 4.0 * a.head_dim)
    return kernel("chunk_mix", [q, k, rewritten, passing, rates], [mixed],
                  2.0 * (a.head_dim + CHUNK))  # fmt: skip
