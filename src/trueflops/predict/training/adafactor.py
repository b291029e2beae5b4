"""Adafactor: of a matrix V ≈ R·Cᵀ / mean(R), so that r + c second moments stay of r·c weights, and
of a vector all (Shazeer and Stern 2018, arXiv 1804.04235 §4). No first moment is kept.

torch.optim's (torch/optim/_adafactor.py, _single_tensor_adafactor, 2.13) computes in the gradient's
dtype; transformers' (transformers/optimization.py, Adafactor.step, 5.22) in fp32. Both go through
the weights one by one. Rows and columns need whole matrices: of the flat pieces that some engines
divide weights into (held/, `flat_from`) every second moment stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from trueflops.clock import Clock
from trueflops.clock.host import waiting_for_host
from trueflops.graph import Op, Tensor
from trueflops.graph.kinds import Kind
from trueflops.graph.variants import EagerKernel
from trueflops.plan import BYTES
from trueflops.predict.training.foreach import Update
from trueflops.predict.training.memory import Held
from trueflops.sizes import Size
from trueflops.units import BITS_PER_BYTE

_VECTOR, _ROWS, _COLUMNS = EagerKernel.VECTOR, EagerKernel.REDUCE_ROWS, EagerKernel.REDUCE_COLUMNS


class Call(NamedTuple):
    """A kernel for one weight: what it reads and writes. w(eight), g(radient), u(pdate), v(ariance)
    have all its elements, r(ows) and c(olumns) a side's, and n(umbers) one; G and W are a gradient
    and a weight in 16 bits.
    """

    name: str
    reads: str
    writes: str
    kernel: EagerKernel | None = _VECTOR  # None: a product


_TORCH: Final = (
    Call("norm of weights", "w", "n", _ROWS),
    Call("norms of rows", "g", "r", _ROWS),
    Call("square", "r", "r"),
    Call("mean", "r", "r"),
    Call("lerp", "rr", "r"),
    Call("norms of columns", "g", "c", _COLUMNS),
    Call("square", "c", "c"),
    Call("mean", "c", "c"),
    Call("lerp", "cc", "c"),
    Call("rows by columns", "rc", "u", None),
    Call("mean of rows", "r", "n", _ROWS),
    Call("clamp", "n", "n"),
    Call("divide", "un", "u"),
    Call("clamp", "u", "u"),
    Call("rsqrt", "u", "u"),
    Call("times gradient", "ug", "u"),
    Call("norm of update", "u", "n", _ROWS),
    Call("add", "wu", "w"),
)
_TORCH_FLAT: Final = (
    Call("norm of weights", "w", "n", _ROWS),
    Call("square", "gg", "u"),
    Call("lerp", "vu", "v"),
    Call("clone", "v", "u", EagerKernel.COPY),
    Call("clamp", "u", "u"),
    Call("rsqrt", "u", "u"),
    Call("times gradient", "ug", "u"),
    Call("norm of update", "u", "n", _ROWS),
    Call("add", "wu", "w"),
)
_ENDING: Final = (  # of transformers', with the Trainer's scale_parameter=False
    Call("times gradient", "ug", "u"),
    Call("norm of update", "u", "n", _ROWS),
    Call("root mean square", "n", "n"),
    Call("by threshold", "n", "n"),
    Call("clamp", "n", "n"),
    Call("divide", "un", "u"),
    Call("times rate", "u", "u"),
    Call("negate", "u", "u"),
    Call("add", "wu", "w"),
)
_WIDE: Final = (
    Call("norm of weights", "w", "n", _ROWS),
    Call("root mean square", "n", "n"),
    Call("square", "g", "u"),
    Call("add", "u", "u"),
    Call("decay", "r", "r"),
    Call("means of rows", "u", "r", _ROWS),
    Call("add", "rr", "r"),
    Call("decay", "c", "c"),
    Call("means of columns", "u", "c", _COLUMNS),
    Call("add", "cc", "c"),
    Call("mean of rows", "r", "n", _ROWS),
    Call("divide", "rn", "r"),
    Call("rsqrt", "r", "r"),
    Call("rsqrt", "c", "c"),
    Call("rows by columns", "rc", "u", EagerKernel.STRIDED),
    *_ENDING,
)
_WIDE_FLAT: Final = (
    Call("norm of weights", "w", "n", _ROWS),
    Call("root mean square", "n", "n"),
    Call("square", "g", "u"),
    Call("add", "u", "u"),
    Call("decay", "v", "v"),
    Call("add", "vu", "v"),
    Call("rsqrt", "v", "u"),
    *_ENDING,
)
_WIDENING: Final = (
    Call("gradient in fp32", "G", "g", EagerKernel.WIDEN),
    Call("weight in fp32", "W", "w", EagerKernel.WIDEN),
)
_NARROWING: Final = (Call("copy", "w", "W"),)
_READ_BY_HOST: Final = 4
"""Of torch's for each weight: its counter is raised and read, and so are two norms (.item())."""


