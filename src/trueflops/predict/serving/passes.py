"""What one pass of an engine takes: so many sequences, each so many tokens after so many others.

In: a Server's model, format and profile. Out: Costs of a pass and its time as a Term, each shape
priced once.
"""

from __future__ import annotations

from trueflops.catalog import Cluster
from trueflops.clock import CLOCKED_CAUSES, Clock, Placement
from trueflops.graph import Pass, Program, compile_program
from trueflops.graph.kinds import CollectiveKind
from trueflops.graph.passes import format_named
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.predict.costs import Costs, program_costs
from trueflops.profile import Profile
from trueflops.runtime import COMMUNICATION, COMPUTE, Stretch, Term, leaf, run_closed, total
from trueflops.sizes import Size, summed


class Passes:
    """Passes of one model in one number format on one cluster."""

    def __init__(
        self, model: Model, cluster: Cluster, profile: Profile, weights: str, cache_bits: float
    ) -> None:
        self.model, self.cluster, self.profile = model, cluster, profile
        self.cache_bits = cache_bits
        self.clock = Clock(cluster, profile)
        wide = wide_dtype(cluster)
        if model.is_moe and weights == "fp8":
            weights = "fp8_block"  # as DeepSeek-V3, Qwen3 and MiniMax-M2 are released and served
        # 16 bits are bf16 where the chip has it and fp16 where it has not.
        self.weights = format_named(wide if weights in ("bf16", "fp16") else weights)
        self.dtype = self.weights.compute if self.weights.compute == "fp32" else wide
        self.bits = 32.0 if self.dtype == "fp32" else 16.0
        self._remembered: dict[tuple[object, ...], Costs] = {}

    def costs(self, plan: Plan, batch: float, seq: float, past: float) -> Costs:
        """What its ops cost."""
        key = (plan, batch, seq, past)
        if key not in self._remembered:
            program = self.program(plan, batch, seq, past)
            self._remembered[key] = program_costs(program, self.clock, Placement.of(plan))
        return self._remembered[key]

    def program(self, plan: Plan, batch: float, seq: float, past: float) -> Program:
        """What runs in such a pass."""
        run = Pass(
            batch=batch,
            seq=seq,
            past=past,
            training=False,
            decoding=seq == 1.0 and past > 0,
            dtype=self.dtype,
            bits=self.bits,
            cache_bits=self.cache_bits,
        )
        return compile_program(self.model, plan, run, self.weights)

    def time(self, name: str, costs: Costs, plan: Plan, *, graphs: bool, tokens: int = 0) -> Term:
        """All layers, one after another; stages of a pipeline add their hand-overs."""
        seconds: dict[str, Size] = {}
        for piece, times in costs.pieces(self.model):
            for (_, cause), value in piece.seconds.items():
                seconds[cause] = seconds.get(cause, 0.0) + times * value
        parts = [
            leaf(label, seconds[cause], self.profile.curve(cause), cause)
            for cause, label in COMPUTE.items()
            if cause in seconds
        ]
        law, host = self.profile.curve("collective"), self.profile.curve("framework")
        parts += [
            leaf(label, seconds[axis], law, "collective")
            for axis, label in COMMUNICATION.items()
            if axis in seconds
        ]
        work = Stretch(
            seconds={"forward": summed(part.value for part in parts)},
            clocked={"forward": summed(seconds.get(cause, 0.0) for cause in CLOCKED_CAUSES)},
            kernels={"forward": summed_over(costs, self.model, "kernels")},
            # A captured graph is launched at once: no kernel of it waits for the host.
            host={"forward": 0.0 if graphs else summed_over(costs, self.model, "host")},
            joules=summed_over(costs, self.model, "joules"),
        )
        gap = host["graph"] if graphs else self.clock.host.gap
        parts += run_closed(work, self.clock.power, gap=gap).added(self.profile)[1:]
        around = host["step"] + tokens * host["token"]
        parts.append(leaf("engine", around, host, "framework"))
        if plan.pp > 1:
            stride = plan.tp * self.cluster.count / (plan.tp * plan.pp)
            hop = self.clock.collective(
                CollectiveKind.SEND_RECV, 2.0, costs.boundary_bytes, stride
            ).seconds
            parts.append(leaf("pipeline sends", (plan.pp - 1.0) * hop, law, "collective"))
        # Physics: every flop at the chip's peak; a decode step reads its weights and cache once.
        least = summed_over(costs, self.model, "peak_seconds")
        if graphs:
            streamed = summed_over(costs, self.model, "streamed_bytes")
            if streamed > self.clock.silicon.l2_bytes * plan.pp:  # a tiny model stays on the chips
                least = max(least, streamed / self.clock.silicon.bandwidth)
        return total(name, *parts, cause="framework", spread=host.error, least=least)


def wide_dtype(cluster: Cluster) -> str:
    """bf16 where the chip has it, else fp16, else fp32."""
    chip = cluster.accelerator
    return next((d for d in ("bf16", "fp16", "fp32") if chip.computes(d)), "bf16")


def summed_over(costs: Costs, model: Model, what: str) -> float:
    """Joules, streamed bytes or seconds at the peak of a forward pass through all layers."""
    return float(sum(n * getattr(p, what).get("forward", 0.0) for p, n in costs.pieces(model)))
