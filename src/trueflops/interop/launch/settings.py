"""What a launch file says, whatever its format: values by dotted key, each with its line.

In: a plan to be written, or the text of a file. Out: settings, or what a file says of a plan; one
sentence that names the field, or the key and its line, where a tool and a Plan have no common word.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final, TypeVar

from trueflops.catalog import Cluster
from trueflops.errors import BadInput, join_or, printable
from trueflops.language import mark, say
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.plan.captures import captures_text
from trueflops.workload import Training

T = TypeVar("T")
Settings = dict[str, Any]
"""Values by dotted key, in the order in which they are written; None is left out."""

ALIKE: Final = 0.88  # as similar as two keys are of which one is a slip of the pen
PLAN_WORDS: Final = re.compile(
    r"parallel|pipeline|recompute|checkpointing|offload|shard|fsdp|zero|overlap|micro|global_batch"
    r"|seq_len|fp8|fp4|dtype|precision"
)
"""In the names of settings that change how long a step takes or what it keeps."""
_FLAGS: Final = {"engine": "--dp-engine", "adapters": "--lora", "micro_batch": "--micro-batch"}
_TRUE: Final = {True: True, "true": True, "yes": True, "1": True}
_FALSE: Final = {False: False, "false": False, "no": False, "0": False}


@dataclass(frozen=True)
class Asked:
    """What a tool is to run."""

    plan: Plan
    model: Model
    workload: Training
    cluster: Cluster
    framework: str
    stages: tuple[int, ...] = ()  # layers of each, if dealt out: predict/training/stages.py

    @property
    def steps(self) -> int:
        """Steps until all tokens have been seen."""
        return max(1, -int(-self.workload.tokens // self.workload.tokens_per_step))


@dataclass(frozen=True)
class Written:
    """The files of a plan by name, which release reads them, and how one starts it."""

    files: Mapping[str, str]
    release: str
    start: str = "run.sh"


@dataclass(frozen=True)
class Found:
    """What a file says: fields of a Plan, of the workload, and what was not understood."""

    tool: str
    framework: str
    plan: Mapping[str, Any]
    workload: Mapping[str, Any]
    processes: int | None = None  # that it starts, where it says so
    notes: tuple[str, ...] = ()

    def beside(self, framework: str | None) -> tuple[str, ...]:
        """What to say where a question names a framework: another than the file's is priced."""
        if framework in (None, self.framework):
            return ()
        note = say(
            "--framework {framework} is priced, and the file starts {own}",
            framework=framework,
            own=self.framework,
        )
        return (note,)


_LARGEST: Final = 1e18  # that any setting is


