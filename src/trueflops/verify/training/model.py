"""The model of a row: the catalog's where name and shape agree, else built from the columns.

Tables of runs give sizes, not structure. What they leave open (gated or plain FFN, tied or own
head, width of a head, a shared expert) is what brings the parameter count nearest to `params_b`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import log
from typing import Final

from trueflops import units
from trueflops.catalog.names import find, index
from trueflops.errors import BadInput
from trueflops.model import Model, read_model
from trueflops.model.architecture import Block
from trueflops.model.layers import Attention, Experts, Ffn, Latent
from trueflops.records.tables import Row
from trueflops.verify.cells import Missing, needed, number, text, whole
from trueflops.verify.training.scripts import keeping_all

USUAL_VOCAB: Final = 51200  # GPT-2's 50,257 padded as Megatron does; where a row gives none
USUAL_HEAD: Final = 128
LEAST_USUAL_HEAD: Final = 64  # where hidden over heads gives one of these, that is what it is
GPT_DROPOUT: Final = 0.1  # GPT-2's, until models trained without; Megatron-LM's to this day
LAST_WITH_DROPOUT: Final = 2022
DROPS_BY_DEFAULT: Final = ("megatron", "megatron-core", "megatron-deepspeed")
"""megatron/training/arguments.py: --attention-dropout and --hidden-dropout are 0.1 unless given, as
they are in core/transformer/transformer_config.py."""
DROPS_NOTHING: Final = ("maxtext",)
"""AI-Hypercomputer/maxtext, src/maxtext/configs/base.yml: dropout_rate is 0.0, of GPTs as well."""
MOST_LAYERS: Final = 10_000
_ASIDE: Final = re.compile(r"\s*\([^)]*\)")
_VERSION: Final = re.compile(r"(?i)(?<=[a-z])[ _-]*v(?=\d)")
_SIZE: Final = re.compile(r"(?i)[ _-]+(\d{1,5}(?:\.\d{1,3})?)([bmt])$")
_A_SIZE: Final = re.compile(r"\d[\d.]*[bmt]")
_A_NUMBER: Final = re.compile(r"\d[\d.]*")
_LARGE: Final = {"m": units.MILLION, "b": units.GIGA, "t": units.TERA}
LIKE_SIZE: Final = 0.15  # names round
LATENT: Final = Latent(q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64)
LATENT_VALUE: Final = 128
"""Latent attention where only its name is given: DeepSeek-V2's and V3's (arXiv 2412.19437 §4.2)."""
UNUSUAL: Final = 0.01  # an unusual structure must come nearer to params_b by this share


@dataclass(frozen=True)
class Shape:
    """The sizes that a row gives; 0 where it gives none."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    experts: int = 0
    per_token: int = 0
    parameters: float = 0.0
    active: float = 0.0
    seq: int = 0
    dropout: float = 0.0
    latent: bool = False  # multi-head latent attention
    dense_layers: int = 0  # before those with experts
    shared_ffn: int = 0  # width of the expert that every token passes


def read_run_model(row: Row, framework: str = "") -> Model:
    """The model that a row names; Missing where neither the catalog nor the row knows its shape."""
    name = text(row, "model")
    shape = _shape(row, framework)
    known = find_model(name)
    if known is None and not shape.layers:
        known = _of_like_name(name, shape.parameters)
    if known is not None and shape.layers and shape.layers < known.layers:
        known = _cut(known, shape.layers, shape.dense_layers)
    if known is not None and _agrees(known, shape):
        if framework in DROPS_NOTHING:
            known = keeping_all(known)
        return replace(known, vocab=shape.vocab) if shape.vocab else known
    for column in ("layers", "hidden", "heads"):
        needed(row, column)
    if shape.layers > MOST_LAYERS:
        raise Missing(f"layers {shape.layers} are more than {MOST_LAYERS:,}")
    if shape.heads % (shape.kv_heads or shape.heads):
        raise Missing(f"kv_heads {shape.kv_heads} do not divide heads {shape.heads}")
    return _build(name or "unnamed", shape)


