"""Peaks of a pipeline's ranks as torch.distributed.pipelining runs it, task by task.

In: a Trainer and a single Plan. Out: bytes of tensors of every stage at its fullest moment. Beside
what autograd keeps of a micro-batch, that code keeps (torch 2.13, pipelining/stage.py):
- a buffer for the input of every micro-batch, and one for the gradient of every output, from the
  first step on (args_recv_info, grad_recv_info); both are shared with the neighbour where that is
  on the same rank (set_local_fwd_input, set_local_bwd_input);
- outputs until their backward (fwd_cache), the last stage's until the next one replaces it;
- what was sent, until the step ends (schedules.py: send_ops, fwd_sends_to_wait); 1f1b lets go of it
  at once, but for the last gradient;
- for a backward of two halves all that is kept until the second, with the gradients of what each
  weight made (_backward.py, stage_backward_input: param_group["grads"]);
- with fully_shard, weights as a backward gathered them, and whole gradients, until the last
  micro-batch (backward_maybe_with_nosync, perform_reduce_grad).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from trueflops.graph import Graph, Op, compile_program
from trueflops.graph.kinds import Role
from trueflops.graph.liveness import Live
from trueflops.plan import BYTES, Plan
from trueflops.predict.costs import Costs, PieceCost, training_pass
from trueflops.predict.training.foreach import updates_by_lists
from trueflops.predict.training.held import Rank, adafactor_of, blockwise_of, keeper_of
from trueflops.predict.training.memory import hold
from trueflops.predict.training.moments import backward_moments, torch_loss
from trueflops.predict.training.sent import Part as Layers
from trueflops.predict.training.sent import parts
from trueflops.predict.training.stages import every_stage
from trueflops.predict.training.trainer import Trainer
from trueflops.runtime.orders import Part, Task, order_of
from trueflops.sizes import Size

_LETS_GO: Final = ("1f1b",)  # of what was sent, while the step goes on, where vpp is 1


def pipelined_peaks(trainer: Trainer, plan: Plan) -> list[float]:
    """Of every stage."""
    m = int(plan.micro_batches(trainer.workload.global_batch))
    orders = order_of(plan.schedule, int(plan.pp), int(plan.vpp), m)
    return [
        _Walk(trainer, plan, stage, m).peak([task for slot in order for task in slot])
        for stage, order in enumerate(orders)
    ]


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """A block, the embedding or the head, of one micro-batch."""

    kept: float
    live: Live
    parameters: float
    grads: float  # of what its weights made, which a backward of two halves keeps
    end: bool = False  # the embedding or the head: fully_shard's root


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """Layers that a rank runs one after another."""

    layers: tuple[_Layer, ...]
    at: Layers
    output: float

    @property
    def kept(self) -> float:
        """By autograd, of one micro-batch."""
        return sum(layer.kept for layer in self.layers)

    @property
    def parameters(self) -> float:
        """Of all its layers."""
        return sum(layer.parameters for layer in self.layers)


class _Walk:
    """One rank, from its first task to the optimizer's step."""

    def __init__(self, trainer: Trainer, plan: Plan, stage: int, m: int) -> None:
        costs = trainer.keyed_costs(plan).spread()
        stages = every_stage(trainer.as_trained(plan), plan)
        held = hold(costs, plan, stages)
        by_lists = updates_by_lists(trainer.profile, plan)
        self.rank = Rank(
            plan=plan, parameters=held, micro_batches=float(m), by_lists=by_lists,
            adafactor=adafactor_of(trainer.profile, plan),
            blockwise=blockwise_of(trainer.profile, plan),
        )  # fmt: skip
        self.plan, self.stage, self.m = plan, stage, m
        self.boundary = _number(costs.boundary_bytes)
        self.pieces = _pieces(trainer, plan, stage, costs)
        self.shared = bool(plan.zero >= 2 and plan.dp_shard * plan.cp > 1)
        self.lets_go = plan.schedule in _LETS_GO and plan.vpp == 1
        self.gradient = self.rank.gradient_bytes if self.shared else self.rank.weight_bytes
        # Autocast narrows a weight once a step (torch/csrc/autograd: cached_cast).
        self.cast = BYTES["bf16"] if plan.autocasts else 0.0

    def peak(self, tasks: list[Task]) -> float:
        """The fullest moment of the tasks, of the sum over replicas and of the update."""
        every = self._standing() + max([*self._tasks(tasks)])
        plan, whole = self.plan, sum(piece.parameters for piece in self.pieces.values())
        own = self._at(self.rank.parameters.gradients) * self.rank.weight_bytes
        update = own + self._at(self.rank.temporaries)
        largest = max(piece.parameters for piece in self.pieces.values())
        joined = 0.0
        if self.shared:  # a unit's gradients, joined, beside all weights and gradients
            gathered = whole * (self.rank.compute_bytes + self.gradient)
            joined = gathered + self._unit() * self.gradient
        elif plan.dp * plan.cp > 1:
            joined = own + largest * self.rank.weight_bytes
        return max(every, self._standing() + max(update, joined))

    def _standing(self) -> float:
        """Weights, states, and the buffers of every micro-batch."""
        buffers = sum((not piece.at.first) + (not piece.at.last) for piece in self.pieces.values())
        held = self._at(self.rank.parameters.weights) * self.rank.weight_bytes
        return held + self._at(self.rank.states) + buffers * self.m * self.boundary

    def _tasks(self, tasks: list[Task]) -> Iterator[float]:
        """Bytes beside what stands, at the fullest moment of each task."""
        kept = sent = 0.0
        flying: Counter[int] = Counter()  # outputs that wait for their backward, by piece
        begun: set[int] = set()  # pieces that have gradients
        cast: set[int] = set()  # whose weights autocast has narrowed
        whole: set[int] = set()  # whose weights a backward has left gathered
        for part, number, _ in tasks:
            piece = self.pieces[number]
            own = piece.kept - self._arrived(piece)
            later = sum(layer.grads for layer in piece.layers)
            halves = part is not Part.WHOLE and not piece.at.first
            cast.add(number)
            beside = kept + sent
            beside += sum(self._outputs(self.pieces[n], count) for n, count in flying.items())
            beside += sum(self._gradients(self.pieces[n]) for n in begun)
            beside += sum(self.pieces[n].parameters for n in cast) * self.cast
            beside += sum(self._gathered(self.pieces[n]) for n in whole - {number})
            if part is Part.FORWARD:
                yield beside + self._forward(piece, whole=number in whole)
                whole.discard(number)
                kept += own
                flying[number] += 1
                sent += piece.at.passes_on * self.boundary * (not self.lets_go)
                continue
            # The first piece leaves its whole backward to the second half.
            if part is Part.INPUT and halves:
                yield beside - own + self._halfway(piece)
                kept += later
            elif part is Part.WEIGHT and halves:
                opened = max(_number(layer.live.opened) for layer in piece.layers)
                width = self.rank.weight_bytes
                yield beside + (opened * width if number in begun else self._gradients(piece))
                kept -= own + later
            elif part is not Part.INPUT:
                fresh, there = number not in begun, number in whole
                yield beside - own + self._backward(piece, fresh=fresh, whole=there)
                kept -= own
            if part is not Part.INPUT:
                begun.add(number)
                whole |= {number} if self.shared else set()
            if part is not Part.WEIGHT:
                flying[number] -= 1
                received = piece.at.receives * self.boundary
                sent = received if self.lets_go else sent + received

    def _arrived(self, piece: _Piece) -> float:
        """Of what a micro-batch keeps, its input lies in the buffer that it came in."""
        return 0.0 if piece.at.first else self.boundary

    def _outputs(self, piece: _Piece, count: int) -> float:
        """Of micro-batches that wait; where the neighbour is here, its buffer is the same tensor;
        what was sent is counted there, where the schedule keeps it.
        """
        if piece.at.last:
            return max(count, 1) * piece.output
        return count * piece.output * (piece.at.passes_on and self.lets_go)

    def _gradients(self, piece: _Piece) -> float:
        """Whole, also under fully_shard, which scatters them after the last micro-batch."""
        return piece.parameters * self.gradient

    def _gathered(self, piece: _Piece) -> float:
        """All weights of a piece, as fully_shard has gathered them."""
        return piece.parameters * self.rank.compute_bytes * self.shared

    def _at_work(self, piece: _Piece, place: int, ahead: int) -> float:
        """What fully_shard has gathered for one layer: both ends, the layer, and the next in the
        buffer that it comes in.
        """
        if not self.shared or self.plan.zero == 2:
            return self._gathered(piece)
        ends = sum(layer.parameters for layer in piece.layers if layer.end)
        near = (place, place + ahead)
        blocks = [piece.layers[n] for n in near if 0 <= n < len(piece.layers)]
        there = ends + sum(layer.parameters for layer in blocks if not layer.end)
        return there * self.rank.compute_bytes

    def _forward(self, piece: _Piece, *, whole: bool) -> float:
        """Kept so far, and what is alive in the layer at work."""
        kept, most = -self._arrived(piece), 0.0
        left = self._gathered(piece)
        for place, layer in enumerate(piece.layers):
            gathered = left if whole else self._at_work(piece, place, 1)
            most = max(most, kept + _number(layer.live.forward) + gathered)
            kept += layer.kept
            if not layer.end and self.plan.zero >= 3 and self.shared:
                left -= layer.parameters * self.rank.compute_bytes
        return most

    def _backward(self, piece: _Piece, *, fresh: bool, whole: bool) -> float:
        """Kept by layers before, what is alive in the one at work, gradients as they are made."""
        kept, made, most = piece.kept - self._arrived(piece), 0.0, 0.0
        come = 0.0  # weights of layers whose backward is over: they stay
        for place, layer in reversed(list(enumerate(piece.layers))):
            kept -= layer.kept
            gathered = self._gathered(piece)
            if not whole:
                gathered = min(gathered, come + self._at_work(piece, place, -1))
            for alive, new, opened in backward_moments(layer.live):
                gradients = (made + _number(new) if fresh else _number(opened)) * self.gradient
                most = max(most, kept + _number(alive) + gradients + gathered)
            made += layer.parameters
            come += 0.0 if layer.end else layer.parameters * self.rank.compute_bytes * self.shared
        return most

    def _halfway(self, piece: _Piece) -> float:
        """Everything stays, and gradients of what weights made are noted on the way."""
        grads = most = 0.0
        for layer in reversed(piece.layers):
            most = max(most, grads + _number(layer.live.backward) - layer.kept)
            grads += layer.grads
        return piece.kept - self._arrived(piece) + most + self._gathered(piece)

    def _unit(self) -> float:
        return max(layer.parameters for piece in self.pieces.values() for layer in piece.layers)

    def _at(self, size: Size) -> float:
        """Of this rank's stage."""
        every = np.ravel(np.asarray(size, np.float64))
        return float(every[self.stage % len(every)])


