"""What the host needs to issue calls, and the memory that calls take meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from trueflops.capture.lower import base_name
from trueflops.capture.pretend.machine import Machine
from trueflops.capture.pretend.temporaries import temporaries
from trueflops.capture.program import capture
from trueflops.catalog import cluster
from trueflops.clock import Clock
from trueflops.clock.host import host_class
from trueflops.graph.alignment import FULL
from trueflops.graph.build import Pass
from trueflops.graph.ir import Op
from trueflops.graph.kinds import Kind
from trueflops.graph.passes.compiled import padded
from trueflops.graph.program import compile_program
from trueflops.graph.variants import EagerKernel, ProductKernel
from trueflops.model import read_model
from trueflops.plan import Plan
from trueflops.predict import Trainer
from trueflops.predict.captured.lowering import Lowering
from trueflops.predict.captured.prices import price_events
from trueflops.predict.training.hooks import hooked
from trueflops.profile import CurveKey, Profile, of_host, profile_of
from trueflops.profile.host_speed import USUAL_LOOP_SECONDS
from trueflops.records.recording import Call, Recording
from trueflops.workload import Training

CLOCK = Clock(cluster("H200"), profile_of(cluster("H200").accelerator, "plain"))
HOST = CLOCK.host


def op(kind: Kind, variant: Any = None) -> Op:
    return Op("made up", kind, (), (), variant=variant)


def recorded(build: Callable[[], Callable[[], Any]]) -> Recording:
    return capture(lambda: build, Machine.like(CLOCK.chip))


def test_a_product_takes_longer_to_issue_than_a_sum() -> None:
    add, multiply = op(Kind.POINTWISE, EagerKernel.VECTOR), op(Kind.MATMUL)
    convolve = op(Kind.MATMUL, ProductKernel.CONVOLUTION)
    taken = [HOST.call_seconds([each]) for each in (add, multiply, convolve)]
    assert taken == sorted(taken)
    assert len(set(taken)) == 3


@pytest.mark.parametrize("kernel", list(EagerKernel))
def test_every_kernel_has_a_host_cost(kernel: EagerKernel) -> None:
    """Of its own, or its kind's; none is free."""
    kind = Kind.REDUCTION if "norm" in kernel or "reduce" in kernel else Kind.MOVEMENT
    assert host_class(op(kind, kernel)) == kernel
    assert 5e-6 < HOST.alone_seconds(op(kind, kernel)) < 5e-4


def test_what_a_library_repeats_is_only_launched() -> None:
    step = op(Kind.MATMUL)
    once, many = HOST.call_seconds([step]), HOST.call_seconds([step] * 101)
    assert many - once == pytest.approx(100 * HOST.law["launch"])
    apart = HOST.call_seconds([op(Kind.MATMUL) for _ in range(101)])
    assert apart > many


def test_views_and_lists_cost_their_number() -> None:
    plain = HOST.call_seconds([None])
    assert HOST.call_seconds([None], views=3) == pytest.approx(plain + 3 * HOST.law["view"])
    assert HOST.call_seconds([None], listed=7) == pytest.approx(plain + 7 * HOST.law["listed"])


def test_a_slower_host_issues_slower_and_runs_kernels_alike() -> None:
    usual = CLOCK.profile.curve("dispatch")
    assert of_host(usual, USUAL_LOOP_SECONDS)["issue"] == pytest.approx(usual["issue"])
    slow = of_host(usual, 2 * USUAL_LOOP_SECONDS)
    assert 1.5 < slow["issue"] / usual["issue"] < 2.0
    assert slow["gap"] == usual["gap"]
    assert slow.error < usual.error
    given = Profile("mine", CLOCK.chip.name, {CurveKey("dispatch"): slow})
    mine = Clock(CLOCK.cluster, profile_of(CLOCK.chip, "plain", given))
    assert mine.host.call_seconds([None]) > 1.5 * HOST.call_seconds([None])


# ── memory that calls take meanwhile ─────────────────────────────────────────────────────────────


def pictures(layout: torch.memory_format, channels: int = 32) -> torch.Tensor:
    made = torch.empty(4, channels, 16, 16, device="meta", dtype=torch.bfloat16)
    return made.to(memory_format=layout)


