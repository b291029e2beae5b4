"""Data parallelism as the documents show it: DataParallel, a parameter server, fp16, NUMA nodes."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from run_ranks import job_of, model_of, run
from trueflops.cli import main
from trueflops.errors import BadInput
from trueflops.predict.stragglers.simulate import Mode
from trueflops.predict.training.through_one import REPORT_BYTES, ring_bytes, through_one
from trueflops.report.served import passed_of
from trueflops.run.bind import Node, bind, node_of, read_cores, read_nodes, write_cores
from trueflops.run.loop import tokens_of
from trueflops.run.precisions import train_in
from trueflops.run.products import WideSums
from trueflops.run.ran import Ran
from trueflops.run.rounded import Precision
from trueflops.run.served import Served, Used, foresee
from trueflops.workload import Training

STEPS = 6
TOLERANCE = 2e-6
"""Of a loss: sums of a few thousand fp32 numbers in another order differ by some 1e-7."""
SGD = {"optimizer": "sgd"}
"""Adam forgives a gradient that is too large by a factor."""
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def ran(folder: Path, plan: dict[str, Any], **more: Any) -> Ran:
    settings = {"steps": STEPS, "learning_rate": 0.03} | more
    return run(job_of(model_of("llama", folder), SGD | plan, **settings))


@pytest.fixture(scope="module")
def alone(folder: Path) -> list[float]:
    """The loss curve of one process."""
    return losses(ran(folder, {}))


def losses(run: Ran) -> list[float]:
    return [step.loss for step in run.steps]


class TestDataParallel:
    @pytest.mark.parametrize("replicas", [2, 4])
    def test_is_the_same_training(self, replicas: int, folder: Path, alone: list[float]) -> None:
        plan = {"dp_replicate": replicas, "engine": "dataparallel", "micro_batch": 1}
        found = ran(folder, plan)
        assert losses(found) == pytest.approx(alone, rel=TOLERANCE)
        job = job_of(model_of("llama", folder), plan)
        wanted = through_one(job.model, job.plan, job.workload)
        assert sorted(map(str, passed_of(found))) == sorted(map(str, wanted))

    def test_bytes_grow_with_replicas_and_a_ring_s_do_not(self, folder: Path) -> None:
        """Document 003: the cost of communication grows linearly with the GPUs."""
        model, sent, ring = model_of("llama", folder), {}, {}
        for n in (2, 4, 8):
            plan = {"dp_replicate": n, "engine": "dataparallel", "micro_batch": 1}
            job = job_of(model, plan, Training(16, n, 1e4))
            both = {each.what: each.payload for each in through_one(model, job.plan, job.workload)}
            sent[n], ring[n] = both["weights"], ring_bytes(model, job.plan)
            assert both["weights"] == both["gradients"] == (n - 1) * 4 * model.parameter_count
        assert sent[8] == 7 * sent[2]
        assert ring[8] < 2 * ring[2]


def served(folder: Path, updates: Mode, workers: int = 3, **more: Any) -> Served:
    """A few steps; the first worker is slow, so that the others meet it at different times."""
    plan = {"dp_replicate": workers, "engine": "parameter-server"}
    settings = {"updates": updates, "pause_seconds": 0.02} | more
    work = Training(16, 2 * workers, 1e4)
    job = job_of(model_of("llama", folder), SGD | plan, work, steps=STEPS, **settings)
    found = run(job).served
    assert found is not None
    assert sorted(each.task for each in found.used) == list(range(workers * STEPS))
    assert sorted(map(str, found.passed)) == sorted(
        map(str, through_one(job.model, job.plan, job.workload))
    )
    return found


class TestParameterServer:
    def test_in_step_it_is_ddp(self, folder: Path, alone: list[float]) -> None:
        both = [
            ran(folder, {"dp_replicate": 2, "engine": engine})
            for engine in ("ddp", "parameter-server")
        ]
        for found in both:
            assert losses(found) == pytest.approx(alone, rel=TOLERANCE)
        told = both[1].served
        assert told is not None
        assert told.most_staleness == 0
        if told.socket_bytes is not None:  # seen by the kernel, with gloo's few words
            weights = next(each.payload for each in told.passed if each.what == "weights")
            assert told.socket_bytes == pytest.approx(weights * STEPS, rel=0.02)

    @pytest.mark.parametrize("bound", [0, 2])
    def test_no_worker_is_further_ahead_than_the_bound(self, bound: int, folder: Path) -> None:
        found = served(folder, Mode.BOUNDED, staleness=bound)
        assert found.most_ahead <= bound
        # From its reading to its update each other worker makes at most 2s + 1 (Ho et al. 2013).
        assert found.most_staleness <= (found.workers - 1) * (2 * bound + 1)
        done = [0] * found.workers
        for each in found.used:
            done[each.worker] += 1
            left = [w for w in range(found.workers) if any(
                later.worker == w for later in found.used[sum(done) :])]  # fmt: skip
            assert all(done[each.worker] - done[w] <= bound + 1 for w in left)

    def test_asynchronous_gradients_are_as_old_as_counted(self, folder: Path) -> None:
        """A worker reads again right after its update: its ages and updates fill the order."""
        found = served(folder, Mode.ASYNCHRONOUS)
        for worker in range(found.workers):
            own = [(n, each) for n, each in enumerate(found.used, 1) if each.worker == worker]
            assert sum(each.age + 1 for _, each in own) == own[-1][0]

    def test_those_that_drop_are_never_stale(self, folder: Path) -> None:
        found = served(folder, Mode.DROPS, drop=1)
        assert found.most_staleness == 0
        assert sum(map(len, found.compute_seconds)) == len(found.used) + found.dropped

    def test_what_is_foreseen_of_equal_workers(self) -> None:
        """Nobody waits: each is as stale as there are others, and rates add up."""
        n, compute, exchange = 4, 0.1, 0.02
        used = tuple(Used(step % n, step, n - 1, 0.03 * step, 1.0) for step in range(n * 20))
        told = Served(
            updates=Mode.ASYNCHRONOUS, staleness=3, drop=1, tokens_per_gradient=10.0, used=used,
            dropped=0, most_ahead=0, waited_seconds=0.0, lasted_seconds=2.4,
            compute_seconds=((9.0, *(compute,) * 19),) * n,
            exchange_seconds=((9.0, *(exchange,) * 19),) * n, passed=(), socket_bytes=None,
        )  # fmt: skip
        wanted = foresee(told)
        assert wanted is not None
        assert wanted.gradients_per_second == pytest.approx(n / (compute + exchange))
        assert wanted.mean_staleness == pytest.approx(n - 1)
        assert told.mean_staleness == n - 1
        assert told.tokens_per_second == pytest.approx(10.0 / 0.03)
        assert foresee(replace(told, compute_seconds=((compute,),) * n)) is None

    def test_a_report_has_three_numbers(self) -> None:
        assert torch.zeros(3, dtype=torch.float64).nbytes == REPORT_BYTES


@pytest.mark.parametrize("micro_batch", [1, 4, 8])
def test_accumulated_gradients_are_those_of_the_batch(
    micro_batch: int, folder: Path, alone: list[float]
) -> None:
    found = ran(folder, {"micro_batch": micro_batch})
    assert losses(found) == pytest.approx(alone, rel=TOLERANCE)


class TestPrecision:
    def test_fp16_with_a_scale_learns_as_fp32_does(self, folder: Path, alone: list[float]) -> None:
        found = ran(folder, {"dp_replicate": 2, "compute": "fp16"})
        assert losses(found) == pytest.approx(alone, rel=1e-3)
        assert [step.loss_scale for step in found.steps] == [65536.0] * STEPS

    def test_a_step_that_overflows_is_left_out(self, folder: Path) -> None:
        """One token a step: 65,536 times its gradient is above 65,504, fp16's largest number."""
        model = model_of("llama", folder)
        plan = {"compute": "fp16", "micro_batch": 1}
        found = run(job_of(model, plan, Training(1, 1, 1e3), steps=STEPS))
        scales = [step.loss_scale for step in found.steps]
        assert scales[0] == 32768.0
        assert scales[-1] == scales[-2] <= scales[0]
        assert all(torch.tensor(losses(found)).isfinite())

    def rounded(self, folder: Path, precision: Precision, rate: float, scale: float = 0.0) -> Any:
        plan = {"micro_batch": 8}
        job = job_of(model_of("llama", folder), plan, steps=STEPS, learning_rate=rate,
                     loss_scale=scale)  # fmt: skip
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # these tensors are too small to share
        try:
            return train_in(job, tokens_of(job), CPU, precision)
        finally:
            torch.set_num_threads(threads)

    def test_narrow_weights_stop_where_wide_ones_go_on(self, folder: Path) -> None:
        """AdamW moves a weight by some 1e-5 a step, bf16's last bit of 0.02 is worth 1e-4."""
        wide = self.rounded(folder, Precision("fp32", "fp32"), 1e-5)
        mixed = self.rounded(folder, Precision("fp16", "fp32", scaled=True), 1e-5)
        fp16 = self.rounded(folder, Precision("fp16", "fp16", scaled=True), 1e-5)
        bf16 = self.rounded(folder, Precision("fp32", "bf16"), 1e-5)
        assert wide.swamped_share < 0.001
        assert mixed.swamped_share < 0.001
        assert mixed.moved == pytest.approx(wide.moved, rel=0.01)
        assert 0.1 < fp16.swamped_share < bf16.swamped_share
        assert bf16.swamped_share > 0.8
        assert bf16.moved < 0.9 * wide.moved

    def test_small_gradients_are_zero_without_a_scale(self, folder: Path) -> None:
        """A scale of 1/4096 does to these gradients what a larger batch and vocabulary do."""
        wide = self.rounded(folder, Precision("fp32", "fp32"), 1e-3)
        tiny = self.rounded(folder, Precision("fp16", "fp32", scaled=True), 1e-3, scale=2.0**-12)
        scaled = self.rounded(folder, Precision("fp16", "fp32", scaled=True), 1e-3)
        assert scaled.zero_share == pytest.approx(wide.zero_share, abs=0.01)
        assert tiny.zero_share > wide.zero_share + 0.2
        assert tiny.loss_scale == 2.0**-12

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_products_are_summed_in_fp32(self, dtype: torch.dtype) -> None:
        draw = torch.Generator().manual_seed(0)
        a, b = (torch.randn(64, 64, generator=draw).to(dtype) for _ in range(2))
        q = torch.randn(1, 2, 8, 16, generator=draw).to(dtype).requires_grad_()
        attend = torch.nn.functional.scaled_dot_product_attention
        with WideSums():
            product, mixed = a @ b, attend(q, q, q, is_causal=True)
            torch.autograd.backward(mixed.float().sum())
        assert torch.equal(product, (a.float() @ b.float()).to(dtype))
        wide = q.detach().float()
        assert torch.equal(mixed, attend(wide, wide, wide, is_causal=True).to(dtype))
        assert q.grad is not None
        assert q.grad.dtype == dtype


