"""ONNX graphs made by hand, whose work was worked out by hand; exports of torch; hostile files."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnx_graphs import (
    FLOAT,
    HALF,
    INT8,
    INT64,
    UINT8,
    graphs,
    helper,
    model,
    node,
    onnx,
    two_layers,
    value,
    weight,
)
from trueflops.capture.lower import base_name, lower
from trueflops.catalog import cluster
from trueflops.cli import main
from trueflops.clock import Clock
from trueflops.errors import BadInput, TrueflopsError
from trueflops.graph.rules import RULES, work
from trueflops.interop.onnx import Given, read_onnx
from trueflops.interop.onnx.reading import Reading
from trueflops.predict.captured.program import CapturedProgram, predict_program
from trueflops.profile import profile_of
from trueflops.records.recording import Allocated, Recording

Capture = pytest.CaptureFixture[str]


def save(made: Any, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def read(made: Any, folder: Path, *dims: str, shapes: Sequence[str] = ()) -> Recording:
    return read_onnx(save(made, folder), Given.read(shapes, dims))


def priced(recording: Recording, on: str = "H100") -> CapturedProgram:
    where = cluster(on)
    return predict_program(recording, Clock(where, profile_of(where.accelerator)))


def launched(recording: Recording) -> list[str]:
    return [base_name(call.op) for call in recording.calls()]


def flop(recording: Recording) -> float:
    """Of products and attention."""
    ops = [op for call in recording.calls() for op in lower(call)]
    return sum(float(work(op).flop) for op in ops if RULES[op.kind].matrix)


def moved(recording: Recording) -> float:
    done = [work(op) for call in recording.calls() for op in lower(call)]
    return sum(float(each.bytes_read + each.bytes_written) for each in done)


# ── what a graph does ────────────────────────────────────────────────────────────────────────────


def test_a_graph_becomes_calls_with_their_work(tmp_path: Path) -> None:
    recording = read(two_layers(), tmp_path, "batch=8")
    # Shapes are computed on the host, and a reshape is a view.
    assert launched(recording) == ["mm", "add", "relu", "addmm"]
    assert flop(recording) == 2 * 8 * 64 * 256 + 2 * 8 * 256 * 32
    assert recording.parameter_count == 64 * 256 + 256 + 32 * 256 + 32
    matmul, add, relu, gemm = (4 * n for n in (
        8 * 64 + 64 * 256 + 8 * 256, 2 * 8 * 256 + 256, 2 * 8 * 256,
        8 * 256 + 32 * 256 + 32 + 8 * 32))  # fmt: skip
    assert moved(recording) == matmul + add + relu + gemm


def test_memory_is_what_is_alive(tmp_path: Path) -> None:
    """The widest moment: a sum and what it is the sum of; a result goes after its last reader."""
    recording = read(two_layers(), tmp_path, "batch=512")
    parameters = [e.size_bytes for e in recording.events
                  if isinstance(e, Allocated) and e.storage in recording.parameters]  # fmt: skip
    assert sorted(parameters) == [4 * n for n in (32, 256, 32 * 256, 64 * 256)]
    found = priced(recording)
    alive = found.memory.by("category")
    assert alive["temporary"] == 2 * 512 * 256 * 4  # no third of them at any time
    assert alive["parameters"] == sum(parameters)
    assert alive["inputs and buffers"] == 512 * 64 * 4
    whole = sum(alive.values())  # each rounded up to 512 bytes, the workspace there from the start
    assert whole <= found.memory.peak_allocated_bytes <= whole + 512 * len(found.memory.alive)


def test_the_pass_takes_longer_with_more_rows(tmp_path: Path) -> None:
    few, many = (priced(read(two_layers(), tmp_path, f"batch={n}")) for n in (1024, 2**18))
    assert float(many.step.seconds.value) > 20 * float(few.step.seconds.value)
    assert few.fused.step.value < few.step.step.value
    assert {"matmul", "memory"} == set(many.step.by_cause)


def test_images(tmp_path: Path) -> None:
    made = model(
        [
            node("Conv", "x w b", "c", strides=[2, 2], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
            node("BatchNormalization", "c scale b mean var", "n"),
            node("MaxPool", "n", "p", kernel_shape=[2, 2], strides=[2, 2]),
            node("GlobalAveragePool", "p", "g"), node("Flatten", "g", "f"),
            node("Resize", "p - scales", "up", mode="nearest"),
        ],
        [value("x", [4, 3, 64, 64])], [value("f", [4, 16]), value("up", [4, 16, 32, 32])],
        [weight("w", (16, 3, 3, 3)), *(weight(n, (16,)) for n in ("b", "scale", "mean", "var")),
         onnx.numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")],
    )  # fmt: skip
    recording = read(made, tmp_path)
    assert launched(recording) == [
        "convolution", "native_batch_norm", "max_pool2d_with_indices", "mean", "upsample_nearest2d",
    ]  # fmt: skip
    assert flop(recording) == 2 * 4 * 32 * 32 * 16 * 27
    (norm,) = (call for call in recording.calls() if "batch_norm" in call.op)
    assert len(lower(norm)) == 1  # its sums are known


def test_a_branch_that_is_known_to_run(tmp_path: Path) -> None:
    def branch(op: str, name: str) -> Any:
        return helper.make_graph([node(op, "x", name)], name, [], [value(name, [8, 8])])

    both = {"then_branch": branch("Exp", "t"), "else_branch": branch("Relu", "e")}
    inputs, outputs = [value("x", [8, 8])], [value("y", [8, 8])]
    yes = onnx.numpy_helper.from_array(np.array(True), "ask")
    known = model([helper.make_node("If", ["ask"], ["y"], **both)], inputs, outputs, [yes])
    assert launched(read(known, tmp_path)) == ["exp"]
    asked = value("ask", [], 9)
    open_ = model([helper.make_node("If", ["ask"], ["y"], **both)], [*inputs, asked], outputs)
    recording = read(open_, tmp_path)
    assert len(launched(recording)) == 1
    assert any("branch" in said for said in recording.warnings)


def test_recurrent_layers(tmp_path: Path) -> None:
    made = model(
        [node("LSTM", "x w r", "y", hidden_size=32, direction="bidirectional")],
        [value("x", [10, 4, 16])], [value("y", [10, 2, 4, 32])],
        [weight("w", (2, 128, 16)), weight("r", (2, 128, 32))],
    )  # fmt: skip
    assert flop(read(made, tmp_path)) == 2 * (2 * 10 * 4 * 128 * 16 + 10 * 2 * 4 * 128 * 32)


@pytest.mark.parametrize(
    ("equation", "shapes", "products"),
    [("bhqd,bhkd->bhqk", ((2, 3, 5, 7), (2, 3, 11, 7)), 2 * 3 * 5 * 11 * 7),
     ("bsd,df->bsf", ((2, 3, 8), (8, 16)), 2 * 3 * 8 * 16)],
)  # fmt: skip
def test_einsum(
    tmp_path: Path, equation: str, shapes: tuple[Sequence[int], Sequence[int]], products: int
) -> None:
    made = model([node("Einsum", "a b", "y", equation=equation)],
                 [value("a", shapes[0]), value("b", shapes[1])], [value("y", None)])  # fmt: skip
    assert flop(read(made, tmp_path)) == 2 * products


def test_batches_of_matrices(tmp_path: Path) -> None:
    made = model([node("MatMul", "a b", "y")], [value("a", [4, 2, 5, 7]), value("b", [2, 7, 3])],
                 [value("y", [4, 2, 5, 3])])  # fmt: skip
    recording = read(made, tmp_path)
    assert launched(recording) == ["bmm"]
    assert flop(recording) == 2 * 8 * 5 * 7 * 3


# ── onnxruntime's ops ────────────────────────────────────────────────────────────────────────────


def test_a_layer_of_onnxruntime(tmp_path: Path) -> None:
    """BERT as onnxruntime's optimiser leaves it, 2 × 128 tokens, 4 heads of 16."""
    tokens, hidden, wide = 2 * 128, 64, 256
    made = model(
        [
            node("EmbedLayerNormalization", "ids - words places - g b", "x", contrib=True),
            node("Attention", "x wqkv bqkv", "a", contrib=True, num_heads=4),
            node("MatMul", "a wo", "o"),
            node("SkipLayerNormalization", "o x g b bo", "h", contrib=True),
            node("FusedMatMul", "h w1", "u", contrib=True, transB=1),
            node("BiasGelu", "u b1", "v", contrib=True),
            node("MatMul", "v w2", "d"),
            node("SkipLayerNormalization", "d h g b", "y", contrib=True),
        ],
        [value("ids", ["batch", "seq"], 6)], [value("y", ["batch", "seq", hidden], HALF)],
        [weight("words", (1000, hidden), HALF), weight("places", (512, hidden), HALF),
         weight("wqkv", (hidden, 3 * hidden), HALF), weight("bqkv", (3 * hidden,), HALF),
         weight("wo", (hidden, hidden), HALF), weight("w1", (wide, hidden), HALF),
         weight("b1", (wide,), HALF), weight("w2", (wide, hidden), HALF),
         *(weight(n, (hidden,), HALF) for n in ("g", "b", "bo"))],
    )  # fmt: skip
    recording = read(made, tmp_path, "batch=2", "seq=128")
    assert launched(recording) == [
        "native_layer_norm", "addmm", "_scaled_dot_product_flash_attention", "mm",
        "native_layer_norm", "mm", "gelu", "mm", "native_layer_norm",
    ]  # fmt: skip
    products = 2 * tokens * hidden * (3 * hidden + hidden + 2 * wide)
    assert flop(recording) == products + 4 * tokens * 128 * hidden
    assert not recording.warnings
    assert "attention" in priced(recording).step.by_cause


