"""Which linear layers have adapters, and which layers are trained at all, by Hugging Face's names.

In: names or a pattern of modules as PEFT takes them, or patterns of weights that are trained. Out:
targets of a Plan (model/adapters.py), and how many first layers are frozen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from trueflops import units
from trueflops.errors import BadInput, join_or
from trueflops.interop.launch.settings import Said
from trueflops.language import mark, say, word
from trueflops.model import Model

ALL: Final = "all-linear"
_OF_ATTENTION: Final = ("q", "k", "v", "o")
_OF_FFN: Final = ("gate", "up", "down")
_NAMES: Final[dict[str, tuple[str, ...]]] = {
    **{f"{name}_proj": (name,) for name in (*_OF_ATTENTION, *_OF_FFN)},
    **dict.fromkeys(
        ("qkv_proj", "query_key_value", "c_attn", "Wqkv", "wqkv", "W_pack"), ("qkv",)
    ),
    "gate_up_proj": ("gate", "up"),
    "w1": ("gate",), "w3": ("up",), "w2": ("down",),
    "q_a_proj": ("q",), "q_b_proj": ("q",), "kv_a_proj_with_mqa": ("k", "v"),
    "kv_b_proj": ("k", "v"),
    "dense": ("o",), "dense_h_to_4h": ("up",), "dense_4h_to_h": ("down",),
    "fc1": ("up",), "fc2": ("down",),
    "in_proj": ("in",), "x_proj": ("x",), "dt_proj": ("dt",), "out_proj": ("out", "o"),
}  # fmt: skip
"""Modules of transformers' models (models/*/modeling_*.py), as targets of a plan."""
_HEADS: Final = (
    "model.layers", "model.language_model.layers", "language_model.model.layers",
    "model.text_model.layers", "base_model.model.model.layers",
)  # fmt: skip
_WEIGHTS: Final = ("self_attn.q_proj.weight", "self_attn.o_proj.weight", "mlp.down_proj.weight",
                   "input_layernorm.weight")  # fmt: skip
"""Weights of a layer that Llama's successors all have; experts are named otherwise."""
_SOME: Final = mark("layers by name, as [q_proj, v_proj], or all of them")


def read_targets(said: Said, key: str, model: Model) -> list[str]:
    """Targets of a plan by names of modules; of a text the pattern that PEFT takes it for."""
    value = said.get(key)
    if isinstance(value, str) and value != ALL:
        return _matching(said, key, value, model)
    names = value if isinstance(value, list) else [value] if value else []
    found: list[str] = []
    for name in names:
        last = str(name).rpartition(".")[2]
        if last in (ALL, "all"):
            return [ALL]
        if last not in _NAMES:
            raise said.wrong(key, join_or([*list(_NAMES)[:7], ALL]))
        found += _NAMES[last]
    return list(dict.fromkeys(found))


def _matching(said: Said, key: str, pattern: str, model: Model) -> list[str]:
    """The targets whose every layer a pattern matches as a whole (peft, tuners_utils.py,
    check_target_module_exists); one that matches some layers only is refused.
    """
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        raise said.wrong(key, word(_SOME)) from None
    found = []
    for part, targets in (("self_attn", _OF_ATTENTION), ("mlp", _OF_FFN)):
        for target in targets:
            heads = [
                sum(
                    compiled.fullmatch(f"{head}.{layer}.{part}.{target}_proj") is not None
                    for layer in range(model.layers)
                )
                for head in _HEADS
            ]
            if max(heads) not in (0, model.layers):
                raise said.wrong(key, word(_SOME))
            found += [target] if max(heads) else []
    if not found:
        raise said.wrong(key, word(_SOME))
    return found


def experts_apart(
    said: Said, targets: Sequence[str], model: Model, *, packed: bool
) -> tuple[str, ...]:
    """Notes where a mixture's experts are priced as linear layers.

    Since transformers 5 a layer's experts are one parameter and no linear layers, so that
    bitsandbytes leaves them wide, and PEFT gives them adapters by `target_parameters` alone.
    """
    notes = []
    if model.is_moe and {ALL, *_OF_FFN}.intersection(targets):
        notes.append(
            say(
                "{where}: adapters of experts are priced, which transformers before 5 makes by "
                "these names; for none of them: --lora-targets q,k,v,o",
                where=said.where,
            )
        )
    if model.is_moe and packed:
        notes.append(
            say(
                "{where}: experts are priced as packed in 4 bits; transformers 5 leaves them wide "
                "where nothing else packs them",
                where=said.where,
            )
        )
    return tuple(notes)


def frozen_layers(said: Said, key: str, patterns: Iterable[Any], model: Model) -> int:
    """How many first layers patterns of trained weights leave frozen; other shapes are refused."""
    try:
        compiled = [re.compile(str(pattern)) for pattern in patterns]
    except (re.error, RecursionError, OverflowError):
        raise said.wrong(key, word(_LAST)) from None
    trained = []
    for layer in range(model.layers):
        hits = {
            any(each.match(f"model.layers.{layer}.{name}") for each in compiled)
            for name in _WEIGHTS
        }
        if len(hits) > 1:
            raise said.wrong(key, word(_LAST))
        trained.append(hits.pop())
    frozen = trained.index(True) if True in trained else model.layers
    if not all(trained[frozen:]) or any(each.match(_EMBEDDING) for each in compiled):
        raise said.wrong(key, word(_LAST))
    return frozen


_EMBEDDING: Final = "model.embed_tokens.weight"
_LAST: Final = mark("patterns that match the last layers as a whole, and lm_head.weight")


def frozen_head(said: Said, key: str, model: Model) -> str:
    """A note that a head is priced as trained, which is not."""
    return say(
        "{place}: the head ({count} parameters) is frozen there, and priced as trained",
        place=said.place(key),
        count=units.show(model.vocab * model.hidden, "count"),
    )


def check_rank(said: Said, key: str) -> None:
    """Refuse adapters without a rank."""
    if said.count(key) < 1:
        raise BadInput(
            say("{place}: adapters of which rank? write {key}: 16", place=said.where, key=key)
        )
