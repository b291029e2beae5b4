"""Traces made by hand, whose figures were worked out by hand; a real one; and hostile files."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from trueflops.catalog import cluster
from trueflops.cli import main
from trueflops.clock import Clock
from trueflops.errors import BadInput, TrueflopsError
from trueflops.graph.rules import work
from trueflops.interop.kineto import file as kineto_file
from trueflops.interop.kineto import read_trace
from trueflops.interop.kineto.arguments import TracedOp
from trueflops.interop.kineto.calls import call_of, label_of, ops_of
from trueflops.predict.diagnosis import Diagnosis, diagnose
from trueflops.predict.diagnosis.causes import cause_of
from trueflops.profile import from_datasheet, profile_of

Capture = pytest.CaptureFixture[str]
Event = dict[str, Any]
REAL = Path(__file__).parent / "data" / "llama_160m_step.json.gz"
US = 1e-6
BF16, FP32 = "c10::BFloat16", "float"


class Run:
    """A trace that grows event by event; times in microseconds."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.number = 0

    def host(self, name: str, ts: float, dur: float, cat: str = "cpu_op", tid: int = 1,
             **args: Any) -> None:  # fmt: skip
        self.events.append({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts,
                            "dur": dur, "args": args})  # fmt: skip

    def op(
        self, name: str, launched: float, start: float, *seconds: float, dims: list[Any],
        types: list[str], values: list[str] | None = None, kernel: str = "nvjet", tid: int = 1,
        stream: int = 7, **more: Any,
    ) -> None:  # fmt: skip
        """An op that launches kernels, one after the other."""
        self.number += 1
        self.host(name, launched - 1.0, 2.0 + len(seconds), tid=tid,
                  **{"External id": self.number, "Input Dims": dims, "Input type": types,
                     "Concrete Inputs": values or [""] * len(dims), **more})  # fmt: skip
        linked: Event = {"External id": self.number}
        for i, long in enumerate(seconds):
            self.kernel(kernel, start, long, launched + i * 0.1, stream=stream, tid=tid, **linked)
            start += long

    def kernel(
        self, name: str, start: float, long: float, launched: float | None = None,
        cat: str = "kernel", stream: int = 7, tid: int = 1, **args: Any,
    ) -> None:  # fmt: skip
        number = len(self.events) + 10_000
        self.events.append({"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": stream,
                            "ts": start, "dur": long,
                            "args": {"correlation": number, "device": 0, "stream": stream,
                                     "grid": [320, 1, 1], **args}})  # fmt: skip
        if launched is not None:
            self.host("cudaLaunchKernel", launched, 0.05, "cuda_runtime", tid, correlation=number)

    def mm(self, launched: float, start: float, *seconds: float, **more: Any) -> None:
        """A product of 4096³ in bf16."""
        self.op("aten::mm", launched, start, *seconds, dims=[[4096, 4096], [4096, 4096]],
                types=[BF16, BF16], **more)  # fmt: skip

    def write(self, folder: Path, name: str = "trace.json") -> Path:
        path = folder / name
        text = json.dumps({"deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
                           "traceEvents": self.events})  # fmt: skip
        if name.endswith(".gz"):
            path.write_bytes(gzip.compress(text.encode()))
        else:
            path.write_text(text)
        return path

    def diagnose(self, folder: Path, on: str = "H200") -> Diagnosis:
        where = cluster(on)
        clock = Clock(where, profile_of(where.accelerator))
        return diagnose(read_trace(self.write(folder)), clock)


# ── the clock of the device ──────────────────────────────────────────────────────────────────────


def test_causes_and_idle_time_sum_to_the_step(tmp_path: Path) -> None:
    run = Run()
    run.mm(0, 10, 100)  # 10 – 110
    run.op("aten::add", 1, 112, 50, dims=[[2048, 2048]] * 2, types=[BF16] * 2,
           kernel="vectorized_elementwise_kernel")  # 112 – 162: launched long before  # fmt: skip
    run.mm(250, 260, 100)  # 260 – 360: the host was late
    found = run.diagnose(tmp_path)
    assert found.window.seconds == pytest.approx(350 * US)
    shares = found.occupied
    assert shares.by_cause["matmul"] == pytest.approx(200 * US)
    assert shares.by_cause["memory"] == pytest.approx(50 * US)
    assert shares.idle == pytest.approx(100 * US)
    assert sum(shares.by_cause.values()) + shares.idle == pytest.approx(found.window.seconds)
    assert found.late_seconds == pytest.approx(98 * US)  # the other 2 µs it was in the queue
    assert [round(p.seconds / US) for p in found.pauses] == [98, 2]


