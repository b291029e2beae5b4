"""Which tool a file is of, by what stands in it; and what it says of a plan.

A script that names a file of settings is read with it, from the folder that the script is in, or
else from the working directory.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from trueflops.errors import BadInput, printable
from trueflops.files import is_file, is_folder, read_file
from trueflops.interop.launch import (
    accelerate,
    deepspeed,
    megatron,
    nemo,
    slurm,
    torchtitan,
    tuners,
)
from trueflops.interop.launch.named import find_named, text_named
from trueflops.interop.launch.settings import Found, Said
from trueflops.interop.launch.texts import from_flags, from_json, from_toml, from_yaml
from trueflops.language import mark, say
from trueflops.model import Model

_KNOWN: Final = mark(
    "a script with Megatron-LM's or torchtitan's flags, torchtitan's job config (TOML), "
    "DeepSpeed's config (JSON), one of accelerate, Megatron-Bridge, axolotl, LLaMA-Factory or "
    "torchtune (YAML), or a batch script of one"
)

_DEEPSPEED: Final = ("deepspeed", "deepspeed_config", "deepspeed_config_file")
"""Flags that name its config: the Trainer's, DeepSpeed's own (deepspeed.add_config_arguments), and
accelerate's. The first is a switch beside the second."""
_MEGATRON: Final = {"num_layers", "micro_batch_size"}
"""Flags of Megatron-DeepSpeed's programs, too, whose degrees are flags and not in the config."""
_REMARKS: Final = re.compile(r"^\s*#.*$", re.MULTILINE)
_FLAG: Final = re.compile(r"(^|\s)--[\w.-]+")


def read_launch(path: Path, model: Model, accelerators: int) -> Found:
    """What a file with which a tool starts training says of a plan for so many accelerators."""
    if is_folder(path):
        path = next((path / n for n in (slurm.FILE, "run.sh") if is_file(path / n)), path)
    where = printable(path.name)
    try:
        text = read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(
            say("{where}: not a text; --from reads {known}", where=where, known=_KNOWN)
        ) from None
    if text.lstrip().startswith("{"):
        said = from_json(text, where)
        if not any(key.startswith(("train_", "zero_optim", "bf16", "fp16")) for key in said.values):
            raise _unknown(where)
        return deepspeed.read(said, model, accelerators)
    if text.startswith("#!") or path.suffix == ".sh" or _FLAG.search(_REMARKS.sub("", text)):
        return _script(text, path, model, accelerators)
    if path.suffix == ".toml" or re.search(r"^\s*\[[\w.]+\]\s*(#.*)?$", text, re.MULTILINE):
        said = from_toml(text, where)
        if not any(key.startswith(("parallelism.", "training.")) for key in said.values):
            raise _unknown(where)
        return torchtitan.read(said, model, accelerators)
    said = from_yaml(text, where)
    if (found := tuners.read_config(said, model, accelerators, path)) is not None:
        return found
    if "distributed_type" in said.values:
        return accelerate.read(said, model, accelerators)
    if any(key.startswith(("model.", "train.")) for key in said.values):
        return nemo.read(said, model, accelerators)
    raise _unknown(where)


def _script(text: str, path: Path, model: Model, accelerators: int) -> Found:
    """A shell script, by the program that it starts."""
    where = printable(path.name)
    said = from_flags(text, where)
    if (tuned := tuners.read_script(said, model, accelerators, path)) is not None:
        return tuned
    named = next((key for key in _DEEPSPEED if _is_name(said.values.get(key))), None)
    if named is not None and _MEGATRON - said.values.keys():
        return deepspeed.read(from_json(*text_named(said, named, path)), model, accelerators, said)
    if "accelerate launch" in text and "config_file" in said.values:
        config = from_yaml(*text_named(said, "config_file", path))
        return accelerate.read(config, model, accelerators, said)
    if "job.config_file" in said.values:
        config = from_toml(*text_named(said, "job.config_file", path))
        return torchtitan.read(_over(config, said), model, accelerators)
    if "module" in said.values and any(key.startswith("parallelism.") for key in said.values):
        return torchtitan.read(said, model, accelerators)
    if "tensor_model_parallel_size" in said.values or "micro_batch_size" in said.values:
        found = megatron.read(said, model, accelerators)
        return (
            found if named is None else replace(found, notes=(*found.notes, said.not_read(named)))
        )
    if "config_file" in said.values:
        return nemo.read(from_yaml(*text_named(said, "config_file", path)), model, accelerators)
    started = slurm.starts(text) if slurm.is_batch(text) else None
    if started is None or started == path.name:
        raise _unknown(where)
    found = read_launch(find_named(started, path) or path.parent / started, model, accelerators)
    return replace(found, processes=slurm.processes(text) or found.processes)


def _is_name(value: Any) -> bool:
    """Whether a flag names a file: DeepSpeed's --deepspeed alone is a switch."""
    return isinstance(value, str | list)


def _over(config: Said, flags: Said) -> Said:
    """A config whose settings a command line says anew, as torchtitan takes them."""
    said = {key: value for key, value in flags.values.items() if "." in key}
    said.pop("job.config_file", None)
    lines = {key: line for key, line in config.lines.items() if key not in said}
    return replace(config, values={**config.values, **said}, lines=lines)


def _unknown(where: str) -> BadInput:
    return BadInput(
        say(
            "{where}: starts nothing that is known; --from reads {known}", where=where, known=_KNOWN
        )
    )
