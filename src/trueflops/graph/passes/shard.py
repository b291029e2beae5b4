"""Sharding: from the graph of a whole model replica to that of one rank, collectives included.

An op that touches a dimension split by tensor parallelism (heads, ffn, vocab) runs in the `tensor`
layout; an op on experts in the `expert` layout; all others in the `token` layout, where sequence
parallelism also splits the sequence. Collectives appear exactly where a tensor changes layout
(Shoeybi 2019, Korthikanti 2022). Degrees may be arrays: a group of one costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from trueflops.graph.ir import Collective, Graph, Node, Op, Tensor
from trueflops.graph.kinds import LAID_OUT_ATTENTION, CollectiveKind, Kind, Role
from trueflops.graph.rules import STATISTIC_BITS
from trueflops.sizes import Size

Layout = Literal["token", "tensor", "partial", "expert", "expert_partial"]
TENSOR_DIMS = ("heads", "kv_heads", "ffn", "vocab")
EXPERT_DIMS = ("experts", "expert_ffn", "routed")
_ADD, _CAST, _COMBINE = Kind.ADD, Kind.CAST, Kind.COMBINE  # bound once: see graph/kinds.py
_PERMUTING = frozenset({Kind.DISPATCH, Kind.COMBINE})
_OVER_VOCABULARY = frozenset({Kind.CROSS_ENTROPY, Kind.SAMPLE})
_RECURRENT = frozenset({Kind.RECURRENCE, Kind.CHUNKED, Kind.SCANNED})


@dataclass(frozen=True)
class Degrees:
    """How many ways each axis splits the work of one replica."""

    tp: Size = 1
    sp: bool = False
    cp: Size = 1
    cp_kind: Literal["ring", "all-to-all"] = "ring"
    ep: Size = 1
    etp: Size = 1
    copies_once: float = 0.0  # experts a token is sent to, where one copy a node is forwarded there
    gathered_once: float = 1.0
    """Experts a token is sent to, where ranks that split every expert gather the tokens before they
    are copied and sum the answers before they return, as serving engines do (SGLang's dp_gather and
    dp_scatter, vLLM's allgather_reducescatter); Megatron gathers the copies: 1."""
    experts_within_tp: bool = False  # whether ranks that hold the same tokens have all experts

    @property
    def token_replicas(self) -> Size:
        """How many ranks of an expert group hold the same tokens: those of tp, without sp."""
        return 1.0 if self.sp else np.minimum(self.tp, self.ep * self.etp)


def shard(graph: Graph, by: Degrees) -> Graph:
    """The forward graph of one rank."""
    at = _Sharder(by)
    for node in graph.forward:
        assert isinstance(node, Op)
        at.place(node)
    result = at.as_layout(graph.result, "token")
    return replace(graph, forward=tuple(at.nodes), result=result)


class _Sharder:
    def __init__(self, by: Degrees) -> None:
        self.by = by
        self.nodes: list[Node] = []
        self.here: dict[tuple[str, Layout], Tensor] = {}  # every form in which a tensor exists
        self.layout: dict[str, Layout] = {}  # the form in which it was made
        self.keys = Tensor("none", ())  # of the attention being placed
        self.whole: set[str] = set()  # tensors of whole sequences, some heads to a rank of cp
        self.traded: dict[str, Tensor] = {}  # what was brought into the other of these forms
        degrees = (by.tp, by.cp, by.ep, by.etp)
        self.alone = not any(isinstance(d, np.ndarray) or d != 1 for d in degrees)

    def place(self, op: Op) -> None:
        """Put one op on the rank: bring its inputs into its layout, shrink what it makes."""
        layout = self._layout_of(op)
        made = self._layout_made(op, layout)
        # Partial sums are added before they are reduced: one all-reduce for a parallel block.
        wanted: Layout = "partial" if op.kind is _ADD and made == "partial" else layout
        inputs = tuple(self.as_layout(t, wanted) for t in op.inputs)
        outputs = tuple(self._local(t, made) for t in op.outputs)
        for whole, local in zip(op.outputs, outputs, strict=True):
            self.here[whole.name, made], self.layout[whole.name] = local, made
        facts = dict(op.facts)
        if "rows_bytes" in facts:
            facts["rows_bytes"] = facts["rows_bytes"] * (
                outputs[0].elements / op.outputs[0].elements
            )
        if op.part == "core" and self.by.cp_kind == "all-to-all":
            inputs = self._swap_in(op, inputs)
        elif op.kind in LAID_OUT_ATTENTION:
            self._ring(op, inputs, facts)
        if op.part == "recurrent" or self.whole:
            inputs = self._in_sequence(op, inputs)
        if op.kind in _OVER_VOCABULARY:
            inputs = self._over_vocabulary(op, inputs, outputs)
        if facts.pop("sums_across", 0.0):  # of a norm whose width ranks split: a sum for each row
            rows = Tensor(f"{op.name}.squares", outputs[0].dims[:2], STATISTIC_BITS)
            self._emit(CollectiveKind.ALL_REDUCE, "tp", self.by.tp, rows, rows, rows)
        weights = tuple(self._local(w, layout) for w in op.weights)
        self.nodes.append(op.changed(inputs=inputs, outputs=outputs, weights=weights, facts=facts))
        if self.by.cp_kind == "all-to-all" and op.kind is Kind.CONTEXT:
            self._swap_out(op.outputs[0], outputs[0])

    def as_layout(self, t: Tensor, layout: Layout) -> Tensor:
        """The tensor in this layout, through a collective if it was made in another."""
        made = self.layout.get(t.name)
        if made is None:  # an input of the graph: the residual stream, ids
            self.layout[t.name] = made = "token"
            self.here[t.name, made] = self._local(t, made)
        if (t.name, layout) not in self.here:
            self.here[t.name, layout] = self._move(t, made, layout)
        return self.here[t.name, layout]

    def _move(self, t: Tensor, made: Layout, wanted: Layout) -> Tensor:
        by, source = self.by, self.here[t.name, made]
        if t.role is Role.INDEX and wanted == "tensor":  # ids and labels are on every rank
            return self._local(t, wanted)
        if made == "token" and wanted == "tensor":
            gathered = self._renamed(t, "tensor", ".gathered" if by.sp else ".copied")
            return self._emit(
                CollectiveKind.ALL_GATHER if by.sp else CollectiveKind.COPY,
                "tp",
                by.tp,
                gathered,
                source,
                gathered,
            )
        if made == "partial" and wanted == "token":
            whole = self._renamed(t, "tensor", "")
            kept = self._renamed(t, "token", ".reduced")
            return self._emit(
                CollectiveKind.REDUCE_SCATTER if by.sp else CollectiveKind.ALL_REDUCE,
                "tp",
                by.tp,
                whole,
                source,
                kept,
            )
        if made == "partial" and wanted == "tensor":
            return self._move_via_token(t, wanted)
        if made == "token" and wanted == "expert":
            return self._dispatch(t, source)
        if made in ("expert", "expert_partial") and wanted == "token":
            return self._return(t, source)
        # Tensor-parallel activations already whole on each rank, such as a loss over all tokens.
        return source

    def _move_via_token(self, t: Tensor, wanted: Layout) -> Tensor:
        self.here[t.name, "token"] = self._move(t, "partial", "token")
        return self._move(t, "token", wanted)

    def _dispatch(self, t: Tensor, source: Tensor) -> Tensor:
        """Tokens to their experts: all-to-all over ep, then every member of etp gets them all.

        Without sequence parallelism the ranks of tp hold the same tokens already, and pick theirs.
        """
        local = self._renamed(t, "expert", ".arrived")
        copies = self.by.copies_once
        if not self.by.sp:
            self._emit(CollectiveKind.ALL_TO_ALL, "ep", self._expert_span(), source, source, local,
                       copies=copies)  # fmt: skip
            return self._sorted(local, ".sorted")
        sent = self._renamed(t, "token", ".sent")
        sent = self._emit(
            CollectiveKind.ALL_TO_ALL, "ep", self.by.ep, source, source, sent, copies=copies
        )
        whole = self._once(local)
        return self._sorted(
            self._emit(CollectiveKind.ALL_GATHER, "etp", self.by.etp, whole, sent, local), ".sorted"
        )

    def _once(self, t: Tensor) -> Tensor:
        """What is sent of it where a token travels once, and not once for each of its experts."""
        once = self.by.gathered_once if np.all(self.by.ep == 1) else 1.0
        return replace(t, dims=tuple((n, s / once if n == "routed" else s) for n, s in t.dims))

    def _sorted(self, t: Tensor, suffix: str) -> Tensor:
        """What arrives by rank is sorted by expert, and back again: one more pass over all rows."""
        if not isinstance(self.by.ep, np.ndarray) and self.by.ep == 1:
            return t
        made = t.renamed(t.name + suffix)
        self.nodes.append(Op(f"{t.name}.sort", Kind.STREAM, (t,), (made,), part="experts"))
        return made

    def _return(self, t: Tensor, source: Tensor) -> Tensor:
        """Answers back to their tokens: the mirror of dispatch."""
        back, part = self._renamed(t, "token", ".returned"), self._sorted(source, ".unsorted")
        if self.by.sp:
            summed = self._renamed(t, "token", ".answer")
            whole = self._once(part)
            part = self._emit(
                CollectiveKind.REDUCE_SCATTER, "etp", self.by.etp, whole, part, summed
            )
        return self._emit(CollectiveKind.ALL_TO_ALL, "ep", self._expert_span(), back, part, back,
                          copies=self.by.copies_once)  # fmt: skip

    def _expert_span(self) -> Size:
        """Over how many ranks that hold different tokens the experts are spread."""
        if self.by.sp:
            return self.by.ep
        if self.by.experts_within_tp:
            return 1.0
        return self.by.ep * self.by.etp / self.by.token_replicas

    def _over_vocabulary(
        self, op: Op, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """What ranks must exchange that each hold the logits of a part of the vocabulary."""
        tp = self.by.tp
        if op.kind is Kind.SAMPLE:  # one rank must see all logits
            whole = self._renamed(op.inputs[0], "token", ".gathered")
            return (self._emit(CollectiveKind.ALL_GATHER, "tp", tp, whole, inputs[0], whole),)
        # maximum, sum and the label's logit
        three = Tensor("loss.parts", (("parts", 3.0), *outputs[0].dims), outputs[0].bits)
        self._emit(CollectiveKind.ALL_REDUCE, "tp", tp, three, three, three)
        return inputs

    def _ring(self, op: Op, inputs: tuple[Tensor, ...], facts: dict[str, Size]) -> None:
        """Ring attention (arXiv 2310.01889): keys and values of all ranks pass by each one, beside
        the products with them; a windowed layer needs only the blocks its window reaches.
        """
        cp = self.by.cp
        if not isinstance(cp, np.ndarray) and cp == 1:
            return
        local, window = dict(inputs[1].dims)["seq"], op.facts["window"]
        others = np.maximum(local * (cp - 1.0), 1.0)
        needed = np.minimum(window / others, 1.0) if np.any(window) else 1.0
        facts["steps"] = 1.0 + (cp - 1.0) * needed
        if op.kind is Kind.SCORES:
            self.keys = inputs[1]
            return
        k, v = self.keys, inputs[1]
        both = Tensor("kv.ring", (("elements", (k.elements + v.elements) * needed),), k.bits)
        self._emit(CollectiveKind.SEND_RECV, "cp", cp, both, both, both, part="core", hides=True)

    def _swap_in(self, op: Op, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """DeepSpeed-Ulysses (arXiv 2309.14509): heads and sequence trade places before the core."""
        if op.kind not in LAID_OUT_ATTENTION:
            return inputs
        swapped = list(inputs)
        for i in (0, 1) if op.kind is Kind.SCORES else (1,):
            t = inputs[i]
            out = t.renamed(f"{t.name}.swapped")
            swapped[i] = self._emit(
                CollectiveKind.ALL_TO_ALL, "cp", self.by.cp, t, t, out, part="core"
            )
        return tuple(swapped)

    def _swap_out(self, whole: Tensor, local: Tensor) -> None:
        """… and back after it."""
        out = local.renamed(f"{local.name}.swapped")
        back = self._emit(
            CollectiveKind.ALL_TO_ALL, "cp", self.by.cp, local, local, out, part="core"
        )
        self.here[whole.name, "tensor"] = back

    def _in_sequence(self, op: Op, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """A state passes from token to token: before its kernels heads and sequence trade places,
        whatever attention does, and back after them (Megatron's MambaContextParallel, which sends
        the gate there and back as well).
        """
        wanted = op.kind in _RECURRENT
        found = list(inputs)
        for i, t in enumerate(inputs):
            if t.role is not Role.ACTIVATION or (t.name in self.whole) is wanted:
                continue
            if t.name not in self.traded:
                out = t.renamed(f"{t.name}.{'whole' if wanted else 'parted'}")
                sent = self._emit(CollectiveKind.ALL_TO_ALL, "cp", self.by.cp, t, t, out)
                self.traded[t.name] = sent
            found[i] = self.traded[t.name]
        if wanted:
            self.whole |= {t.name for t in op.outputs}
        return tuple(found)

    def _emit(
        self,
        kind: CollectiveKind,
        axis: str,
        group: Size,
        payload: Tensor,
        source: Tensor,
        out: Tensor,
        part: str = "",
        hides: bool = False,
        copies: float = 0.0,
    ) -> Tensor:
        if np.all(group == 1):
            return source  # a group of one has nobody to talk to
        self.nodes.append(
            Collective(
                f"{out.name}.{kind}",
                kind,
                axis=axis,
                group=group,
                payload=payload,
                source=source,
                outputs=(out,),
                part=part or axis,
                hides=hides,
                copies=copies,
            )
        )
        return out

    def _layout_of(self, op: Op) -> Layout:
        touched = (*op.inputs, *op.weights, *op.outputs)
        if op.kind is _CAST:  # narrow where it was made: what is sent on is then narrow too
            return self.layout.get(op.inputs[0].name, "token")
        if op.kind in _PERMUTING:
            return "token"
        if any(t.has(*EXPERT_DIMS) for t in touched):
            return "expert"
        return "tensor" if any(t.has(*TENSOR_DIMS) for t in touched) else "token"

    def _layout_made(self, op: Op, layout: Layout) -> Layout:
        """The layout of what the op makes: partial where each rank holds one term of a sum."""
        if op.kind is _ADD and all(self.layout.get(t.name) == "partial" for t in op.inputs):
            return "partial"
        if op.kind is _COMBINE and not self.by.sp:
            return "partial"  # each rank of tp had only its own experts, or its slice of them
        split = {"tensor": TENSOR_DIMS, "expert": ("expert_ffn",)}.get(layout, ())
        sums = any(t.has(*split) for t in op.weights) and not any(t.has(*split) for t in op.outputs)
        if not sums:
            return layout
        return "expert_partial" if layout == "expert" else "partial"

    def _token_split(self) -> Size:
        return self.by.cp * (self.by.tp if self.by.sp else 1.0)

    def _renamed(self, t: Tensor, layout: Layout, suffix: str) -> Tensor:
        local = self._local(t, layout)
        return local.renamed(local.name + suffix)

    def _local(self, t: Tensor, layout: Layout) -> Tensor:
        """The rank's own part of a tensor."""
        if self.alone:
            return t
        dims = tuple((n, self._part(n, s, layout)) for n, s in t.dims)
        return Tensor(t.name, dims, t.bits, t.role)

    def _part(self, name: str, size: Size, layout: Layout) -> Size:
        by = self.by
        if name == "seq":
            return size / (self._token_split() if layout == "token" else by.cp)
        if name == "kv_heads":  # fewer than tp: replicated, at least one on each rank
            return np.maximum(size / by.tp, np.minimum(size, 1.0))
        if name in TENSOR_DIMS:
            return size / by.tp
        if name == "experts":
            return size / by.ep
        if name == "expert_ffn":
            return size / by.etp
        if name == "routed":
            local = size / self._token_split()
            if by.sp and not layout.startswith("expert"):
                return local
            return local * by.etp / by.token_replicas
        return size
