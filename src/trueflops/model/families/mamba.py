"""State-space models, alone or between attention and experts: Mamba, Nemotron-H, Granite 4 …

Layers of Mamba-2 are one thing in all of them; what differs is what stands around them, and how a
config.json says which layer is which. In: Config. Out: Model. Read off transformers' modelling code
of each family, which a test counts parameters against.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from trueflops.errors import BadConfig
from trueflops.language import say
from trueflops.model.architecture import Block, Model
from trueflops.model.config import Config
from trueflops.model.families.registry import (
    assemble,
    head_dim,
    kv_heads,
    one_a_layer,
    reads,
    refuse_unknown,
)
from trueflops.model.layers import Attention, Experts, Ffn, Recurrent

STATE, FULL, DENSE, ROUTED = "mamba", "attention", "mlp", "moe"
_WORDS: Final[Mapping[str, str]] = {
    "mamba": STATE, "linear_attention": STATE, "M": STATE,
    "attention": FULL, "full_attention": FULL, "*": FULL,
    "mlp": DENSE, "-": DENSE, "moe": ROUTED, "E": ROUTED,
}  # fmt: skip
"""How configs spell the kinds of layers; signs are those of Nemotron-H's patterns."""
# Nothing limits the context of a state; this many tokens stand in the place of a limit.
ENDLESS: Final = 1_048_576
SINGLE_BITS: Final = 32.0
NARROW_BITS: Final = 16.0


@reads("mamba2")
def mamba2(c: Config, name: str) -> Model:
    """Mamba-2 alone (arXiv 2405.21060), as Mamba-Codestral has it: no other half in a layer."""
    hidden = c.size("hidden_size")
    wide = hidden * c.size("expand", default=2, most=1024)
    layer = _space(
        c, c.size("num_heads", default=128), wide, groups="n_groups", usual_groups=8,
        state="state_size", dim="head_dim", conv="conv_kernel", chunk="chunk_size",
        conv_bias="use_conv_bias", bias=c.flag("use_bias", default=False),
    )  # fmt: skip
    block = Block(None, None, None, layer)
    return _alone(c, name, block, hidden, tied=False)


@reads("mamba", "falcon_mamba")
def mamba(c: Config, name: str) -> Model:
    """Mamba alone (arXiv 2312.00752); Falcon-Mamba norms what is narrow, without gains."""
    hidden = c.size("hidden_size")
    # Where both are given this goes first: Falcon-Mamba-7B's config.json has an `expand` of 16.
    wide = c.size("intermediate_size", default=hidden * c.size("expand", default=2, most=1024))
    layer = _scanning(
        c, wide, hidden, state="state_size",
        conv="conv_kernel", rank="time_step_rank", conv_bias="use_conv_bias", bias="use_bias",
        inner_norms="unweighted" if c.text("model_type") == "falcon_mamba" else "none",
    )  # fmt: skip
    return _alone(c, name, Block(None, None, None, layer), hidden, tied=True)


@reads("nemotron_h")
def nemotron_h(c: Config, name: str) -> Model:
    """Nemotron-H, Nemotron Nano 2 and Nemotron 3: every layer is one half of a usual one.

    vLLM keeps states in the config's `mamba_ssm_cache_dtype`, else in fp32 (models/config.py,
    NemotronHForCausalLMConfig).
    """
    hidden, heads = c.size("hidden_size"), c.size("num_attention_heads")
    width = c.size("head_dim", "attention_head_dim", default=128, most=65536)
    bias = c.flag("attention_bias", default=False)
    full = Attention(
        heads, kv_heads(c, heads, "num_key_value_heads"), width, width, rope=False, qkv_bias=bias,
        out_bias=bias,
    )  # fmt: skip
    states = c.size("mamba_num_heads", default=128)
    layer = _space(
        c, states, states * c.size("mamba_head_dim", default=64), groups="n_groups", usual_groups=8,
        state="ssm_state_size", dim="mamba_head_dim", conv="conv_kernel", chunk="chunk_size",
        usual_chunk=128, conv_bias="use_conv_bias", bias=c.flag("use_bias", default=False),
        bits=SINGLE_BITS,
    )  # fmt: skip
    made = {
        STATE: lambda: Block(None, None, None, layer),
        FULL: lambda: Block(full, None, None),
        DENSE: lambda: Block(None, _plain(c), None),
        ROUTED: lambda: Block(None, None, _plain_experts(c)),
    }
    signs = c.text("hybrid_override_pattern", default="")
    kinds = _kinds(c, "hybrid_override_pattern", signs.replace("|", ""), set(made))
    if not signs:
        kinds = _kinds(c, "layers_block_type", c.texts("layers_block_type"), set(made))
    if not kinds:
        raise BadConfig(
            say("{where}: the field {spelled} is missing", where=c.where,
                spelled="'hybrid_override_pattern' or 'layers_block_type'")
        )  # fmt: skip
    return _laid_out(c, name, kinds, made, hidden)


