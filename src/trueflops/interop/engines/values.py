"""What the values of an engine's flags mean: its words, counts, shares and layers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trueflops.errors import BadInput, printable, shorten
from trueflops.interop.engines.checkpoints import REPOSITORIES, drafter_in, in_hub
from trueflops.interop.engines.deployed import VOCABULARIES, Vocabulary
from trueflops.interop.engines.drafts import FIELDS as DRAFTS
from trueflops.interop.engines.drafts import method_of
from trueflops.interop.engines.flags import Flag, fields_of
from trueflops.interop.engines.partition import FLAGS, refuse_experts_on_host
from trueflops.language import say
from trueflops.units import GIGA, read_number

LARGEST: Final = int(GIGA)
NAMED: Final = ("weights", "cache", "speculate")
_THOUSANDS: Final = {"k": 1000, "m": 1_000_000, "K": 1024, "M": 1024**2}
_ATTENTION: Final = ("enable-dp-attention", "enable-attention-dp")
_SPANNING: Final = (
    "megamoe", "deepep", "mooncake", "nixl", "ascend_fuseep", "flashinfer", "mori", "pplx",
)  # fmt: skip
"""All-to-alls of SGLang that make ep span tp: _A2A_EP_SPANNING_BACKENDS of its overrides.py."""
_SPANNING_FLAGS: Final = ("enable-ep-moe", "enable-deepep-moe")
"""Older words for it: __post_init__ of its server_args.py, where they are deprecated since 0.5."""


@dataclass(frozen=True)
class Reading:
    """One engine's flags, read as fields of a Deployed."""

    engine: str
    where: str
    folder: Path | None = None  # of the script
    typed: Collection[str] | None = None  # fields that were said elsewhere, which wins

    def take(self, flags: Iterable[Flag]) -> tuple[dict[str, Any], list[str]]:
        """The fields, and the flags that none answers to, as they were written."""
        said: dict[str, Any] = {}
        ignored = [flag.written for flag in flags if not self._takes(said, flag)]
        return said, ignored

    def _takes(self, said: dict[str, Any], flag: Flag) -> bool:
        spoken = VOCABULARIES[self.engine]
        if not flag.name:
            said.setdefault("model", flag.value)
        elif field := fields_of(spoken).get(flag.name):
            if field in (self.typed or ()) and flag.value.startswith("$"):
                return True  # a variable that only the machine fills in
            return self._field(said, field, flag)
        elif flag.name in _ATTENTION:
            said["dp_attention"] = True
        elif self.engine == "sglang" and _spans(flag):
            said["spans_ranks"] = True
        elif self.engine == "llama.cpp" and flag.name in FLAGS:
            said[FLAGS[flag.name]] = flag.value
        else:
            if self.engine == "llama.cpp":
                refuse_experts_on_host(flag, self.where)
            return flag.name in spoken.harmless
        return True

    def _field(self, said: dict[str, Any], field: str, flag: Flag) -> bool:
        """One field; False where its word is not one of ours."""
        spoken, value, what = VOCABULARIES[self.engine], flag.value, f"{self.where}: {flag.spelt}"
        if field == "model":  # a file of a repository tells more than the repository
            if flag.name not in REPOSITORIES or not said.get(field, "").endswith(".gguf"):
                said[field] = self._checkpoint(flag)
        elif field == "draft_model":
            said[field] = drafter_in(self._checkpoint(flag), what, self._asks_for_drafter())
        elif flag.name in spoken.switches:
            said[field] = 1
        elif field == "speculate":
            said[field] = method_of(value, self.engine)
            return said[field] is not None
        elif field in NAMED:
            words = words_for(field, spoken)
            if value in words:
                said[field] = words[value]
            return value in words or value == "auto"
        elif field == "memory_share":
            said[field] = share_of(value, what)
        elif field == "cpu_offload_gb":
            return _offloaded(said, value, what)
        elif field == "gpu_layers":
            return _layers(said, value, what)
        else:
            said[field] = whole(value, what)
        return True

    def _checkpoint(self, flag: Flag) -> str:
        of_hub = self.engine == "llama.cpp" and flag.name in REPOSITORIES
        return in_hub(flag.value) if of_hub else flag.value

    def _asks_for_drafter(self) -> bool:
        """Whether what was typed leaves the drafter to the file."""
        return self.typed is not None and not set(DRAFTS) & set(self.typed)


def words_for(field: str, spoken: Vocabulary) -> Mapping[str, str]:
    """What the values of a field are called."""
    return {"weights": spoken.weights, "cache": spoken.caches}.get(field, spoken.methods)


def _spans(flag: Flag) -> bool:
    return flag.name in _SPANNING_FLAGS or (
        flag.name == "moe-a2a-backend" and flag.value in _SPANNING
    )


def _layers(said: dict[str, Any], value: str, what: str) -> bool:
    """llama.cpp's count of layers on accelerators; auto, all and -1 are as many as fit."""
    if value in ("auto", "all", "-1"):
        return True
    said["gpu_layers"] = whole(value, what) if value != "0" else 0
    return True


def _offloaded(said: dict[str, Any], value: str, what: str) -> bool:
    """GiB of vLLM's weights in host memory; 0 is none."""
    try:
        gib = read_number(value, what=what)
    except BadInput:
        gib = -1.0
    if not 0.0 <= gib <= LARGEST:
        raise BadInput(
            say(
                "{what} {value!r}: write GiB from 0 on, as 10",
                what=what,
                value=shorten(printable(value)),
            )
        )
    said["cpu_offload_gb"] = gib or None
    return True


def share_of(value: str, what: str) -> float:
    """A share, above 0 and up to 1."""
    try:
        share = read_number(value)
    except BadInput:
        share = -1.0
    if not 0.0 < share <= 1.0:
        raise BadInput(
            say(
                "{what} {value!r}: write a share above 0 and up to 1, as 0.9",
                what=what,
                value=shorten(printable(value)),
            )
        )
    return share


def whole(value: str, what: str) -> int:
    """A count, with vLLM's endings: 32k is 32,000, 32K 32,768."""
    digits, factor = value, 1
    if value[-1:] in _THOUSANDS:
        digits, factor = value[:-1], _THOUSANDS[value[-1]]
    if not digits.isascii() or not digits.isdigit() or not 0 < int(digits[:10]) * factor <= LARGEST:
        raise BadInput(
            say(
                "{what} {value!r}: write a whole number from 1 on",
                what=what,
                value=shorten(printable(value)),
            )
        )
    return int(digits) * factor