def test_a_decoder_with_a_cache_and_four_bits(tmp_path: Path) -> None:
    """One new token behind 100; weights of 4 bits with a scale for each 32."""
    made = model(
        [
            node("MatMulNBits", "x wq sq", "qkv", contrib=True, N=128, K=64, bits=4, block_size=32),
            node("GroupQueryAttention", "qkv - - pk pv lens total", "a k v", contrib=True,
                 num_heads=4, kv_num_heads=2, do_rotary=1),
        ],
        [value("x", [1, 1, 64], HALF), value("pk", [1, 2, "past", 16], HALF),
         value("pv", [1, 2, "past", 16], HALF), value("lens", [1], 6), value("total", [1], 6)],
        [value("a", [1, 1, 64], HALF), value("k", None, HALF), value("v", None, HALF)],
        [weight("wq", (128, 2, 16), UINT8), weight("sq", (256,), HALF)],
    )  # fmt: skip
    recording = read(made, tmp_path, "past=100")
    product = next(recording.calls())
    (op,) = lower(product)
    assert recording.parameter_count == 128 * 64
    assert float(work(op).flop) == 2 * 64 * 128
    assert float(op.weights[0].bits) == pytest.approx(4 + 16 / 32)
    attends = [call for call in recording.calls() if "attention" in call.op]
    assert attends[0].inputs[1].shape == (1, 2, 101, 16)
    assert flop(recording) == 2 * 64 * 128 + 4 * 4 * 101 * 16
    assert float(priced(recording).step.seconds.value) > 0.0


