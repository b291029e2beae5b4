"""Which fine-tuning program a config or a script is of, and what it says.

In: settings of a YAML, or the words of a script. Out: the plan, or None where no such program is
started. A script's own `--key value` and `key=value` win over the config that it names.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from trueflops.errors import printable
from trueflops.interop.launch import axolotl, llamafactory, torchtune
from trueflops.interop.launch.named import find_named, text_named, text_of
from trueflops.interop.launch.settings import Found, Said
from trueflops.interop.launch.shell import processes
from trueflops.interop.launch.texts import from_yaml
from trueflops.model import Model


def read_config(
    said: Said, model: Model, accelerators: int, file: Path, sharing: Said | None = None
) -> Found | None:
    """A config by the keys that it has; `sharing` is that of accelerate, which a script names."""
    if axolotl.MODEL in said.values:
        return axolotl.read(said, model, accelerators, file)
    if llamafactory.is_config(said):
        return llamafactory.read(said, model, accelerators, file, sharing)
    if torchtune.is_config(said):
        return torchtune.read(said, model, accelerators)
    return None


def read_script(said: Said, model: Model, accelerators: int, script: Path) -> Found | None:
    """A script that starts one of them, with a config or with flags."""
    found = None
    if llamafactory.is_config(said):
        flags = replace(said, values={k: v for k, v in said.values.items() if k not in _LAUNCHER})
        found = llamafactory.read(flags, model, accelerators, script, _sharing(said, script))
    elif any(map(_PROGRAM.fullmatch, said.others)):
        for name in said.others:
            file = find_named(name, script) if name.endswith((".yaml", ".yml")) else None
            if found is None and file is not None and name != said.values.get("config_file"):
                config = _over(from_yaml(text_of(file), printable(file.name)), said)
                shared = _sharing(said, script)
                found = read_config(config, model, accelerators, file, shared)
    return None if found is None else replace(found, processes=processes(said))


_PROGRAM: Final = re.compile(r"(?:.*/)?(?:axolotl|llamafactory-cli|lmf|tune|src/train\.py)"
                             r"|axolotl\.cli\.\w+")  # fmt: skip
"""What starts a config: axolotl's docs, LLaMA-Factory's examples/README.md, torchtune's README."""


def _sharing(said: Said, script: Path) -> Said | None:
    """The config of accelerate, where a script names one."""
    named = said.values.get("config_file")
    return from_yaml(*text_named(said, "config_file", script)) if named else None


_LAUNCHER: Final = frozenset(
    [
        "config_file", "nproc_per_node", "nnodes", "node_rank", "master_addr", "master_port",
        "num_gpus", "num_nodes", "num_processes", "num_machines", "machine_rank", "include",
        "hostfile", "main_process_ip", "main_process_port", "standalone", "rdzv_endpoint",
        "rdzv_backend",
    ]
)  # fmt: skip
"""Flags of torchrun, deepspeed and accelerate."""


def _over(config: Said, script: Said) -> Said:
    """A config whose settings the command says anew."""
    pairs = (word.partition("=")[::2] for word in script.others if "=" in word)
    said = {**script.values, **dict(pairs)}
    own = {key: value for key, value in said.items() if key in config.values}
    lines = {key: line for key, line in config.lines.items() if key not in own}
    return replace(config, values={**config.values, **own}, lines=lines)
