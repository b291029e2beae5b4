"""Real programs of every kind, captured on a machine without a GPU: what is recorded of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import isfinite
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import capture_programs as programs
from capture_models import GPT2
from trueflops.capture.lower import base_name, lower
from trueflops.capture.pretend.machine import Machine
from trueflops.capture.program import capture
from trueflops.catalog import accelerator, cluster
from trueflops.clock import Clock
from trueflops.graph.kinds import Kind
from trueflops.graph.rules import work
from trueflops.profile import profile_of
from trueflops.records.recording import Allocated, Call, Recording
from trueflops.units import GIBI, MEBI

H100 = Machine("NVIDIA H100 80GB HBM3", 80 * int(GIBI), 132, (9, 0), 50 * int(MEBI))
V100 = Machine("Tesla V100-SXM2-16GB", 16 * int(GIBI), 80, (7, 0), 6 * int(MEBI))


def captured(build: programs.Build, machine: Machine = H100) -> Recording:
    return capture(lambda: build, machine)


def names(recording: Recording, phase: str | None = None) -> Counter[str]:
    """How often each op was called, in place or not."""
    calls = (c for c in recording.calls() if phase in (None, c.phase))
    return Counter(base_name(call.op) for call in calls)


def test_a_chip_without_a_compute_capability_is_said_to_have_none() -> None:
    asked: list[tuple[int, int]] = []
    ask = stepping(lambda: asked.append(torch.cuda.get_device_capability()))
    (warning,) = captured(ask, Machine.like(accelerator("MI300X"))).warnings
    assert "no CUDA compute capability of AMD MI300X is on record" in warning
    assert not captured(ask, Machine.like(accelerator("GB10"))).warnings
    assert set(asked[:2]) == {(8, 0)}
    assert asked[-1] == (12, 1)


def stepping(step: Callable[[], Any]) -> programs.Build:
    """A program whose step needs nothing built."""
    return lambda: step


@pytest.fixture(scope="module")
def clock() -> Clock:
    where = cluster("1xH100")
    return Clock(where, profile_of(where.accelerator))


def check(recording: Recording, clock: Clock) -> None:
    """Every call lowers to kernels that the clock can price."""
    calls = list(recording.calls())
    assert calls
    ops = [op for call in calls for op in lower(call) if op.kind is not Kind.HOST_COPY]
    for op, priced in zip(ops, clock.price_ops(ops), strict=True):
        assert isfinite(float(priced.work.flop)), op
        assert priced.work.bytes_read + priced.work.bytes_written > 0, op
        assert 0.0 < float(priced.seconds) < 1.0, op


@pytest.mark.parametrize("build", programs.MODELS, ids=lambda f: f.__name__)
def test_a_model_trains(build: programs.Build, clock: Clock) -> None:
    recording = captured(build)
    check(recording, clock)
    phases = Counter(call.phase for call in recording.calls())
    assert phases["forward"]
    assert phases["backward"]
    assert phases["optimizer"]
    assert recording.parameter_count
    assert not recording.warnings


@pytest.mark.parametrize("build", programs.WAYS, ids=lambda f: f.__name__)
def test_a_way_of_training(
    build: programs.Build, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    check(captured(build), clock)


@pytest.mark.parametrize("name", programs.OPTIMIZERS)
def test_an_optimizer(name: str, clock: Clock) -> None:
    recording = captured(programs.OPTIMIZERS[name])
    check(recording, clock)
    found = names(recording, "optimizer")
    if "fused" in name:
        assert sum(found.values()) - found["_foreach_add"] == 1  # of counters
    elif "one by one" in name:
        assert not any(op.startswith("_foreach") for op in found)
        assert sum(found.values()) % 4 == 0  # as many for each of four weights
    elif name != "adafactor":
        assert all(op.startswith("_foreach") for op in found)


# ── one kernel on a GPU is one call ──────────────────────────────────────────────────────────────


def test_dropout_and_rms_norm_are_one_kernel() -> None:
    found = names(captured(programs.encoder))
    assert found["native_dropout"] == found["native_dropout_backward"] == 6
    assert not found["bernoulli"]
    normed = names(captured(programs.rms_norm))
    assert normed["_fused_rms_norm"] == normed["_fused_rms_norm_backward"] == 1
    assert not normed["rsqrt"]


def test_recurrent_layers_are_one_call_of_many_kernels() -> None:
    recording = captured(programs.recurrent)
    (forward,) = [c for c in recording.calls() if base_name(c.op) == "_cudnn_rnn"]
    layers, steps = 2, 16
    assert sum(op.kind is Kind.MATMUL for op in lower(forward)) == layers * (1 + steps)
    assert {op.dtype for op in lower(forward) if op.kind is Kind.MATMUL} == {"fp16"}


def test_recurrent_layers_run_where_torch_is_built_with_cudnn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such a build joins their weights in C++, which fake tensors do not have."""
    monkeypatch.setattr(torch.backends.cudnn, "is_acceptable", lambda _: True)
    monkeypatch.setattr(torch, "_use_cudnn_rnn_flatten_weight", lambda: True)
    assert names(captured(programs.recurrent))["_cudnn_rnn"] == 1


