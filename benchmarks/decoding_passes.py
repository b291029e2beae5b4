"""What passes of decoding take on a GPU: so many tokens of each request after what is cached.

    python benchmarks/decoding_passes.py FILE.csv

Needs torch alone. One token a request is a decode step; several are what a model verifies at once
of drafts. A pass is one captured graph, as engines run it: fused projections, norms and rotations,
the cache in memory, the greedy token of every row. Query heads that share keys lie in one block of
attention, and of FlashAttention-2's and cuDNN's kernels the faster one counts, as engines tune it.
Weights and caches are random numbers. `benchmarks/drafts.py` puts predictions beside the file.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel

from drafts import DRAFTED, Network
from trueflops import read_model
from trueflops.measure.device import Device, find_device
from trueflops.measure.timing import Timed, seconds_of, summary
from trueflops.model import Attention, Model
from trueflops.verify.serving.passes import COLUMNS, network_of

BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
PASTS = (1024, 4096)
ROOM = 0.9  # of the memory
HELD_BACK = 12e9  # bytes of logits and what lies between layers
BACKENDS = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
SECONDS = 0.3  # of replays of one pass, so that clocks settle
BF16 = torch.bfloat16


class Shape(NamedTuple):
    """So many requests of so many tokens each, after others that are cached."""

    batch: int
    tokens: int
    past: int


@torch.compile(dynamic=True)
def add_norm(x: torch.Tensor, stream: torch.Tensor, scale: torch.Tensor) -> Any:
    """The stream with what a layer's half added, and its norm."""
    stream = stream + x
    wide = stream.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)
    return wide.to(x.dtype) * scale, stream