class TestBinding:
    def machine(self, folder: Path) -> tuple[Node, ...]:
        for number, cores in enumerate(("0-47,96-143", "48-95,144-191")):
            (folder / f"node{number}").mkdir()
            (folder / f"node{number}" / "cpulist").write_text(cores + "\n")
        return read_nodes(folder, frozenset(range(192)))

    def test_nodes_are_read_as_linux_shows_them(self, tmp_path: Path) -> None:
        """The machine of document 003."""
        one, other = self.machine(tmp_path)
        assert one.shown == "node 0 (CPUs 0-47,96-143)"
        assert len(other.cores) == 96
        assert read_nodes(tmp_path, frozenset({50})) == (Node(1, frozenset({50})),)
        assert read_nodes(tmp_path / "none", frozenset({0})) == ()
        assert read_cores(write_cores(frozenset({1, 2, 3, 7}))) == {1, 2, 3, 7}

    def test_neighbours_share_a_node_and_a_rank_is_beside_its_gpu(self, tmp_path: Path) -> None:
        nodes = self.machine(tmp_path)
        assert [node_of(nodes, rank, 4).number for rank in range(4)] == [0, 0, 1, 1]
        assert [node_of(nodes, rank, 1).number for rank in range(1)] == [0]
        device = tmp_path / "0000:1b:00.0"
        device.mkdir()
        (device / "numa_node").write_text("1\n")
        assert node_of(nodes, 0, 4, "0000:1B:00.0", tmp_path).number == 1
        (device / "numa_node").write_text("-1\n")
        assert node_of(nodes, 0, 4, "0000:1B:00.0", tmp_path).number == 0

    @pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux binds threads")
    def test_a_process_is_bound(self) -> None:
        before = os.sched_getaffinity(0)
        try:
            bind(Node(0, frozenset({min(before)})))
            assert os.sched_getaffinity(0) == {min(before)}
        finally:
            bind(Node(0, frozenset(before)))


