"""The table of readers, and what every reader needs: turning per-layer blocks into a pattern."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from trueflops.errors import BadConfig
from trueflops.language import say
from trueflops.model.architecture import Block, Model
from trueflops.model.config import Config

Reader = Callable[[Config, str], Model]
READERS: dict[str, Reader] = {}


def reads(*model_types: str) -> Callable[[Reader], Reader]:
    """Register a reader for these `model_type`s."""

    def register(reader: Reader) -> Reader:
        READERS.update(dict.fromkeys(model_types, reader))
        return reader

    return register


def assemble(
    c: Config,
    name: str,
    layers: Sequence[Block],
    hidden: int,
    *,
    tied: bool,
    positions: tuple[str, ...] = ("max_position_embeddings",),
    most_positions: int = 4096,
    **fields: Any,
) -> Model:
    """Build a Model from one Block per layer, naming each distinct block once.

    `tied` and `most_positions` are the family's defaults where the config is silent.
    """
    for experts in (block.experts for block in layers):
        if experts is not None and experts.per_token > experts.count:
            raise BadConfig(
                say(
                    "{where}: {per_token} experts a token, but there are {count}",
                    where=c.where,
                    per_token=experts.per_token,
                    count=experts.count,
                )
            )
    distinct: dict[Block, int] = {}
    pattern = tuple(distinct.setdefault(block, len(distinct)) for block in layers)
    return Model(
        name=name,
        family=c.text("model_type"),
        hidden=hidden,
        vocab=c.size("vocab_size"),
        blocks=tuple(distinct),
        pattern=pattern,
        tied=c.flag("tie_word_embeddings", default=tied),
        max_positions=c.size(*positions, default=most_positions),
        **fields,
    )


def head_dim(c: Config, hidden: int, heads: int) -> int:
    """The width of one head: given, or hidden / heads, which must then divide."""
    if c.has("head_dim"):
        return c.size("head_dim", most=65536)
    if hidden % heads:
        raise BadConfig(
            say(
                "{where}: {heads} heads do not divide hidden size {hidden}",
                where=c.where,
                heads=heads,
                hidden=hidden,
            )
        )
    return hidden // heads


def kv_heads(c: Config, heads: int, *names: str) -> int:
    """Key/value heads; absent means as many as query heads. They must divide those."""
    count = c.size(*names, default=heads)
    if heads % count:
        raise BadConfig(
            say(
                "{where}: {count} key/value heads do not divide {heads} heads",
                where=c.where,
                count=count,
                heads=heads,
            )
        )
    return count


def one_a_layer(c: Config, field: str, entries: Sequence[object], layers: int) -> None:
    """Refuse a list that does not say something of every layer."""
    if len(entries) != layers:
        raise BadConfig(
            say(
                "{where}: {field} has {number} entries for {layers} layers",
                where=c.where,
                field=field,
                number=len(entries),
                layers=layers,
            )
        )


def refuse_fields(c: Config, *fields: str) -> None:
    """Refuse a config that asks for what no layer of ours does."""
    for field in fields:
        if c.fields.get(field):
            raise BadConfig(say("{where}: {field} is not read yet", where=c.where, field=field))


def refuse_unknown(
    c: Config, field: str, said: Sequence[str], fine: Callable[[str], bool], known: Iterable[object]
) -> None:
    """Refuse a list of layers in which a word is none of the known ones."""
    if other := next((word for word in said if not fine(word)), ""):
        raise BadConfig(
            say(
                "{where}: {field} has {other!r}; known are {known}",
                where=c.where,
                field=field,
                other=other[:40],
                known=", ".join(map(str, known)),
            )
        )


def layer_windows(c: Config, layers: int, fallback: Callable[[int], bool], field: str) -> list[int]:
    """Attention window of each layer: from `layer_types`, or from the family's own rule."""
    if not c.has(field):
        return [0] * layers
    window = c.size(field)
    types = c.texts("layer_types")
    if types:
        one_a_layer(c, "layer_types", types, layers)
    local = [t in ("sliding_attention", "chunked_attention") for t in types] or [
        fallback(i) for i in range(layers)
    ]
    return [window if is_local else 0 for is_local in local]
