"""Model configs: the fields of public config.json files, as facts with their source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trueflops.catalog.facts import read_toml
from trueflops.catalog.names import find_or_suggest, index
from trueflops.errors import BadCatalog


def model_config(name: str) -> tuple[str, Mapping[str, Any]]:
    """The canonical name of a model and its config fields."""
    record = model_record(name)
    fields = dict(record["config"])
    # Kept beside [config]: transformers, which counts the parameters, builds the model without it.
    if "quantization_config" in record:
        fields["quantization_config"] = record["quantization_config"]
    return record["name"], fields


def model_record(name: str) -> Mapping[str, Any]:
    """The whole catalog entry: config, source, published size."""
    path = find_or_suggest(
        "models", name, "(or give a path to a config.json; list them with: trueflops catalog)"
    )
    record = read_toml(path)
    for key in ("name", "source", "config"):
        if not record.get(key):
            raise BadCatalog(f"models/{path.name}: {key!r} is missing")
    return record


def model_names() -> list[str]:
    """Every model of the catalog."""
    return [path.stem for path in index("models").values()]


def has_weights(name: str) -> bool:
    """Whether anyone can get its weights, or only its sizes were published."""
    return model_record(name).get("weights") != "unpublished"