@dataclass(frozen=True)
class Adafactor:
    """One of the two, at work on one rank."""

    wide: bool  # transformers'
    narrow: bool  # what it updates, and the gradients, are 16 bits wide
    flat: Any  # where weights are divided into flat pieces, plan by plan

    @property
    def element_bytes(self) -> float:
        """Of a second moment, and of what it computes with."""
        return BYTES["bf16"] if self.narrow and not self.wide else BYTES["fp32"]

    def state_bytes(self, held: Held) -> Size:
        """Second moments of what is this rank's own."""
        return self.element_bytes * np.where(self.flat, held.states, held.own_sides)

    def temporary_bytes(self, held: Held, piece: Size | None = None) -> Size:
        """What an update has alive at once: the last weight's result, for which Python has a name
        until it has the next, and of the weight at hand

            torch           V and then U in its place; of a vector g² as well
            transformers'   g² and g² + ε, later U and −U; of 16 bits g and w in fp32 beside these

        `piece`: elements of the flat pieces, where there is one at a time; else they are units, the
        root, which has both ends, before the blocks. Kernels' own buffers are not counted.
        """
        copies = 2.0 + 2.0 * self.narrow if self.wide else np.where(self.flat, 2.0, 1.0)
        whole = held.neighbours + (copies - 1.0) * held.widest
        if not np.any(self.flat):
            return self.element_bytes * whole
        if piece is None:
            root, share = held.embedding + held.head, held.states / np.maximum(held.all, 1.0)
            after = np.maximum(root, held.block) + copies * held.block
            alive = share * np.maximum(copies * root, after)
        else:
            alive = copies * piece
        return self.element_bytes * np.where(self.flat, alive, whole)

    @property
    def passes_bytes(self) -> float:
        """Bytes for each weight that its calls read and write."""
        size = Sizes(1.0, 0.0)
        letters = "".join(call.reads + call.writes for call in self.calls(bool(np.all(self.flat))))
        each = (BYTES["bf16"] if x.isupper() else self.element_bytes for x in letters if x != "n")
        return sum(
            b * float(size.of(x)) for x, b in zip(letters.replace("n", ""), each, strict=True)
        )

    def calls(self, flat: bool) -> tuple[Call, ...]:
        """Kernels for one weight, in their order."""
        if not self.wide:
            return _TORCH_FLAT if flat else _TORCH
        own = _WIDE_FLAT if flat else _WIDE
        return (*_WIDENING, *own, *_NARROWING) if self.narrow else own

    def update(self, clock: Clock, held: Held, own: Size) -> Update:
        """All weights of which `own` elements are updated here, each as large as their mean: the
        laws of these kernels are lines in their bytes. Vectors are their launches alone.
        """
        part = own / np.maximum(held.all, 1.0)
        whole = np.where(self.flat, 1.0, np.maximum(held.matrices * part, 1.0))
        vectors = np.where(self.flat, 0.0, (held.tensors - held.matrices) * part)
        side = np.maximum((held.sides + held.expert_sides) / np.maximum(held.matrices, 1.0), 2.0)
        size = Sizes(np.maximum(own / whole, 1.0), side / 2.0)
        one, few = self._each(clock, size), self._loop(clock, True, Sizes(1.0, 1.0))
        return Update(*(whole * m + vectors * f for m, f in zip(one, few, strict=True)))

    def _each(self, clock: Clock, size: Sizes) -> Update:
        """Of one weight, or of one flat piece."""
        if not np.any(self.flat):
            return self._loop(clock, False, size)
        flat = self._loop(clock, True, size)
        if np.all(self.flat):
            return flat
        whole = self._loop(clock, False, size)
        return Update(*(np.where(self.flat, f, w) for f, w in zip(flat, whole, strict=True)))

    def _loop(self, clock: Clock, flat: bool, size: Sizes) -> Update:
        """Its kernels run beside the host's calls, the same few again and again, as in the tight
        loop in which these were measured.
        """
        ops = [self.op(call, size) for call in self.calls(flat)]
        moved: Size = 0.0
        device: Size = 0.0
        for priced in clock.price_ops(ops):
            moved = moved + priced.work.bytes_read + priced.work.bytes_written
            device = device + priced.seconds
        host = sum(clock.host.alone_seconds(op) for op in ops)
        host += 0.0 if self.wide else _READ_BY_HOST * clock.host.alone_seconds(None)
        return Update(device + waiting_for_host(host, device), moved)

    def op(self, call: Call, size: Sizes) -> Op:
        """A call on a weight of a size."""
        own = BITS_PER_BYTE * self.element_bytes
        narrow = BITS_PER_BYTE * BYTES["bf16"]

        def tensors(letters: str) -> tuple[Tensor, ...]:
            return tuple(
                Tensor(x, (("elements", size.of(x)),), narrow if x.isupper() else own)
                for x in letters
            )

        reads, writes = tensors(call.reads), tensors(call.writes)
        if call.kernel is None:  # [r,1]·[1,c]: what it writes is all that takes time
            return Op(call.name, Kind.POINTWISE, reads, writes, variant=EagerKernel.FILL)
        facts: dict[str, Size] = {"indexed": 0.0}
        if call.kernel in (EagerKernel.STRIDED, EagerKernel.WIDEN):
            facts["indexed"] = size.all
        # A norm of everything is cut into pieces, so that no block has it alone (ATen/native/cuda/
        # Reduce.cuh, global_reduce): on an H200 235 MB take 65 us, 62 row by row, 70 by columns.
        if call.kernel is _ROWS and call.writes == "r":
            facts |= {"run": size.all / size.side, "pieces": size.side}
        if call.kernel is _COLUMNS:
            facts |= {"run": size.all / size.side, "pieces": size.side}
        kind = Kind.REDUCTION if call.kernel in (_ROWS, _COLUMNS) else Kind.POINTWISE
        return Op(call.name, kind, reads, writes, facts=facts, variant=call.kernel)


class Sizes(NamedTuple):
    """Elements of a weight."""

    all: Size
    side: Size

    def of(self, letter: str) -> Size:
        """Of what a letter stands for."""
        return {"r": self.side, "c": self.side, "n": 1.0}.get(letter, self.all)