def test_communication_is_hidden_only_beside_compute(tmp_path: Path) -> None:
    """Compute 0 – 200, an all-reduce 100 – 300: half of it is hidden."""
    run = Run()
    run.mm(0, 10, 200)
    sent: Event = {"Collective name": "allreduce", "In msg nelems": 2**20, "Out msg nelems": 2**20,
            "Group size": 8, "dtype": "BFloat16",
            "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]"}  # fmt: skip
    run.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 110, 200, 20, stream=20, **sent)
    found = run.diagnose(tmp_path, "8xH200")
    assert found.occupied.by_cause["communication"] == pytest.approx(100 * US)
    assert found.occupied.hidden == pytest.approx(100 * US)
    assert found.window.seconds == pytest.approx(300 * US)
    group = next(g for g in found.groups if g.cause == "communication")
    assert group.label == "all_reduce 2.10 MB on 8"
    assert group.predicted is not None
    assert 5 * US < float(group.predicted.value) < 60 * US
    names = [case.name for case in found.possible]
    assert names[-1] == "all together"
    hidden = next(case for case in found.possible if case.name == "communication hidden")
    assert hidden.seconds == pytest.approx(200 * US)
    assert found.possible[-1].seconds == pytest.approx(200 * US)  # 200 of communication remain


def test_an_all_gather_is_what_it_gathers(tmp_path: Path) -> None:
    run = Run()
    run.mm(0, 10, 20)
    sent: Event = {
        "Collective name": "_allgather_base", "In msg nelems": 1000, "Out msg nelems": 4000,
        "Group size": 4, "dtype": "Float", "Process Group Ranks": "[3, 11, ...]",
    }  # fmt: skip
    run.kernel("ncclDevKernel_AllGather_RING_LL", 40, 50, 1, stream=9, **sent)
    trace = read_trace(run.write(tmp_path))
    message = trace.kernels[-1].message
    assert message is not None
    assert message._asdict() == {
        "kind": "all_gather", "payload_bytes": 16000.0, "group": 4, "stride": 8
    }  # fmt: skip


def test_kernels_of_one_op_are_summed(tmp_path: Path) -> None:
    """A product split over k: two kernels and a memset, one launch."""
    run = Run()
    run.mm(0, 10, 60, 40)
    number = run.number
    run.kernel("Memset (Device)", 5, 1, 0.5, "gpu_memset", **{"External id": number})
    run.mm(1, 200, 90)
    found = run.diagnose(tmp_path)
    (group,) = found.groups
    assert (group.count, group.kernels) == (2, 4)
    assert group.measured_seconds == pytest.approx(191 * US)
    assert group.label == "mm 4096×4096×4096 bf16"
    assert group.bound == "compute"
    assert group.flop == 2 * 2 * 4096.0**3


def test_the_median_step_is_shown_and_ends_where_the_next_begins(tmp_path: Path) -> None:
    run = Run()
    starts = (0, 1000, 3000)  # steps of 1000, 2000 and of what its one kernel takes
    for i, start in enumerate(starts):
        run.host(f"ProfilerStep#{i}", start, 900, "user_annotation")
        run.mm(start + 5, start + 10, 1500 if i == 2 else 100)
    found = run.diagnose(tmp_path)
    assert [round(s / US) for _, s in found.steps] == [1000, 2000, 1500]
    assert found.window.name == "ProfilerStep#0"  # of the last nobody knows when it ended
    assert found.occupied.idle == pytest.approx(900 * US)
    assert found.late_seconds == pytest.approx(900 * US)  # the next step came late


def test_a_faster_kernel_before_a_late_launch_saves_nothing(tmp_path: Path) -> None:
    late, queued = Run(), Run()
    late.mm(0, 10, 5000)  # some 190 µs should do
    late.mm(5100, 5110, 190)
    queued.mm(0, 10, 5000)
    queued.mm(1, 5012, 190)
    for run, saves in ((late, False), (queued, True)):
        found = run.diagnose(tmp_path)
        cases = {case.name: case for case in found.possible}
        assert found.slow[0].label == "mm 4096×4096×4096 bf16"
        alone = cases["slow kernels as predicted"]
        assert (alone.seconds < 0.5 * found.window.seconds) is saves
        assert cases["all together"].seconds < 500 * US
        if saves:
            assert alone.low < alone.seconds < alone.high


