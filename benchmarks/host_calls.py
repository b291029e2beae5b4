"""What the host needs to issue one call of an ATen op, on tensors so small that no GPU is behind.

    python benchmarks/host_calls.py FILE.csv

Needs a GPU. A host is slower while others use its cores, by half and more, so the list is gone
through several times and the fastest round of each op counts. `python_loop_us` is a loop of plain
Python, by which hosts are told apart.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from trueflops.measure.host_speed import python_loop_seconds

ROUNDS = 6
CALLS = 60
aten = torch.ops.aten
Launch = Callable[[], Any]


def seconds_of(launch: Launch, calls: int) -> float:
    """Seconds of one call; the queue of the GPU is empty before, and not full after."""
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(calls):
        launch()
    return (time.perf_counter() - begun) / calls


def cases() -> Iterator[tuple[str, Launch]]:
    """Every op that programs spend their host's time on, by its name in a recording."""
    bf16, cuda = torch.bfloat16, torch.device("cuda")

    def normal(*shape: int, dtype: torch.dtype = bf16) -> torch.Tensor:
        return torch.randn(*shape, device=cuda, dtype=dtype)

    x, y, mask = normal(64, 64), normal(64, 64), normal(64, 64) > 0
    row, cube, picture, channel = normal(64), normal(4, 64, 64), normal(4, 32, 16, 16), normal(32)
    ids = torch.randint(0, 64, (64,), device=cuda)
    table = torch.randint(0, 64, (64, 64), device=cuda)
    for name in (
        "relu", "silu", "gelu", "tanh", "sigmoid", "exp", "sin", "cos", "rsqrt", "neg", "abs",
        "reciprocal", "clone", "isnan", "bitwise_not", "ones_like", "zeros_like", "softplus",
        "leaky_relu", "hardswish", "glu", "sqrt", "log",
    ):  # fmt: skip
        yield name, partial(getattr(aten, name), mask if name == "bitwise_not" else x)
    for name in ("add", "sub", "mul", "div", "eq", "ne", "gt", "maximum", "gelu_backward",
                 "silu_backward", "tanh_backward", "sigmoid_backward"):  # fmt: skip
        yield name, partial(getattr(aten, name), x, y)
    yield "pow", lambda: aten.pow(x, 2.0)
    yield "clamp", lambda: aten.clamp(x, 0.0, 1.0)
    yield "threshold_backward", lambda: aten.threshold_backward(x, y, 0)
    yield "leaky_relu_backward", lambda: aten.leaky_relu_backward(x, y, 0.1, False)
    yield "glu_backward", lambda: aten.glu_backward(x[:, :32], y, -1)
    yield "masked_fill", lambda: aten.masked_fill(x, mask, 0.0)
    yield "where", lambda: aten.where(mask, x, y)
    yield "addcmul", lambda: aten.addcmul(x, x, y)
    yield "_to_copy", lambda: aten._to_copy(x, dtype=torch.float32)
    yield "copy_", lambda: x.copy_(y)
    yield "contiguous copy", lambda: x.t().contiguous()
    yield "fill_", lambda: aten.fill_(x, 0.5)
    yield "empty", lambda: torch.empty(64, 64, device=cuda)
    yield "zeros", lambda: torch.zeros(64, 64, device=cuda)
    yield "full", lambda: torch.full((64, 64), 0.5, device=cuda)
    yield "new_zeros", lambda: aten.new_zeros(x, (64, 64))
    yield "arange", lambda: torch.arange(64, device=cuda)
    yield "triu", lambda: aten.triu(x)
    yield "sum", lambda: aten.sum.dim_IntList(x, [0], True)
    yield "mean", lambda: aten.mean.dim(x, [-1], True)
    yield "amax", lambda: aten.amax(x, [-1])
    yield "all", lambda: aten.all(mask)
    yield "linalg_vector_norm", lambda: torch.linalg.vector_norm(x)
    yield "cumsum", lambda: aten.cumsum(x, 0)
    yield "_softmax", lambda: aten._softmax(x, -1, False)
    yield "_log_softmax", lambda: aten._log_softmax(x, -1, False)
    yield "_softmax_backward_data", lambda: aten._softmax_backward_data(x, y, -1, bf16)
    yield "_log_softmax_backward_data", lambda: aten._log_softmax_backward_data(x, y, -1, bf16)
    loss, weight = aten.nll_loss_forward(x, ids, None, 1, -100)
    yield "nll_loss_forward", lambda: aten.nll_loss_forward(x, ids, None, 1, -100)
    yield (
        "nll_loss_backward",
        lambda: aten.nll_loss_backward(loss, x, ids, None, 1, -100, weight),
    )
    yield "mse_loss", lambda: aten.mse_loss(x, y)
    yield "binary_cross_entropy_with_logits", lambda: aten.binary_cross_entropy_with_logits(x, y)
    yield "native_dropout", lambda: aten.native_dropout(x, 0.1, True)
    yield "native_dropout_backward", lambda: aten.native_dropout_backward(x, mask, 1.1)
    yield "cat", lambda: aten.cat([x, y], -1)
    yield "stack", lambda: aten.stack([x, y])
    yield "constant_pad_nd", lambda: aten.constant_pad_nd(x, [1, 1], 0.0)
    yield "slice_backward", lambda: aten.slice_backward(x[:, :8], [64, 64], 1, 0, 8, 1)
    yield "select_backward", lambda: aten.select_backward(row, [64, 64], 0, 0)
    yield "index", lambda: aten.index(x, [ids])
    yield "index_put", lambda: aten.index_put(x, [ids], y, True)
    yield "index_select", lambda: aten.index_select(x, 0, ids)
    yield "index_add", lambda: aten.index_add(x, 0, ids, y)
    yield "gather", lambda: aten.gather(x, 0, table)
    yield "scatter", lambda: aten.scatter(x, 0, table, y)
    yield "scatter_add", lambda: aten.scatter_add(x, 0, table, y)
    yield "embedding", lambda: aten.embedding(x, ids)
    yield "embedding_dense_backward", lambda: aten.embedding_dense_backward(y, ids, 64, -1, False)
    many, rows = torch.randint(0, 64, (8192,), device=cuda), normal(8192, 8)
    yield (  # more than 3072 are sorted (ATen, Embedding.cu)
        "embedding_dense_backward sorted",
        lambda: aten.embedding_dense_backward(rows, many, 64, -1, False),
    )
    offsets = torch.arange(0, 64, 4, device=cuda)
    bag = normal(64, 64, dtype=torch.float32)
    yield "_embedding_bag", lambda: aten._embedding_bag(bag, ids, offsets)
    asking = bag.clone().requires_grad_()
    bags = aten._embedding_bag(asking, ids, offsets)[0]
    yield (
        "_embedding_bag_dense_backward",
        partial(torch.autograd.grad, bags, asking, torch.ones_like(bags), retain_graph=True),
    )
    yield "sort", lambda: aten.sort(x)
    yield "topk", lambda: aten.topk(x, 2)
    yield "nonzero", lambda: aten.nonzero(mask)
    yield "item", lambda: row[0].item()
    yield "histc", lambda: aten.histc(bag, 8)
    yield "mm", lambda: aten.mm(x, y)
    yield "addmm", lambda: aten.addmm(row, x, y)
    yield "bmm", lambda: aten.bmm(cube, cube)
    yield "baddbmm", lambda: aten.baddbmm(cube, cube, cube)
    yield from _layers(x, picture, channel, row)
    yield from _attention(normal)
    yield from _lists(normal)


