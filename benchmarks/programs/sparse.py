"""Programs that gather and scatter: graphs, points, recommenders; and a plain autoencoder."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from programs.kit import Step, adam, made, noise, program, sgd, tokens, training

NODES, EDGES = 100_000, 1_000_000


class GcnLayer(nn.Module):
    """Kipf and Welling 2016: messages weighed by the degrees of both ends, summed at the target."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Sum over incoming edges."""
        x = self.linear(x)
        source, target = edges[0], edges[1]
        degree = torch.zeros(len(x), device=x.device).scatter_add_(
            0, target, torch.ones(target.shape[0], device=x.device)
        )
        scale = degree.clamp(min=1.0).rsqrt()
        weight = scale[source] * scale[target]
        messages = x.index_select(0, source) * weight[:, None]
        return torch.zeros_like(x).index_add_(0, target, messages) + self.bias


class SageLayer(nn.Module):
    """Hamilton et al. 2017: the mean of the neighbours beside the node itself."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.near, self.own = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs, bias=False)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Mean over incoming edges, by scatter_add as torch-geometric does it."""
        source, target = edges[0], edges[1]
        messages = x.index_select(0, source)
        place = target[:, None].expand_as(messages)
        total = torch.zeros_like(x).scatter_add_(0, place, messages)
        count = torch.zeros(len(x), device=x.device).scatter_add_(
            0, target, torch.ones(target.shape[0], device=x.device)
        )
        return self.near(total / count.clamp(min=1.0)[:, None]) + self.own(x)