def test_what_the_host_did_in_a_gap(tmp_path: Path) -> None:
    run = Run()
    run.mm(0, 10, 100)  # until 110
    run.host("aten::item", 20, 140)
    run.host("cudaStreamSynchronize", 30, 120, "cuda_runtime")  # until 150
    run.host("Activity Buffer Request", 160, 10, "overhead", 0)
    run.mm(400, 410, 100)
    found = run.diagnose(tmp_path)
    spent = found.spent
    assert spent["wait"] == pytest.approx(40 * US, rel=0.05)
    assert spent["profiler"] == pytest.approx(10 * US)
    assert spent["python"] == pytest.approx(230 * US, rel=0.1)
    assert sum(spent.values()) == pytest.approx(300 * US)
    assert found.pauses[0].host == "Python"
    codes = {a.code: a for a in found.advice}
    assert codes["synchronisation"].saves_seconds == pytest.approx(300 * US)
    assert "cudaStreamSynchronize in aten::item" in codes["synchronisation"].text
    assert codes["launch_bound"].saves_seconds == pytest.approx(300 * US)


def test_phases(tmp_path: Path) -> None:
    run = Run()
    engine = "autograd::engine::evaluate_function: MmBackward0"
    numbered = {"Sequence number": 7, "Fwd thread id": 0}
    run.mm(10, 20, 5, **numbered)
    run.host(engine, 100, 100, tid=2)
    run.mm(110, 120, 6, tid=2, **numbered)  # on the way back only what is recomputed is numbered
    run.mm(150, 160, 7, tid=2)
    run.mm(300, 310, 8)  # clipping: behind the backward, before the step
    run.host("Optimizer.step#AdamW.step", 400, 100, "user_annotation")
    run.mm(410, 420, 9)
    found = run.diagnose(tmp_path)
    assert {p: round(s / US) for p, s in found.phases.items()} == {
        "forward": 5, "recompute": 6, "backward": 7, "optimizer": 17
    }  # fmt: skip


def test_copies_and_kernels_of_unknown_origin(tmp_path: Path) -> None:
    run = Run()
    run.mm(0, 10, 100)
    run.kernel("void mine::(anonymous namespace)::my_kernel<int>(char*)", 110, 50, 5)
    run.kernel("Memcpy HtoD (Pageable -> Device)", 160, 1000, 6, "gpu_memcpy", bytes=10**7)
    found = run.diagnose(tmp_path)
    unknown = next(g for g in found.groups if g.label == "my_kernel")
    assert (unknown.predicted, unknown.cause) == (None, "other")
    copy = next(g for g in found.groups if g.cause == "copies")
    assert copy.predicted is not None
    assert copy.moved_bytes == 1e7
    advice = next(a for a in found.advice if a.code == "pin_memory")
    assert advice.saves_seconds == pytest.approx(1000 * US)


def test_graphs_compiled_kernels_and_hip(tmp_path: Path) -> None:
    run = Run()
    run.op("triton_poi_fused_mul_0", 0, 10, 60, dims=[[8192, 4096]] * 3 + [[]],
           types=[BF16] * 3 + ["Scalar"], kernel="triton_poi_fused_mul_0")  # fmt: skip
    run.host("hipGraphLaunch", 20, 5, "hip_runtime", correlation=77)
    graph: Event = {"correlation": 77}
    run.kernel("Cijk_Ailk_Bljk_BBS_BH_MT256x128x64", 80, 100, **graph)
    run.kernel("my_own_kernel", 181, 30, **graph)
    run.kernel("CopyHostToDevice", 211, 10, 30, "gpu_memcpy", bytes=1000)
    found = run.diagnose(tmp_path, "MI300X")
    shares = {cause: round(s / US) for cause, s in found.occupied.by_cause.items() if s}
    assert shares == {"memory": 60, "matmul": 100, "other": 30, "copies": 10}
    labels = {group.label: group.predicted is not None for group in found.groups}
    assert labels == {
        "triton_poi_fused_mul_0 8192×4096 bf16": True, "copy to the device": True,
        "Cijk_Ailk_Bljk_BBS_BH_MT256x128x64": False, "my_own_kernel": False,
    }  # fmt: skip
    assert not any(pause.late for pause in found.pauses)  # a graph was launched long before


def test_products_in_plain_fp32_are_told_of_tf32(tmp_path: Path) -> None:
    run = Run()
    shape = [[4096, 4096], [4096, 4096]]
    run.op("aten::mm", 0, 10, 3000, dims=shape, types=[FP32, FP32], kernel="ampere_sgemm_128x64")
    run.op("aten::mm", 1, 3010, 400, dims=shape, types=[FP32, FP32],
           kernel="sm90_xmma_gemm_f32f32_tf32f32")  # fmt: skip
    found = run.diagnose(tmp_path)
    assert [g.label for g in found.groups] == [
        "mm 4096×4096×4096 fp32", "mm 4096×4096×4096 tf32"
    ]  # fmt: skip
    assert 2000 * US < found.advice[0].saves_seconds < 2800 * US
    assert found.advice[0].code == "tf32"


