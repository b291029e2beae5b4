"""CUDA graphs, by hand and by torch.compile, and flex_attention: what a capture records of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import flex_attention as flex

from capture_programs import Build, Step, mlp
from trueflops.capture.lower import base_name, lower
from trueflops.capture.pretend.machine import Machine
from trueflops.capture.program import capture
from trueflops.capture.trouble import CannotCapture
from trueflops.catalog import accelerator, cluster
from trueflops.clock import Clock
from trueflops.predict.captured.program import predict_program
from trueflops.profile import profile_of
from trueflops.records.recording import Call, Recording

CHIP = "H100-SXM-80GB"
MACHINE = Machine.like(accelerator(CHIP))
ROWS = 64


def captured(build: Build) -> Recording:
    return capture(lambda: build, MACHINE)


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock(cluster(CHIP), profile_of(accelerator(CHIP)))


class Training:
    """A small model, and its whole step."""

    def __init__(self) -> None:
        self.model = mlp().cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), fused=True, capturable=True)
        self.x = torch.randn(ROWS, 64, device="cuda")

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.model(self.x).square().mean().backward()
        self.optimizer.step()


def eager() -> Step:
    return Training().step


def by_hand(times: int = 1) -> Step:
    """As torch's documentation shows it: a warm-up on a side stream, a capture, replays."""
    training = Training()
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        training.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        training.step()

    def step() -> Training:
        for _ in range(times):
            graph.replay()
        return training

    return step


def names(recording: Recording) -> Counter[str]:
    return Counter(call.op for call in recording.calls())


# ── by hand ──────────────────────────────────────────────────────────────────────────────────────


def test_a_replay_launches_what_was_called_while_the_graph_was_captured() -> None:
    plain, graphed = captured(eager), captured(by_hand)
    assert names(graphed) == names(plain)
    assert {call.graph for call in plain.calls()} == {-1}
    assert len({call.graph for call in graphed.calls()}) == 1
    assert {call.stream for call in graphed.calls()} == {0}  # not the stream of the capture


def test_every_replay_is_a_launch() -> None:
    once, thrice = captured(by_hand), captured(lambda: by_hand(3))
    assert names(thrice) == Counter({name: 3 * n for name, n in names(once).items()})
    assert len({call.graph for call in thrice.calls()}) == 3


def test_a_graph_costs_the_host_one_call(clock: Clock) -> None:
    plain, graphed = (predict_program(captured(b), clock).step for b in (eager, by_hand))
    law = clock.host.law
    assert graphed.host_seconds == pytest.approx(law["graph"])
    assert graphed.device_seconds == pytest.approx(plain.device_seconds)
    kernels = len(graphed.ran)
    assert graphed.gap_seconds == pytest.approx((kernels - 1) * law["node"])
    assert float(graphed.seconds.value) < 0.2 * float(plain.seconds.value)