def _plain(c: Config) -> Ffn:
    """Nemotron's dense half: two products, and a squared relu between them."""
    return Ffn(
        c.size("intermediate_size"), gated=False, bias=c.flag("mlp_bias", default=False),
        activation=c.text("mlp_hidden_act", default="relu2"),
    )  # fmt: skip


def _plain_experts(c: Config) -> Experts:
    """Nemotron 3's experts, in a narrower width than the model's where that is given."""
    return Experts(
        c.size("n_routed_experts"),
        c.size("num_experts_per_tok"),
        c.size("moe_intermediate_size"),
        gated=False,
        shared_width=c.size("moe_shared_expert_intermediate_size", least=0)
        * c.size("n_shared_experts", default=1, least=0),
        activation=c.text("mlp_hidden_act", default="relu2"),
        latent=c.size("moe_latent_size", default=0, least=0),
    )


@reads("granitemoehybrid")
def granite_hybrid(c: Config, name: str) -> Model:
    """Granite 4.0: Mamba-2 or attention, then a dense half, which experts may stand beside.

    The dense half is called a shared expert, also where there are no others.
    """
    types = c.texts("layer_types") or c.texts("layers_block_type")
    kinds = _kinds(c, "layer_types", types, {STATE, FULL})
    kinds = kinds or [STATE] * c.layers("num_hidden_layers")
    shared = c.size("shared_intermediate_size", default=1024)
    rope = c.text("position_embedding_type", default="") == "rope"
    count = c.size("num_local_experts", default=8, least=0)
    if not count:
        return _one_or_other(c, name, kinds, Ffn(shared, gated=True), None, rope=rope)
    experts = Experts(
        count, c.size("num_experts_per_tok"), c.size("intermediate_size"), shared_width=shared
    )
    return _one_or_other(c, name, kinds, None, experts, rope=rope)


@reads("bamba")
def bamba(c: Config, name: str) -> Model:
    """Bamba: Mamba-2, or attention where `attn_layer_indices` says so, then a dense half."""
    attends = set(c.sizes("attn_layer_indices"))
    kinds = [FULL if i in attends else STATE for i in range(c.layers("num_hidden_layers"))]
    return _one_or_other(c, name, kinds, _gated(c, "intermediate_size"), None, rope=True)


def _one_or_other(
    c: Config, name: str, kinds: list[str], ffn: Ffn | None, experts: Experts | None, *, rope: bool
) -> Model:
    """Layers that mix by a state or by attention, and are else alike."""
    hidden = c.size("hidden_size")
    one_a_layer(c, "layer_types", kinds, c.layers("num_hidden_layers"))
    wide = hidden * c.size("mamba_expand", default=2, most=1024)
    made = {
        STATE: lambda: Block(None, ffn, experts, _space_by_mamba_fields(c, wide)),
        FULL: lambda: Block(_attention(c, hidden, rope=rope), ffn, experts),
    }
    return _laid_out(c, name, kinds, made, hidden)


def _laid_out(
    c: Config, name: str, kinds: list[str], made: Mapping[str, Callable[[], Block]], hidden: int
) -> Model:
    """A block for each kind that is there: fields of others need not be."""
    blocks = {kind: made[kind]() for kind in set(kinds)}
    return assemble(c, name, [blocks[kind] for kind in kinds], hidden, tied=False)


@reads("falcon_h1")
def falcon_h1(c: Config, name: str) -> Model:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    hidden, layers = c.size("hidden_size"), c.layers("num_hidden_layers")
    usual = hidden * c.size("mamba_expand", default=2, most=1024)
    norm = c.flag("mamba_rms_norm", default=False)
    layer = _space_by_mamba_fields(
        c, c.size("mamba_d_ssm", default=usual), norm=norm, out_bias="projectors_bias"
    )
    block = Block(_attention(c, hidden), _gated(c, "intermediate_size"), None, layer)
    return assemble(c, name, [block] * layers, hidden, tied=False, most_positions=8192)


@reads("jamba")
def jamba(c: Config, name: str) -> Model:
    """Jamba (arXiv 2403.19887): attention in one of eight layers, experts in every second."""
    hidden, layers = c.size("hidden_size"), c.layers("num_hidden_layers")
    layer = _scanning(
        c, hidden * c.size("mamba_expand", default=2, most=1024), hidden, state="mamba_d_state",
        conv="mamba_d_conv", rank="mamba_dt_rank", conv_bias="mamba_conv_bias",
        bias="mamba_proj_bias", inner_norms="weighted",
    )  # fmt: skip
    full, dense = _attention(c, hidden, rope=False), _gated(c, "intermediate_size")
    count = c.size("num_experts", default=16)
    routed = Experts(count, c.size("num_experts_per_tok", default=2), c.size("intermediate_size"))
    attends = _every(c, "attn_layer", 8, 4)
    routes = _every(c, "expert_layer", 2, 1)
    blocks = [
        Block(
            full if attends(i) else None,
            None if routes(i) and count > 1 else dense,
            routed if routes(i) and count > 1 else None,
            None if attends(i) else layer,
        )
        for i in range(layers)
    ]
    return assemble(c, name, blocks, hidden, tied=False, most_positions=262144)


