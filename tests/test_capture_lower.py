"""From recorded calls to kernels: flop, bytes and kind, by hand and by torch's own flop counter."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from capture_models import LSTM, SelectiveScan, UNet, ViT, resnet
from trueflops.capture.lower import base_name, lower
from trueflops.capture.pretend.machine import Machine
from trueflops.capture.program import capture
from trueflops.dtypes import DTYPES
from trueflops.graph.ir import Op
from trueflops.graph.kinds import PRODUCTS, Kind
from trueflops.graph.rules import work
from trueflops.graph.variants import EagerKernel
from trueflops.records.recording import Call, RecordedTensor
from trueflops.units import GIBI, MEBI

H100 = Machine("NVIDIA H100 80GB HBM3", 80 * int(GIBI), 132, (9, 0), 50 * int(MEBI))
CUDA = torch.device("cuda")


def calls_of(run: Callable[..., Any], *shapes: tuple[int, ...], dtype: Any = None) -> list[Call]:
    """What a function of tensors calls, their gradients included."""

    def build() -> Callable[[], Any]:
        given = [torch.randn(s, device=CUDA, dtype=dtype, requires_grad=True) for s in shapes]

        def step() -> None:
            made = run(*given)
            made = made[0] if isinstance(made, tuple) else made
            if made.requires_grad:
                torch.autograd.grad(made, given, torch.empty_like(made), allow_unused=True)

        return step

    return list(capture(lambda: build, H100).calls())


def ops_of(name: str, *args: Any, **kwargs: Any) -> list[Op]:
    """The kernels of all calls of one op."""
    return [o for c in calls_of(*args, **kwargs) if base_name(c.op) == name for o in lower(c)]


def moved(op: Op) -> float:
    done = work(op)
    return float(done.bytes_read + done.bytes_written)


# ── whole models, torch's own counter as the judge ───────────────────────────────────────────────


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(
        vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2))  # fmt: skip


def bert() -> nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(BertConfig(
        num_hidden_layers=2, hidden_size=128, num_attention_heads=2, intermediate_size=256,
        vocab_size=512))  # fmt: skip


def images(side: int) -> Callable[[Any], tuple[Tensor, ...]]:
    return lambda device: (torch.randn(2, 3, side, side, device=device),)


def tokens(device: Any) -> tuple[Tensor, ...]:
    return (torch.zeros(2, 16, dtype=torch.long, device=device),)


Make = Callable[[], nn.Module]
Inputs = Callable[[Any], tuple[Tensor, ...]]
# Model, inputs, and the forward flop of layers whose input needs no gradient.
MODELS: dict[str, tuple[Make, Inputs, float]] = {
    "resnet": (resnet, images(64), 2.0 * 2 * 32**2 * 64 * 3 * 49),
    "vit": (ViT, images(64), 2.0 * 2 * 64 * 192 * 3 * 64),
    "unet": (
        UNet,
        lambda device: (*images(32)(device), torch.zeros(2, device=device)),
        2.0 * 2 * 32**2 * 64 * 3 * 9 + 2.0 * 2 * 64 * 256,
    ),
    "bert": (bert, tokens, 0.0),
    "llama": (llama, tokens, 0.0),
}
COUNTED = ("mm", "addmm", "convolution", "convolution_backward")


def loss_of(model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    made = model(*inputs)
    total: Tensor = getattr(made, "logits", made).sum()
    return total


def captured_flop(make: Make, inputs: Inputs, counted: tuple[str, ...]) -> dict[str, float]:
    """Flop of products by phase, as they are lowered."""

    def build() -> Callable[[], Any]:
        model, given = make().to(CUDA), inputs(CUDA)
        weights = list(model.parameters())
        return lambda: torch.autograd.grad(loss_of(model, given), weights)

    found: dict[str, float] = {}
    for call in capture(lambda: build, H100).calls():
        if base_name(call.op) in counted:
            for op in lower(call):
                if op.kind in PRODUCTS or "flop_per_element" in op.facts:
                    found[call.phase] = found.get(call.phase, 0.0) + float(work(op).flop)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_flop_of_a_step_is_three_times_the_forward(name: str) -> None:
    make, inputs, first = MODELS[name]
    model, given = make().to("meta"), inputs("meta")
    with FlopCounterMode(display=False) as forward:
        loss = loss_of(model, given)
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    found = captured_flop(make, inputs, COUNTED)
    for phase, counter in (("forward", forward), ("backward", backward)):
        judged = counter.flop_counts["Global"].items()
        assert found[phase] == sum(n for op, n in judged if str(op).split(".")[-1] in COUNTED)
    assert found["forward"] + found["backward"] == 3.0 * found["forward"] - first
    gc.collect()


@pytest.mark.parametrize("make", [lambda: resnet(groups=8), SelectiveScan])
def test_grouped_and_depthwise_convolutions(make: Make) -> None:
    """Of these torch's counter overstates the backward: the rule alone is the judge."""
    scan = make is SelectiveScan
    inputs = (lambda d: (torch.randn(2, 16, 64, device=d),)) if scan else images(64)
    first = 2.0 * 2 * 16 * 64 * 256 if scan else 2.0 * 2 * 32**2 * 64 * 3 * 49
    found = captured_flop(make, inputs, COUNTED)
    assert found["forward"] + found["backward"] == 3.0 * found["forward"] - first


