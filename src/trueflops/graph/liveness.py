"""How many bytes are alive while one piece runs, op by op: forward, then what runs again, backward.

A tensor lives from the op that makes it to the last that reads it; what is kept, until its backward
is done. In: a differentiated Graph. Out: the fullest moments, without weights and their gradients:
who holds those, and in which width, is the framework's choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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


class _Moment(NamedTuple):
    """Bytes alive, and parameters whose gradients exist; `opened` is being made."""

    alive: Size
    made: Size
    opened: Size = 0.0


def liveness(graph: Graph) -> Live:
    """Walk through a graph; nothing is said of one that was not differentiated."""
    if not graph.backward:
        return Live()
    again, backward = named_anew(graph)
    kept = {t.name: t.bytes for t in graph.kept_tensors}
    entering = {
        t.name: t.bytes for node in graph.forward for t in node.inputs if t.role is Role.ACTIVATION
    }
    made = {t.name for node in graph.forward for t in node.outputs}
    forward = _Walk(graph.forward, {*kept, graph.result.name})
    forward.hold({name: size for name, size in entering.items() if name not in made})
    forward.run()
    arriving = graph.result.gradient()
    later = _Walk([*again, *backward], set())
    later.hold({**kept, arriving.name: arriving.bytes})
    later.run()
    fullest = _fullest(later.moments, lambda m: m.alive)
    opening = _fullest(later.openings, lambda m: m.alive + m.opened * _HALF)
    return Live(
        forward=_fullest(forward.moments, lambda m: m.alive).alive,
        backward=fullest.alive,
        backward_made=fullest.made,
        opening=opening.alive,
        opening_made=opening.made,
        opened=opening.opened,
    )


def _fullest(moments: list[_Moment], by: Callable[[_Moment], Size]) -> _Moment:
    """The largest, shape by shape; of equal ones the last, which has more gradients."""
    best = _Moment(0.0, 0.0)
    for moment in moments:
        more = by(moment) >= by(best)
        best = _Moment(*(_pick(more, new, old) for new, old in zip(moment, best, strict=True)))
    return best


def _pick(more: object, new: Size, old: Size) -> Size:
    if isinstance(more, np.ndarray):
        return np.where(more, new, old)
    return new if more else old


class _Walk:
    """Tensors by name: made, read for the last time, gone."""

    def __init__(self, nodes: Iterable[Node], stays: set[str]) -> None:
        self.nodes = list(nodes)
        self.same: dict[str, str] = {}  # what a collective changes in place
        self.alive: dict[str, Size] = {}
        self.total: Size = 0.0
        self.made: Size = 0.0
        self.moments: list[_Moment] = []
        self.openings: list[_Moment] = []
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
        self.moments.append(_Moment(self.total, self.made))

    def run(self) -> None:
        """All ops in order."""
        for at, node in enumerate(self.nodes):
            opened: Size = _NOTHING
            for tensor in node.outputs:
                if tensor.role is Role.WEIGHT:
                    opened = opened + tensor.elements
                else:
                    self._add(self._name(tensor.name), tensor.bytes)
            if opened is not _NOTHING and np.any(opened):
                self.made = self.made + opened
                self.openings.append(_Moment(self.total, self.made, opened))
            self.moments.append(_Moment(self.total, self.made))
            for tensor in (*node.inputs, *node.outputs):
                name = self._name(tensor.name)
                if self.last[name] <= at and name in self.alive:
                    self.total = self.total - self.alive.pop(name)

    def _add(self, name: str, size: Size) -> None:
        if name not in self.alive:
            self.alive[name] = size
            self.total = self.total + size