def test_a_slow_product_over_an_odd_vocabulary_is_told_to_be_padded(tmp_path: Path) -> None:
    """As measured on an H200: 8192×50257×1024 took 7.3 times what it takes with 50304."""
    run = Run()
    run.op("aten::mm", 0, 10, 8700, dims=[[8192, 1024], [1024, 50257]], types=[BF16, BF16])
    run.op("aten::mm", 1, 8710, 8700, dims=[[50257, 8192], [8192, 1024]], types=[BF16, BF16])
    run.op("aten::mm", 2, 17410, 180, dims=[[4095, 4096], [4096, 4096]], types=[BF16, BF16])
    first = run.diagnose(tmp_path).advice[0]
    assert first.code == "padding"
    assert first.text == "2 products over 50257, which is odd: pad it to 50304"
    assert 14_000 * US < first.saves_seconds < 16_500 * US
    quick = Run()
    quick.op("aten::mm", 0, 10, 1200, dims=[[8192, 1024], [1024, 50257]], types=[BF16, BF16])
    assert all(a.code != "padding" for a in quick.diagnose(tmp_path).advice)


def test_a_chain_of_pointwise_kernels_could_be_one(tmp_path: Path) -> None:
    """Four kernels of two reads and a write each of 128 MB; fused, far less."""
    run = Run()
    for i in range(4):
        run.op("aten::mul", i, 10 + 100 * i, 100, dims=[[8192, 8192]] * 2, types=[BF16] * 2,
               kernel="vectorized_elementwise_kernel")  # fmt: skip
    found = run.diagnose(tmp_path)
    (advice,) = (a for a in found.advice if a.code == "fuse")
    # Read: both of the first. Written: the last.
    assert "4 memory-bound ops in 1 chain move 1.61 GB where 403 MB" in advice.text
    assert 150 * US < advice.saves_seconds < 240 * US


# ── from an op of a trace to a call ──────────────────────────────────────────────────────────────


def traced(name: str, dims: list[Any], types: list[str], values: list[str] | None = None,
           kernel: str = "elementwise_kernel", blocks: int = 1) -> TracedOp:  # fmt: skip
    frozen = tuple(tuple(tuple(x) if isinstance(x, list) else x for x in d) for d in dims)
    return TracedOp(name, frozen, tuple(types), (), tuple(values or [""] * len(dims)),
                    ((kernel, blocks),))  # fmt: skip


LISTS = ("multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<3>, "
         "at::native::(anonymous namespace)::PointwiseOpScalarFunctor<c10::BFloat16, 3, 3, 0>, "
         "std::multiplies<float>, float>")  # fmt: skip
SQRT = "multi_tensor_apply_kernel<TensorListMetadata<2>, UnaryOpFunctor<float, 2, 1, 1>, Sqrt>"
ADAM = ("multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, "
        "FusedAdamMathFunctor<float, float, float, 4, (ADAM_MODE)1, false>")  # fmt: skip