def _pieces(trainer: Trainer, plan: Plan, stage: int, costs: Costs) -> dict[int, _Piece]:
    model = trainer.as_trained(plan)
    program = compile_program(model, plan, training_pass(plan, trainer.workload.seq))
    loss = torch_loss(costs, plan, keeper_of(trainer.profile))
    found = {}
    for number, at in parts(model, plan, stage).items():
        layers = []
        if at.first:
            layers.append(_end(costs.embedding, costs.live_embedding, program.embedding))
        for place, layer in enumerate(at.layers):
            kind = model.pattern[layer]
            again = plan.recompute != "none" and place < plan.recompute_layers
            cost = costs.blocks[kind]
            layers.append(
                _Layer(
                    kept=_number(cost.kept_bytes if again else costs.kept_whole[kind]),
                    live=costs.live[kind] if again else costs.live_whole[kind],
                    parameters=_number(cost.dense_parameters + cost.expert_parameters),
                    grads=_made_by_weights(program.blocks[kind]),
                )
            )
        output = _number(costs.boundary_bytes)
        if at.last:
            layers.append(_end(costs.head, loss, program.head))
            output = _number(_weighted(program.head)[-1].outputs[0].bytes)
        found[number] = _Piece(layers=tuple(layers), at=at, output=output)
    return found


def _end(cost: PieceCost, live: Live, graph: Graph) -> _Layer:
    return _Layer(
        kept=_number(cost.kept_bytes),
        live=live,
        parameters=_number(cost.dense_parameters),
        grads=_made_by_weights(graph),
        end=True,
    )


def _made_by_weights(graph: Graph) -> float:
    """Bytes of what ops with trained weights make: their gradients take as much."""
    return sum(_number(op.outputs[0].bytes) for op in _weighted(graph))


def _weighted(graph: Graph) -> list[Op]:
    ops = (node for node in graph.forward if isinstance(node, Op))
    return [op for op in ops if any(w.role is Role.WEIGHT for w in op.weights)]


def _number(size: Size) -> float:
    return float(np.ravel(np.asarray(size, np.float64))[0])
