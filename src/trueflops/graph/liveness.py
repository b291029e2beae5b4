"""How many bytes are alive while one piece runs, op by op: forward, then what runs again, backward.

A tensor lives from the op that makes it to the last that reads it; what is kept, until its backward
is done. In: a differentiated Graph. Out: the fullest moments, without weights and their gradients:
who holds those, and in which width, is the framework's choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

import numpy as np

from trueflops.graph.ir import Collective, Graph, Node
from trueflops.graph.kinds import CollectiveKind, Role
from trueflops.graph.passes.compile import named_anew
from trueflops.sizes import Size

_IN_PLACE: Final = (CollectiveKind.ALL_REDUCE, CollectiveKind.COPY, CollectiveKind.BROADCAST)
_NOTHING: Final = 0.0  # opened by most ops: weights are made by few
_HALF: Final = 2.0  # bytes of a weight's gradient, to tell which moment is the fullest with it


@dataclass(frozen=True, kw_only=True)
class Live:
    """Bytes of one piece for one micro-batch, its own kept tensors included.

    Two moments of the backward can be the fullest: that with most bytes, and the one in which a
    weight's gradient is made, with that.
    """

    forward: Size = 0.0
    backward: Size = 0.0
    backward_made: Size = 0.0  # parameters of this piece whose gradients exist by then
    opening: Size = 0.0
    opening_made: Size = 0.0  # likewise, the one being made included
    opened: Size = 0.0  # that one

    def map(self, change: Callable[[Size], Size]) -> Live:
        """The same with every size changed."""
        return Live(**{field.name: change(getattr(self, field.name)) for field in fields(self)})


class Walked(NamedTuple):
    """Moment by moment of a piece, in order: bytes alive, and parameters whose gradients exist."""

    forward: Sequence[Size] = ()
    backward: Sequence[Size] = ()
    backward_made: Sequence[Size] = ()
    opening: Sequence[Size] = ()  # where a weight's gradient is made
    opening_made: Sequence[Size] = ()
    opened: Sequence[Size] = ()


def liveness(graph: Graph) -> Live:
    """The fullest moments of a graph; nothing is said of one that was not differentiated."""
    return fullest(walk(graph))


def walk(graph: Graph) -> Walked:
    """Every moment of a graph. Nothing here is decided by a size: see graph/template.py."""
    if not graph.backward:
        return Walked()
    again, backward = named_anew(graph)
    kept = {t.name: t.bytes for t in graph.kept_tensors}
    entering = {
        t.name: t.bytes for node in graph.forward for t in node.inputs if t.role is Role.ACTIVATION
    }
    made = {t.name for node in graph.forward for t in node.outputs}
    first = _Walk(graph.forward, {*kept, graph.result.name})
    first.hold({name: size for name, size in entering.items() if name not in made})
    first.run()
    arriving = graph.result.gradient()
    later = _Walk([*again, *backward], set())
    later.hold({**kept, arriving.name: arriving.bytes})
    later.run()
    return Walked(first.moments, later.moments, later.made_then, *later.openings)


def fullest(walked: Walked) -> Live:
    """Of all moments those that can be the fullest."""
    if not walked.backward:
        return Live()
    with_gradient = [
        alive + opened * _HALF for alive, opened in zip(walked.opening, walked.opened, strict=True)
    ]
    (forward,) = _largest(walked.forward, walked.forward)
    backward, made = _largest(walked.backward, walked.backward, walked.backward_made)
    opening, opening_made, opened = _largest(
        with_gradient, walked.opening, walked.opening_made, walked.opened
    )
    return Live(
        forward=forward,
        backward=backward,
        backward_made=made,
        opening=opening,
        opening_made=opening_made,
        opened=opened,
    )


def _largest(by: Sequence[Size], *columns: Sequence[Size]) -> list[Size]:
    """Of each column the row that is the largest `by` these sizes, plan by plan; of equal ones the
    last, in which more gradients exist.
    """
    if not by:
        return [0.0 for _ in columns]
    if np.ndarray in set(map(type, by)):
        table = np.stack(np.broadcast_arrays(*by))
        rows = len(by) - 1 - np.argmax(table[::-1], axis=0)
        shaped = [np.stack(np.broadcast_arrays(table[0], *column))[1:] for column in columns]
        return [np.take_along_axis(column, rows[None], axis=0)[0] for column in shaped]
    row = len(by) - 1 - by[::-1].index(max(by))
    return [column[row] for column in columns]


class _Walk:
    """Tensors by name: made, read for the last time, gone."""

    def __init__(self, nodes: Iterable[Node], stays: set[str]) -> None:
        self.nodes = list(nodes)
        self.same: dict[str, str] = {}  # what a collective changes in place
        self.alive: dict[str, Size] = {}
        self.total: Size = 0.0
        self.made: Size = 0.0
        self.moments: list[Size] = []
        self.made_then: list[Size] = []  # by these moments
        self.openings: tuple[list[Size], list[Size], list[Size]] = [], [], []
        for node in self.nodes:
            if isinstance(node, Collective) and node.kind in _IN_PLACE and node.source is not None:
                for output in node.outputs:
                    self.same[output.name] = self._name(node.source.name)
        self.last: dict[str, int] = {}
        for at, node in enumerate(self.nodes):
            for tensor in (*node.inputs, *node.outputs):
                self.last[self._name(tensor.name)] = at
        for name in stays:
            self.last[self._name(name)] = len(self.nodes)

    def _name(self, name: str) -> str:
        return self.same.get(name, name)

    def hold(self, sizes: Mapping[str, Size]) -> None:
        """What is there before the first op."""
        for name, size in sizes.items():
            self._add(self._name(name), size)
        self._look()

    def run(self) -> None:
        """All ops in order."""
        for at, node in enumerate(self.nodes):
            opened: Size = _NOTHING
            for tensor in node.outputs:
                if tensor.role is Role.WEIGHT:
                    opened = opened + tensor.elements
                else:
                    self._add(self._name(tensor.name), tensor.bytes)
            if opened is not _NOTHING:
                self.made = self.made + opened
                now = self.total, self.made, opened
                for column, size in zip(self.openings, now, strict=True):
                    column.append(size)
            self._look()
            for tensor in (*node.inputs, *node.outputs):
                name = self._name(tensor.name)
                if self.last[name] <= at and name in self.alive:
                    self.total = self.total - self.alive.pop(name)

    def _look(self) -> None:
        self.moments.append(self.total)
        self.made_then.append(self.made)

    def _add(self, name: str, size: Size) -> None:
        if name not in self.alive:
            self.alive[name] = size
            self.total = self.total + size