class TestDoor:
    @pytest.mark.parametrize(
        ("plan", "words", "said"),
        [
            ({"dp_replicate": 2}, ["--updates", "bounded"], "is for a parameter server"),
            ({"dp_replicate": 2}, ["--staleness", "2"], "--staleness is for --updates bounded"),
            ({}, ["--compare", "engines"], "needs replicas"),
            ({"dp_replicate": 2}, ["--compare", "engines", "--updates", "bounded"], "them all"),
            ({"tp": 2}, ["--dp-engine", "parameter-server"], "only replicates"),
            ({"dp_replicate": 2, "compute": "fp16"}, ["--loss-scale", "0"], "must be above 0"),
            ({}, ["--loss-scale", "8"], "is for fp16"),
            ({}, ["--pause", "3"], "has no unit"),
            ({"tp": 2, "compute": "fp16"}, [], "fp16 but for whole replicas"),
            ({"dp_replicate": 2, "engine": "parameter-server", "compute": "fp16"}, [], "bf16 or"),
            ({"dp_replicate": 2, "engine": "dataparallel"}, ["--checkpoint", "c"], "ddp alone"),
            (
                {"dp_replicate": 2, "engine": "parameter-server"},
                ["--updates", "drops", "--drop", "2"],
                "at most 1 can be left out",
            ),
        ],
    )
    def test_what_would_do_nothing_is_refused(
        self, plan: dict[str, Any], words: list[str], said: str, tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:  # fmt: skip
        assert main(self.command(tmp_path, plan, *words)) == BadInput.exit_code
        assert said in " ".join(capsys.readouterr().err.split())

    def command(self, folder: Path, plan: dict[str, Any], *words: str) -> list[str]:
        model_of("llama", folder)
        (folder / "plan.json").write_text(json.dumps(plan))
        where = [str(folder / "plan.json"), "--model", str(folder / "llama")]
        return ["run", *where, "--device", "cpu", *words]

    def test_precisions_side_by_side(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        few = ["--compare", "precisions", "--steps", "2", "--seq", "8", "--json"]
        assert main(self.command(tmp_path, {}, *few)) == 0
        told = json.loads(capsys.readouterr().out)["precisions"]
        assert {(each["compute"], each["weights"]) for each in told} == {
            ("fp32", "fp32"), ("bf16", "fp32"), ("fp16", "fp32"), ("fp16", "fp16"),
            ("bf16", "bf16"),
        }  # fmt: skip
        for each in told:
            assert each["losses"][0] == pytest.approx(told[0]["losses"][0], rel=0.01)

    @pytest.mark.skipif(len(read_nodes()) > 1, reason="here there is something to bind")
    def test_one_node_is_said_plainly(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(self.command(tmp_path, {}, "--compare", "binding")) == 0
        assert "there is nothing to bind" in capsys.readouterr().out