@pytest.mark.parametrize(
    ("op", "label", "moved"),
    [
        (traced("aten::addmm", [[5], [3, 4], [4, 5], [], [], [3, 5]], [FP32] * 6),
         "addmm 3×5×4 fp32", 4 * (12 + 20 + 15 + 5)),
        (traced("aten::bmm", [[2, 3, 4], [2, 4, 5]], [BF16] * 2), "bmm 2 of 3×5×4 bf16",
         2 * (24 + 40 + 30)),
        (traced("aten::add", [[8, 1, 6], [4, 6], []], [BF16, BF16, "Scalar"]),
         "add 8×1×6 · 4×6 bf16", 2 * (48 + 24 + 192)),
        (traced("aten::mul", [[8, 6], []], [FP32, "double"]), "mul 8×6 fp32", 4 * 96 + 8),
        (traced("aten::add_", [[8, 6], [6]], [FP32] * 2), "add 8×6 · 6 fp32", 4 * (48 + 6 + 48)),
        (traced("aten::sum", [[8, 6, 4], [], [], []], [FP32, "ScalarList", "Scalar", ""],
                ["", "[0, 1]", "True", ""]), "sum 8×6×4 fp32", 4 * (192 + 4)),
        (traced("aten::mean", [[8, 6], [], []], [FP32, "ScalarList", "Scalar"],
                ["", "[-1]", "True"]), "mean 8×6 fp32", 4 * (48 + 8)),
        (traced("aten::linalg_vector_norm", [[8, 6], [], [], []], [FP32, "Scalar", "", "Scalar"],
                ["", "2.", "", "False"]), "linalg_vector_norm 8×6 fp32", 4 * 49),
        (traced("aten::copy_", [[8, 6], [8, 6], []], [FP32, BF16, "Scalar"]),
         "copy 8×6 bf16→fp32", 6 * 48),
        (traced("aten::cat", [[[2, 3], [2, 5]], []], ["TensorList", "Scalar"], ["", "-1"],
                "CatArrayBatchedCopy<OpaqueType<4u>, unsigned"), "cat 2×3 · 2×5 fp32", 4 * 32),
        (traced("aten::_log_softmax", [[8, 6], [], []], [BF16, "Scalar", "Scalar"],
                ["", "1", "True"], "cunn_SoftMaxForward"), "log_softmax 8×6 bf16", 48 * 6),
        (traced("aten::embedding", [[100, 16], [2, 3]], [BF16, "long int"], kernel="gather"),
         "embedding 100×16 · 2×3 bf16", 2 * (96 + 96) + 8 * 6),
        (traced("aten::index_select", [[100, 16], [], [6]], [BF16, "Scalar", "long int"],
                ["", "0", ""], "gather"), "index_select 100×16 · 6 bf16", 2 * 192 + 48),
        (traced("aten::_foreach_addcmul_", [[], [], [], []], ["TensorList"] * 3 + ["Scalar"],
                kernel=LISTS, blocks=320), "foreach_addcmul 21.0 M bf16", 4 * 2 * 320 * 65536),
        (traced("aten::_foreach_sqrt", [[[4, 8], [16]]], ["TensorList"], kernel=SQRT),
         "foreach_sqrt 48 fp32", 4 * 2 * 48),
        (traced("aten::_fused_adamw_", [[]] * 6, ["TensorList"] * 6, kernel=ADAM, blocks=16),
         "fused_adamw 1.05 M fp32", 4 * 7 * 16 * 65536),
        (traced("triton_poi_fused_add_0", [[8, 6], [8, 6], [8, 6], []], [BF16] * 3 + ["Scalar"]),
         "triton_poi_fused_add_0 8×6 bf16", 2 * 3 * 48),
    ],
)  # fmt: skip
def test_an_op_becomes_a_call_with_its_bytes(op: TracedOp, label: str, moved: float) -> None:
    call = call_of(op)
    assert call is not None
    ops = ops_of(op, call)
    assert label_of(call, ops) == label
    done = [work(each) for each in ops]
    assert sum(float(d.bytes_read + d.bytes_written) for d in done) == moved


def test_attention_knows_its_mask_and_its_gradient() -> None:
    q, kv = [2, 8, 512, 64], [2, 2, 512, 64]
    values = ["", "", "", "", "True", "0.", "True", "False"]
    types = [BF16, BF16, BF16, "", "Scalar", "Scalar", "Scalar", "Scalar"]
    name = "aten::_scaled_dot_product_cudnn_attention"
    flop = {}
    for causal in ("True", "False"):
        values[6] = causal
        op = traced(name, [q, kv, kv, [], [], [], [], []], types, values, "cudnn")
        call = call_of(op)
        assert call is not None
        (made,) = ops_of(op, call)
        flop[causal] = float(work(made).flop)
        expected = "attention 2×8/2×512×64" + (" causal" if causal == "True" else "")
        assert label_of(call, (made,)) == expected
    assert flop["False"] == 4 * 2 * 8 * 512 * 512 * 64
    assert flop["True"] == pytest.approx(flop["False"] * 513 / 1024)
    back = traced(f"{name}_backward", [q, q, kv, kv, q, *[[]] * 10], [BF16] * 5 + [""] * 10,
                  [""] * 14 + ["True"], "cudnn")  # fmt: skip
    call = call_of(back)
    assert call is not None
    (made,) = ops_of(back, call)
    assert float(work(made).flop) == pytest.approx(2.5 * flop["True"])


def test_what_nobody_knows_has_no_price() -> None:
    for op in (
        traced("aten::sort", [[8, 6]], [FP32], kernel="DeviceRadixSort"),
        traced("mine::kernel", [[8, 6]], [FP32]),
        traced("aten::mm", [[8, 6], [7, 8]], [FP32] * 2),
        traced("aten::mm", [[8, 6]], [FP32]),
        traced("aten::add", [[8, 6], [7]], [FP32] * 2),
        traced("aten::mul", [[2**60], [2**60]], [FP32] * 2),
        traced("aten::_foreach_add_", [[], []], ["TensorList", "Scalar"], kernel="other"),
        traced("triton_tem_fused_mm_0", [[8, 6]], [FP32]),
    ):
        assert call_of(op) is None