def test_a_half_becomes_a_float_inside_softmax() -> None:
    """A bfloat16 is cast by a kernel of its own."""
    casts = {}
    for dtype in (torch.float16, torch.bfloat16):

        def build(dtype: torch.dtype = dtype) -> programs.Step:
            x = torch.randn(8, 64, device="cuda", dtype=dtype)
            return lambda: functional.softmax(x, -1, dtype=torch.float32)

        casts[dtype] = names(captured(build))["_to_copy"]
    assert casts == {torch.float16: 0, torch.bfloat16: 1}


def test_inference_mode_is_taken_apart_like_any_other() -> None:
    found = names(captured(programs.inferred))
    assert found["addmm"] == 2
    assert found["_fused_rms_norm"] == found["native_dropout"] == 1
    assert not found["linear"]


@pytest.mark.parametrize(("machine", "kernel"), [(H100, "cudnn"), (V100, "efficient")])
def test_attention_is_the_kernel_of_the_chip(machine: Machine, kernel: str) -> None:
    def build() -> programs.Step:
        q = torch.randn(2, 4, 64, 64, device="cuda", dtype=torch.float16, requires_grad=True)
        return lambda: functional.scaled_dot_product_attention(q, q, q).sum().backward()

    found = names(captured(build, machine))
    assert found[f"_scaled_dot_product_{kernel}_attention"] == 1
    assert found[f"_scaled_dot_product_{kernel}_attention_backward"] == 1


def test_views_and_places_cost_nothing() -> None:
    """Nor does a tensor that is asked to go where it is."""

    def build() -> programs.Step:
        x = torch.randn(4, 16, device="cuda")

        def step() -> None:
            y = x.view(2, 2, 16).transpose(0, 1)[..., 3:].expand(2, 2, 13).unsqueeze(0)
            y.detach().squeeze_(0)
            x.to("cuda").cuda().to(x).to(device="cuda:0", dtype=torch.float32)
            torch.empty(8, device="cuda")

        return step

    assert not list(captured(build).calls())


def test_numbers_that_follow_from_shapes_are_known() -> None:
    """Schedules, positions and masks, on the accelerator too; weights never are."""

    def build() -> programs.Step:
        with torch.device("cuda"):
            rates = [rate.item() for rate in torch.linspace(0, 0.1, 3)]
        assert rates == pytest.approx([0.0, 0.05, 0.1])
        ids = torch.randint(0, 9, (2, 8), device="cuda")
        weight = nn.Parameter(torch.ones(4, device="cuda"))

        def step() -> None:
            mask = torch.ones_like(ids)
            mask[:, 6:] = 0
            assert int(mask.sum()) == 12
            assert mask.nonzero().shape == (12, 2)
            assert (torch.arange(8, device="cuda") < 3).tolist() == [True] * 3 + [False] * 5
            assert type(weight.sum().item()) is not float

        return step

    captured(build)


# ── layouts, types, weights ──────────────────────────────────────────────────────────────────────


def test_channels_last_stays_last() -> None:
    recording = captured(programs.channels_last_network)
    convolutions = [c for c in recording.calls() if base_name(c.op) == "convolution"]
    assert len(convolutions) == 9
    for call in convolutions:
        assert call.outputs[0].strides[1] == 1
        assert call.outputs[0].dtype == "bfloat16"
        (op,) = lower(call)  # nothing is turned
        assert op.dtype == "bf16"