def test_flop_of_recurrent_layers() -> None:
    steps, batch, width, layers = 16, 2, 128, 2
    each = 2.0 * steps * batch * 4 * width * (width + width)
    found = captured_flop(LSTM, tokens, ("_cudnn_rnn", "_cudnn_rnn_backward"))
    assert found == {"forward": layers * each, "backward": 2.0 * layers * each}


# ── convolutions ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "weight", "flop"),
    [
        ({"padding": 1}, (32, 16, 3, 3), 2 * 4 * 64 * 32 * 16 * 9),
        ({"padding": 2, "dilation": 2}, (32, 16, 3, 3), 2 * 4 * 64 * 32 * 16 * 9),
        ({"stride": 2, "padding": 1}, (32, 16, 3, 3), 2 * 4 * 16 * 32 * 16 * 9),
        ({"groups": 4}, (32, 4, 1, 1), 2 * 4 * 64 * 32 * 4),
        ({"groups": 16, "padding": 1}, (32, 1, 3, 3), 2 * 4 * 64 * 32 * 9),
    ],
)
def test_a_convolution(options: dict[str, Any], weight: tuple[int, ...], flop: float) -> None:
    def run(x: Tensor, w: Tensor) -> Tensor:
        return functional.conv2d(x, w, **options)

    calls = calls_of(run, (4, 16, 8, 8), weight)
    (forward,) = [o for c in calls if base_name(c.op) == "convolution" for o in lower(c)]
    back = [o for c in calls if base_name(c.op) == "convolution_backward" for o in lower(c)]
    assert work(forward).flop == flop
    assert [work(op).flop for op in back] == [flop, flop]
    x, y = 4 * 16 * 64, flop / (2 * weight[1] * weight[2] * weight[3])
    assert moved(forward) == 4.0 * (x + y + weight[0] * weight[1] * weight[2] * weight[3])
    channelwise = weight[1] == 1
    assert (forward.kind is Kind.MOVEMENT) == channelwise


def test_a_transposed_convolution_is_an_input_gradient() -> None:
    def run(x: Tensor, w: Tensor) -> Tensor:
        return functional.conv_transpose2d(x, w, stride=2, groups=2)

    calls = calls_of(run, (4, 16, 8, 8), (16, 12, 2, 2))
    flop = 2.0 * 4 * 64 * 16 * 12 * 4
    (forward,) = [o for c in calls if base_name(c.op) == "convolution" for o in lower(c)]
    back = [o for c in calls if base_name(c.op) == "convolution_backward" for o in lower(c)]
    assert (forward.kind, work(forward).flop) == ("dgrad", flop)
    assert [(op.kind, work(op).flop) for op in back] == [("matmul", flop), ("wgrad", flop)]
    x, w, y = 4 * 16 * 64, 16 * 12 * 4, 4 * 24 * 256
    assert moved(forward) == 4.0 * (x + w + y)