def test_outputs_are_those_of_torch(tmp_path: Path) -> None:
    """Ops that really ran, as torch's own profiler wrote their arguments down."""
    torch: Any = pytest.importorskip("torch")
    x, y = torch.ones(4, 6, 8), torch.ones(8)
    image, window = torch.ones(2, 3, 9, 9), torch.ones(5, 3, 3, 3)
    index = torch.tensor([[1, 2, 3], [0, 1, 2]])
    runs: dict[str, Any] = {
        "aten::mm": lambda: torch.mm(x[0], x[1].t()),
        "aten::bmm": lambda: torch.bmm(x, x.transpose(1, 2)),
        "aten::add": lambda: x + y,
        "aten::gt": lambda: x > y,
        "aten::mul": lambda: x * 2.0,
        "aten::where": lambda: torch.where(x > 0, x, y),
        "aten::sum": lambda: x.sum((0, -1)),
        "aten::mean": lambda: x.mean(1, keepdim=False),
        "aten::amax": lambda: x.amax(-1),
        "aten::argmax": lambda: x.argmax(1),
        "aten::_softmax": lambda: torch.softmax(x, -1),
        "aten::embedding": lambda: torch.nn.functional.embedding(index, x[0]),
        "aten::index_select": lambda: torch.index_select(x, 1, index[0]),
        "aten::gather": lambda: torch.gather(x[0], 1, index),
        "aten::native_layer_norm": lambda: torch.nn.functional.layer_norm(x, (8,)),
        "aten::convolution": lambda: torch.conv2d(image, window, stride=2, padding=1),
        "aten::cat": lambda: torch.cat([x, x], 1),
    }
    for name, run in runs.items():
        with torch.profiler.profile(record_shapes=True) as profiler:
            made = run()
        path = tmp_path / "cpu.json"
        profiler.export_chrome_trace(str(path))
        events = [e for e in json.loads(path.read_text())["traceEvents"] if e["name"] == name]
        args = events[-1]["args"]
        frozen = json.loads(json.dumps(args.get("Input Dims")))
        op = traced(name, frozen, args["Input type"], args["Concrete Inputs"])
        call = call_of(op)
        assert call is not None, name
        assert call.outputs[0].shape == tuple(made.shape), name
        if name != "aten::cat":  # of lists the trace does not tell the type
            assert call.outputs[0].dtype == str(made.dtype).removeprefix("torch."), name


