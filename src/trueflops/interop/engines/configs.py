"""The file of flags that a command names with --config.

vLLM (FlexibleArgumentParser in vllm/utils/argparse_utils.py; docs/configuration/serve_args.md) and
SGLang (ConfigArgumentMerger in srt/server_args_config_parser.py) put its keys before the flags that
were typed, so that these win.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from trueflops.errors import BadInput, printable
from trueflops.files import is_file, own_path, read_file
from trueflops.interop.engines.flags import Flag
from trueflops.interop.launch.texts import from_yaml
from trueflops.language import say

FLAG: Final = "config"
_ENGINES: Final = ("vllm", "sglang")


def named_config(engine: str, flags: Iterable[Flag]) -> str | None:
    """The file that a command names; none where a variable names it that nothing sets."""
    if engine not in _ENGINES:
        return None
    names = (flag.value for flag in flags if flag.name == FLAG)
    return next((name for name in names if name and "$" not in name), None)


def config_flags(name: str, folder: Path, where: str) -> list[Flag]:
    """What the file says, as flags; it lies beside the script, or in the working directory."""
    path = _found(name, folder, where)
    values = from_yaml(read_file(path).decode(errors="replace"), printable(path.name)).values
    return [flag for key, value in values.items() for flag in _flag(key, value)]


def _flag(key: str, value: Any) -> Iterator[Flag]:
    """A key as a flag; switches that are off are none."""
    if value is None or value is False:
        return
    said = "" if value is True else _text(value)
    name = key.replace("_", "-")
    yield Flag(name, said, f"--{key} {said}".strip())


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _found(name: str, folder: Path, where: str) -> Path:
    """Where the file is; one that is mounted into a container lies here under its own name."""
    own = Path(name).name
    for path in (folder / name, folder / own, own_path(name), own_path(own)):
        if is_file(path):
            return path
    raise BadInput(
        say(
            "{where}: names {name}, which is not beside it; copy it there",
            where=where,
            name=printable(name),
        )
    )