class GatLayer(nn.Module):
    """Veličković et al. 2017: attention over incoming edges, with a softmax at each target."""

    def __init__(self, inputs: int, outputs: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.source = nn.Parameter(torch.randn(1, heads, outputs // heads) * 0.1)
        self.target = nn.Parameter(torch.randn(1, heads, outputs // heads) * 0.1)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Weigh messages by a softmax over the edges of their target."""
        x = self.linear(x).unflatten(-1, (self.heads, -1))
        source, target = edges[0], edges[1]
        left, right = (x * self.source).sum(-1), (x * self.target).sum(-1)
        score = functional.leaky_relu(
            left.index_select(0, source) + right.index_select(0, target), 0.2
        )
        place = target[:, None].expand_as(score)
        top = torch.zeros(len(x), self.heads, device=x.device).scatter_reduce_(
            0, place, score.detach(), "amax"
        )
        weight = (score - top.index_select(0, target)).exp()
        total = torch.zeros(len(x), self.heads, device=x.device).index_add_(0, target, weight)
        weight = weight / (total.index_select(0, target) + 1e-16)
        messages = x.index_select(0, source) * weight[..., None]
        return torch.zeros_like(x).index_add_(0, target, messages).flatten(1)


class Graph(nn.Module):
    """Layers of one kind over one graph."""

    def __init__(self, layer: Callable[[int, int], nn.Module], sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            layer(a, b) for a, b in pairwise(sizes)
        )  # fmt: skip
        self.head = nn.Linear(sizes[-1], 47)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Scores of the classes for every node."""
        for layer in self.layers:
            x = functional.dropout(functional.relu(layer(x, edges)), 0.5, self.training)
        return self.head(x)


def nodes(layer: Callable[[int, int], nn.Module], sizes: tuple[int, ...]) -> Step:
    """Train on every node of one random graph."""
    model, x = made(Graph, layer, sizes), noise(NODES, sizes[0])
    edges, labels = tokens(NODES, 2, EDGES), tokens(47, NODES)
    return training(
        model.parameters(), lambda: functional.cross_entropy(model(x, edges), labels), adam
    )


@program("graph")
def gcn() -> Step:
    """Three layers of 128, a hundred thousand nodes, a million edges."""
    return nodes(GcnLayer, (100, 128, 128, 128))


@program("graph")
def graphsage() -> Step:
    """The sizes of ogbn-products' baseline, on a smaller graph."""
    return nodes(SageLayer, (100, 256, 256))


@program("graph")
def gat() -> Step:
    """Two layers of four heads."""
    return nodes(GatLayer, (100, 128, 128))


class Points(nn.Module):
    """PointNet of Qi et al. 2016: each point by itself, then the maximum over points."""

    def __init__(self, classes: int = 40) -> None:
        super().__init__()
        self.turn, self.first = Turn(3), self.each((3, 64, 64))
        self.turn_features, self.second = Turn(64), self.each((64, 64, 128, 1024))
        self.head = nn.Sequential(
            nn.Linear(1024, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 256),
            nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, classes),
        )  # fmt: skip

    @staticmethod
    def each(sizes: tuple[int, ...]) -> nn.Sequential:
        """The same layers for every point."""
        layers: list[nn.Module] = []
        for a, b in pairwise(sizes):
            layers += [nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU()]
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        x = self.first(torch.bmm(self.turn(x), x))
        x = self.second(torch.bmm(self.turn_features(x), x))
        return self.head(x.amax(-1))


class Turn(nn.Module):
    """A matrix, made from all points, that turns them."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.each = Points.each((size, 64, 128, 1024))
        self.all = nn.Sequential(
            nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(),
            nn.Linear(256, size * size),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """One matrix for each cloud."""
        found = self.all(self.each(x).amax(-1)).unflatten(-1, (self.size, self.size))
        return found + torch.eye(self.size, device=x.device)


@program("points")
def pointnet() -> Step:
    """Clouds of 1024 points, fp32."""
    model, clouds, labels = made(Points), noise(64, 3, 1024), tokens(40, 64)
    return training(
        model.parameters(), lambda: functional.cross_entropy(model(clouds), labels), adam
    )


class Dlrm(nn.Module):
    """Naumov et al. 2019: tables, two MLPs, and all products of pairs between them."""

    pairs: Tensor

    def __init__(self, bags: bool, tables: int = 26, rows: int = 100_000, width: int = 64) -> None:
        super().__init__()
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(rows, width, mode="sum") if bags else nn.Embedding(rows, width)
            for _ in range(tables)
        )
        self.bottom = nn.Sequential(
            nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, width),
            nn.ReLU(),
        )  # fmt: skip
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(
            nn.Linear(width + pairs, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(),
            nn.Linear(256, 1),
        )  # fmt: skip
        rows_of, columns_of = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("pairs", rows_of * (tables + 1) + columns_of)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        """How likely a click is."""
        x = self.bottom(dense)
        found = [table(each) for table, each in zip(self.tables, ids.unbind(0), strict=True)]
        vectors = torch.stack([x, *found], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        chosen = products.index_select(1, self.pairs)
        return self.top(torch.cat([x, chosen], 1)).squeeze(1)


def clicks(bags: bool, batch: int, ids: Tensor) -> Step:
    """Train on one batch of random clicks."""
    model, dense, labels = made(Dlrm, bags), noise(batch, 13), torch.rand(batch, device="cuda")
    return training(
        model.parameters(),
        lambda: functional.binary_cross_entropy_with_logits(model(dense, ids), labels), sgd,
    )  # fmt: skip


@program("recommender")
def dlrm_bags() -> Step:
    """EmbeddingBag tables, eight ids to a bag."""
    return clicks(True, 4096, tokens(100_000, 26, 4096, 8))


@program("recommender")
def dlrm_embedding() -> Step:
    """Plain tables, one id each."""
    return clicks(False, 8192, tokens(100_000, 26, 8192))


@program("autoencoder")
def autoencoder() -> Step:
    """Layers with odd sides: 3001 columns to 37 and back, fp32."""
    sizes = (3001, 1999, 777, 129, 37, 129, 777, 1999, 3001)

    def build() -> nn.Sequential:
        layers: list[nn.Module] = []
        for a, b in pairwise(sizes):
            layers += [nn.Linear(a, b), nn.GELU()]
        return nn.Sequential(*layers[:-1])

    model, x = made(build), noise(16384, 3001)
    return training(
        model.parameters(), lambda: functional.mse_loss(model(x), x), mixed=torch.bfloat16
    )