@torch.compile(dynamic=True)
def rotate(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, angles: torch.Tensor,
    keys: torch.Tensor, values: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """Queries turned by their positions; keys, turned as well, and values go to the cache."""
    cos, sin = angles.cos()[None, :, None], angles.sin()[None, :, None]

    def turned(x: torch.Tensor) -> torch.Tensor:
        left, right = x.float().chunk(2, -1)
        return torch.cat((left * cos - right * sin, right * cos + left * sin), -1).to(x.dtype)

    keys.copy_(turned(k))
    values.copy_(v)
    return turned(q)


@torch.compile(dynamic=True)
def gate(both: torch.Tensor) -> torch.Tensor:
    """SiLU of one half times the other."""
    left, right = both.chunk(2, -1)
    return F.silu(left) * right


def drawn(*shape: int) -> torch.Tensor:
    """Random weights."""
    return torch.empty(shape, device="cuda", dtype=BF16).normal_(std=0.02)


class Layer:
    """A dense layer's weights and its caches."""

    def __init__(self, model: Model, index: int, most: int, length: int) -> None:
        block = model.blocks[model.pattern[index]]
        assert block.attention is not None
        assert block.ffn is not None
        self.attention: Attention = block.attention
        a, wide, hidden = self.attention, block.ffn.width, model.hidden
        heads = a.heads + 2 * a.kv_heads
        self.join = drawn(hidden, 2 * hidden) if block.joins else None
        self.qkv, self.bias = drawn(heads * a.head_dim, hidden), None
        if a.qkv_bias:
            self.bias = drawn(heads * a.head_dim)
        self.out = drawn(hidden, a.heads * a.head_dim)
        self.up, self.down = drawn(2 * wide, hidden), drawn(hidden, wide)
        self.norms = torch.ones(2, hidden, device="cuda", dtype=BF16)
        self.keys = drawn(most, length, a.kv_heads, a.head_dim)
        self.values = drawn(most, length, a.kv_heads, a.head_dim)

    def run(
        self, x: torch.Tensor, stream: torch.Tensor, shape: Shape, angles: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What the layer adds to the stream, and the stream before."""
        if self.join is not None:
            x = F.linear(torch.cat((x, stream), -1), self.join)
        normed, stream = add_norm(x, stream, self.norms[0])
        attended = self.attend(F.linear(normed, self.qkv, self.bias), shape, angles)
        normed, stream = add_norm(F.linear(attended, self.out), stream, self.norms[1])
        return F.linear(gate(F.linear(normed, self.up)), self.down), stream

    def attend(self, qkv: torch.Tensor, shape: Shape, angles: torch.Tensor) -> torch.Tensor:
        """Heads that read the same keys are rows of one block, beside a request's tokens."""
        (batch, tokens, past), a = shape, self.attention
        parts = qkv.view(batch, tokens, -1, a.head_dim)
        q, k, v = torch.split(parts, [a.heads, a.kv_heads, a.kv_heads], 2)
        own = slice(past, past + tokens)
        turned = rotate(q, k, v, angles, self.keys[:batch, own], self.values[:batch, own])
        rows = turned.view(batch, -1, a.kv_heads, a.head_dim).transpose(1, 2)
        keys, values = (
            cache[:batch, : past + tokens].transpose(1, 2) for cache in (self.keys, self.values)
        )
        # That a draft does not see the next ones leaves out a few of some thousand keys: no mask.
        found = F.scaled_dot_product_attention(rows, keys, values)
        return found.transpose(1, 2).reshape(batch * tokens, -1)


class Served:
    """A dense model whose passes are timed."""

    def __init__(self, model: Model, most: int, length: int) -> None:
        self.model = model
        self.layers = [Layer(model, index, most, length) for index in range(model.layers)]
        self.embedding = drawn(model.vocab, model.hidden)
        self.head = self.embedding if model.tied else drawn(model.vocab, model.hidden)
        self.norm = torch.ones(model.hidden, device="cuda", dtype=BF16)

    def run(self, ids: torch.Tensor, shape: Shape, angles: torch.Tensor) -> torch.Tensor:
        """The greedy token of every row."""
        x = F.embedding(ids, self.embedding)
        stream = torch.zeros_like(x)
        for layer in self.layers:
            x, stream = layer.run(x, stream, shape, angles)
        normed, _ = add_norm(x, stream, self.norm)
        return F.linear(normed, self.head).argmax(-1)

    def timed(self, device: Device, shape: Shape) -> tuple[str, Timed]:
        """By the faster kernels of attention."""
        found = {}
        for name, backend in BACKENDS.items():
            with sdpa_kernel(backend):
                try:
                    found[name] = replayed(device, self.launch(shape))
                except RuntimeError as error:  # a backend that does not take this shape
                    print(f"  {name}: {str(error).splitlines()[0]}")
        best = min(found, key=lambda name: found[name].seconds)
        return best, found[best]

    def launch(self, shape: Shape) -> Callable[[], Any]:
        """One pass."""
        attention = self.layers[0].attention
        ids = torch.randint(self.model.vocab, (shape.batch * shape.tokens,), device="cuda")
        places = torch.arange(shape.past, shape.past + shape.tokens, device="cuda").float()
        rates = 1e4 ** -torch.linspace(0, 1, attention.head_dim // 2, device="cuda")
        angles = torch.outer(places, rates)
        return lambda: self.run(ids, shape, angles)


def replayed(device: Device, launch: Callable[[], Any]) -> Timed:
    """Seconds of one replay of a captured graph, after clocks have settled."""
    torch.cuda.synchronize()  # what it reads was drawn on another stream
    with torch.cuda.stream(torch.cuda.Stream(device.at)):  # type: ignore[no-untyped-call]
        for _ in range(3):
            launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    first = statistics.median(seconds_of(device, graph.replay) for _ in range(3))
    count = max(9, min(300, round(SECONDS / first)))
    taken = [seconds_of(device, graph.replay) for _ in range(count)]
    return summary(taken[count // 3 :])


def shapes_of(model: Model, tokens: tuple[int, ...], room: float) -> Iterator[Shape]:
    """What fits."""
    a = next(block.attention for block in model.blocks if block.attention)
    each = 4.0 * model.layers * a.kv_heads * a.head_dim  # keys and values of a token
    left = room - 2.0 * model.parameter_count - HELD_BACK
    for past in PASTS:
        for batch in BATCHES:
            if batch * (past + max(tokens)) * each < left:
                yield from (Shape(batch, count, past) for count in tokens)


def main() -> None:
    """Time every pass that a case of drafts has, model by model."""
    device = find_device("cuda")
    wanted: dict[Network, set[int]] = {}
    for case in DRAFTED:
        wanted.setdefault(Network(case.model), set()).add(1)  # a decode step
        for network, tokens, _ in case.round():
            wanted.setdefault(network, set()).add(tokens)
    with Path(sys.argv[1]).open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow((*COLUMNS, "p10_us", "p90_us", "kernel"))
        for network, counts in wanted.items():
            model = network_of(read_model(network.model), network.drafter)
            room = ROOM * device.free_bytes
            shapes = list(shapes_of(model, tuple(sorted(counts)), room))
            for past in sorted({shape.past for shape in shapes}):
                own = [shape for shape in shapes if shape.past == past]
                served = Served(model, max(s.batch for s in own), past + max(counts))
                for shape in own:
                    kernel, timed = served.timed(device, shape)
                    said = (*network, shape.tokens, past, shape.batch)
                    rows.writerow(("h200", *said, *timed.cells().values(), kernel))
                    file.flush()
                    print(*said, kernel, f"{1e3 * timed.seconds:.3f} ms", flush=True)
                del served
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