def test_a_trace_of_the_host_alone_is_not_silently_held_against_an_accelerator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    product = torch.randn(64, 512)
    with torch.profiler.profile(record_shapes=True) as profiler:
        product @ product.T
    path = tmp_path / "cpu.json"
    profiler.export_chrome_trace(str(path))
    words = ["diagnose", str(path)]
    for chip, warned in (("H100", True), ("EPYC-9654", False)):
        assert main([*words, "--on", chip]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert ("no kernels of an accelerator are in the trace" in said) is warned
    assert main(words) == 2
    assert "with --on: EPYC-9654" in " ".join(capsys.readouterr().err.split())


# ── a real step ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def real() -> Diagnosis:
    """One step of a Llama of 160M on an H200, two sequences of 2048 (torch 2.11)."""
    where = cluster("H200")
    return diagnose(read_trace(REAL), Clock(where, profile_of(where.accelerator)))


def test_a_real_step_waits_for_its_host(real: Diagnosis) -> None:
    assert real.window.seconds == pytest.approx(95.2e-3, rel=1e-3)
    assert len(real.window.kernels) == 1622
    assert real.busy_seconds == pytest.approx(19.7e-3, rel=0.01)
    assert real.late_seconds / real.window.seconds == pytest.approx(0.79, abs=0.01)
    whole = sum(real.occupied.by_cause.values()) + real.occupied.idle
    assert whole == pytest.approx(real.window.seconds)
    assert sum(p.seconds for p in real.pauses) == pytest.approx(real.occupied.idle)
    assert sum(real.phases.values()) == pytest.approx(real.kernel_seconds)
    assert real.advice[0].code == "launch_bound"
    assert {a.code for a in real.advice} == {"launch_bound", "fuse", "fused_optimizer"}


def test_a_real_step_is_predicted_kernel_by_kernel(real: Diagnosis) -> None:
    """The clock prices single kernels; here are 1,424 launches of a program it never saw whole."""
    assert real.priced_seconds > 0.999 * real.kernel_seconds
    assert real.predicted is not None
    assert real.priced_seconds / float(real.predicted.value) == pytest.approx(1.0, abs=0.1)
    assert float(real.predicted.low) < real.priced_seconds < float(real.predicted.high)
    products = [g for g in real.groups if g.cause == "matmul" and g.measured_seconds > 3e-4]
    assert len(products) >= 6
    for group in products:
        assert group.ratio == pytest.approx(1.0, abs=0.15), group.label
        assert not group.slow
    backward = next(g for g in real.groups if g.label.startswith("attention backward"))
    assert (backward.count, backward.kernels) == (12, 48)


# ── without shapes ───────────────────────────────────────────────────────────────────────────────


def without_shapes(folder: Path, device: str = "NVIDIA H200") -> Path:
    """The real step as the profiler writes it with record_shapes=False."""
    whole = json.loads(gzip.decompress(REAL.read_bytes()))
    whole["deviceProperties"][0]["name"] = device
    for event in whole["traceEvents"]:
        for key in ("Input Dims", "Input type", "Input Strides", "Concrete Inputs"):
            event.get("args", {}).pop(key, None)
    path = folder / "plain.json.gz"
    path.write_bytes(gzip.compress(json.dumps(whole).encode()))
    return path


def test_without_shapes_time_goes_where_it_went_with_them(tmp_path: Path, real: Diagnosis) -> None:
    """Causes are told by the names of ops: every kernel has the heading that its shapes gave it."""
    assert real.trace.shapes
    trace = read_trace(without_shapes(tmp_path))
    assert not trace.shapes
    found = diagnose(trace, None)
    assert found.occupied == real.occupied
    assert found.late_seconds == real.late_seconds
    assert (found.spent, found.phases, found.named) == (real.spent, real.phases, real.named)
    assert found.predicted is None
    assert found.advice[0] == real.advice[0]
    assert {p.name for p in found.possible} == {"as it is", "no idle time"}
    products = [g for g in found.groups if g.cause == "matmul"]
    assert [g.label for g in products] == ["aten::mm", "aten::bmm"]
    assert sum(g.measured_seconds for g in products) == pytest.approx(
        sum(g.measured_seconds for g in real.groups if g.cause == "matmul")
    )
    assert sum(named.seconds for named in found.named) == pytest.approx(found.kernel_seconds)


def test_the_command_asks_for_shapes_only_for_predictions(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    path = without_shapes(tmp_path, "Acme Turbo 9")  # no prediction, so no chip is needed
    assert main(["diagnose", str(path), "--top", "3"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for said in ("Where the time went", "launches: 1,622, one every 58.7 µs", "Ops, 3 of",
                 "Kernels, 3 of", "idle, the host was late", "What would help",
                 "record_shapes=True to see what each kernel should take"):  # fmt: skip
        assert said in text
    assert "predict" not in text
    assert main(["diagnose", str(path), "--on", "H200", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["shapes"] is False
    assert 0.0 < answer["predicted_kernel_share"] < 0.2  # foreach: kernels tell their elements
    assert answer["kernel_names"][0]["op"] == "aten::mul"


def test_a_trace_of_the_device_alone(tmp_path: Path, capsys: Capture) -> None:
    """Neither ops nor launches: the kernels' names say what they are, nothing why there is idle."""
    run = Run()
    names = {
        "nvjet_sm90_tst_192x128_64x5": "matmul",
        "void cublasLt::splitKreduce_kernel<32, 16, int>": "matmul",
        "sm80_xmma_fprop_implicit_gemm_bf16": "matmul",
        "void flash_fwd_kernel<Flash_fwd_kernel_traits<64>>": "attention",
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop": "attention",
        "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor>": "memory",
        "void vllm::rms_norm_kernel<c10::BFloat16>": "memory",
        "void at::native::radixSortKVInPlace<2>": "other",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL": "communication",
        "my_own_kernel": "other",
    }
    for place, name in enumerate(names):
        run.kernel(name, 100 * place, 40)
    found = run.diagnose(tmp_path)
    assert {k.name: cause_of(k, found.trace.launches) for k in found.window.kernels} == names
    assert found.occupied.idle == pytest.approx(540 * US)
    assert main(["diagnose", str(tmp_path / "trace.json")]) == 0
    assert "idle, the trace has no launches" in capsys.readouterr().out


# ── hostile files ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "ends in the middle"),
        (b"hello", "not valid JSON"),
        (b'{"traceEvents": [{"ph": "X"', "ends in the middle"),
        (b'{"traceEvents": [{"ph": "X", "name": "ab', "ends in the middle"),
        (b"[" * 100_000, "nested too deeply"),
        (b"{}", "no traceEvents"),
        (b'{"traceEvents": 3}', "no traceEvents"),
        (b"[]", "no events"),
        (b'{"traceEvents": [1, null, {"ph": "X", "ts": "now", "cat": 1}]}', "no events"),
        (gzip.compress(b'{"traceEvents": []}', mtime=0)[:-9], "ends in the middle"),
        (b"\x1f\x8b\x00\x00garbage", "cannot be unpacked"),
        (b'{"traceEvents": [{"ph":"X","cat":"cpu_op","name":"a","ts":1,"dur":1}]}', "no kernels"),
        (b'[{"ph":"X","cat":"kernel","name":"k","ts":1e400,"dur":1}]', "no events"),
        (b'[{"ph":"X","cat":"kernel","name":"k","ts":' + b"9" * 5000 + b"}]", "not a trace"),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_clear_error(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=says):
        read_trace(path)


def test_a_file_that_unpacks_to_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(kineto_file, "LARGEST_TRACE", 1024 * 1024)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * 2 * 1024 * 1024))
    with pytest.raises(BadInput, match="unpacks to more than"):
        read_trace(path)
    with pytest.raises(BadInput, match="no such file"):
        read_trace(tmp_path / "none.json")
    with pytest.raises(BadInput, match="a folder"):
        read_trace(tmp_path)


def test_a_trace_may_say_anything(tmp_path: Path) -> None:
    """Fields of a sane trace replaced by nonsense: an answer or a clear error, never a bug."""
    whole = json.loads(gzip.decompress(REAL.read_bytes()))
    whole["traceEvents"] = whole["traceEvents"][:200] + whole["traceEvents"][-1400::7]
    where = cluster("H200")
    clock = Clock(where, from_datasheet(where.accelerator))
    nonsense: list[Any] = [None, -1, 0, 2**70, 1e300, float("nan"), "", "x\x1b[31m", [], {},
                           [[[[1]]]], True, [-5, "a"], "[1, 2"]  # fmt: skip
    answered = 0
    for seed in range(40):
        chance = random.Random(seed)
        spoilt = json.loads(json.dumps(whole))
        for event in chance.sample(spoilt["traceEvents"], 150):
            inside = event.get("args") if chance.random() < 0.7 else event
            target = inside if isinstance(inside, dict) and inside else event
            target[chance.choice(list(target))] = chance.choice(nonsense)
        path = tmp_path / "spoilt.json"
        path.write_text(json.dumps(spoilt))
        try:
            found = diagnose(read_trace(path), clock)
        except TrueflopsError:
            continue
        answered += 1
        assert found.window.seconds > 0.0
    assert answered > 20


# ── the command ───────────────────────────────────────────────────────────────────────────────────


def test_the_command(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["diagnose", str(REAL), "--top", "3"]) == 0
    text = capsys.readouterr().out
    for said in ("Where the time went", "idle, the host was late", "Kernels, 3 of",
                 "What the step could be", "What would help", "the profiler makes the host slower",
                 "predictions for H200-SXM-141GB"):  # fmt: skip
        assert said in text
    assert max(map(len, text.splitlines())) <= max(80, len(str(REAL)) + 40)


def test_json_holds_everything(capsys: Capture) -> None:
    assert main(["diagnose", str(REAL), "--on", "H100", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema_version"] == 1
    assert answer["on"] == "H100"
    assert "the trace is of NVIDIA H200" in answer["warnings"][0]
    kernels = answer["kernels"]
    assert sum(k["measured_seconds"] for k in kernels) == pytest.approx(answer["kernel_seconds"])
    sums = sum(answer["seconds_by_cause"].values()) + answer["idle_seconds"]
    assert sums == pytest.approx(answer["step"]["seconds"])
    first = kernels[0]["predicted_seconds"]
    assert first["low"] < first["value"] < first["high"]


def test_the_chip_must_be_known(tmp_path: Path, capsys: Capture) -> None:
    run = Run()
    run.mm(0, 10, 100)
    path = run.write(tmp_path, "trace.json.gz")
    assert main(["diagnose", str(path)]) == 0
    whole = json.loads(gzip.decompress(path.read_bytes()))
    whole["deviceProperties"][0]["name"] = "Acme Turbo 9"
    path.write_bytes(gzip.compress(json.dumps(whole).encode()))
    capsys.readouterr()
    assert main(["diagnose", str(path)]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "--on" in error
    assert "Acme Turbo 9" in error
    assert main(["diagnose", str(path), "--on", "MI300X"]) == 0
    assert main(["diagnose", str(tmp_path / "none.json"), "--on", "H100"]) == 2


def test_collectives_widen_the_cluster(tmp_path: Path, capsys: Capture) -> None:
    run = Run()
    run.mm(0, 10, 100)
    sent: Event = {
        "Collective name": "_reduce_scatter_base", "In msg nelems": 2**24,
        "Out msg nelems": 2**21, "Group size": 8, "dtype": "Float",
    }  # fmt: skip
    run.kernel("ncclDevKernel_ReduceScatter", 110, 900, 1, stream=20, **sent)
    path = run.write(tmp_path)
    assert main(["diagnose", str(path), "--on", "H100", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["on"].startswith("8x")
    row = next(k for k in answer["kernels"] if k["cause"] == "communication")
    assert row["kernel"] == "reduce_scatter 67.1 MB on 8"
    assert row["predicted_seconds"]["value"] > 0.0
    assert any(a["code"] == "overlap" for a in answer["advice"])
    assert main(["diagnose", str(path), "--on", "2xH100"]) == 2