def test_a_pool_keeps_what_a_graph_freed(clock: Clock) -> None:
    """What lived only inside the capture is not allocated any more, and not free either."""

    def build() -> Step:
        x = torch.randn(1024, 1024, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = ((x * 2.0) + 1.0).sum()

        def step() -> tuple[Tensor, Tensor]:
            graph.replay()
            return x, y

        return step

    found = predict_program(captured(build), clock)
    # The product's result goes when the sum has been added to, the sum's when it has been reduced.
    assert found.memory.pool_bytes == pytest.approx(2 * 4 * 1024**2, abs=4)
    assert found.memory.peak_allocated_bytes == 4 * 1024**2 + 512
    needed = found.memory.peak_allocated_bytes + found.memory.pool_bytes
    assert found.fitting.needed_bytes > needed


def test_graphs_that_share_a_pool_share_its_memory() -> None:
    def build(shared: bool) -> Step:
        x = torch.randn(1024, 1024, device="cuda")
        graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
        pool: Any = torch.cuda.graph_pool_handle() if shared else None
        for graph in graphs:
            with torch.cuda.graph(graph, pool=pool):
                (x * 2.0).sum()

        def step() -> None:
            for graph in graphs:
                graph.replay()

        return step

    alone, together = (
        sum(pool.idle_bytes for pool in captured(lambda s=s: build(s)).pools.values())  # type: ignore[misc]
        for s in (False, True)
    )
    assert alone == 2 * together > 4 * 1024**2


def test_streams_that_fork_inside_a_graph_join_there() -> None:
    def build() -> Step:
        x = torch.randn(256, 256, device="cuda")
        graph = torch.cuda.CUDAGraph()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.graph(graph):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                a = x @ x
            b = x + x
            torch.cuda.current_stream().wait_stream(side)
            a.add_(b)
        return graph.replay

    recording = captured(build)
    calls = {base_name(call.op): call for call in recording.calls()}
    assert calls["mm"].stream != calls["add"].stream == 0
    waits = [event for event in recording.step() if not isinstance(event, Call)]
    assert len(waits) == 2


def test_reading_a_number_while_capturing_is_refused_as_cuda_refuses_it() -> None:
    def build() -> Step:
        x = torch.randn(4, device="cuda")
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            x.sum().item()
        return lambda: None

    with pytest.raises(CannotCapture, match="not permitted when stream is capturing"):
        captured(build)


def test_graphed_callables_launch_one_graph_each_way() -> None:
    def build() -> Step:
        x = torch.randn(ROWS, 64, device="cuda", requires_grad=True)
        model: Any = torch.cuda.make_graphed_callables(mlp().cuda(), (x,))
        return lambda: model(x).sum().backward()

    calls = list(captured(build).calls())
    graphs = {call.graph: call.phase for call in calls if call.graph >= 0}
    assert sorted(graphs.values()) == ["backward", "forward"]
    products = [call for call in calls if base_name(call.op) in ("mm", "addmm")]
    assert len(products) == 6
    assert all(call.graph >= 0 for call in products)


# ── torch.compile ────────────────────────────────────────────────────────────────────────────────


def compiled(clip: bool = False, **options: Any) -> Build:
    def build() -> Step:
        training = Training()
        run = torch.compile(training.model, **options)

        def step() -> None:
            run(training.x).square().mean().backward()
            if clip:
                nn.utils.clip_grad_norm_(training.model.parameters(), 1.0)
            training.optimizer.step()
            training.optimizer.zero_grad()

        return step

    return build


@pytest.mark.parametrize(
    ("options", "graphed"),
    [
        ({}, False),
        ({"mode": "reduce-overhead"}, True),
        ({"mode": "max-autotune"}, True),
        ({"mode": "max-autotune-no-cudagraphs"}, False),
        ({"options": {"triton.cudagraphs": True}}, True),
    ],
)
def test_a_mode_says_whether_a_region_runs_as_graphs(
    options: dict[str, Any], graphed: bool, clock: Clock
) -> None:
    recording = captured(compiled(clip=True, **options))
    inside = [call for call in recording.calls() if call.region >= 0]
    graphs = {(call.graph, call.phase) for call in inside if call.graph >= 0}
    assert inside
    assert len(graphs) == (2 if graphed else 0)
    outside = {call.graph for call in recording.calls() if call.region < 0}
    assert outside == {-1}  # the loss, clipping and the optimizer are launched one by one
    host = predict_program(recording, clock).step.host_seconds
    alike = predict_program(captured(compiled(clip=True)), clock).step.host_seconds
    assert (host < alike) == graphed


def test_a_backend_that_runs_op_by_op_is_no_region() -> None:
    calls = captured(compiled(backend="eager")).calls()
    assert {call.region for call in calls} == {-1}


def test_dropout_is_drawn_inside_a_compiled_kernel(clock: Clock) -> None:
    """Its mask is kept for the backward; what it let through is made again from that."""

    def build() -> Step:
        x = torch.randn(256, 1024, device="cuda", requires_grad=True)

        @torch.compile
        def run(x: Tensor) -> Any:
            return nn.functional.dropout(x.sin(), 0.1).exp()

        return lambda: run(x).sum().backward()

    found = predict_program(captured(build), clock)
    forward = [c for c in found.recording.calls() if c.region >= 0 and c.phase == "forward"]
    (call,) = forward
    assert sorted(array.dtype for array in call.outputs) == ["bool", "float32"]


def test_a_compiled_backward_runs_under_the_autocast_of_its_forward() -> None:
    """Plain attention multiplies in fp32 under autocast; compiled, only its forward does."""

    def build(compile_: bool) -> Step:
        shape = (2, 2, 64, 36)  # no kernel takes such a head with a mask
        q, mask = torch.randn(shape, device="cuda"), torch.zeros(64, 64, device="cuda")
        q.requires_grad_()

        def run(q: Tensor) -> Any:
            return nn.functional.scaled_dot_product_attention(q, q, q, mask)

        chosen = torch.compile(run) if compile_ else run

        def step() -> None:
            with torch.autocast("cuda", torch.bfloat16):
                made = chosen(q)
            made.sum().backward()

        return step

    def types(compile_: bool) -> set[tuple[str, str]]:
        calls = captured(lambda: build(compile_)).calls()
        return {(c.phase, c.inputs[0].dtype) for c in calls if base_name(c.op) == "bmm"}

    assert types(False) == {("forward", "float32"), ("backward", "float32")}
    assert types(True) == {("forward", "float32"), ("backward", "bfloat16")}


# ── flex_attention ───────────────────────────────────────────────────────────────────────────────

Places = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
LENGTH, BLOCK = 1024, 128


def causal(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return q >= k


def window(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return (q >= k) & (q - k < BLOCK)


def flexed(mask: Places | None, *, fused: bool, heads: int = 4) -> Build:
    def build() -> Step:
        shape = (2, 4, LENGTH, 64)
        q = torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        k, v = (
            torch.randn(2, heads, *shape[2:], device="cuda", dtype=torch.bfloat16).requires_grad_()
            for _ in range(2)
        )
        blocks = None
        if mask is not None:
            blocks = flex.create_block_mask(mask, None, None, LENGTH, LENGTH, device="cuda")
        run: Any = torch.compile(flex.flex_attention) if fused else flex.flex_attention
        return lambda: run(q, k, v, block_mask=blocks, enable_gqa=True).sum().backward()

    return build


@pytest.mark.parametrize(
    ("mask", "blocks"),
    [(None, 8.0), (causal, 4.5), (window, 15 / 8)],  # of the 8 of a row, on average
)
def test_a_compiled_flex_attention_sees_the_blocks_that_its_mask_leaves(
    mask: Places | None, blocks: float
) -> None:
    calls = [c for c in captured(flexed(mask, fused=True)).calls() if "flex" in c.op]
    assert [base_name(c.op) for c in calls] == ["flex_attention", "flex_attention_backward"]
    assert [c.phase for c in calls] == ["forward", "backward"]
    assert len({c.region for c in calls}) == 1
    assert calls[0].region >= 0
    for call in calls:
        (op,) = lower(call)
        assert op.facts["seen"] == pytest.approx(blocks * BLOCK)


def test_a_mask_that_looks_numbers_up_skips_nothing_and_says_so() -> None:
    documents = torch.zeros(LENGTH, dtype=torch.int64)

    def build() -> Step:
        ids = documents.cuda() * torch.randint(0, 2, (LENGTH,), device="cuda")

        def same(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            return ids[q] == ids[k]

        return flexed(same, fused=True)()

    recording = captured(build)
    (call,) = (c for c in recording.calls() if c.op.endswith(".flex_attention"))
    assert lower(call)[0].facts["seen"] == LENGTH
    assert any("flex_attention" in text for text in recording.warnings)


def test_an_eager_flex_attention_has_its_scores_in_memory() -> None:
    calls = list(captured(flexed(causal, fused=False, heads=2)).calls())
    assert not any("flex" in call.op for call in calls)
    products = [call for call in calls if base_name(call.op) == "bmm"]
    assert [call.phase for call in products] == ["forward"] * 2 + ["backward"] * 5
    scores = products[0].outputs[0]
    assert (scores.shape, scores.dtype) == ((8, LENGTH, LENGTH), "float32")