def test_integer_products(tmp_path: Path) -> None:
    made = model(
        [
            node("DynamicQuantizeLinear", "x", "q s z"), node("MatMulInteger", "q w z", "i"),
            node("Cast", "i", "f", to=FLOAT), node("Mul", "f s", "y"),
            node("DynamicQuantizeMatMul", "y v vs", "o", contrib=True),
        ],
        [value("x", [128, 256])], [value("o", [128, 64])],
        [weight("w", (256, 512), INT8), weight("v", (512, 64), INT8), weight("vs", (1,))],
    )  # fmt: skip
    recording = read(made, tmp_path)
    products = [op for call in recording.calls() for op in lower(call) if RULES[op.kind].matrix]
    assert [op.dtype for op in products] == ["int8", "int8"]
    assert flop(recording) == 2 * 128 * 256 * 512 + 2 * 128 * 512 * 64


def test_dequantised_operands_are_multiplied_narrow(tmp_path: Path) -> None:
    """Both operands of QDQ: bytes are multiplied, and nothing is written wide before that."""
    made = model(
        [
            node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "d"),
            node("DequantizeLinear", "w s z", "wd"), node("MatMul", "d wd", "y"),
            node("DequantizeLinear", "v s z", "vd"), node("MatMul", "y vd", "o"),
        ],
        [value("x", [128, 256])], [value("o", [128, 64])],
        [weight("w", (256, 512), INT8), weight("v", (512, 64), INT8), weight("s", ()),
         weight("z", (), INT8)],
    )  # fmt: skip
    recording = read(made, tmp_path)
    assert launched(recording) == ["quantize_per_tensor", "_int_mm", "dequantize", "mm"]
    assert any("narrow" in said for said in recording.warnings)


