"""A Pass says how much work runs through the network; a Layout collects its ops in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trueflops.graph.build.adapters import TRAIN_ALL, Tuning, adapter_ops
from trueflops.graph.ir import Dims, Graph, Node, Op, Tensor
from trueflops.graph.kinds import Kind, Role
from trueflops.graph.variants import Variant
from trueflops.model import Parameter
from trueflops.sizes import Size


@dataclass(frozen=True)
class SparseKernel:
    """The kernel by which queries attend to the keys that an indexer chose for each."""

    head_tile: float = 1.0  # it runs multiples of so many heads; fewer are padded
    whole: bool = False  # walks over as many keys as can be chosen, though fewer are there
    scores: str = "fp8"  # the dtype in which the indexer multiplies
    masks: bool = False  # keys that lie on other ranks are walked over, too, and masked

    def keys(self, run: Pass, top: Size) -> Size:
        """Keys that it walks over for one query, on average."""
        return top + 0.0 * run.keys if self.whole else run.keys_seen(top)


@dataclass(frozen=True)
class Pass:
    """One run through the network: `batch` sequences, `seq` new tokens each, `past` in the cache.

    Training and prefill have past = 0; a decode step has seq = 1, or, where it verifies drafted
    tokens, as many as each sequence is given.
    """

    batch: Size
    seq: Size
    past: Size = 0.0
    training: bool = True
    decoding: bool = False
    dtype: str = "bf16"
    bits: float = 16.0
    cache_bits: float = 16.0
    shared_beside: bool = False  # whether shared experts run on a stream beside the routed ones
    expert_block: float = 0.0  # rows that each expert's share is rounded up to, where it is
    stream_bits: float = 0.0  # of the residual stream, where it is wider than what products read
    sparse: SparseKernel | None = None  # None: every query sees all keys, indexer or not

    @property
    def keys(self) -> Size:
        """Old and new tokens of a sequence together."""
        return self.past + self.seq

    def keys_seen(self, window: Size, chunked: bool = False) -> Size:
        """Mean number of keys that a query sees under the causal mask and the window.

        A chunked layer (Llama 4) sees from the start of its own chunk: half of it on average.
        """
        if not np.any(window):
            return self.past + (self.seq + 1.0) / 2.0
        if chunked:
            mean = np.minimum(self.keys, self.past + (self.seq + 1.0) / 2.0)
            return np.minimum(np.maximum(mean, 1.0), (window + 1.0) / 2.0)
        # Queries that the window does not yet cut.
        growing = np.minimum(np.maximum(window - self.past, 0.0), self.seq)
        ramp = growing * (self.past + (growing + 1.0) / 2.0)
        return np.minimum(self.keys, (ramp + (self.seq - growing) * window) / self.seq)

    def keys_read(self, window: Size, chunked: bool = False) -> Size:
        """Keys and values that some query of the pass needs."""
        if not np.any(window):
            return self.keys
        behind = (window - 1.0) / 2.0 if chunked else window - 1.0
        return np.minimum(self.keys, self.seq + behind)


class Layout:
    """Collects ops in order; tensors are named after what makes them."""

    def __init__(
        self,
        run: Pass,
        hidden: int,
        parameters: Sequence[Parameter],
        tuning: Tuning = TRAIN_ALL,
        streams: int = 1,
    ) -> None:
        self.run, self.hidden, self.tuning, self.streams = run, float(hidden), tuning, streams
        self.parameters = {p.name: p for p in parameters}
        self.nodes: list[Node] = []

    @property
    def tokens(self) -> Dims:
        """The dimensions every activation starts with."""
        return (("batch", self.run.batch), ("seq", self.run.seq))

    def tensor(self, name: str, *dims: tuple[str, float], bits: float = 0.0) -> Tensor:
        """An activation: batch × seq × dims."""
        return Tensor(name, (*self.tokens, *dims), bits or self.run.bits)

    def stream(self, name: str) -> Tensor:
        """An activation of the residual stream, or of all of them: batch × seq × hidden."""
        several = (("streams", float(self.streams)),) if self.streams > 1 else ()
        return self.tensor(name, *several, ("hidden", self.hidden), bits=self.run.stream_bits)

    def branch(self, name: str, x: Tensor) -> Tensor:
        """What a sublayer adds to the residual stream, made from x: alike in shape."""
        return self.tensor(name, ("hidden", self.hidden), bits=self.made_bits(x))

    def made_bits(self, x: Tensor) -> float:
        """How wide a linear layer's result is: as its product, or as what went in."""
        return max(x.bits, self.run.bits) if self.tuning.returns_wide else self.run.bits

    def weights(self, *names: str) -> tuple[Tensor, ...]:
        """Parameters as tensors, each followed by its bias."""
        found = []
        frozen = self.tuning.freezes
        role, bits = Role.FROZEN if frozen else Role.WEIGHT, self.run.bits
        if frozen:
            bits = self.tuning.frozen_bits
        for name in names:
            p = self.parameters[name]
            found.append(Tensor(name, p.dims, bits, role=role))
            if p.bias:
                found.append(Tensor(f"{name}.bias", p.bias, bits, role=role))
        return tuple(found)

    def op(
        self,
        kind: Kind,
        name: str,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        weights: tuple[Tensor, ...] = (),
        *,
        part: str = "",
        variant: Variant | None = None,
        dtype: str = "",
        **facts: Size,
    ) -> Tensor:
        """Append an op; its first output is returned, so that layouts read like formulas."""
        part = part or name.split(".")[0]
        self.nodes.append(
            Op(
                name,
                kind,
                tuple(inputs),
                tuple(outputs),
                weights=weights,
                dtype=dtype or self.run.dtype,
                part=part,
                facts=facts,
                variant=variant,
            )
        )
        return outputs[0]

    def norm(self, name: str, x: Tensor) -> Tensor:
        """Normalise over the last dimension; a norm without a gain has no parameter."""
        out = Tensor(f"{name}.out", x.dims, x.bits)
        gain = self.weights(name) if name in self.parameters else ()
        return self.op(Kind.NORM, name, [x], [out], gain, part="norm", flop_per_element=5.0)

    def linear(
        self, names: Sequence[str], x: Tensor, outs: Sequence[Tensor], **facts: float
    ) -> Tensor:
        """One product of x with one or more weights side by side, and what adapters add to it."""
        weights, narrow = self.weights(*names), self.narrowed(x)
        made = [self.tuning.base_of(t, name) for t, name in _makers(outs, names)]
        written = [self._as_product_makes(t) for t in made]
        self.op(
            Kind.MATMUL,
            names[0],
            [narrow],
            written,
            weights,
            part="",
            variant=None,
            dtype="",
            **facts,
        )
        base = self.nodes[-1]
        for own_width, wide in zip(written, made, strict=True):
            if own_width is not wide:
                self.op(Kind.CAST, f"{wide.name}.widen", [own_width], [wide])
        for group in self.tuning.together(names):
            own = [i for i, (_, maker) in enumerate(_makers(outs, names)) if maker in group]
            layers = [self.parameters[name] for name in group]
            terms, results = [made[i] for i in own], [outs[i] for i in own]
            assert isinstance(base, Op)
            self.nodes += adapter_ops(self.tuning, base, layers, x, terms, results)
        return outs[0]

    def _as_product_makes(self, result: Tensor) -> Tensor:
        """A result in the width of its product, the result itself where it has that."""
        if not self.tuning.returns_wide or result.bits <= self.run.bits:
            return result
        return Tensor(f"{result.name}.product", result.dims, self.run.bits)

    def narrowed(self, x: Tensor) -> Tensor:
        """What a product reads of a wider stream: autocast's copy."""
        if x.bits <= self.run.bits:
            return x
        narrow = Tensor(f"{x.name}.narrow", x.dims, self.run.bits)
        return self.op(Kind.CAST, f"{x.name}.cast", [x], [narrow])

    def dropout(self, name: str, x: Tensor, rate: float, part: str = "") -> Tensor:
        """Drop and remember where: the mask takes a byte per element."""
        if not (rate and self.run.training):
            return x
        out = Tensor(f"{name}.out", x.dims, x.bits)
        mask = Tensor(f"{name}.mask", x.dims, 8.0, role=Role.INDEX)
        return self.op(Kind.DROPOUT, name, [x], [out, mask], part=part)

    def graph(self, name: str, result: Tensor) -> Graph:
        """Everything laid out so far."""
        return Graph(name, tuple(self.nodes), result)


def _makers(outs: Sequence[Tensor], names: Sequence[str]) -> list[tuple[Tensor, str]]:
    """Every result with the weight that makes it; one weight may be cut into several."""
    makers = names if len(names) == len(outs) else [names[0]] * len(outs)
    return list(zip(outs, makers, strict=True))
