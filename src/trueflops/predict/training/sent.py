"""What one rank hands to collectives in a step, as PyTorch's own engine carries a plan out.

In: a model, a plan, a workload. Out: payloads by axis and kind, to the byte, padding included.
Inside layers: the collectives of the rank's program (graph/passes/shard.py). Between replicas:
DDP sums every gradient once; ZeroRedundancyOptimizer broadcasts every updated tensor; fully_shard
gathers and scatters a layer, or the root with both ends, as one buffer (_fsdp_collectives.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from trueflops.graph import Graph, compile_program
from trueflops.graph.ir import Collective
from trueflops.graph.kinds import CollectiveKind
from trueflops.model import Model
from trueflops.plan import BYTES, Plan
from trueflops.plan.pieces import deal
from trueflops.plan.shares import Share, block_shares, embedding_shares, head_shares
from trueflops.predict.costs import training_pass
from trueflops.workload import Training

COUNT_BYTES: Final = 8  # of one number of rows, an int64, that ranks of ep tell one another
_Key = tuple[str, CollectiveKind, int]


@dataclass(frozen=True)
class Sent:
    """Collectives of one kind along one axis, in one step of one rank."""

    axis: str
    kind: CollectiveKind
    group: int  # ranks
    payload: float  # bytes of all whole buffers, as nccl-tests names them
    calls: int = 0  # 0 where nobody counted

    @property
    def sent(self) -> float:
        """Bytes that leave the rank, the mean of the group where one of them broadcasts: a ring
        passes (n−1)/n of a buffer round, a sum twice (Patarasuk and Yuan 2009).
        """
        others = (self.group - 1.0) / self.group
        if self.kind is CollectiveKind.SEND_RECV:
            return self.payload
        return self.payload * others * (2.0 if self.kind is CollectiveKind.ALL_REDUCE else 1.0)


def joined(every: Iterable[Sent], axes: Iterable[str]) -> tuple[Sent, ...]:
    """The same where one process group serves several axes, named as in `axes`: "cp+dp"."""
    named = {part: axis for axis in axes for part in axis.split("+")}
    total: dict[_Key, float] = defaultdict(float)
    for each in every:
        total[named.get(each.axis, each.axis), each.kind, each.group] += each.payload
    return tuple(Sent(*key, payload) for key, payload in sorted(total.items()))


@dataclass(frozen=True)
class Part:
    """The layers that a rank holds next to one another, and the ends that it has."""

    layers: range
    first: bool
    last: bool
    receives: bool = False  # its neighbours along the pipeline are other ranks
    passes_on: bool = False


def places(plan: Plan, stage: int) -> list[int]:
    """Which pieces along the pipeline a stage holds: in a loop, those of zb-v in a V."""
    pp = int(plan.pp)
    if plan.schedule == "zb-v" and pp > 1:
        return [stage, 2 * pp - 1 - stage]
    return [stage + turn * pp for turn in range(int(plan.pieces) if pp > 1 else 1)]


def parts(model: Model, plan: Plan, stage: int) -> dict[int, Part]:
    """By its place along the pipeline each piece of a stage."""
    pp, each = int(plan.pp), int(plan.pieces) if plan.pp > 1 else 1
    dealt = deal(model.layers, pp, each, int(plan.first_stage_layers), int(plan.last_stage_layers))
    own, most = places(plan, stage), pp * each - 1
    found = {}
    for number in own:
        start = sum(dealt[:number])
        found[number] = Part(
            range(start, start + dealt[number]),
            number == 0,
            number == most,
            receives=number > 0 and number - 1 not in own,
            passes_on=number < most and number + 1 not in own,
        )
    return found


def sent_bytes(model: Model, plan: Plan, workload: Training, stage: int = 0) -> tuple[Sent, ...]:
    """What a rank of a stage sends in one step; of ep the mean of its ranks, as routing decides."""
    total: dict[_Key, float] = defaultdict(float)
    held = parts(model, plan, stage)
    m = float(plan.micro_batches(workload.global_batch))
    _inside(total, model, plan, workload, held.values(), m)
    for part in held.values():
        _between(total, model, plan, part, m)
        boundary = _boundary(model, plan, workload)
        for there in (part.receives, part.passes_on):
            total["pp", CollectiveKind.SEND_RECV, int(plan.pp)] += m * boundary * there
    return tuple(
        Sent(axis, kind, group, payload)
        for (axis, kind, group), payload in sorted(total.items())
        if payload and group > 1
    )


def _boundary(model: Model, plan: Plan, workload: Training) -> float:
    """The activation that stages hand on: every rank of tp a whole one, or its piece under sp."""
    split = plan.cp * (plan.tp if plan.sp else 1)
    width = model.streams * model.hidden
    return float(plan.micro_batch * workload.seq / split * width * plan.wide_bytes)


def _inside(
    total: dict[_Key, float],
    model: Model,
    plan: Plan,
    workload: Training,
    held: Iterable[Part],
    m: float,
) -> None:
    """Collectives between the ops of layers, embedding and head."""
    program = compile_program(model, plan, training_pass(plan, workload.seq))
    again = program.recomputing if plan.recompute != "none" else program.blocks
    for part in held:
        limit = plan.recompute_layers
        for place, layer in enumerate(part.layers):
            kinds = again if place < limit else program.blocks
            _of_graph(total, plan, kinds[model.pattern[layer]], m)
            experts = model.blocks[model.pattern[layer]].experts
            if experts and plan.ep > 1:
                told = COUNT_BYTES * experts.count * (2 if kinds is not program.blocks else 1)
                total["ep", CollectiveKind.ALL_TO_ALL, int(plan.ep)] += m * told
        for there, graph in ((part.first, program.embedding), (part.last, program.head)):
            if there:
                _of_graph(total, plan, graph, m)


def _of_graph(total: dict[_Key, float], plan: Plan, graph: Graph, m: float) -> None:
    forward = {id(node) for node in graph.forward}
    for phase, node in graph.phases():
        # Megatron gathers a sequence-parallel input once more; DTensor's autograd keeps it.
        gathers_again = phase == "backward" and id(node) in forward
        if not isinstance(node, Collective) or gathers_again:
            continue
        kind, payload = node.kind, float(node.payload.bytes)
        if kind is CollectiveKind.COPY:
            continue
        if node.axis == "cp":  # keys and values are gathered, and their gradients scattered
            back = phase == "backward"
            kind = CollectiveKind.REDUCE_SCATTER if back else CollectiveKind.ALL_GATHER
            payload = payload * float(plan.cp) / (2.0 if back else 1.0)
        total[node.axis, kind, int(node.group)] += m * payload


def _between(total: dict[_Key, float], model: Model, plan: Plan, part: Part, m: float) -> None:
    """What replicas exchange of one piece; through_one.py has the older engines."""
    if plan.engine != "ddp":
        return
    ends = embedding_shares(model, plan) if part.first else []
    ends += head_shares(model, plan) if part.last else []
    units = [block_shares(model, plan, layer) for layer in part.layers]
    apart = plan.ep > 1
    dense = [[s for s in unit if not (apart and s.axis == "ep")] for unit in (*units, ends)]
    routed = [[s for s in unit if apart and s.axis == "ep"] for unit in units]
    share, replicas = int(plan.dp_shard * plan.cp), int(plan.dp * plan.cp)
    shared = plan.zero >= 2 and share > 1
    whole, few = BYTES[plan.gradient_dtype], int(replicas / plan.ep)
    if shared:
        for place, unit in enumerate(dense):
            _shard(total, plan, unit, share, m, root=place == len(units))
        for unit in routed:
            _shard(total, plan, unit, few, m, root=False)
    else:
        gradients = whole * sum(s.elements for unit in dense for s in unit)
        total["dp", CollectiveKind.ALL_REDUCE, replicas] += gradients
        own = whole * sum(s.elements for unit in routed for s in unit)
        total["dp", CollectiveKind.ALL_REDUCE, few] += own
        if plan.zero == 1 and share > 1:
            kept = BYTES[plan.parameter_dtype] / whole
            total["dp", CollectiveKind.BROADCAST, share] += gradients * kept
    if plan.sp and plan.tp > 1:  # weights that every rank of tp has, of which each saw some tokens
        here = [s for unit in dense for s in unit if s.axis != "tp"]
        elements = sum(s.padded(share) // share if shared else s.elements for s in here)
        total["tp", CollectiveKind.ALL_REDUCE, int(plan.tp)] += whole * elements


def _shard(
    total: dict[_Key, float], plan: Plan, unit: list[Share], ways: int, m: float, *, root: bool
) -> None:
    """fully_shard of one unit. Under a pipeline gradients are scattered once, after the last
    micro-batch, and weights stay after a backward (torch/distributed/pipelining/stage.py): each of
    m forwards lets go of them, and something follows each, so they are gathered m + 1 times.
    """
    padded = sum(s.padded(ways) for s in unit)
    piped = plan.pp > 1
    gathers = 1.0 if plan.zero == 2 or (root and piped) else m + 1.0 if piped else 2.0 * m
    gathers = m if root and plan.zero >= 3 and not piped else gathers
    scatters = 1.0 if piped else m
    weight = min(BYTES[plan.parameter_dtype], plan.wide_bytes)
    summed = BYTES[plan.gradient_dtype]
    total["dp", CollectiveKind.ALL_GATHER, ways] += gathers * padded * weight
    total["dp", CollectiveKind.REDUCE_SCATTER, ways] += scatters * padded * summed
    between = scatters * padded / ways * summed
    total["dp_replicate", CollectiveKind.ALL_REDUCE, int(plan.dp_replicate)] += between
