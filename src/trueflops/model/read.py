"""MODEL as a user writes it: a catalog name, a path to a config.json, or a folder with one."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from trueflops.catalog import model_config
from trueflops.catalog.names import find
from trueflops.errors import BadConfig, BadInput, UnknownName, nearest, printable
from trueflops.files import is_folder
from trueflops.language import say
from trueflops.model.architecture import Model
from trueflops.model.beyond import told_by_config, told_by_name
from trueflops.model.checkpoints import bare_name, stored_as
from trueflops.model.config import Config
from trueflops.model.families import READERS
from trueflops.model.quantization import read_released


def read_model(text: str) -> Model:
    """Find and read a model: a name of the catalog, a config.json, or a folder that holds one.

    >>> import trueflops as tf
    >>> tf.read_model("Llama-3.1-8B").parameter_count
    8030261248
    """
    if not text.strip():
        raise BadInput(
            say("MODEL is empty; give a catalog name, a config.json, or a folder with one")
        )
    path = Path(text)
    if path.suffix == ".json" or is_folder(path):
        name = path.resolve().name if is_folder(path) else path.stem
        if name == "config":
            name = path.resolve().parent.name
        model = model_from(Config.read(path), printable(name, 60))
        return replace(model, notes=model.notes or told_by_name(name))
    return _from_catalog(text)


def known_model(checkpoint: str) -> str | None:
    """The catalog's name of the model that a checkpoint holds, by its name or its path; none where
    it is not known.
    """
    bare = bare_name(checkpoint)
    found = find("models", bare) or find("models", bare.rpartition("/")[2])
    return found.stem if found else None


def another_model(where: str, other: str | None, model: Model) -> tuple[str, ...]:
    """A note where a file starts another model of the catalog than the one that is asked for."""
    if other in (None, model.name):
        return ()
    return (
        say(
            "{where} starts {other}: the answer is of {model}, as you asked for",
            where=printable(where),
            other=other,
            model=model.name,
        ),
    )


@cache
def _from_catalog(text: str) -> Model:
    try:
        name, fields = model_config(text)
    except UnknownName:
        if find("accelerators", text):
            raise BadInput(
                say("{text} is an accelerator: write MODEL --on {text}", text=text)
            ) from None
        bare = bare_name(text)
        if bare != text and find("models", bare):
            return stored_as(_from_catalog(bare), text)
        raise
    model = model_from(Config(fields, f"catalog model {name}"), name)
    return replace(model, notes=told_by_name(text) or model.notes)


# What the part that reads and writes is called: by most; DeepSeek-VL2 and OCR; InternVL; Omni.
_TEXT_PARTS: Final = ("text_config", "language_config", "llm_config", "thinker_config")


def _text_part(config: Config) -> str:
    """The field in which a model that sees or hears keeps its text part; empty where none is."""
    return next((name for name in _TEXT_PARTS if config.has(name)), "")


def model_from(config: Config, name: str) -> Model:
    """Turn a config into a Model by its model_type; multimodal ones give their text part."""
    whole = config
    while not config.has("hidden_size", "n_embd", "d_model") and (part := _text_part(config)):
        config = config.nested(part).besides(config, "tie_word_embeddings")
        if not config.has("model_type") and whole.has("model_type"):
            # A text part may leave its type to the whole (MiniMax-M3: minimax_m3_vl).
            kind = whole.text("model_type") + "_text"
            config = Config({**config.fields, "model_type": kind}, config.where)
    kind = config.text("model_type")
    reader = READERS.get(kind)
    if reader is None:
        near = nearest(kind, READERS)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise BadConfig(
            say(
                "{where}: model_type {kind!r} is not supported; {hint}supported: {names}",
                where=config.where,
                kind=kind[:40],
                hint=hint,
                names=", ".join(sorted(READERS)),
            )
        )
    model = reader(config, name)
    beyond = told_by_config(whole)
    return replace(model, released=read_released(whole, model.is_moe), notes=beyond)