@pytest.mark.parametrize(
    ("layout", "channels", "weight", "laid_out"),
    [
        (torch.contiguous_format, 32, (64, 32, 3, 3), True),
        (torch.channels_last, 32, (64, 32, 3, 3), False),
        (torch.contiguous_format, 32, (64, 32, 1, 1), False),  # a plain product
        (torch.contiguous_format, 32, (32, 1, 3, 3), False),  # one filter a channel
        (torch.contiguous_format, 3, (64, 3, 3, 3), False),  # a first layer
    ],
)
def test_cudnn_lays_pictures_out(
    layout: torch.memory_format, channels: int, weight: tuple[int, ...], laid_out: bool
) -> None:
    """As truth/h200/calls.csv says (workspace_bytes): pictures and weights once more."""
    x, w = pictures(layout, channels), torch.empty(weight, device="meta", dtype=torch.bfloat16)
    y = pictures(layout, weight[0])
    taken = temporaries("aten.convolution.default", (x, w), (y,))
    assert sum(taken) == (sum(t.nbytes for t in (x, w, y)) if laid_out else 0)


def test_a_mean_squared_error_holds_every_element_twice() -> None:
    given = torch.empty(64, 33, device="meta")
    taken = temporaries("aten.mse_loss.default", (given, given), (given.mean(),))
    assert taken == (given.nbytes, given.nbytes)
    assert temporaries("aten.mse_loss.default", (given, given), (given,)) == ()


@pytest.mark.parametrize(
    ("kind", "layers", "numbers"),
    [(nn.LSTM, 1, 5.0), (nn.LSTM, 3, 17.0), (nn.GRU, 1, 6.0), (nn.GRU, 2, 13.0)],
)
def test_what_a_recurrent_layer_keeps(kind: type[nn.Module], layers: int, numbers: float) -> None:
    """For each hidden number of each step, as cuDNN said on an H200."""

    def build() -> Callable[[], None]:
        layer = kind(64, 64, layers).cuda()
        x = torch.randn(24, 8, 64, device="cuda", requires_grad=True)
        return lambda: layer(x)[0].sum().backward()

    calls = recorded(build).calls()
    (forward,) = [c for c in calls if base_name(c.op) == "_cudnn_rnn"]
    kept = next(a for a in forward.outputs if a.dtype == "uint8")
    assert kept.elements == numbers * 24 * 8 * 64 * 4


# ── compiled regions ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("compiled", [False, True])
def test_a_compiler_pads_odd_products(compiled: bool) -> None:
    def build() -> Callable[[], Any]:
        layer = nn.Linear(64, 77, bias=False, device="cuda", dtype=torch.bfloat16)
        run = torch.compile(layer) if compiled else layer
        x = torch.randn(32, 64, device="cuda", dtype=torch.bfloat16)
        return lambda: run(x).sum().backward()

    priced = price_events(recorded(build).step(), CLOCK, Lowering())
    products = [k.op for each in priced for k in each if k.op and k.op.kind is Kind.MATMUL]
    narrowest = min(min(p.facts["loads"], p.facts["stores"]) for p in products)
    assert (narrowest == FULL) is compiled


def test_only_plain_products_are_padded() -> None:
    assert padded(op(Kind.WGRAD)).facts == {"loads": FULL, "stores": FULL}
    for other in (op(Kind.POINTWISE), op(Kind.MATMUL, ProductKernel.CONVOLUTION)):
        assert padded(other) is other


def test_compiled_code_is_told_that_it_is_exported() -> None:
    """Before torch 2.14 dynamo puts a constant there (pytorch#176499)."""
    seen: list[bool] = []

    def build() -> Callable[[], None]:
        x = torch.randn(8, device="cuda", requires_grad=True)

        def inner(x: torch.Tensor) -> torch.Tensor:
            seen.append(torch.compiler.is_exporting())
            return x * 2.0

        run: Any = torch.compile(inner)
        return lambda: run(x).sum().backward()

    recorded(build)
    assert seen
    assert all(seen)
    assert not torch.compiler.is_exporting()


def test_the_gradient_of_bags_is_sorted_row_by_row() -> None:
    def build() -> Callable[[], None]:
        table = nn.EmbeddingBag(1000, 16, mode="sum").cuda()
        ids = torch.randint(0, 1000, (64, 8), device="cuda")
        return lambda: table(ids).sum().backward()

    recording = recorded(build)
    events = recording.step()
    kernels = [
        (event, k.op)
        for event, each in zip(events, price_events(events, CLOCK, Lowering()), strict=True)
        for k in each
        if isinstance(event, Call) and "embedding_bag_backward" in event.op
    ]
    ((_, found),) = kernels
    assert found is not None
    assert found.variant is EagerKernel.TABLE_GRADIENT
    assert found.facts["pieces"] == 64 * 8
    assert not any("by their bytes" in text for text in recording.warnings)