def _every(c: Config, what: str, period: int, offset: int) -> Callable[[int], bool]:
    """Which layers are of a kind: one of every so many."""
    every = c.size(f"{what}_period", default=period)
    first = c.size(f"{what}_offset", default=offset, least=0)
    return lambda layer: layer % every == first


def _kinds(c: Config, field: str, said: Sequence[str], known: set[str]) -> list[str]:
    """What each layer is, one word or sign for each."""
    kinds = {word: _WORDS.get(word, "") for word in said}
    names = [word for word, kind in _WORDS.items() if kind in known]
    refuse_unknown(c, field, said, lambda word: kinds[word] in known, names)
    return [kinds[word] for word in said]


def _attention(c: Config, hidden: int, rope: bool = True) -> Attention:
    heads = c.size("num_attention_heads")
    dim, bias = head_dim(c, hidden, heads), c.flag("attention_bias", default=False)
    kv = kv_heads(c, heads, "num_key_value_heads")
    return Attention(heads, kv, dim, dim, rope=rope, qkv_bias=bias, out_bias=bias)


def _gated(c: Config, field: str) -> Ffn:
    return Ffn(c.size(field), gated=True, bias=c.flag("mlp_bias", default=False))


def _space_by_mamba_fields(
    c: Config, wide: int, norm: bool = True, out_bias: str = "mamba_proj_bias"
) -> Recurrent:
    """Mamba-2 by the fields that Bamba, Granite 4 and Falcon-H1 share."""
    return _space(
        c, c.size("mamba_n_heads", default=128), wide, groups="mamba_n_groups", usual_groups=1,
        state="mamba_d_state", usual_state=256, dim="mamba_d_head", conv="mamba_d_conv",
        chunk="mamba_chunk_size", conv_bias="mamba_conv_bias", norm=norm,
        bias=c.flag("mamba_proj_bias", default=False), out_bias=c.flag(out_bias, default=False),
    )  # fmt: skip


def _space(
    c: Config, heads: int, wide: int, *, groups: str, usual_groups: int, state: str, dim: str,
    conv: str, chunk: str, conv_bias: str, bias: bool, out_bias: bool | None = None,
    norm: bool = True, usual_state: int = 128, usual_chunk: int = 256, bits: float = NARROW_BITS,
) -> Recurrent:  # fmt: skip
    """A layer of Mamba-2 (Mamba2Mixer): of each head a Δ, and A_log, D and dt_bias of its own.

    The states of a server: as the config says, else as the family's engine keeps them; vLLM's
    `auto` is the model's own dtype (mamba_utils.py, _mamba_state_dtype).
    """
    group = kv_heads(c, heads, groups) if c.has(groups) else usual_groups
    given = c.fields.get(dim)
    each = wide // heads if given is None or given == "auto" else c.size(dim, most=65536)
    if each * heads != wide:
        raise BadConfig(
            say(
                "{where}: {heads} heads of {each} do not make up the {wide} channels of a layer",
                where=c.where,
                heads=heads,
                each=each,
                wide=wide,
            )
        )
    said = c.text("mamba_ssm_cache_dtype", default="")
    return Recurrent(
        "decay",
        heads,
        group,
        c.size(state, default=usual_state, most=65536),
        each,
        rates=1,
        learned=3,
        conv=c.size(conv, default=4, most=1024),
        conv_bias=c.flag(conv_bias, default=True),
        bias=bias,
        out_bias=bias if out_bias is None else out_bias,
        norm="none" if not norm else "width" if group == 1 else "group",
        chunk=c.size(chunk, default=usual_chunk, most=65536),
        bits=SINGLE_BITS if said == "float32" else NARROW_BITS if said else bits,
    )


def _scanning(
    c: Config, wide: int, hidden: int, *, state: str, conv: str, rank: str, conv_bias: str,
    bias: str, inner_norms: Literal["none", "unweighted", "weighted"],
) -> Recurrent:  # fmt: skip
    """A layer of Mamba (MambaMixer): every channel is a head of one value, with a D of its own."""
    said = c.fields.get(rank)
    usual = -(-hidden // 16)
    biased = c.flag(bias, default=False)
    return Recurrent(
        "scan",
        wide,
        1,
        c.size(state, default=16, most=65536),
        1,
        learned=1,
        rank=usual if said is None or said == "auto" else c.size(rank),
        conv=c.size(conv, default=4, most=1024),
        conv_bias=c.flag(conv_bias, default=True),
        bias=biased,
        out_bias=biased,
        norm="none",
        inner_norms=inner_norms,
        bits=NARROW_BITS,
    )


def _alone(c: Config, name: str, block: Block, hidden: int, *, tied: bool) -> Model:
    layers = c.layers("num_hidden_layers")
    return assemble(c, name, [block] * layers, hidden, tied=tied, most_positions=ENDLESS)