def _layers(
    x: torch.Tensor, picture: torch.Tensor, channel: torch.Tensor, row: torch.Tensor
) -> Iterator[tuple[str, Launch]]:
    made, mean, spread = aten.native_layer_norm(x, [64], row, row, 1e-5)
    yield "native_layer_norm", lambda: aten.native_layer_norm(x, [64], row, row, 1e-5)
    yield (
        "native_layer_norm_backward",
        lambda: aten.native_layer_norm_backward(made, x, [64], mean, spread, row, row, [True] * 3),
    )
    scaled, inverse = aten._fused_rms_norm(x, [64], row, 1e-6)
    yield "_fused_rms_norm", lambda: aten._fused_rms_norm(x, [64], row, 1e-6)
    yield (
        "_fused_rms_norm_backward",
        lambda: aten._fused_rms_norm_backward(scaled, x, [64], inverse, row, [True, True]),
    )
    grouped = aten.native_group_norm(picture, channel, channel, 4, 32, 256, 8, 1e-5)
    yield (
        "native_group_norm",
        lambda: aten.native_group_norm(picture, channel, channel, 4, 32, 256, 8, 1e-5),
    )
    yield (
        "native_group_norm_backward",
        lambda: aten.native_group_norm_backward(
            picture, picture, *grouped[1:], channel, 4, 32, 256, 8, [True] * 3
        ),
    )
    for name, inputs in (("native_batch_norm", picture), ("cudnn_batch_norm", picture.float())):
        w = channel.to(inputs.dtype)
        norm = partial(
            functional.batch_norm, running_mean=torch.zeros_like(w),
            running_var=torch.ones_like(w), weight=w, bias=w, training=True,
        )  # fmt: skip
        yield name, partial(norm, inputs)
        asking = inputs.clone().requires_grad_()
        out = norm(asking)
        grad = torch.ones_like(out)
        yield (
            f"{name}_backward",
            partial(torch.autograd.grad, out, asking, grad, retain_graph=True),
        )
    both = {"": torch.contiguous_format, " last": torch.channels_last}
    for layout, form in both.items():
        images = picture.contiguous(memory_format=form)
        filters = torch.randn(32, 32, 3, 3, device=x.device, dtype=x.dtype)
        filters = filters.contiguous(memory_format=form)
        arguments = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        yield f"convolution{layout}", partial(aten.convolution, images, filters, None, *arguments)
        yield (
            f"convolution_backward{layout}",
            partial(aten.convolution_backward, images, images, filters, None, *arguments,
                    [True, True, False]),
        )  # fmt: skip
    alone = torch.randn(32, 1, 3, 3, device=x.device, dtype=x.dtype)
    arguments = ([1, 1], [1, 1], [1, 1], False, [0, 0], 32)
    yield "convolution depthwise", partial(aten.convolution, picture, alone, None, *arguments)
    yield (
        "convolution_backward depthwise",
        partial(aten.convolution_backward, picture, picture, alone, None, *arguments,
                [True, True, False]),
    )  # fmt: skip
    yield "max_pool2d_with_indices", lambda: aten.max_pool2d_with_indices(picture, [2, 2])
    yield "avg_pool2d", lambda: aten.avg_pool2d(picture, [2, 2])
    yield "_adaptive_avg_pool2d", lambda: aten._adaptive_avg_pool2d(picture, [2, 2])
    yield "upsample_nearest2d", lambda: aten.upsample_nearest2d(picture, [32, 32])
    for steps in (32, 128):
        for dtype in (torch.bfloat16, torch.float32):
            layer = torch.nn.LSTM(512, 512, device=x.device, dtype=dtype)
            sequence = torch.randn(steps, 8, 512, device=x.device, dtype=dtype)
            yield f"_cudnn_rnn {steps} {dtype}", partial(layer, sequence)
            out = layer(sequence.requires_grad_())[0]
            yield (
                f"_cudnn_rnn_backward {steps} {dtype}",
                partial(torch.autograd.grad, out, sequence, torch.ones_like(out),
                        retain_graph=True),
            )  # fmt: skip


