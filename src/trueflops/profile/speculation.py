"""Facts of speculative decoding: how methods draft, what is accepted, what an engine adds.

In: a method's, a task's or an engine's name. Out: what data/speculation.toml states, each with its
source. Acceptance falls with the place of a drafted token, so that k of them give
    1 + first · (1 − later^k) / (1 − later)
tokens a step; with first = later it is Leviathan et al.'s (1 − α^(k+1)) / (1 − α) (arXiv
2211.17192 eq. 1).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from trueflops import units
from trueflops.catalog.facts import read_toml
from trueflops.errors import BadInput, join_or
from trueflops.language import say

_DATA: Final = Path(__file__).parent / "data" / "speculation.toml"
USUAL: Final = "serving"  # of an engine of which nothing is known
OVERALL: Final = "mixed"  # texts of all kinds

Drafter = Literal["model", "head", "module", "heads", "none"]


@dataclass(frozen=True)
class Method:
    """How tokens are drafted, where nobody says otherwise."""

    name: str
    drafter: Drafter
    drafted: int  # tokens verified beside the last one
    first: float
    later: float
    error: float  # of the tokens accepted, relative
    source: str
    tree_first: float = 0.0
    tree_later: float = 0.0
    passes: int = 0  # of the drafter, one after another; 0: one a token
    branches: int = 1  # alternatives that each pass extends
    layers: int = 1
    vocab: int = 0  # tokens that the drafter knows; 0: all
    depth: int = 0  # of what is drafted without passes; 0: as many as tokens or passes
    trained: int = 0  # length of the texts that its drafter was trained on; 0: any
    copies: bool = False

    def accepted(self, depth: int, task: str, *, tree: bool) -> float:
        """Tokens that a step gives on average, the model's own included."""
        factor = task_factor(task, self.copies)
        return min(1.0 + factor * _geometric(*self.chances(tree=tree), depth), 1.0 + depth)

    def chances(self, *, tree: bool) -> tuple[float, float]:
        """That the first drafted token is accepted, and each later one behind an accepted one."""
        if tree and self.tree_first:
            return self.tree_first, self.tree_later
        return self.first, self.later


@dataclass(frozen=True)
class EngineCosts:
    """Seconds that an engine adds to a speculative step."""

    step: float
    per_pass: float
    layer: float  # of a drafter: the host's, where its graphs are cut at attention
    tree: float
    graphs: bool  # whether passes are captured graphs
    host: float  # where not: of what the host needs with autograd
    source: str


def tokens_by_rate(rate: float, drafted: int) -> float:
    """Tokens a step where every drafted token is accepted with the same chance, in its turn."""
    return 1.0 + _geometric(rate, rate, drafted)


def _geometric(first: float, later: float, depth: int) -> float:
    return first * (depth if later == 1.0 else (1.0 - later**depth) / (1.0 - later))


def method_of(name: str, model: str = "") -> Method:
    """A method by its name, with the acceptance of the model's family where that is known."""
    known = _facts()["methods"]
    if name not in known:
        raise BadInput(
            say(
                "speculative method {name!r} is not known: use {known}",
                name=name,
                known=join_or(sorted(known)),
            )
        )
    method = Method(name=name, **known[name])
    for family in _facts()["families"]:
        if family["method"] == name and model.casefold().startswith(_folded(family["begins"])):
            own = {key: family[key] for key in ("first", "later", "source")}
            return replace(method, **own)
    return method


def carries_module(family: str) -> bool:
    """Whether checkpoints of a family (a model_type) may have a module that predicts tokens."""
    return any(family.startswith(begins) for begins in _facts()["modules"]["families"])


def methods() -> tuple[str, ...]:
    """All that are known."""
    return tuple(_facts()["methods"])


def tasks() -> tuple[str, ...]:
    """Kinds of text whose acceptance is known."""
    return (OVERALL, *_facts()["tasks"])


def task_of(text: str) -> str:
    """The kind of text that a benchmark's name stands for; of an unknown one, mixed."""
    said = text.casefold()
    of_task = _facts()["tasks"].items()
    return next((name for name, fact in of_task if any(w in said for w in fact["words"])), OVERALL)


def task_factor(task: str, copies: bool) -> float:
    """Drafts accepted on a task, over those of mixed texts."""
    if task == OVERALL:
        return 1.0
    return float(_facts()["tasks"][task]["copied" if copies else "drafted"])


def engine_costs(name: str) -> EngineCosts:
    """What an engine adds; of one that is not described, what most do."""
    known = _facts()["engines"]
    said = known[USUAL] | known.get(name, {})

    def seconds(key: str) -> float:
        return units.parse(said[key], "seconds", what=f"{name} {key}")

    return EngineCosts(
        step=seconds("step"),
        per_pass=seconds("pass"),
        layer=seconds("layer"),
        tree=seconds("tree"),
        graphs=said["graphs"],
        host=said["host"],
        source=said["source"],
    )


def _folded(words: list[str]) -> tuple[str, ...]:
    return tuple(word.casefold() for word in words)


@cache
def _facts() -> dict[str, Any]:
    facts = read_toml(_DATA)
    names = {field.name for field in fields(Method)}
    assert all(fact.keys() <= names for fact in facts["methods"].values())
    return facts
