"""Measured kernels beside the predicted seconds of the calls that should launch them.

A profiler names the op that launched a kernel and the ops around it; a capture records one of
these, never two within one another. They are matched by name and shapes of the operands, from the
outside in, then by name and largest operand, then by name alone; what is left on either side is a
group of its own, so that the sums stay whole.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from trueflops.capture.lower import base_name
from trueflops.predict.captured.prices import Kernel
from trueflops.units import MICRO

Shapes = tuple[tuple[int, ...], ...]
Key = tuple[str, Shapes]
GENERATED = "generated"  # kernels of a compiler, which fuse what neither side names alike
ALIASES = {  # what a profiler calls an op that a capture records by another name
    "cudnn_batch_norm": "native_batch_norm",
    "cudnn_batch_norm_backward": "native_batch_norm_backward",
    "index_put_impl": "index_put",
}
LISTS = ("foreach", "fused", "amp_foreach")  # a profiler shortens the lists of tensors they take


@dataclass
class Side:
    """Kernels of one group, on one side."""

    count: int = 0
    seconds: float = 0.0

    def add(self, count: int, seconds: float) -> None:
        """So many more."""
        self.count += count
        self.seconds += seconds


@dataclass(frozen=True)
class Beside:
    """One op on operands of one size: what it took and what was said."""

    program: str
    op: str
    shapes: Shapes
    measured: Side
    predicted: Side
    kernels: tuple[str, ...]  # names of measured ones, the costliest first

    @property
    def missed(self) -> float:
        """Seconds predicted beyond what was measured."""
        return self.predicted.seconds - self.measured.seconds

    def __str__(self) -> str:
        """Microseconds of both, and of what."""
        sizes = " ".join("×".join(map(str, shape)) for shape in self.shapes[:4])
        real, told = self.measured, self.predicted
        launched = f"  [{self.kernels[0][:60]}]" if self.kernels else ""
        ratio = f"{told.seconds / real.seconds:6.2f}" if real.seconds else "     –"
        return (
            f"{self.program:26} {self.missed / MICRO:+9.0f} µs {ratio}  "
            f"{real.seconds / MICRO:8.0f} in {real.count:5}, {told.seconds / MICRO:8.0f} in "
            f"{told.count:5}  {self.op} {sizes}{launched}"
        )


def beside(
    program: str, rows: Iterable[Mapping[str, str]], kernels: Iterable[Kernel]
) -> list[Beside]:
    """All groups of one program, those that miss most seconds first."""
    said: dict[Key, Side] = defaultdict(Side)
    for kernel in kernels:
        said[_key_of(kernel)].add(1, kernel.seconds)
    largest = {(name, _largest(shapes)): (name, shapes) for name, shapes in said if shapes}
    real: dict[Key, Side] = defaultdict(Side)
    launched: dict[Key, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in rows:
        key, taken = _match(row, said, largest), float(row["microseconds"]) * MICRO
        real[key].add(int(row["launches"]), taken)
        launched[key][row["kernel"]] += taken
    _by_name_alone(real, said, launched)
    found = [
        Beside(
            program, *key, real.get(key, Side()), said.get(key, Side()), _costliest(launched[key])
        )
        for key in {*real, *said}
    ]
    return sorted(found, key=lambda group: -abs(group.missed))


def _key_of(kernel: Kernel) -> Key:
    if kernel.call.parts or (kernel.call.region >= 0 and kernel.cause == "memory"):
        return GENERATED, ()
    name = _bare(base_name(kernel.call.op))
    if name.startswith(LISTS):
        return name, ()
    return name, tuple(sorted(a.shape for a in kernel.call.inputs if a.shape))


def _match(row: Mapping[str, str], said: Mapping[Key, Side], largest: Mapping[Key, Key]) -> Key:
    """The key of the predicted group that a measured kernel belongs to, or one of its own."""
    if row["kernel"].startswith("triton_"):
        return GENERATED, ()
    around = json.loads(row["within"]) if row["within"] else []
    own = [row["op"], json.loads(row["shapes"]) if row["shapes"] else []]
    chain = [(_bare(name), _shapes(dims)) for name, dims in (*around, own)]
    named = {name for name, _ in said}
    known = [(name, shapes) for name, shapes in chain if name in named]
    for name, shapes in known:
        key = (name, () if name.startswith(LISTS) else shapes)
        if key in said:
            return key
        if (near := largest.get((name, _largest(shapes)))) is not None:
            return near
    return known[0] if known else chain[0]


def _largest(shapes: Shapes) -> Shapes:
    """Of the operands: what is left where one side sees more of the small ones."""
    return (max(shapes, key=prod),) if shapes else ()


def _by_name_alone(
    real: dict[Key, Side], said: dict[Key, Side], launched: dict[Key, dict[str, float]]
) -> None:
    """Join what is left of one name on both sides: a profiler may see other operands."""
    left = {key[0] for key in real if key not in said} & {key[0] for key in said if key not in real}
    for name in left:
        for side, other in ((real, said), (said, real)):
            for key in [k for k in side if k[0] == name and k not in other and k[1]]:
                gone = side.pop(key)
                side[name, ()].add(gone.count, gone.seconds)
                for kernel, taken in launched.pop(key, {}).items():
                    launched[name, ()][kernel] += taken


def _bare(name: str) -> str:
    bare = name.rpartition("::")[2].strip("_")
    return ALIASES.get(bare, bare)


def _shapes(dims: Any) -> Shapes:
    return tuple(sorted(_each(dims)))


def _each(dims: Any) -> Iterator[tuple[int, ...]]:
    """Shapes of tensors, those in lists too; scalars have none."""
    for item in dims if isinstance(dims, list) else ():
        if isinstance(item, list) and item and all(isinstance(n, int) for n in item):
            yield tuple(item)
        else:
            yield from _each(item)


def _costliest(taken: Mapping[str, float]) -> tuple[str, ...]:
    return tuple(sorted(taken, key=lambda name: -taken[name]))
