"""The questions of a sweep, in the order of its file: the last axis varies fastest, as in a loop.

In: a Spec. Out: Questions, each a command line that could be typed, and its cells of the table.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Final

from trueflops.errors import BadInput, nearest
from trueflops.language import say
from trueflops.sweep.flags import UNSET, Value, shown, text_of
from trueflops.sweep.spec import Axis, Settings, Spec

MOST: Final = 250_000  # questions of one table, whose rows are held in memory
FIRST: Final = {"model": 0, "on": 1}  # typed before all other flags


@dataclass(frozen=True)
class Question:
    """One row of the table, before it is answered."""

    words: tuple[str, ...]  # of the command line, the command first
    cells: tuple[Value | None, ...]  # what varies; None where the flag is not given

    @property
    def typed(self) -> str:
        """As one types it."""
        return shlex.join(("trueflops", *self.words))


@dataclass(frozen=True)
class Questions:
    """All rows, and the names of the cells that they begin with."""

    columns: tuple[str, ...]
    asked: tuple[Question, ...]
    excluded: int


def questions_of(spec: Spec) -> Questions:
    """The product of the axes without what is excluded, then what is included; each once."""
    groups = (spec.axes, *spec.include)
    count = sum(prod(len(axis.values) for axis in group) for group in groups if group)
    if count > MOST:
        raise BadInput(
            say(
                "{file}: {count:,} questions; {most:,} fit into one table: make several sweeps",
                file=spec.file,
                count=count,
                most=MOST,
            )
        )
    columns = tuple(dict.fromkeys(_names(groups)))
    _check_excluded(spec)
    settings = list(_product(spec.axes, spec.fixed)) if spec.axes else []
    kept = [each for each in settings if not any(_matches(each, out) for out in spec.exclude)]
    excluded = len(settings) - len(kept)
    for group in spec.include:
        kept += _product(group, spec.fixed)
    asked = dict.fromkeys(_question(spec, columns, each) for each in kept)
    if not asked:
        raise BadInput(
            say("{file}: [[exclude]] leaves no question; take one of them out", file=spec.file)
        )
    return Questions(columns, tuple(asked), excluded)


def _names(groups: Iterable[tuple[Axis, ...]]) -> Iterator[str]:
    for group in groups:
        for axis in group:
            for settings in axis.values:
                yield from settings


def _product(axes: tuple[Axis, ...], fixed: Settings) -> Iterator[dict[str, Value]]:
    for chosen in product(*(axis.values for axis in axes)):
        whole = dict(fixed)
        for settings in chosen:
            whole |= settings
        yield whole


def _question(spec: Spec, columns: tuple[str, ...], settings: Settings) -> Question:
    if "model" not in settings:
        hint = 'write model = "Llama-3.1-8B" under [fixed] or [axes]'
        raise BadInput(say("{file}: a question names no model; {hint}", file=spec.file, hint=hint))
    named = spec.flags.named
    flags = sorted(settings, key=lambda name: FIRST.get(name, len(FIRST)))
    words = [word for name in flags for word in named[name].words(settings[name])]
    values = (settings.get(name, UNSET) for name in columns)
    cells = tuple(None if value == UNSET else value for value in values)
    return Question((spec.command, *words), cells)


def _matches(settings: Settings, excluded: Mapping[str, tuple[Value, ...]]) -> bool:
    return all(
        text_of(settings.get(name, UNSET)) in map(text_of, values)
        for name, values in excluded.items()
    )


def _check_excluded(spec: Spec) -> None:
    """Refuse what excludes nothing: it is a slip, and the questions it meant would be asked."""
    for number, excluded in enumerate(spec.exclude, start=1):
        for name, values in excluded.items():
            settings = [each for axis in spec.axes for each in axis.values if name in each]
            known = [text_of(each[name]) for each in settings] + [UNSET]
            for value in values:
                if text_of(value) not in known:
                    near = nearest(text_of(value), known, most=1)
                    hint = f"; did you mean {near[0]}?" if near else ""
                    raise BadInput(
                        say(
                            "{file}: [[exclude]] {number}: {name} is never {shown}{hint}",
                            file=spec.file,
                            number=number,
                            name=name,
                            shown=shown(value),
                            hint=hint,
                        )
                    )
        if not any(_matches(each, excluded) for each in _product(spec.axes, spec.fixed)):
            raise BadInput(
                say(
                    "{file}: [[exclude]] {number}: matches no question; its values never meet",
                    file=spec.file,
                    number=number,
                )
            )