def test_each_expert_is_a_launch_and_a_hook_under_megatron() -> None:
    """GroupedLinear: one product and one weight for each expert."""
    where = cluster("8xH100")
    host = Clock(where, profile_of(where.accelerator, "megatron")).host
    law, mixtral = host.law, read_model("Mixtral-8x7B")
    program = compile_program(mixtral, Plan(), Pass(1.0, 4096.0))
    grouped = [
        op
        for op in program.blocks[0]
        if isinstance(op, Op)
        and op.kind in (Kind.MATMUL, Kind.WGRAD)
        and (op.of or op).inputs[0].has("routed")
    ]
    assert {op.kind for op in grouped} == {Kind.MATMUL, Kind.WGRAD}
    for op in grouped:
        hooks = 8 * law["ddp"] if op.kind is Kind.WGRAD else 0.0
        taken = host.node_seconds(op, "forward")
        assert taken == pytest.approx(law["modules"] + 7 * law["launch"] + hooks)


def test_megatron_bridge_adapts_all_experts_of_a_rank_at_once() -> None:
    """One adapter for all experts; what scales its term and adds it are PyTorch's own calls."""
    where = cluster("8xH100")
    host = Clock(where, profile_of(where.accelerator, "megatron")).host
    plan = Plan(adapters="lora", lora_targets="qkv,o,gate,up,down", adapter_dtype="bf16")
    program = compile_program(read_model("Mixtral-8x7B"), plan, Pass(1.0, 4096.0))
    taken = {
        op.name: host.node_seconds(op, "forward")
        for op in program.blocks[0]
        if isinstance(op, Op) and op.name.startswith("experts.down") and op.of is None
    }
    module = host.law["modules"]
    assert taken["experts.down.lora_a"] == taken["experts.down.lora_b"] == module
    assert taken["experts.down"] > module
    added = taken["experts.down.lora_scale+experts.down.lora_add"]
    assert 0.0 < added < module / 3.0


def test_a_checkpointed_part_costs_the_host_where_its_launch_does_not_hold_it() -> None:
    chip, costs = cluster("H200").accelerator, {}
    plan = Plan(recompute="full")
    program = compile_program(read_model("Llama-3.1-8B"), plan, Pass(1.0, 4096.0))
    graph = program.recomputing[0]
    for framework in ("fsdp", "plain", "compiled", "maxtext", "megatron", "megatron-deepspeed"):
        host = Clock(cluster("H200"), profile_of(chip, framework)).host
        launches = sum(
            float(host.node_seconds(node, phase))
            for phase, node in graph.phases()
            if phase == "recompute"
        )
        costs[framework] = float(host.issued(graph).whole["recompute"]) - launches
    stored = host.law["checkpoint"]
    assert costs["fsdp"] == pytest.approx(stored)
    assert costs["plain"] == pytest.approx(stored)
    # Megatron-DeepSpeed's launch was fitted to vTrain's runs, which recompute every layer.
    others = [costs[name] for name in ("compiled", "maxtext", "megatron", "megatron-deepspeed")]
    assert others == pytest.approx([0.0] * 4, abs=1e-9)


def test_zero3_fetches_modules_and_reduces_weights() -> None:
    """GPT-2's layer has two norms and four projections, as queries, keys and values are one, each
    with a bias: twelve gradients, six modules.
    """
    where = cluster("8xH100")
    profile = profile_of(where.accelerator, "deepspeed")
    trainer = Trainer(read_model("GPT-2"), Training(1024, 8, 8192.0), where, profile)
    plan = Plan(dp_shard=8, zero=3, implementation="eager")
    costs = trainer.keyed_costs(plan).spread()
    bare, law = costs.blocks[0], trainer.clock.host.law
    around = hooked(costs, plan, trainer.clock).blocks[0]
    added = {phase: around.host[phase] - bare.host[phase] for phase in ("forward", "backward")}
    reduced = 12 * law["zero3_gradient"]
    assert added["forward"] == pytest.approx(6 * law["zero3_forward"])
    assert added["backward"] == pytest.approx(6 * law["zero3_backward"] + reduced)
