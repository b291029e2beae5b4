"""The host: what it needs to issue work, and how long a device waits for it.

    a call of a program   what its op takes alone in a tight loop (`host_calls`), `issue` times:
                          in the midst of a program nothing is in the core's caches, and Python,
                          autograd and the allocator come on top
    a kernel of a graph   the framework's `launch`; where it runs PyTorch op by op, that of a call
    a layer               what the framework's hooks add around its modules
A device with a full queue only loses `gap` between two kernels; with an empty one it waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from trueflops.graph.ir import Collective, Graph, Node, Op, Phase
from trueflops.graph.kinds import EAGER_KINDS, PRODUCTS, Kind
from trueflops.model import is_adapter, is_adapting
from trueflops.profile import Profile
from trueflops.sizes import Size

OF_A_COLLECTIVE: Final = 0.3  # of what the host needs to launch an op: no autograd, no allocation
SHARPNESS: Final = 8.0  # of the smooth maximum of host and device
VIEWS_A_CALL: Final = 0.97  # as counted in a step of Hugging Face's Llama: 1,325 of 1,364 calls
VIEWS_AGAIN: Final = 1.8  # in a checkpointed part, whose inputs are detached and laid out again
LISTED_A_WEIGHT: Final = 13.0  # places of a weight and its moments in the lists of a foreach AdamW
SPLITTING: Final = frozenset({
    Kind.ATTENTION, Kind.ATTENTION_DECODE, Kind.RECURRENCE, Kind.CHUNKED, Kind.SCANNED,
})  # fmt: skip
"""At which an engine that captures pieces splits a pass: vLLM's splitting_ops (config/
compilation.py: unified_attention, sparse_attn_indexer, mamba_mixer, short_conv, gdn_attention_core
and their kin)."""
_SEVERAL: Final = {Kind.EXPERTS: "launches_of_experts", Kind.CHUNKED: "launches_of_chunked"}
"""Settings that say how many launches an op of a kind takes the time of."""
LISTS: Final = ("_foreach_", "_fused_")  # ops that walk over lists of tensors
ROUTING: Final = ("experts.router", "experts.route")  # by name, forward and back
SHARED: Final = ("shared.", "d_shared.")


def captured_part(node: Node) -> str:
    """Which part of a layer a node belongs to, of those that frameworks capture as CUDA graphs.

    Experts are none: how many tokens they get is known on the device alone, so that the shapes of
    what is sent to them change from step to step. What megatron-core captures with each is said in
    its transformer_config.py (cuda_graph_scope) and moe/README.md: with the router what is shared.
    """
    if node.name in ROUTING or node.part == "shared" or node.name.startswith(SHARED):
        return "router"
    if node.part in ("experts", "ep", "head") or node.name.startswith("experts."):
        return ""
    dense = node.part == "ffn" or node.name.startswith(("ffn.y", "d_ffn.y"))
    return "ffn" if dense else "attention"


class Issued(NamedTuple):
    """Seconds of host work for a graph, by phase: kernel by kernel, and where some are captured."""

    whole: dict[str, Size]
    pieces: dict[str, Size]  # where all between two attentions is a captured graph
    parts: dict[tuple[str, str], Size]  # of `whole`, by (phase, part) that can be captured


def host_class(op: Op) -> str:
    """Under which name `host_calls` has what the host needs for an op."""
    if op.kind in EAGER_KINDS and op.variant is not None:
        return str(op.variant)
    if op.kind in PRODUCTS:
        return "convolution" if str(op.variant).startswith("convolution") else "product"
    return str(op.kind)


class Hooks(NamedTuple):
    """Seconds of host work by phase: for each weight, for each module that has one, and for each
    unit of a layer.

    Measured in a world of one: benchmarks/framework_hosts.py, truth/h200/framework_hosts.csv.
    """

    of_weight: Mapping[str, Size]
    of_module: Mapping[str, Size]
    of_unit: Mapping[str, Size]


class HostLaw:
    """The host of one chip under one framework; `itself`: a CPU, whose kernels it runs, too."""

    def __init__(self, profile: Profile, *, itself: bool = False) -> None:
        self.itself = itself
        self.framework, self.law = profile.curve("framework"), profile.curve("dispatch")
        self.alone = profile.curve("host_calls").values  # of an op in a tight loop, by its class
        self.session = profile.curve("session")  # of a graph that no Python runs
        self.by_calls = bool(self.framework["by_calls"])
        self.by_generated = bool(self.framework["by_generated"])
        self.by_modules = bool(self.framework["by_modules"])

    @property
    def gap(self) -> float:
        """Seconds between two kernels of a graph in a full queue, where they are PyTorch's own."""
        queues = (self.by_calls or self.by_generated) and not self.itself
        return self.law["gap"] if queues else 0.0

    def node_seconds(self, node: Node, phase: Phase) -> Size:
        """Seconds of host work for one node of a graph, as often as it runs.

        The further kernels of a ring, and those that merge its steps, are calls inside of one op:
        no module and no autograd stands around them.
        """
        launch = self._launch_seconds(node, phase)
        if isinstance(node, Collective):
            rounds = np.maximum(node.group - 1.0, 1.0) if node.hides else 1.0
            return OF_A_COLLECTIVE * launch * rounds
        if self.by_modules and node.kind in PRODUCTS:
            return launch + self._of_experts(node)
        if self.by_modules and node.of is not None and node.of.kind is Kind.ROUTE:
            return launch + self.law["routed"]
        if "steps" not in node.facts:
            return launch
        call = self.law["issue"] * self.alone_seconds(node)
        return node.facts["steps"] * call + (launch - call if node.outputs else 0.0)

    def _of_experts(self, op: Op) -> Size:
        """What the products of experts need more than one product does, under megatron-core.

        TransformerEngine's GroupedLinear has a weight for each expert (weight0, weight1 …) and
        launches a product for each (pytorch/module/grouped_linear.py; common/gemm/cublaslt_gemm.cu,
        multi_stream_cublas_gemm); megatron-core's DistributedDataParallel hangs a hook on the
        gradient of every one of them. An adapter is one for all experts of a rank
        (Megatron-Bridge, src/megatron/bridge/peft/lora.py: share_expert_adapters).
        """
        weights = (op.of or op).weights
        experts = dict(weights[0].dims).get("experts") if weights else None
        if experts is None or is_adapter(weights[0].name):
            return 0.0
        hooks = experts * self.law["ddp"] if op.kind is Kind.WGRAD else 0.0
        return (experts - 1.0) * self.law["launch"] + hooks

    def _launch_seconds(self, node: Node, phase: Phase) -> float:
        """Of an op that is one kernel."""
        if self.itself:
            return self.between_calls(VIEWS_A_CALL, 0.0)
        if not (self.by_calls or self.by_generated or self.by_modules):
            launch = self.framework["launch"]
            if isinstance(node, Op) and node.kind in _SEVERAL:
                launch *= self.framework[_SEVERAL[node.kind]]
        elif self.by_generated:
            launch = self.law["generated"]
        elif self.by_modules:
            beside = _beside_modules(node)
            launch = self.call_seconds(beside, VIEWS_A_CALL) if beside else self.law["modules"]
        else:
            views = VIEWS_AGAIN if phase == "recompute" else VIEWS_A_CALL
            launch = self.call_seconds([node] if isinstance(node, Op) else [], views)
        return launch

    def issued(self, graph: Graph) -> Issued:
        """Kernel by kernel; in pieces, as engines capture what lies between attention, or between
        the kernels of a recurrent layer: a graph before each of these, and them one by one; and
        part by part. A checkpoint stores and restores the generators' state.
        """
        whole: dict[str, Size] = {}
        pieces: dict[str, Size] = {}
        parts: dict[tuple[str, str], Size] = {}
        captured = True
        for phase, node in graph.phases():
            seconds = self.node_seconds(node, phase)
            whole[phase] = whole.get(phase, 0.0) + seconds
            part = phase, captured_part(node)
            parts[part] = parts.get(part, 0.0) + seconds
            splits = isinstance(node, Op) and node.kind in SPLITTING
            if splits:
                launched = seconds + captured * self.law["graph"]
                pieces[phase] = pieces.get(phase, 0.0) + launched
            captured = not splits
        if "recompute" in whole and (self.by_calls or self.framework["checkpoints"]):
            whole["recompute"] += self.law["checkpoint"]
        if self.by_calls and "backward" in whole:  # the optimizer walks over weights and moments
            whole["backward"] += len(graph.weights) * LISTED_A_WEIGHT * self.law["listed"]
        return Issued(whole, pieces, parts)

    def call_seconds(self, ops: Iterable[Op | None], views: float = 0.0, listed: int = 0) -> float:
        """Seconds from the call before to the end of this one.

        An op on lists walks over their tensors. What a library repeats within one call, such as
        the steps of a recurrent layer, it launches by itself.
        """
        issued = list(ops) or [None]
        own = {id(op): op for op in issued}
        alone = sum(self.alone_seconds(op) for op in own.values())
        repeated = len(issued) - len(own)
        law = self.law
        return (
            law["issue"] * alone + repeated * law["launch"]
            + views * law["view"] + listed * law["listed"]
        )  # fmt: skip

    def alone_seconds(self, op: Op | None) -> float:
        """Of one call in a tight loop."""
        names = [host_class(op), str(op.kind)] if op is not None else []
        return next(
            (self.alone[name] for name in names if name in self.alone), self.alone["vector"]
        )

    def hooks(self, zero: Size, shared: Any) -> Hooks | None:
        """Of the framework around a layer's modules, by ZeRO stage and where replicas share.

        torch      DDP: a hook a weight as its gradient is made. FSDP: a layer is one unit, gathered
                   before its forward and again before its backward, and scattered after it
        deepspeed  ZeRO-1 and 2: a hook a weight as its gradient is made. ZeRO-3: modules fetch and
                   release their weights, a bias with its weight, before and after each forward and
                   backward (runtime/zero/parameter_offload.py, _register_deepspeed_module; weights
                   of fewer than 1e5 numbers stay, stage3_param_persistence_threshold). What a
                   backward takes beyond that is the hook of each gradient (zero/stage3.py)
        """
        stage, law = zero, self.law
        if self.framework["hooks_deepspeed"]:
            by_stage = (0.0, law["zero1"], law["zero2"], law["zero3_gradient"])
            made = sum((np.where(stage == n, each, 0.0) for n, each in enumerate(by_stage)), 0.0)
            read = np.where(stage >= 3, law["zero3_forward"], 0.0)
            back = np.where(stage >= 3, law["zero3_backward"], 0.0)
            modules = {"forward": read, "recompute": read, "backward": back}
            return Hooks({"backward": made}, modules, {})
        if self.framework["hooks_torch"]:
            half = np.where(shared & (stage >= 2), law["fsdp_unit"] / 2.0, 0.0)
            made = np.where(shared & (stage < 2), law["ddp"], 0.0)
            return Hooks({"backward": made}, {}, {"forward": half, "backward": half})
        return None

    def between_calls(self, views: float, modules: float) -> float:
        """What a CPU that computes itself does beside its kernels, whose own dispatch was timed."""
        return views * self.law["view"] + modules * self.law["module"]


def _beside_modules(node: Node) -> list[Op]:
    """PyTorch's own calls that scale an adapter's term and add it: no module stands around them
    (Megatron-Bridge, src/megatron/bridge/peft: ParallelLinearAdapter.forward, LoRALinear.forward).
    """
    own = (node.of or node) if isinstance(node, Op) else None
    parts = (own.fused or (own,)) if own else ()
    return list(parts) if parts and all(is_adapting(part.name) for part in parts) else []


def waiting_for_host(host: Size, device: Size) -> Size:
    """Seconds that a stream of kernels waits for a host that issues them one by one.

    Stretches of short kernels wait even where the whole is device-bound: a smooth maximum.
    """
    share = host / np.maximum(device, 1e-300)
    sharp = np.square(np.square(np.square(share)))  # to the power of SHARPNESS, many times faster
    return device * np.expm1(np.log1p(sharp) / SHARPNESS)
