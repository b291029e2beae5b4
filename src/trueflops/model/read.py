"""MODEL as a user writes it: a catalog name, a path to a config.json, or a folder with one."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from trueflops.catalog import model_config
from trueflops.errors import BadConfig, nearest
from trueflops.model.architecture import Model
from trueflops.model.config import Config
from trueflops.model.families import READERS


def read_model(text: str) -> Model:
    """Find and read a model. A name with a slash or .json is a path; else the catalog is asked."""
    path = Path(text)
    if path.suffix == ".json" or _is_folder(path):
        name = path.resolve().name if path.is_dir() else path.stem
        if name == "config":
            name = path.resolve().parent.name
        return model_from(Config.read(path), name)
    return _from_catalog(text)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name too long, or with a zero byte, is no folder
        return False


@cache
def _from_catalog(text: str) -> Model:
    name, fields = model_config(text)
    return model_from(Config(fields, f"catalog model {name}"), name)


def model_from(config: Config, name: str) -> Model:
    """Turn a config into a Model by its model_type; multimodal ones give their text part."""
    if config.has("text_config") and not config.has("hidden_size", "n_embd", "d_model"):
        config = config.nested("text_config")
    kind = config.text("model_type")
    reader = READERS.get(kind)
    if reader is None:
        near = nearest(kind, READERS)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise BadConfig(
            f"{config.where}: model_type {kind[:40]!r} is not supported; {hint}"
            f"supported: {', '.join(sorted(READERS))}"
        )
    return reader(config, name)