def test_a_convolution_knows_that_its_channels_lie_apart() -> None:
    """A library brings them together first, within what was timed as one call."""
    recording = captured(programs.diffusion)
    first = next(c for c in recording.calls() if base_name(c.op) == "convolution")
    product, bias = lower(first)
    assert (product.kind, product.variant) == ("matmul", "convolution")
    assert (product.facts["turned"], product.facts["window"]) == (1.0, 9.0)
    assert (bias.kind, bias.variant) == ("pointwise", "strided")


def test_single_precision_runs_as_torch_would_run_it() -> None:
    """Convolutions as tf32, products as fp32 unless the program allows it; V100 has no tf32."""

    def formats(build: programs.Build, machine: Machine) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for call in captured(build, machine).calls():
            for op in lower(call):
                if op.kind is Kind.MATMUL:
                    found.setdefault(base_name(call.op), set()).add(op.dtype)
        return found

    def allowed() -> programs.Step:
        torch.backends.cuda.matmul.allow_tf32 = True
        return programs.residual_network()

    plain = formats(programs.residual_network, H100)
    assert plain["convolution"] == {"tf32"}
    assert plain["mm"] == plain["addmm"] == {"fp32"}
    try:
        assert formats(allowed, H100)["addmm"] == {"tf32"}
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    assert formats(programs.residual_network, V100)["convolution"] == {"fp32"}


def test_weights_move_without_memory_and_stay_tied() -> None:
    """A model of 3 GB built on the host takes none, and an embedding stays its own head."""

    def build() -> programs.Step:
        model = GPT2(vocabulary=262144, width=2048).cuda()
        assert model.head.weight is model.words.weight
        assert model.head.weight.data_ptr() == model.words.weight.data_ptr()
        x = torch.randint(0, 512, (1, 8), device="cuda")
        return programs.trained(model, lambda: model(x).sum())

    recording = captured(build)
    expected = 262144 * 2048 + 256 * 2048 + 2 * (12 * 2048**2 + 13 * 2048) + 2 * 2048
    assert recording.parameter_count == expected
    table = 262144 * 2048 * 4
    built = recording.events[: len(recording.events) - len(recording.step())]
    made = [e for e in built if isinstance(e, Allocated) and e.size_bytes == table]
    assert len([e for e in made if e.phase == "forward" and e.op == "aten._to_copy.default"]) == 1


def test_an_op_of_ones_own_is_priced_by_its_bytes() -> None:
    recording = captured(programs.own_op)
    (call,) = [c for c in recording.calls() if c.op.startswith("trueflops_tests")]
    (op,) = lower(call)
    assert work(op).bytes_read == 2 * 8 * 64 * 4
    assert work(op).bytes_written == 8 * 64 * 4
    (warning,) = recording.warnings
    assert "trueflops_tests.blend" in warning
    assert "bytes" in warning


def test_checks_that_only_raise_are_passed_and_said() -> None:
    recording = captured(programs.checked)
    assert len(recording.warnings) == 3
    assert all("taken for passed" in said for said in recording.warnings)


# ── phases ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_runs_its_forward_again(reentrant: bool) -> None:
    recording = captured(programs.checkpointed(reentrant=reentrant))
    assert names(recording, "forward")["addmm"] == 2
    again = names(recording, "recompute")
    assert again["gelu"] == 1
    assert again["addmm"] in (1, 2)  # the last product need not be done again


def test_a_second_derivative_is_backward_not_recompute() -> None:
    phases = Counter(call.phase for call in captured(programs.gradient_penalty).calls())
    assert phases["recompute"] == 0
    assert phases["backward"] > 20


def test_gradients_are_added_where_they_are() -> None:
    """Four micro-batches: three of them, and the first of a second step, add to what is there."""
    adds = [
        c for c in captured(programs.accumulated).calls() if c.op == "aten.add_.Tensor"
    ]  # fmt: skip
    assert len(adds) == 4 * 4


def engine_adds(recording: Recording) -> list[str]:
    """Adds of a backward pass: in place or not."""
    added = ("aten.add.Tensor", "aten.add_.Tensor")
    return [c.op for c in recording.calls() if c.phase == "backward" and c.op in added]


