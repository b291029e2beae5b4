"""The second half of a layer: a dense FFN, a router with its experts and a shared one, or both."""

from __future__ import annotations

from collections.abc import Callable

from trueflops.graph.build.layout import Layout
from trueflops.graph.ir import Tensor
from trueflops.graph.kinds import Kind, Role
from trueflops.graph.rules import INDEX_BITS, STATISTIC_BITS
from trueflops.graph.variants import Activation
from trueflops.model import Block, Experts


def feed_forward(at: Layout, block: Block, x: Tensor) -> Tensor:
    """Dense or routed, as the block says."""
    if block.ffn:
        act = next((kind for kind in Activation if kind == block.ffn.activation), None)
        return _ffn(at, "ffn", x, gated=block.ffn.gated, width=block.ffn.width, act=act)
    assert block.experts is not None
    return _experts(at, block.experts, x)


def side_by_side(at: Layout, block: Block, normed: Tensor, stream: Tensor) -> Tensor:
    """A dense FFN and experts of one stream, each normed before and behind, and added (Gemma 4)."""
    assert block.experts is not None
    dense = at.norm("ffn.made_norm", feed_forward(at, block, normed))
    scaled = Tensor("experts.scaled", stream.dims, stream.bits)
    at.op(Kind.NORM, "experts.scale", [stream], [scaled], at.weights("experts.scale"),
          part="norm", flop_per_element=6.0)  # fmt: skip
    read = at.norm("experts.norm", stream)
    routed = at.norm("experts.made_norm", _experts(at, block.experts, read, scaled))
    return at.op(Kind.ADD, "ffn.beside", [dense, routed], [at.branch("ffn.both", normed)])


def _ffn(
    at: Layout, name: str, x: Tensor, *, gated: bool, width: int, act: Activation | None = None
) -> Tensor:
    def wide(tensor: str) -> Tensor:
        return at.tensor(f"{name}.{tensor}", ("ffn", width), bits=at.made_bits(x))

    acted = _project_up(at, name, x, gated, wide, act)
    return at.linear([f"{name}.down"], acted, [at.branch(f"{name}.y", acted)])


def _project_up(
    at: Layout,
    name: str,
    x: Tensor,
    gated: bool,
    wide: Callable[[str], Tensor],
    act: Activation | None,
    **facts: float,
) -> Tensor:
    """act(x·Wᵤ), or act(x·W_g) ⊙ x·Wᵤ for the gated kinds."""
    if not gated:
        up, acted = at.linear([f"{name}.up"], x, [wide("up_out")], **facts), wide("acted")
        learned = at.weights(f"{name}.act") if f"{name}.act" in at.parameters else ()
        return at.op(
            Kind.ACTIVATION, f"{name}.act", [up], [acted], learned, variant=act,
            flop_per_element=8.0,
        )  # fmt: skip
    gate, up = wide("gate_out"), wide("up_out")
    at.linear([f"{name}.gate", f"{name}.up"], x, [gate, up], **facts)
    acted = at.op(Kind.ACTIVATION, f"{name}.act", [gate], [wide("acted")], flop_per_element=5.0)
    return at.op(Kind.MULTIPLY, f"{name}.multiply", [acted, up], [wide("gated")])


def _experts(at: Layout, e: Experts, x: Tensor, judged: Tensor | None = None) -> Tensor:
    """Route each token to `per_token` of the experts, weigh what they answer, add the shared one.

    `judged` is what the router reads, where that is not what the experts do. The `routed`
    dimension counts token copies; sharding decides how many reach one rank.
    """
    routed = ("routed", at.run.batch * at.run.seq * e.per_token)

    def copies(name: str, *dims: tuple[str, float]) -> Tensor:
        return Tensor(f"experts.{name}", (routed, *dims), at.made_bits(x))

    seen, low = ("hidden", e.latent or at.hidden), ("latent", e.latent)
    logits = at.tensor("experts.logits", ("choices", e.count), bits=STATISTIC_BITS)
    at.linear(["experts.router"], judged or x, [logits])
    chosen = at.tensor("experts.chosen", ("per_token", e.per_token), bits=STATISTIC_BITS)
    each = at.weights("experts.each") if e.scaled else ()
    at.op(Kind.ROUTE, "experts.route", [logits], [chosen], each, flop_per_element=5.0)
    rows = Tensor("experts.rows", (routed,), INDEX_BITS, role=Role.INDEX)
    into = x
    if e.latent:
        into = at.linear(["latent.down"], x, [at.tensor("latent.in", low)])
    sent = at.op(Kind.DISPATCH, "experts.dispatch", [into], [copies("sent", seen), rows])
    wide = ("expert_ffn", e.width)
    facts = {"chosen": e.per_token / e.count, "per_token": float(e.per_token)}
    if at.run.expert_block:
        facts["block"] = at.run.expert_block
    acted = _project_up(at, "experts", sent, e.gated, lambda n: copies(n, wide), None, **facts)
    answered = copies("answered", seen)
    at.linear(["experts.down"], acted, [answered], **facts)
    summed = at.tensor("latent.out", low) if e.latent else at.branch("experts.y", x)
    y = at.op(Kind.COMBINE, "experts.combine", [answered, chosen], [summed])
    if e.latent:
        y = at.linear(["latent.up"], y, [at.branch("experts.y", x)])
    if not e.shared_width:
        return y
    shared = _ffn(at, "shared", x, gated=e.gated, width=e.shared_width)
    if e.shared_gate:
        weight = at.linear(["shared.weigh"], x, [at.tensor("shared.weight", ("one", 1))])
        shared = at.op(
            Kind.MULTIPLY, "shared.multiply", [shared, weight], [at.branch("shared.z", x)]
        )
    return at.op(Kind.ADD, "experts.add_shared", [y, shared], [at.branch("experts.sum", x)])