@dataclass(frozen=True)
class Said:
    """The settings of a file that was read. It remembers which were asked for."""

    where: str
    values: Mapping[str, Any]
    lines: Mapping[str, int]
    spelt: Mapping[str, str] = field(default_factory=dict)  # keys as the file has them, if not so
    asked: set[str] = field(default_factory=set)
    others: tuple[str, ...] = ()  # words of a script that are no flags

    def get(self, key: str) -> Any:
        """The value, or None where the file leaves it out ('auto' is Hugging Face's way to)."""
        self.asked.add(key)
        value = self.values.get(key)
        return None if value == "auto" else value

    def whole(self, key: str, usual: int) -> int:
        """A whole number."""
        number = self.real(key, usual)
        if number != int(number):
            raise self.wrong(key, mark("a whole number"))
        return int(number)

    def count(self, key: str) -> int:
        """A whole number from one on; 0 where nothing is said."""
        number = self.whole(key, 0)
        if number < 1 and self.get(key) is not None:
            raise self.wrong(key, mark("a whole number from 1 on"))
        return number

    def real(self, key: str, usual: float) -> float:
        """A number."""
        value = self.get(key)
        if value is None:
            return usual
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not -_LARGEST < number < _LARGEST:  # nor of a NaN
            raise self.wrong(key, mark("a number"))
        return number

    def switch(self, key: str, usual: bool = False) -> bool:
        """On or off."""
        value = self.get(key)
        if value is None:
            return usual
        word = value.lower() if isinstance(value, str) else value
        known = _TRUE | _FALSE
        if not isinstance(word, str | bool) or word not in known:
            raise self.wrong(key, mark("true or false"))
        return known[word]

    def choice(self, key: str, words: Mapping[str, T], usual: str) -> T:
        """One of a tool's words, as ours."""
        value = self.get(key)
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        word = usual if value is None else str(value)
        if word not in words:
            raise self.wrong(key, join_or(words))
        return words[word]

    def wrong(self, key: str, instead: str) -> BadInput:
        """The error of a value that no plan has."""
        said = self.values.get(key)
        value = printable(" ".join(map(str, said)) if isinstance(said, list) else str(said), 60)
        return BadInput(
            say(
                "{place}: {name} is {value}; it may be {instead}",
                place=self.place(key),
                name=self._name(key),
                value=value,
                instead=instead,
            )
        )

    def _name(self, key: str) -> str:
        return self.spelt.get(key, key)

    def place(self, key: str) -> str:
        """'run.sh, line 12'."""
        line = self.lines.get(key)
        return say("{where}, line {line}", where=self.where, line=line) if line else self.where

    def unread(
        self,
        known: frozenset[str] = frozenset(),
        alike: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[str, ...]:
        """What may matter and was not read; a key that nearly is one that is read is refused.

        `alike`: keys that nearly are one that the tool has, read or not, and what that is called.
        """
        notes = []
        sections = {part for key in (*self.asked, *known) for part in _sections(key)}
        for key in self.values.keys() - self.asked - known:
            self._check_section(key, sections)
            near = difflib.get_close_matches(key, self.asked, n=1, cutoff=ALIKE)
            if near and near[0] not in self.values:
                meant = alike.get(key, self._name(near[0]))
                raise BadInput(self._misspelt(key, self._name(key), meant))
            if key in alike:
                said = self._misspelt(key, self._name(key), alike[key])
            elif PLAN_WORDS.search(key):
                said = self.not_read(key)
            else:
                continue
            notes.append((self.lines.get(key, 0), said))
        return tuple(note for _, note in sorted(notes))

    def not_read(self, key: str) -> str:
        """'run.sh, line 12: --tp-comm-overlap is not read'."""
        return say("{place}: {name} is not read", place=self.place(key), name=self._name(key))

    def _check_section(self, key: str, sections: set[str]) -> None:
        """Refuse a section that nearly is one that is read, whatever it holds."""
        own = [*_sections(key), *([key] if self.values[key] == {} else [])]
        for section in own:
            near = difflib.get_close_matches(section, sections, n=1, cutoff=ALIKE)
            if near and near[0] != section:
                raise BadInput(self._misspelt(key, section, near[0]))

    def _misspelt(self, key: str, wrong: str, meant: str) -> str:
        return say(
            "{place}: {wrong} is not read; did you mean {meant}?",
            place=self.place(key),
            wrong=wrong,
            meant=meant,
        )


def _sections(key: str) -> list[str]:
    """The sections that a dotted key stands in: a and a.b of a.b.c."""
    names = key.split(".")[:-1]
    return [".".join(names[:end]) for end in range(1, len(names) + 1)]


def canonical(plan: Plan) -> Plan:
    """The same plan without what has no effect: the schedule of no pipeline, ZeRO of nothing …"""
    shared = plan.zero and plan.dp_shard * plan.cp > 1
    return plan.but(
        sp=plan.sp and plan.tp > 1,
        zero=plan.zero if shared else 0,
        dp_replicate=plan.dp_replicate if shared else plan.dp,
        dp_shard=plan.dp_shard if shared else 1,
        cp_kind=plan.cp_kind if plan.cp > 1 else "ring",
        schedule=plan.schedule if plan.pp > 1 else "1f1b",
        dispatch=plan.dispatch if plan.ep > 1 else "all-to-all",
        overlap_dispatch=plan.overlap_dispatch and plan.ep > 1,
        cuda_graphs=captures_text(plan.cuda_graphs),
        recompute_layers=float("inf") if plan.recompute == "none" else plan.recompute_layers,
        offload_to=plan.offload_to if plan.offloads else "host",
    )


def check_implied(
    tool: str, plan: Plan, implied: Mapping[str, Any], stated: frozenset[str]
) -> None:
    """Refuse what a tool has no setting for, unless it is what the tool does anyway."""
    usual = Plan()
    for each in fields(Plan):
        value, own = getattr(plan, each.name), implied.get(each.name, getattr(usual, each.name))
        if each.name not in stated and value != own:
            raise refused(tool, each.name, value, f"{_spelt(each.name, own)} is what it runs")


def implied_by(tool_implies: Mapping[str, Any], stated: frozenset[str]) -> dict[str, Any]:
    """Every field that no setting states, as the tool has it."""
    usual = Plan()
    names = [each.name for each in fields(Plan) if each.name not in stated]
    return {name: tool_implies.get(name, getattr(usual, name)) for name in names}


def refused(tool: str, name: str, value: Any, because: str) -> BadInput:
    """'--emit torchtitan: it has no setting for --schedule dualpipe (…)'."""
    return BadInput(
        say(
            "--emit {tool}: no setting for {spelt} there; {because}",
            tool=tool,
            spelt=_spelt(name, value),
            because=because,
        )
    )


def _spelt(name: str, value: Any) -> str:
    """A field as a flag; adapters '' is all weights trained."""
    if name == "adapters":
        return f"--{value}" if value else "training all weights"
    flag = _FLAGS.get(name, "--" + name.replace("_", "-"))
    if isinstance(value, bool):
        return flag if value else flag.replace("--", "--no-", 1)
    if isinstance(value, int | float) and (value == float("inf") or (not value and name != "zero")):
        return f"no {flag}"
    return f"{flag} {value:g}" if isinstance(value, int | float) else f"{flag} {value or 'none'}"