def test_a_bias_is_a_kernel_of_its_own() -> None:
    def run(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return functional.conv2d(x, w, b)

    calls = calls_of(run, (4, 16, 8, 8), (32, 16, 1, 1), (32,))
    forward = [o for c in calls if base_name(c.op) == "convolution" for o in lower(c)]
    back = [o for c in calls if base_name(c.op) == "convolution_backward" for o in lower(c)]
    assert [op.kind for op in forward] == ["matmul", "pointwise"]
    assert moved(forward[1]) == 4.0 * (2 * 4 * 32 * 64 + 32)
    assert [op.kind for op in back] == ["dgrad", "wgrad", "reduction"]


# ── products and attention ───────────────────────────────────────────────────────────────────────


def test_products() -> None:
    (plain,) = ops_of("addmm", lambda x, w, b: functional.linear(x, w, b), (8, 64), (32, 64), (32,))
    assert work(plain).flop == 2 * 8 * 32 * 64
    assert moved(plain) == 4.0 * (8 * 64 + 32 * 64 + 32 + 8 * 32)
    (batched, *_) = ops_of("bmm", torch.bmm, (4, 8, 16), (4, 16, 8))
    assert work(batched).flop == 2 * 4 * 8 * 8 * 16
    assert moved(batched) == 4.0 * 4 * (8 * 16 + 16 * 8 + 8 * 8)
    vector, _ = ops_of("mv", lambda a, b: torch.mv(a, b), (8, 64), (64,))
    assert work(vector).flop == 2 * 8 * 64


def test_a_broadcast_operand_is_read_once() -> None:
    def run(a: Tensor, b: Tensor) -> Tensor:
        return torch.bmm(a, b.expand(4, 16, 8))

    first = ops_of("bmm", run, (4, 8, 16), (1, 16, 8))[0]
    assert moved(first) == 4.0 * (4 * 8 * 16 + 16 * 8 + 4 * 8 * 8)


def test_experts_side_by_side() -> None:
    def run(x: Tensor, w: Tensor) -> Tensor:
        ends = torch.arange(8, 33, 8, device=CUDA, dtype=torch.int32)
        return functional.grouped_mm(x, w, offs=ends)

    ops = ops_of("_grouped_mm", run, (32, 64), (4, 64, 128), dtype=torch.bfloat16)
    assert [work(op).flop for op in ops] == [2.0 * 32 * 64 * 128] * 3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_counts_what_a_query_sees(causal: bool, dtype: torch.dtype) -> None:
    """For halves cuDNN's kernel, for singles the memory-efficient one: both keep their sums."""

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    shape = (2, 4, 64, 32)
    found = [o for c in calls_of(run, shape, shape, shape, dtype=dtype) for o in lower(c)]
    forward, back = [o for o in found if o.kind.startswith("attention")]
    pairs = 2 * 4 * 64 * (65 / 2 if causal else 64)
    assert work(forward).flop == 2 * pairs * (32 + 32)
    assert work(back).flop == 2.5 * float(work(forward).flop)


# ── memory-bound kernels: bytes, kind ────────────────────────────────────────────────────────────

BIG = 64 * 256  # elements of most tensors below


def even(x: Tensor) -> Tensor:
    return x.detach() > 0


@pytest.mark.parametrize(
    ("name", "run", "forms", "moves"),
    [
        ("mul", lambda x: x * 2.0, ["vector"], 8 * BIG),
        ("add", lambda x: x + x[:1], ["strided"], 8 * BIG + 4 * 256),
        ("clone", lambda x: x.detach().T.contiguous(), ["turned"], 8 * BIG),
        ("_to_copy", lambda x: x.detach().half(), ["vector"], 6 * BIG),
        ("_to_copy", lambda x: x.detach().double(), ["widen"], 12 * BIG),
        ("where", lambda x: torch.where(even(x), x, 0.0).detach(), ["masked"], 9 * BIG + 4),
        ("masked_fill", lambda x: x.detach().masked_fill(even(x), 0.0), ["masked"], 9 * BIG),
        ("gt", lambda x: x.detach() > 0, ["vector"], 5 * BIG),
        ("zeros_like", lambda x: torch.zeros_like(x), ["fill"], 4 * BIG),
        ("native_dropout", lambda x: functional.dropout(x, 0.5).detach(), ["random"], 9 * BIG),
        ("sum", lambda x: x.detach().sum(-1), ["reduce_rows"], 4 * BIG + 4 * 64),
        ("sum", lambda x: x.detach().sum(0), ["reduce_columns"], 4 * BIG + 4 * 256),
        ("sum", lambda x: x.detach().T.sum(0), ["reduce_rows"], 4 * BIG + 4 * 64),
        ("sum", lambda x: x.detach().sum(), ["reduce_rows"], 4 * BIG + 4),
        ("max", lambda x: x.detach().max(0).values, ["reduce_columns"], 4 * BIG + 12 * 256),
        ("cumsum", lambda x: x.detach().cumsum(-1), ["scan"], 8 * BIG),
        ("_softmax", lambda x: x.detach().softmax(-1), ["softmax"], 8 * BIG),
        ("index_select", lambda x:
         x.detach().index_select(0, torch.arange(8, device=CUDA)), ["gather"],
         8 * 8 * 256 + 8 * 8),
        ("cat", lambda x: torch.cat([x.detach(), x.detach()]), ["join"], 4 * 4 * BIG),
        ("flip", lambda x: x.detach().flip(0), ["shifted"], 8 * BIG),
        ("topk", lambda x: x.detach().topk(4).values, ["top"], 4 * BIG + 12 * 64 * 4),
        ("mse_loss", lambda x: functional.mse_loss(x.detach(), x.detach()),
         ["vector", "reduce_rows"], 12 * BIG + 4 * BIG + 4),
        ("_foreach_mul", lambda x: torch._foreach_mul_([x.detach()], 2.0), ["foreach"], 8 * BIG),
        ("_foreach_copy", lambda x: torch._foreach_copy_([x.detach()], [x.detach()]), ["foreach"],
         8 * BIG),
        ("_foreach_zero", lambda x: torch._foreach_zero_([x.detach()]), ["foreach"], 4 * BIG),
        ("_foreach_norm", lambda x: torch._foreach_norm([x.detach()]), ["list_norm"], 4 * BIG),
        ("_fft_r2c", lambda x: torch.fft.rfft(x.detach()), ["fourier"], 4 * BIG + 8 * 64 * 129),
    ],
    ids=lambda p: p if isinstance(p, str) else "",
)  # fmt: skip
def test_a_memory_bound_kernel(
    name: str, run: Callable[[Tensor], Any], forms: list[str], moves: float
) -> None:
    def quiet(x: Tensor) -> Tensor:
        run(x)
        return x.detach()

    ops = ops_of(name, quiet, (64, 256))
    assert [op.variant for op in ops] == forms
    assert set(forms) <= set(EagerKernel)
    assert sum(moved(op) for op in ops) == moves


def test_norms_read_their_rows_once() -> None:
    """Whatever kernels a library makes of a norm: it was timed as a whole."""
    shape, count = (4, 8, 16, 16), 4 * 8 * 256

    def batch_norm(x: Tensor) -> Tensor:
        return functional.batch_norm(x, None, None, training=True)

    (batch,) = ops_of("native_batch_norm", batch_norm, shape)
    assert batch.variant == "cudnn_batch_norm"
    assert moved(batch) == 8.0 * count
    (grouped,) = ops_of("native_group_norm", lambda x: functional.group_norm(x, 4), shape)
    assert grouped.variant == "group_norm"
    assert (grouped.facts["pieces"], grouped.facts["run"]) == (16.0, 2 * 256.0)
    (layered,) = ops_of("native_layer_norm", lambda x: functional.layer_norm(x, (16,)), shape)
    assert layered.variant == "norm"
    assert moved(layered) == 8.0 * count + 2 * 4 * count / 16


def test_scatters_move_what_is_put_not_the_table() -> None:
    rows = torch.tensor([1, 2, 3, 4])

    def in_place(x: Tensor, table: Tensor) -> Tensor:
        return table.detach().index_add_(0, rows.to(CUDA), x.detach())

    (put,) = ops_of("index_add", in_place, (4, 256), (64, 256))
    assert moved(put) == 2 * 4.0 * 4 * 256 + 8 * 4

    def apart(x: Tensor, table: Tensor) -> Tensor:
        return table.detach().index_add(0, rows.to(CUDA), x.detach())

    copy, again = ops_of("index_add", apart, (4, 256), (64, 256))
    assert moved(copy) == 8.0 * BIG
    assert moved(again) == moved(put)


def test_a_lookup_and_its_gradient() -> None:
    def run(table: Tensor) -> Tensor:
        return functional.embedding(torch.arange(32, device=CUDA), table)

    calls = calls_of(run, (64, 256))
    (picked,) = [o for c in calls if base_name(c.op) == "embedding" for o in lower(c)]
    assert moved(picked) == 2 * 4.0 * 32 * 256 + 8 * 32
    (added,) = [o for c in calls if base_name(c.op) == "embedding_dense_backward" for o in lower(c)]
    assert added.variant == "table_gradient"
    assert moved(added) == 4.0 * BIG + 4.0 * 32 * 256 + 8 * 32


def test_pooling_does_not_read_what_it_only_measures() -> None:
    def run(x: Tensor) -> Tensor:
        return functional.max_pool2d(x, 2)

    calls = calls_of(run, (2, 8, 16, 16))
    (back,) = [o for c in calls if "pool2d_with_indices_backward" in c.op for o in lower(c)]
    whole, pooled = 2 * 8 * 256, 2 * 8 * 64
    assert moved(back) == 4.0 * whole + (4 + 8) * pooled


@pytest.mark.parametrize(
    ("options", "lists"), [({}, 4), ({"amsgrad": True}, 5)], ids=["adam", "amsgrad"]
)
def test_a_fused_optimizer_writes_all_but_the_gradients(
    options: dict[str, Any], lists: int
) -> None:
    def build() -> Callable[[], Any]:
        model = nn.Linear(64, 32).to(CUDA)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True, **options)
        x = torch.randn(8, 64, device=CUDA)
        return lambda: (model(x).sum().backward(), optimizer.step(), optimizer.zero_grad())

    calls = [c for c in capture(lambda: build, H100).calls() if "_fused_adam" in c.op]
    (op,) = [o for c in calls for o in lower(c)]
    weights = 64 * 32 + 32
    assert work(op).bytes_read == 4.0 * lists * weights
    assert work(op).bytes_written == 4.0 * (lists - 1) * weights


def test_an_empty_result_launches_nothing() -> None:
    empty = RecordedTensor(1, (0, 8), (8, 1), "float32")
    assert lower(Call("aten.mul.Tensor", (empty,), (empty,), (), "forward", "", 0, -1)) == []


def test_the_table_of_dtypes_says_what_torch_says() -> None:
    for dtype in DTYPES:
        if dtype.torch:
            assert getattr(torch, dtype.torch).itemsize * 8 == dtype.bits, dtype.torch