def test_weights_of_four_bits_are_widened_as_they_are_read(tmp_path: Path) -> None:
    made = model(
        [node("DequantizeLinear", "w s", "d", axis=0, block_size=32), node("MatMul", "x d", "y")],
        [value("x", [128, 256], HALF)], [value("y", [128, 64], HALF)],
        [helper.make_tensor("w", 22, (256, 64), bytes(256 * 64 // 2), raw=True),
         weight("s", (8, 64), HALF)], opset=21,
    )  # fmt: skip
    recording = read(made, tmp_path)
    ((op,),) = (lower(call) for call in recording.calls())
    assert op.weights[0].bits == 4
    assert recording.parameter_count == 256 * 64 + 8 * 64
    assert priced(recording).memory.by("category")["parameters"] == 256 * 64 // 2


def test_an_op_that_nobody_knows_is_priced_by_its_bytes(tmp_path: Path) -> None:
    made = model([node("Mystery", "x", "y", contrib=True)], [value("x", [1024, 1024])],
                 [value("y", None)])  # fmt: skip
    with pytest.raises(BadInput, match="give it: --shape y="):
        read(made, tmp_path)
    recording = read(made, tmp_path, shapes=["y=512x1024"])
    assert moved(recording) == 4 * (1024 * 1024 + 512 * 1024)
    assert any("Mystery" in said for said in recording.warnings)


# ── beside onnxruntime ───────────────────────────────────────────────────────────────────────────


def test_shapes_and_numbers_are_those_of_onnxruntime(tmp_path: Path) -> None:
    runtime: Any = pytest.importorskip("onnxruntime")
    chance = np.random.default_rng(0)
    for name, made in graphs().items():
        reading = Reading(made, Given.read([], ["batch=8"] if name == "two layers" else []), name,
                          tf32=False)  # fmt: skip
        reading.recording()
        there = {out.name for out in made.graph.output}
        more = {n for each in made.graph.node for n in each.output if n} - there
        made.graph.output.extend(onnx.ValueInfoProto(name=n) for n in sorted(more))
        session = runtime.InferenceSession(made.SerializeToString())
        feeds = {}
        for given in session.get_inputs():
            of = reading.values[given.name]
            feeds[given.name] = chance.integers(0, 9, of.shape).astype(of.dtype)
        results = session.run(None, feeds)
        for out, array in zip(session.get_outputs(), results, strict=True):
            found = reading.values[out.name]
            assert (found.shape, found.dtype) == (array.shape, str(array.dtype)), (name, out.name)
            if found.data is not None:
                assert (found.data == array).all(), (name, out.name)


# ── sizes ────────────────────────────────────────────────────────────────────────────────────────


def test_sizes_that_are_not_in_the_file(tmp_path: Path) -> None:
    made = model(
        [node("Add", "x y", "z")],
        [value("x", ["batch", "seq"]), value("y", ["batch", "past + seq"])], [value("z", None)],
    )  # fmt: skip
    with pytest.raises(BadInput) as error:
        read(made, tmp_path)
    for said in ("--dim batch=…", "--dim seq=…", "--dim past=…", "x batch×seq"):
        assert said in str(error.value)
    recording = read(made, tmp_path, "batch=4", "seq=8", "past=0")
    assert next(recording.calls()).outputs[0].shape == (4, 8)
    with pytest.raises(BadInput, match="cannot take inputs of 4×8 4×9"):
        read(made, tmp_path, "batch=4", "seq=8", "past=1")
    with pytest.raises(BadInput, match="did you mean batch"):
        read(made, tmp_path, "batsh=4", "batch=4", "seq=8", "past=0")
    bound = read(made, tmp_path, "past=0", shapes=["x=4x8"])
    assert next(bound.calls()).outputs[0].shape == (4, 8)
    with pytest.raises(BadInput, match="other flags must agree"):
        read(made, tmp_path, "batch=5", "past=0", shapes=["x=4x8"])
    for wrong in ("batch", "batch=x", "=4", "batch=-1", "batch=9" + "9" * 40):
        with pytest.raises(BadInput, match="--dim"):
            read(made, tmp_path, wrong)
    unnamed = model([node("Relu", "x", "y")], [value("x", [None, 4])], [value("y", None)])
    with pytest.raises(BadInput, match="--shape x=…"):
        read(unnamed, tmp_path)


def test_sizes_that_depend_on_numbers(tmp_path: Path) -> None:
    made = model([node("NonZero", "x", "i"), node("Cast", "i", "y", to=FLOAT)],
                 [value("x", [8, 8])], [value("y", None)])  # fmt: skip
    with pytest.raises(BadInput, match="--shape i="):
        read(made, tmp_path)
    recording = read(made, tmp_path, shapes=["i=2x20"])
    assert [call.outputs[0].shape for call in recording.calls()] == [(2, 20), (2, 20)]


def test_weights_beside_the_file_are_not_loaded(tmp_path: Path) -> None:
    made = model([node("MatMul", "x w", "y")], [value("x", [2**12, 2**14])],
                 [value("y", [2**12, 2**16])])  # fmt: skip
    made.graph.initializer.add(name="w", data_type=HALF, dims=[2**14, 2**16], data_location=1)
    made.graph.initializer[0].external_data.add(key="location", value="nowhere.bin")
    made.graph.input[0].type.tensor_type.elem_type = HALF
    recording = read(made, tmp_path)
    assert recording.parameter_count == 2**30
    assert priced(recording).memory.by("category")["parameters"] == 2**31
    # Numbers that decide a shape cannot lie there.
    made = model([node("Reshape", "x s", "y"), node("Relu", "y", "z")], [value("x", [4, 6])],
                 [value("z", None)])  # fmt: skip
    made.graph.initializer.add(name="s", data_type=INT64, dims=[2], data_location=1)
    with pytest.raises(BadInput, match="--shape y="):
        read(made, tmp_path)


# ── exports of torch ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.filterwarnings("ignore")  # of the exporters, about themselves
@pytest.mark.parametrize("dynamo", [False, True])
def test_exports_of_torch_have_the_work_of_the_program(tmp_path: Path, dynamo: bool) -> None:
    torch: Any = pytest.importorskip("torch")
    if dynamo:
        pytest.importorskip("onnxscript")

    class Block(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(64)
            self.qkv, self.out = torch.nn.Linear(64, 192), torch.nn.Linear(64, 64)

        def forward(self, x: Any) -> Any:
            batch, seq, _ = x.shape
            q, k, v = self.qkv(self.norm(x)).view(batch, seq, 3, 4, 16).permute(2, 0, 3, 1, 4)
            scores = (q @ k.transpose(-1, -2) / 4.0).softmax(-1)
            return x + self.out((scores @ v).transpose(1, 2).reshape(batch, seq, 64))

    path = tmp_path / "block.onnx"
    given = torch.randn(2, 32, 64)
    more: dict[str, Any] = {"dynamic_axes": {"x": {0: "batch", 1: "seq"}}, "opset_version": 17}
    if dynamo:
        sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("seq")}
        more = {"dynamic_shapes": (sizes,)}
    torch.onnx.export(
        Block().eval(), (given,), str(path), dynamo=dynamo, input_names=["x"], verbose=False, **more
    )
    with pytest.raises(BadInput, match="--dim batch=… --dim seq=…"):
        read_onnx(path, Given())
    recording = read_onnx(path, Given.read([], ["batch=4", "seq=128"]))
    rows = 4 * 128
    assert flop(recording) == 2 * rows * 64 * 256 + 2 * (2 * rows * 128 * 64)
    assert recording.parameter_count == 64 * 192 + 192 + 64 * 64 + 64 + 2 * 64
    assert not recording.warnings


# ── hostile files ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no graph"),
        (b"hello, this is a text and no model", "not an ONNX file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "git lfs pull"),
        (b"\x08\x09\x3a\xff\xff\xff\xff\x0f", "not an ONNX file"),
        (b"\x00" * 64, "not an ONNX file"),
    ],
)
def test_a_bad_file_is_one_clear_error(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=says):
        read_onnx(path, Given())


def test_files_that_are_not_there_or_too_large(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        read_onnx(tmp_path / "none.onnx", Given())
    with pytest.raises(BadInput, match="a folder"):
        read_onnx(tmp_path, Given())
    large = tmp_path / "large.onnx"
    with large.open("wb") as stream:
        stream.truncate(2**31)  # of which the disk holds nothing
    with pytest.raises(BadInput, match="save_as_external_data=True"):
        read_onnx(large, Given())


def test_graphs_that_cannot_be(tmp_path: Path) -> None:
    x, y = [value("x", [4, 6])], [value("y", None)]
    for nodes, says in (
        ([node("Relu", "nothing", "y")], "which nothing has made"),
        ([node("MatMul", "x x", "y")], "cannot take inputs of 4×6 4×6"),
        ([node("FusedMatMul", "x x", "y", contrib=True)], "cannot take inputs of 4×6 4×6"),
        ([node("Attention", "x", "y", contrib=True, num_heads=2)], "cannot take inputs"),
        ([node("Constant", "", "y")], "holds no tensor"),
        ([node("Identity", "x", "z"), node("Loop", "z", "y")], "how often it runs"),
    ):
        with pytest.raises(BadInput, match=says):
            read(model(nodes, x, y), tmp_path)
    known = model([node("Shape", "x", "y")], x, y)
    with pytest.raises(BadInput, match="nothing in it runs"):
        read(known, tmp_path)


def test_a_file_may_say_anything(tmp_path: Path) -> None:
    """Bytes of sane files replaced: an answer or a clear error, never a bug."""
    whole = two_layers().SerializeToString()
    path = tmp_path / "spoilt.onnx"
    answered = 0
    for seed in range(400):
        chance = random.Random(seed)
        spoilt = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            # Weights are zeros in the middle: what says something lies at both ends.
            place = chance.randrange(400) * chance.choice((1, -1))
            spoilt[place] = chance.randrange(256)
        path.write_bytes(bytes(spoilt))
        try:
            recording = read_onnx(path, Given.read([], ["batch=4"]))
            priced(recording)
        except TrueflopsError:
            continue
        answered += 1
    assert answered > 20


# ── the command ──────────────────────────────────────────────────────────────────────────────────


def test_the_command(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    path = str(save(two_layers(), tmp_path))
    assert main(["capture", path, "--on", "H100", "--dim", "batch=64"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for said in ("a forward pass of", "on H100-SXM5-80GB", "24,864 parameters", "mm fp32 64×64",
                 "fused as a compiler would", "Memory:"):  # fmt: skip
        assert said in text
    assert main(["capture", path, "--on", "H100", "--dim", "batch=64", "--json",
                 "--provenance", "--graph"]) == 0  # fmt: skip
    answer = json.loads(capsys.readouterr().out)
    assert answer["parameters"] == 24864
    assert answer["step"]["seconds"]["low"] < answer["step"]["seconds"]["value"]
    assert [op["op"] for op in answer["graph"]] == ["mm", "add", "relu", "addmm"]
    waits = answer["provenance"]["parts"][0]
    assert (waits["what"], waits["curves"][0]["found"]) == ("waits for the host", "session")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--on", "H100"], "--dim batch=…"),
        (["--on", "8xH100", "--dim", "batch=8"], "of one chip"),
        (["--on", "H100", "--dim", "batch=8", "--", "more"], "takes no arguments"),
        (["--on", "H100", "--dim", "batch=8", "--pipeline"], "has no stages"),
        (["--on", "H100", "--dim", "batch=8", "--advise"], "not ONNX files"),
        (["--on", "H100", "--dim", "batch=8", "--assume", "mask=0.5"], "asks for sizes alone"),
        (["--on", "H100", "--dim", "batch=8", "--shape", "x=9x64"], "other flags must agree"),
    ],
)
def test_the_command_refuses(tmp_path: Path, capsys: Capture, words: list[str], says: str) -> None:
    path = str(save(two_layers(), tmp_path))
    flags, _, more = " ".join(words).partition(" -- ")
    assert main(["capture", *flags.split(), path, *(["--", more] if more else [])]) == 2
    assert says in " ".join(capsys.readouterr().err.split())


def test_sizes_are_not_of_programs(tmp_path: Path, capsys: Capture) -> None:
    program = tmp_path / "train.py"
    program.write_text("def build():\n    pass\n")
    assert main(["capture", f"{program}:build", "--on", "H100", "--dim", "batch=8"]) == 2
    assert "of ONNX files" in capsys.readouterr().err


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(two_layers(), tmp_path)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(BadInput, match=r"trueflops\[onnx\]"):
        read_onnx(path, Given())