def _shape(row: Row, framework: str) -> Shape:
    old = (number(row, "year") or 9999) <= LAST_WITH_DROPOUT

    def size(column: str) -> int:
        return whole(row, column) or 0

    return Shape(
        layers=size("layers"),
        hidden=size("hidden"),
        heads=size("heads"),
        kv_heads=size("kv_heads"),
        head_dim=size("head_dim"),
        ffn=size("ffn"),
        vocab=size("vocab"),
        experts=size("moe_experts"),
        per_token=size("moe_topk"),
        parameters=(number(row, "params_b") or 0.0) * units.GIGA,
        active=(number(row, "active_params_b") or 0.0) * units.GIGA,
        seq=size("seq_len"),
        latent=text(row, "attention").casefold() == "mla",
        dense_layers=size("dense_layers"),
        shared_ffn=size("shared_expert_ffn"),
        dropout=GPT_DROPOUT if old or framework in DROPS_BY_DEFAULT else 0.0,
    )


@cache
def find_model(name: str) -> Model | None:
    """The catalog's model of this name, also 'LLaMA V2 7B', 'DeepSeek V3 671B (16 layers)'."""
    bare = _ASIDE.sub("", name)
    for tried in (name, bare, _VERSION.sub("-", bare)):
        if tried.strip() and find("models", tried):
            return read_model(tried)
    sized = _SIZE.search(bare)
    if sized and find("models", bare[: sized.start()]):
        model = read_model(bare[: sized.start()])
        size = float(sized[1]) * _LARGE[sized[2].casefold()]
        return model if abs(log(model.parameter_count / size)) < LIKE_SIZE else None
    return None


def _cut(model: Model, layers: int, dense_layers: int) -> Model:
    """The first layers of a model: how people try out one that is too large for them."""
    dense = model.pattern[: dense_layers or layers]
    return replace(model, pattern=(*dense, *model.pattern[-1:] * layers)[:layers])


def _of_like_name(name: str, parameters: float) -> Model | None:
    """A model whose name has all words of this one and, where it is known, about its size.

    A number more in its name makes it another one: Qwen2-7B is no Qwen-7B, Qwen2-57B-A14B no 14B.
    """
    words = set(_words(name))
    sized = any(map(_A_SIZE.fullmatch, words))
    for path in index("models").values():
        own = set(_words(path.stem))
        more = own - words
        another = any(_A_NUMBER.fullmatch(w) or (sized and _A_SIZE.fullmatch(w)) for w in more)
        if words and words <= own and not another:
            try:
                model = read_model(path.stem)
            except BadInput:
                continue
            if not parameters or abs(log(model.parameter_count / parameters)) < LIKE_SIZE:
                return model
    return None


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z]+|\d[\w.]*", name.casefold())


def _agrees(model: Model, shape: Shape) -> bool:
    """Whether nothing that the row gives speaks against the catalog's model."""
    given = [(shape.layers, model.layers), (shape.hidden, model.hidden)]
    for attention in model.attentions[-1:]:
        given.append((shape.heads, attention.heads))
        if not attention.latent:
            given.append((shape.kv_heads, attention.kv_heads))
    experts = next((b.experts for b in model.blocks if b.experts), None)
    given.append((shape.experts, experts.count if experts else 0))
    if experts is None:
        dense = model.blocks[-1].ffn
        given.append((shape.ffn, dense.width if dense else 0))
    return all(not said or said == own for said, own in given)