def _attention(normal: Callable[..., torch.Tensor]) -> Iterator[tuple[str, Launch]]:
    q = normal(2, 4, 64, 64)
    for name, backend in (
        ("_scaled_dot_product_cudnn_attention", SDPBackend.CUDNN_ATTENTION),
        ("_scaled_dot_product_flash_attention", SDPBackend.FLASH_ATTENTION),
        ("_scaled_dot_product_efficient_attention", SDPBackend.EFFICIENT_ATTENTION),
    ):

        def forward(backend: Any = backend, of: torch.Tensor = q) -> torch.Tensor:
            with sdpa_kernel(backend):
                return functional.scaled_dot_product_attention(of, of, of, is_causal=True)

        yield name, forward
        asking = q.clone().requires_grad_()
        out = forward(of=asking)
        grad = torch.ones_like(out)
        yield (
            f"{name}_backward",
            partial(torch.autograd.grad, out, asking, grad, retain_graph=True),
        )


def _lists(normal: Callable[..., torch.Tensor]) -> Iterator[tuple[str, Launch]]:
    for count in (10, 100, 400):
        a, b, c = ([normal(64) for _ in range(count)] for _ in range(3))
        yield f"_foreach_mul {count}", partial(torch._foreach_mul_, a, 0.9)
        yield f"_foreach_addcmul {count}", partial(torch._foreach_addcmul_, a, b, c)
        yield f"_foreach_sqrt {count}", partial(torch._foreach_sqrt, a)
        for kind in ("foreach", "fused"):
            weights = [torch.nn.Parameter(t.float()) for t in a]
            for w in weights:
                w.grad = torch.ones_like(w)
            optimizer = torch.optim.AdamW(weights, foreach=kind == "foreach", fused=kind == "fused")
            yield f"AdamW {kind} {count}", optimizer.step
    # Autograd's own: a chain of nodes through views and through kernels, and weights at its end.
    for count in (1, 51):
        for name, node in (("view", lambda t: t.view(-1).view(64, 64)), ("relu", torch.relu),
                           ("scaled", partial(torch.mul, other=2.0))):  # fmt: skip
            first = normal(64, 64).requires_grad_()
            out = first
            for _ in range(count):
                out = node(out)
            grad = torch.ones_like(out)
            yield (
                f"backward of {count} {name}",
                partial(torch.autograd.grad, out, first, grad, retain_graph=True),
            )
            if count > 1:
                yield f"forward of {count} {name}", partial(_chain, node, first, count)
    many = [normal(64).requires_grad_() for _ in range(100)]
    out = torch.cat(many)
    grad = torch.ones_like(out)

    def accumulate() -> None:
        for each in many:
            each.grad = None
        torch.autograd.backward(out, grad, retain_graph=True)

    yield "backward of cat into 100 weights", accumulate
    yield (
        "gradients of cat by 100 weights",
        partial(torch.autograd.grad, out, many, grad, retain_graph=True),
    )
    x = normal(64, 64)
    identity = torch.nn.Identity()
    yield "module", lambda: identity(x)
    linear = torch.nn.Linear(64, 64, device="cuda", dtype=torch.bfloat16)
    yield "module linear", lambda: linear(x)
    yield "view", lambda: x.view(-1)
    yield "transpose", lambda: x.transpose(0, 1)
    yield "python call", lambda: None


def _chain(node: Callable[[torch.Tensor], torch.Tensor], first: torch.Tensor, count: int) -> Any:
    out = first
    for _ in range(count):
        out = node(out)
    return out


def main(path: str) -> None:
    found: dict[str, float] = {}
    loops: dict[str, float] = {}
    built = []
    for name, launch in cases():
        try:
            launch()
            built.append((name, launch))
        except Exception as error:  # the other ops are measured all the same
            print(f"{name}: {error}", file=sys.stderr)
    for _ in range(ROUNDS):
        for name, launch in built:
            long = any(c.isdigit() for c in name.split(" ")[-1]) or " of " in name or "rnn" in name
            taken = seconds_of(launch, 8 if long else CALLS)
            if taken < found.get(name, 1.0):
                found[name], loops[name] = taken, python_loop_seconds()
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["op", "host_us", "python_loop_us", "device", "torch"])
        for name, seconds in found.items():
            about = torch.cuda.get_device_name(), torch.__version__
            writer.writerow([name, round(seconds * 1e6, 2), round(loops[name] * 1e6), *about])


if __name__ == "__main__":
    main(sys.argv[1])