@pytest.mark.parametrize(
    ("loss", "adds"),
    [
        # An expanded gradient cannot hold a sum.
        (lambda x, w: (x * 2 + x).sum(), ["add"]),
        # A residual: the gradient that waits for the branch is nobody else's.
        (lambda x, w: ((x * w).relu() + x * w).square().sum(), ["add_", "add_"]),
        (lambda x, w: residual(x * w), ["add_"]),
        (lambda x, w: residual(residual(x * w)), ["add_", "add_"]),
        # One node that gives two gradients to one input.
        (lambda x, w: square(x @ w), ["add_"]),
        # Four branches: the first sum finds its target shared, the others find it alone.
        (lambda x, w: branches(x * w), ["add", "add_", "add_"]),
    ],
)
def test_the_engine_adds_in_place(loss: Callable[..., torch.Tensor], adds: list[str]) -> None:
    """As it does when nobody watches: the same program on real tensors is the judge."""

    def build() -> programs.Step:
        x, w = (torch.randn(64, 64, device="cuda", requires_grad=True) for _ in range(2))

        def step() -> None:
            torch.autograd.grad(loss(x, w).sum(), (x, w), allow_unused=True)

        return step

    recording = captured(build)
    found = [op.split(".")[1] for op in engine_adds(recording)]
    assert found == adds
    really = adds_of_cpu(loss)
    assert Counter(found) == really
    # In place, nothing is allocated: so many sums, so many storages.
    made = [e for e in recording.step() if isinstance(e, Allocated) and e.op == "aten.add.Tensor"]
    assert len([e for e in made if e.phase == "backward"]) == adds.count("add")


def residual(h: torch.Tensor) -> torch.Tensor:
    return (h + h.relu()).square()


def square(h: torch.Tensor) -> torch.Tensor:
    return (h * h).exp()


def branches(h: torch.Tensor) -> torch.Tensor:
    return (h.exp() + h.sin() + h.cos() + h).square()


def adds_of_cpu(loss: Callable[..., torch.Tensor]) -> Counter[str]:
    """What autograd's engine adds when the same is run on real tensors, as a profiler sees it."""
    x, w = (torch.randn(64, 64, requires_grad=True) for _ in range(2))
    made = loss(x, w).sum()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.autograd.grad(made, (x, w), allow_unused=True)
    seen = Counter(event.name for event in profile.events())
    return +Counter({"add": seen["aten::add"], "add_": seen["aten::add_"]})


def test_lookups_are_undone_in_place() -> None:
    """The zeros that a formula has made are scattered into; under a mode torch copies them."""

    def build() -> programs.Step:
        x = torch.randn(64, 64, device="cuda", requires_grad=True)
        rows = torch.randint(0, 64, (16,), device="cuda")

        def step() -> None:
            picked = x[rows].sum() + x.topk(4).values.sum() + x.gather(1, rows[None, :]).sum()
            torch.autograd.grad(picked, x)

        return step

    backward = {c.op for c in captured(build).calls() if c.phase == "backward"}
    assert {"aten.index_put_.default", "aten.scatter_.src", "aten.scatter_add_.default"} <= backward


def test_a_hook_that_adds_gets_a_tensor_of_its_own() -> None:
    def build() -> programs.Step:
        model, x = nn.Linear(8, 8).cuda(), torch.randn(8, 8, device="cuda")

        def step() -> None:
            y = model(x)
            y.register_hook(lambda grad: grad + 1)
            y.square().sum().backward()
            model.zero_grad()

        return step

    assert engine_adds(captured(build)) == ["aten.add.Tensor"]


def test_a_call_says_where_it_stands() -> None:
    recording = captured(programs.vision_transformer)
    products: list[Call] = [c for c in recording.calls() if base_name(c.op) == "addmm"]
    assert {"ViT.blocks.0.qkv", "ViT.head"} <= {c.module for c in products} or {
        "blocks.0.qkv", "head"} <= {c.module for c in products}  # fmt: skip


def test_the_host_can_be_the_accelerator() -> None:
    """Programs that name no device run on a CPU, with its kernels."""
    host = Machine("a CPU", 64 * int(GIBI), 16, (0, 0), 32 * int(MEBI), on_host=True)

    def build() -> programs.Step:
        model, x = GPT2(), torch.randint(0, 512, (2, 32))
        model.eval()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        order = torch.randperm(8).tolist()
        assert sorted(order) == list(range(8))

        def step() -> None:
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    found = names(captured(build, host))
    assert found["_scaled_dot_product_flash_attention_for_cpu"] == 2
    assert found["_scaled_dot_product_flash_attention_for_cpu_backward"] == 2