@cache
def _build(name: str, shape: Shape) -> Model:
    """The structure whose parameter count is nearest to the published one."""
    own_dim = max(shape.hidden // shape.heads, 1)
    dims = [shape.head_dim] if shape.head_dim else sorted({own_dim, USUAL_HEAD})
    if not shape.head_dim and own_dim >= LEAST_USUAL_HEAD and not shape.experts:
        dims = [own_dim]
    found: list[tuple[float, Model]] = []
    for gated, tied, dim, shared in product(
        (True, False), (True, False), dims, (False, True) if shape.experts else (False,)
    ):
        model = assemble(name, shape, gated=gated, tied=tied, dim=dim, shared=shared)
        if not gated:  # a GPT may have learned its positions
            placed = replace(model, learned_positions=shape.seq)
            model = min(model, placed, key=lambda m: _distance(m, shape))
        # GPTs tie and are plain, LLaMAs neither; without a count the FFN's width tells them apart.
        odd = (tied == gated) + (dim != own_dim and not shape.head_dim) + shared
        odd += gated == (shape.ffn == 4 * shape.hidden and not shape.experts)
        found.append((_distance(model, shape) + UNUSUAL * odd, model))
    return min(found, key=lambda pair: pair[0])[1]


def _distance(model: Model, shape: Shape) -> float:
    """How far the counts lie from the published ones, all and active parameters alike."""
    far = abs(log(model.parameter_count / shape.parameters)) if shape.parameters else 0.0
    if shape.active:
        far += abs(log(model.active_parameter_count / shape.active))
    return far


def assemble(
    name: str, shape: Shape, *, gated: bool, tied: bool, dim: int, shared: bool = False
) -> Model:
    """One structure of these sizes: LLaMA's where the FFN is gated, GPT's where it is plain."""
    bias = not gated
    kv = shape.kv_heads or shape.heads
    attention = Attention(shape.heads, kv, dim, dim, rope=gated, qkv_bias=bias, out_bias=bias)
    if shape.latent:
        wide = LATENT.nope_dim + LATENT.rope_dim
        attention = Attention(shape.heads, shape.heads, wide, LATENT_VALUE, latent=LATENT)
    activation = "silu" if gated else "gelu"
    experts = None
    if shape.experts:
        width = shape.ffn or _expert_width(shape, dim)
        experts = Experts(
            shape.experts,
            min(shape.per_token or 1, shape.experts),
            width,
            gated=gated,
            shared_width=shape.shared_ffn or (width if shared else 0),
            activation=activation,
        )
    usual = 4 * shape.hidden if not gated else round(8 * shape.hidden / 3 / 256) * 256
    if experts is not None:  # a dense layer is as wide as the experts that a token passes
        usual = experts.per_token * experts.width + experts.shared_width
    dense = Ffn(usual if experts else shape.ffn or max(usual, 1), gated, bias, activation)
    block = Block(
        attention,
        None if experts else dense,
        experts,
        norm="rms" if gated else "layer",
        norm_bias=bias,
        dropout=0.0 if gated else shape.dropout,
        attention_dropout=0.0 if gated else shape.dropout,
    )
    first = min(shape.dense_layers, shape.layers) if experts else 0
    blocks = (replace(block, ffn=dense, experts=None), block) if first else (block,)
    return Model(
        name=name,
        family="",
        hidden=shape.hidden,
        vocab=shape.vocab or USUAL_VOCAB,
        blocks=blocks,
        pattern=(0,) * first + (len(blocks) - 1,) * (shape.layers - first),
        tied=tied,
        max_positions=0,
    )


def _expert_width(shape: Shape, dim: int) -> int:
    """The width of an expert that the whole count leaves room for, or the usual 4·hidden."""
    if not shape.parameters:
        return 4 * shape.hidden
    kv = shape.kv_heads or shape.heads
    attention = 2 * shape.hidden * dim * (shape.heads + kv)
    ends = 2 * (shape.vocab or USUAL_VOCAB) * shape.hidden
    left = shape.parameters - ends - shape.layers * attention
    width = left / (3 * shape.layers * shape.experts * shape.hidden)
    return max(round(width / 64) * 64, 64)
