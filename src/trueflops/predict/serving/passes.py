"""What one pass of an engine takes: so many sequences, each so many tokens after so many others.

In: a Server's model, format and profile. Out: Costs of a pass and its time as a Term, each shape
priced once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trueflops.catalog import Accelerator, Cluster
from trueflops.clock import CLOCKED_CAUSES, Clock, Placement
from trueflops.graph import Pass, Program, compile_program
from trueflops.graph.formats import Format, is_gguf
from trueflops.graph.kinds import CollectiveKind
from trueflops.graph.passes import format_named
from trueflops.graph.program import AXES, SHAPING, STRUCTURE
from trueflops.model import Model
from trueflops.plan import Plan, shares_experts
from trueflops.predict.costs import Costs, PieceCost, merged, program_costs
from trueflops.predict.serving.interleaved import interleaved
from trueflops.predict.serving.ranks import uneven_experts
from trueflops.predict.serving.sparse import chosen_at_most, sees_all, sparse_kernel
from trueflops.profile import Engine, Profile
from trueflops.profile.engines import USUAL, engine_of
from trueflops.profile.under import laying_out
from trueflops.runtime import COMMUNICATION, COMPUTE, Stretch, Term, leaf, run_closed, total
from trueflops.sizes import Size
from trueflops.tables import summed

DEEP_GEMM: Final = ((9, 0), (10, 0))  # compute capabilities
MOST_SHARING: Final = 8  # ranks that share an expert from which vLLM prefers other kernels
Shape = tuple[Plan, float, float, float]
"""A pass of a plan: sequences, tokens of each, tokens before them."""
Remembered = dict[tuple[object, ...], Costs]
"""What passes of these shapes cost."""


@dataclass(frozen=True)
class Stage:
    """So many layers of the model on one card."""

    chip: Accelerator
    profile: Profile
    layers: int


class Passes:
    """Passes of one model in one number format on one cluster."""

    stages: tuple[Stage, ...] = ()  # on cards of their own; else plans deal layers out

    def __init__(
        self, model: Model, cluster: Cluster, profile: Profile, weights: str, cache_bits: float,
        *, engine: Engine | None = None, remembered: Remembered | None = None,
    ) -> None:  # fmt: skip
        self.engine = engine or engine_of(USUAL)
        profile = laying_out(profile) if self.engine.expert_block else profile
        self.model, self.cluster, self.profile = model, cluster, profile
        self.cache_bits = cache_bits
        self.clock = Clock(cluster, profile)
        wide = wide_dtype(cluster)
        if model.is_moe and weights == "fp8":
            weights = "fp8_block"  # as DeepSeek-V3, Qwen3 and MiniMax-M2 are released and served
        # 16 bits are bf16 where the chip has it and fp16 where it has not.
        self.weights = format_named(wide if weights in ("bf16", "fp16") else weights)
        self.products = self._of_many_rows()
        self.dtype = self.weights.compute if self.weights.compute == "fp32" else wide
        self.bits = 32.0 if self.dtype == "fp32" else 16.0
        self._chooses = chosen_at_most(model)
        # Passes of other layers of the same model on the same chip may share what was priced.
        self._remembered: Remembered = {} if remembered is None else remembered

    @property
    def captures(self) -> bool:
        """Whether decode steps run as captured graphs."""
        return bool(self.profile.curve("framework")["captures"]) and self.engine.captured

    def dealt(self, plan: Plan) -> Plan:
        """The plan by whose stages these layers are dealt out."""
        return plan

    @property
    def cards(self) -> Sequence[Passes]:
        """Passes of each stage on its own card; these alone where all accelerators are alike."""
        return (self,)

    def by_card(self, costs: Costs) -> Sequence[Costs]:
        """What each of `cards` costs."""
        return (costs,)

    def taken(
        self, costs: Costs, plan: Plan, *, graphs: bool, issued: Size | None = None
    ) -> list[Size]:
        """Seconds in which each of them computes."""
        return [
            summed(part.value for part in passes.computing(own, plan, graphs=graphs, issued=issued))
            for passes, own in zip(self.cards, self.by_card(costs), strict=True)
        ]

    def slowest_share(self, plan: Plan, batch: Size, seq: Size, past: Size) -> Size:
        """Of the time that all stages take for such a pass, the slowest one's part."""
        return 1.0 / plan.pp

    @property
    def held_model(self) -> Model:
        """The layers whose keys and values accelerators keep: all, unless a host has some."""
        return self.model

    def beside(self, seconds: Mapping[str, Size]) -> list[Term]:
        """What a pass takes that accelerators do not compute: nothing, unless a host has layers."""
        return []

    def _of_many_rows(self) -> Format:
        """The format of products that no matrix-vector kernel runs.

        llama.cpp narrows the inputs of quantised weights to int8 in blocks of 32 (ggml-cuda/mmq.cu)
        where the chip multiplies that.
        """
        own = self.profile.curve("framework")["int8_speed"] and is_gguf(self.weights)
        if not own or not self.cluster.accelerator.computes("int8"):
            return self.weights
        return replace(self.weights, compute="int8", input_bits=9.0)

    def costs(
        self, plan: Plan, batch: Size, seq: Size, past: Size, *, verifies: bool = False
    ) -> Costs:
        """What its ops cost; plans that differ in stages or replicas alone share them. Sizes may
        be arrays, one pass each.
        """
        whole = self._priced(plan, batch, seq, past, verifies)
        if not self._interleaves(plan, batch, seq):
            return whole
        half = self._priced(plan, batch / 2.0, seq, past, verifies)
        return interleaved(half, whole, self.clock.silicon, decoding=bool(np.all(seq == 1.0)))

    def unpriced(self, plan: Plan, batch: Size, seq: Size, past: Size) -> Costs:
        """What a pass holds, where no time of it is asked; one that was priced says it, too."""
        found = self._remembered.get((*_shape(plan), batch, seq, past, False))
        if found is not None:
            return found
        return program_costs(self.program(plan, batch, seq, past), None, Placement.of(plan))

    def _interleaves(self, plan: Plan, batch: Size, seq: Size) -> bool:
        """Whether two halves of the tokens hide each other's way to experts on other ranks."""
        apart = self.engine.two_batches and shares_experts(plan)
        return apart and bool(np.all(np.asarray(batch * seq) >= 2.0))

    def _priced(self, plan: Plan, batch: Size, seq: Size, past: Size, verifies: bool) -> Costs:
        if any(isinstance(size, np.ndarray) for size in (batch, seq, past)):
            return self._priced_together(plan, batch, seq, past, verifies)
        key = (*_shape(plan), batch, seq, past, verifies)
        if key not in self._remembered:
            program = self.program(plan, batch, seq, past, verifies=verifies)
            costs = program_costs(program, self.clock, Placement.of(plan))
            self._remembered[key] = self._issued(costs, batch, seq)
        return self._remembered[key]

    def _priced_together(
        self, plan: Plan, batch: Size, seq: Size, past: Size, verifies: bool
    ) -> Costs:
        """Passes as arrays; those that see all keys apart from those that have theirs chosen."""
        dense = np.broadcast_to(self._dense(seq, past), np.broadcast(batch, seq, past).shape)
        rows = [np.flatnonzero(dense), np.flatnonzero(~dense)]
        if not all(len(own) for own in rows):
            program = self.program(plan, batch, seq, past, verifies=verifies)
            return self._issued(program_costs(program, self.clock, Placement.of(plan)), batch, seq)
        b, s, p = np.broadcast_arrays(batch, seq, past)
        priced = [self._priced_together(plan, b[own], s[own], p[own], verifies) for own in rows]
        return merged(priced, [own.tolist() for own in rows], dense.size)

    def _issued(self, costs: Costs, batch: Size, seq: Size) -> Costs:
        """The same, of passes over few enough tokens as an engine issues those that it captured."""
        most = self.engine.captures_up_to(latent=self.model.has_latent)
        fits = np.less_equal(batch * seq, most)
        if not np.any(fits):
            return costs

        def issued(piece: PieceCost) -> PieceCost:
            whole, parts = piece.host, piece.host_of_pieces
            host = {at: np.where(fits, parts.get(at, 0.0), whole[at])[()] for at in whole}
            return replace(piece, host=host)

        blocks = tuple(issued(block) for block in costs.blocks)
        return replace(
            costs, blocks=blocks, embedding=issued(costs.embedding), head=issued(costs.head)
        )

    def _dense(self, seq: Size, past: Size) -> NDArray[np.bool_]:
        """Whether prompts see all keys: those of a model without an indexer do."""
        if not self._chooses:
            return np.asarray(True)
        return sees_all(self.model, self.engine, seq, past)

    def prepare(self, asked: Iterable[Shape]) -> None:
        """Price passes of many plans and batches with few calls of the clock, for `costs` to find.

        A group of one rank changes the graph, and a few rows the kernel, so only passes that are
        alike in both are priced together (as training_costs does).
        """
        groups: dict[tuple[object, ...], dict[tuple[object, ...], Shape]] = {}
        wanted = list(asked)
        wanted += [
            (plan, batch / 2.0, seq, past)
            for plan, batch, seq, past in wanted
            if self._interleaves(plan, batch, seq)
        ]
        for plan, batch, seq, past in wanted:
            key = (*_shape(plan), batch, seq, past, False)
            if key not in self._remembered:
                alone = [float(getattr(plan, axis)) == 1.0 for axis in AXES]
                alone.append(not shares_experts(plan))
                others = tuple(getattr(plan, name) for name in STRUCTURE)
                few, dense = self._few(batch, seq), bool(self._dense(seq, past))
                alike = (*alone, *others, seq, few, self._block(plan), dense)
                groups.setdefault(alike, {})[key] = plan, batch, seq, past
        for group in groups.values():
            plans, batches, lengths, pasts = zip(*group.values(), strict=True)
            shapes = {name: _column([getattr(p, name) for p in plans]) for name in SHAPING}
            plan = plans[0].but(**shapes)
            program = self.program(plan, _column(batches), lengths[0], _column(pasts))
            costs = program_costs(program, self.clock, Placement.of(plan))
            costs = self._issued(costs, _column(batches), lengths[0])
            for row, key in enumerate(group):
                self._remembered[key] = costs.map(partial(_row, row))

    def forget(self) -> None:
        """Price everything anew."""
        self._remembered.clear()

    def program(
        self, plan: Plan, batch: Size, seq: Size, past: Size, *, verifies: bool = False
    ) -> Program:
        """What runs in such a pass.

        One that `verifies` drafted tokens reads the cache as a decode step does, once for all of a
        sequence's tokens, and asks for the logits of each.
        """
        decoding = verifies or bool(np.all(seq == 1.0) and np.all(np.greater(past, 0)))
        chooses = self._chooses and (decoding or not np.all(self._dense(seq, past)))
        chip = self.cluster.accelerator
        run = Pass(
            batch=batch,
            seq=seq,
            past=past,
            training=False,
            decoding=decoding,
            dtype=self.dtype,
            bits=self.bits,
            cache_bits=self.cache_bits,
            expert_block=self._block(plan),
            shared_beside=self.engine.shared_beside and decoding,
            sparse=sparse_kernel(self.engine, chip, decoding=decoding) if chooses else None,
        )
        if run.decoding:
            # DeepEP's low-latency kernels send every copy of a token straight to its expert; only
            # the normal ones, for prompts, send one to each node (deepseek-ai/DeepEP, legacy.md).
            plan = plan.but(dispatch="all-to-all")
        if bool(np.all(np.greater(seq, 1.0))) and not self.profile.curve("framework")["flash"]:
            plan = plan.but(flash=False)
        weights = self.weights if self._few(batch, seq) else self.products
        return compile_program(self.model, plan, run, weights)

    def _block(self, plan: Plan) -> float:
        """Rows that each expert's share is rounded up to under this plan; 0: they are not.

        DeepGEMM has kernels for Hopper and for data centres' Blackwell (vLLM's is_deep_gemm_
        supported), for weights in blocks of fp8.
        """
        capability = self.clock.chip.architecture.compute_capability or (0, 0)
        has = capability in DEEP_GEMM and self.weights.name == "fp8_block"
        shared = bool(np.all(np.asarray(plan.etp) >= MOST_SHARING))
        return float(self.engine.expert_block) if has and not shared else 0.0

    def _few(self, batch: Size, seq: Size) -> bool:
        """Whether a matrix-vector kernel runs the products of so many rows."""
        rows = self.profile.curve("matmul").values.get("vector_rows", 0.0)
        return bool(np.all(np.asarray(batch * seq) <= rows))

    def time(
        self, name: str, costs: Costs, plan: Plan, *, graphs: bool, tokens: Size = 0,
        issued: Size | None = None, busy: float = 1.0,
    ) -> Term:  # fmt: skip
        """All layers, one after another; stages of a pipeline add their hand-overs.

        A captured graph is launched at once: no kernel of it waits for the host. `issued` seconds
        are what the host needs where that is neither so nor a launch for every kernel; `busy` is
        the part of the time for which each of the stages has work.
        """
        law, host = self.profile.curve("collective"), self.profile.curve("framework")
        parts = self.computing(costs, plan, graphs=graphs, issued=issued, busy=busy)
        parts.append(self._around(tokens))
        if plan.pp > 1:
            stride = plan.tp * plan.dp  # of one worker: replicas stand inside a stage
            hop = self.clock.collective(
                CollectiveKind.SEND_RECV, 2.0, costs.boundary_bytes, stride
            ).seconds
            parts.append(leaf("pipeline sends", (plan.pp - 1.0) * hop, law, "collective"))
        least = self.least(costs, plan, graphs=graphs)
        whole = total(name, *parts, cause="framework", spread=host.error, least=least)
        slower = np.hypot(uneven_experts(self.model, plan, reads=not graphs), host["slower"])
        if not np.any(slower):
            return whole
        low, high = whole.unstated
        return replace(whole, unstated=(low, np.hypot(high, slower)))

    def _around(self, tokens: Size) -> Term:
        """What the host does around a step that writes so many tokens, while the chip waits."""
        host, engine = self.profile.curve("framework"), self.engine
        serial = tokens * (0.0 if engine.ahead else engine.serial_token)
        whole = host["step"] + tokens * host["token"] + serial
        around = leaf("engine", whole, host, "framework")
        if not (engine.serial_spread and np.any(serial)):
            return around
        share = serial / np.maximum(whole, 1e-300)
        sides = (-engine.serial_spread, engine.serial_spread)
        low, high = (np.log1p(share * np.expm1(side)) for side in sides)
        return replace(around, unstated=(-low, high))

    def computing(
        self, costs: Costs, plan: Plan, *, graphs: bool, issued: Size | None = None,
        busy: Size = 1.0,
    ) -> list[Term]:  # fmt: skip
        """What all layers take on their chip, part by part."""
        law, host = self.profile.curve("collective"), self.profile.curve("framework")
        captured = graphs and self.captures
        if issued is None:
            issued = 0.0 if captured else summed_over(costs, self.model, "host")
        seconds: dict[str, Size] = {}
        for piece, times in costs.pieces(self.model):
            for (_, cause), value in piece.seconds.items():
                seconds[cause] = seconds.get(cause, 0.0) + times * value
        parts = [
            leaf(label, seconds[cause], self.profile.curve(cause), cause)
            for cause, label in COMPUTE.items()
            if cause in seconds
        ]
        parts += [
            leaf(label, seconds[axis], law, "collective")
            for axis, label in COMMUNICATION.items()
            if axis in seconds
        ]
        work = Stretch(
            seconds={"forward": summed(part.value for part in parts)},
            clocked={"forward": summed(seconds.get(cause, 0.0) for cause in CLOCKED_CAUSES)},
            kernels={"forward": summed_over(costs, self.model, "kernels")},
            host={"forward": issued},
            joules=busy * summed_over(costs, self.model, "joules"),
        )
        # A queue that nobody captured has at least the gaps of a graph.
        gap = host["graph"] if graphs and host["captures"] else self.clock.host.gap
        parts += run_closed(work, self.clock.power, gap=gap).added(self.profile)[1:]
        parts += self.beside(seconds)
        return parts

    def least(self, costs: Costs, plan: Plan, *, graphs: bool) -> Size:
        """Physics: every flop at the chip's peak; a decode step reads weights and cache once."""
        least = summed_over(costs, self.model, "peak_seconds")
        if graphs:
            streamed = summed_over(costs, self.model, "streamed_bytes")
            # A tiny model stays on the chips.
            cold = np.greater(streamed, self.clock.silicon.l2_bytes * plan.pp)
            read = np.where(cold, streamed / self.clock.silicon.bandwidth, 0.0)
            least = np.maximum(least, read)
        return least


def _shape(plan: Plan) -> tuple[object, ...]:
    """What of a plan decides what one rank runs."""
    return tuple(getattr(plan, name) for name in (*SHAPING, *STRUCTURE))


def _row(row: int, size: Size) -> Size:
    """The size of one shape out of many."""
    return size[row] if isinstance(size, np.ndarray) and size.ndim else size


def _column(values: Sequence[Size]) -> Size:
    """One number where all agree, else an array."""
    found = np.array(values, np.float64)
    return float(found[0]) if (found == found[0]).all() else found


def wide_dtype(cluster: Cluster) -> str:
    """bf16 where the chip has it, else fp16, else fp32."""
    chip = cluster.accelerator
    return next((d for d in ("bf16", "fp16", "fp32") if chip.computes(d)), "bf16")


def summed_over(costs: Costs, model: Model, what: str) -> Size:
    """Joules, streamed bytes or seconds at the peak of a forward pass through all layers."""
    return summed(n * getattr(p, what).get("forward", 0.0) for p, n in costs.pieces(model))
