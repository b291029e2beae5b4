"""The IR: tensors with named dimensions, ops that read and write them, graphs of ops.

A Tensor's sizes may be arrays, one element per plan, and everything derived broadcasts.
Flop and bytes are not stored: `graph.rules` derives them from the tensors, before and after
sharding alike. The IR knows no hardware. Nothing here is changed once made; the classes are not
frozen only because a prediction makes hundreds of them and frozen ones take three times as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any, Final, Literal, Self

from trueflops.graph.kinds import WEIGHTS, CollectiveKind, Function, Kind, Role
from trueflops.graph.variants import Variant
from trueflops.sizes import Size
from trueflops.units import BITS_PER_BYTE

Phase = Literal["forward", "recompute", "backward", "backward_weight"]
Dims = tuple[tuple[str, Size], ...]
_WGRAD = Kind.WGRAD  # bound once: see graph/kinds.py


class Changeable:
    """Passes change some fields of thousands of nodes; dataclasses.replace takes thrice as long."""

    __slots__ = ()

    def changed(self, **others: Any) -> Self:
        """The same but for these fields."""
        same = object.__new__(type(self))
        for name in _FIELDS[type(self)]:
            setattr(same, name, others[name] if name in others else getattr(self, name))
        return same


@dataclass(slots=True, eq=False)
class Tensor:
    """A named value. `index` tensors (ids, masks) carry no gradient."""

    name: str
    dims: Dims
    bits: float = 16.0
    role: Role = Role.ACTIVATION
    elements: Size = field(init=False)
    bytes: Size = field(init=False)

    def __post_init__(self) -> None:
        """Multiply the dims once; every reader needs the product."""
        count: Size = 1.0
        for _, size in self.dims:
            count = count * size
        self.elements = count
        self.bytes = count * (self.bits / BITS_PER_BYTE)

    def has(self, *names: str) -> bool:
        """Whether any of these dimensions is one of the tensor's."""
        for name, _ in self.dims:  # noqa: SIM110  (called thousands of times a prediction)
            if name in names:
                return True
        return False

    def renamed(self, name: str) -> Tensor:
        """The same value under another name: passes rename thousands, so nothing is multiplied."""
        if name == self.name:
            return self
        same = Tensor.__new__(Tensor)
        same.name, same.dims, same.bits, same.role = name, self.dims, self.bits, self.role
        same.elements, same.bytes = self.elements, self.bytes
        return same

    def resized(self, dims: Dims, elements: Size, count: Size) -> Tensor:
        """The same value with sizes that were worked out elsewhere: see graph/template.py."""
        same = Tensor.__new__(Tensor)
        same.name, same.dims, same.bits, same.role = self.name, dims, self.bits, self.role
        same.elements, same.bytes = elements, count
        return same

    def gradient(self) -> Tensor:
        """The tensor's gradient: alike in shape, and never narrower than 16 bits."""
        if self.bits >= 16.0:
            return self.renamed("d_" + self.name)
        return Tensor("d_" + self.name, self.dims, 16.0, self.role)


@dataclass(slots=True, eq=False)
class Op(Changeable):
    """One kernel. `kind` picks its rule; `facts` holds the few numbers its tensors cannot say."""

    name: str
    kind: Kind
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    _: KW_ONLY
    weights: tuple[Tensor, ...] = ()
    dtype: str = "bf16"
    part: str = ""  # where in the block it stands: attention, core, ffn, experts, norm, …
    facts: dict[str, Size] = field(default_factory=dict)
    fused: tuple[Op, ...] = ()  # what it was merged from
    of: Op | None = None  # the forward op that this one differentiates
    function: Function | None = None  # of PyTorch, where it is one eager kernel: functions.py
    variant: Variant | None = None  # whose kernel or which format, where not the usual one

    def resized(
        self,
        inputs: tuple[Tensor, ...],
        outputs: tuple[Tensor, ...],
        weights: tuple[Tensor, ...],
        facts: dict[str, Size],
        fused: tuple[Op, ...],
        of: Op | None,
    ) -> Op:
        """The same op at other sizes: field by field, as it is done for every op of an answer."""
        same = Op.__new__(Op)
        same.name, same.kind, same.dtype, same.part = self.name, self.kind, self.dtype, self.part
        same.function, same.variant = self.function, self.variant
        same.inputs, same.outputs, same.weights = inputs, outputs, weights
        same.facts, same.fused, same.of = facts, fused, of
        return same

    def __repr__(self) -> str:
        ins = ", ".join(t.name for t in (*self.inputs, *self.weights))
        return f"{', '.join(t.name for t in self.outputs)} = {self.kind}[{self.name}]({ins})"


@dataclass(slots=True, eq=False)
class Collective(Changeable):
    """Communication within a group of ranks along one axis of the plan (tp, cp, ep, dp, pp).

    `payload` is the whole buffer that nccl-tests would name: for an all-gather the gathered
    result, for a reduce-scatter the full input, for an all-to-all what one rank holds.
    """

    name: str
    kind: CollectiveKind
    _: KW_ONLY
    axis: str
    group: Size
    payload: Tensor
    source: Tensor | None = None
    outputs: tuple[Tensor, ...] = ()
    part: str = ""
    hides: bool = False  # runs beside the compute of the same part (ring attention)
    copies: float = 0.0  # of each token in an expert dispatch: what could be sent once per node
    library: str = ""  # whose kernel it is, where not the vendor's collective library

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What is sent."""
        return (self.source,) if self.source is not None else ()

    def __repr__(self) -> str:
        return f"{self.kind}[{self.name} over {self.axis}]"


Node = Op | Collective
_FIELDS: Final[dict[type, tuple[str, ...]]] = {
    each: tuple(field.name for field in fields(each)) for each in (Op, Collective)
}


@dataclass(slots=True, eq=False)
class Kept:
    """A tensor that must survive until the backward of the op that needs it."""

    tensor: Tensor
    needed_by: str


@dataclass(frozen=True, slots=True)
class Graph:
    """Ops of one piece of a model on one rank: a block, the embedding, or the head.

    `recompute` lists forward nodes that run a second time.
    """

    name: str
    forward: tuple[Node, ...]
    result: Tensor
    _: KW_ONLY
    backward: tuple[Node, ...] = ()
    recompute: tuple[Node, ...] = ()
    kept: tuple[Kept, ...] = ()

    def __iter__(self) -> Iterator[Node]:
        return iter((*self.forward, *self.backward))

    def phases(self) -> list[tuple[Phase, Node]]:
        """Every node as often as it runs, with the phase it runs in."""
        found: list[tuple[Phase, Node]] = [("forward", node) for node in self.forward]
        found += [("recompute", node) for node in self.recompute]
        for node in self.backward:
            is_weight = isinstance(node, Op) and node.kind is _WGRAD
            found.append(("backward_weight" if is_weight else "backward", node))
        return found

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """Every weight once, trained or frozen, in order of first use."""
        forward_ops = (node for node in self.forward if isinstance(node, Op))
        return unique(w for op in forward_ops for w in op.weights if w.role in WEIGHTS)

    @property
    def kept_tensors(self) -> tuple[Tensor, ...]:
        """What a micro-batch leaves in memory between its forward and its backward, each once."""
        return unique(k.tensor for k in self.kept)


def unique(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Each tensor once (by name), in order of first appearance."""
    return tuple({t.name: t for t in tensors}.values())
