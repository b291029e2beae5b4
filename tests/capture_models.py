"""Models of every kind that a user may bring to a capture, small but written as real ones are."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class Bottleneck(nn.Module):
    """The block of ResNet-50; `groups` makes it ResNeXt's."""

    def __init__(self, wide_in: int, wide: int, stride: int, groups: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(wide_in, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU(inplace=True),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=groups, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU(inplace=True),
            nn.Conv2d(wide, 4 * wide, 1, bias=False),
            nn.BatchNorm2d(4 * wide),
        )
        self.aside = nn.Sequential(
            nn.Conv2d(wide_in, 4 * wide, 1, stride, bias=False), nn.BatchNorm2d(4 * wide)
        )

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.aside(x), inplace=True)


def resnet(groups: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        Bottleneck(64, 64, 1, groups),
        Bottleneck(256, 128, 2, groups),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, 1000),
    )


class DropPath(nn.Module):
    """Leaves whole samples out of a residual branch, as timm does."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if self.rate == 0.0 or not self.training:
            return x
        keep = 1.0 - self.rate
        mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
        return x * mask.div_(keep)


class ViTBlock(nn.Module):
    def __init__(self, width: int, heads: int, drop_path: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(b, n, 3, self.heads, c // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.drop_path(self.proj(mixed.transpose(1, 2).reshape(b, n, c)))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class ViT(nn.Module):
    """timm's, with its schedule of drop-path rates read by .item() while it is built."""

    def __init__(self, size: int = 64, patch: int = 8, width: int = 192, depth: int = 3) -> None:
        super().__init__()
        rates = [rate.item() for rate in torch.linspace(0, 0.1, depth)]
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.ModuleList(ViTBlock(width, 3, rate) for rate in rates)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)
        nn.init.trunc_normal_(self.positions, std=0.02)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patch(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        for block in self.blocks:
            x = block(x)
        made: Tensor = self.head(self.norm(x)[:, 0])
        return made


class ResidualBlock(nn.Module):
    """Of a diffusion UNet: convolutions between group norms, shifted by the time."""

    def __init__(self, wide_in: int, wide: int, time: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, wide_in), nn.Conv2d(wide_in, wide, 3, padding=1)
        self.time = nn.Linear(time, wide)
        self.norm2, self.conv2 = nn.GroupNorm(8, wide), nn.Conv2d(wide, wide, 3, padding=1)
        self.drop = nn.Dropout(0.1)
        self.aside = nn.Conv2d(wide_in, wide, 1) if wide_in != wide else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        h = self.conv1(functional.silu(self.norm1(x)))
        h = h + self.time(functional.silu(time))[:, :, None, None]
        h = self.conv2(self.drop(functional.silu(self.norm2(h))))
        made: Tensor = h + self.aside(x)
        return made


class SpatialAttention(nn.Module):
    def __init__(self, wide: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, wide)
        self.qkv, self.out = nn.Conv1d(wide, 3 * wide, 1), nn.Conv1d(wide, wide, 1)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x).reshape(b, c, h * w)).chunk(3, dim=1)
        q, k, v = (t.reshape(b, 1, c, h * w).transpose(2, 3) for t in (q, k, v))
        mixed = functional.scaled_dot_product_attention(q, k, v)
        made: Tensor = x + self.out(mixed.transpose(2, 3).reshape(b, c, h * w)).reshape(b, c, h, w)
        return made


def timestep_embedding(steps: Tensor, width: int) -> Tensor:
    half = width // 2
    rates = torch.exp(-math.log(10000) * torch.arange(half, device=steps.device) / half)
    angles = steps[:, None].float() * rates[None]
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


class UNet(nn.Module):
    def __init__(self, wide: int = 64) -> None:
        super().__init__()
        time = 4 * wide
        self.wide = wide
        self.time = nn.Sequential(nn.Linear(wide, time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(3, wide, 3, padding=1)
        self.down1 = ResidualBlock(wide, wide, time)
        self.shrink = nn.Conv2d(wide, wide, 3, stride=2, padding=1)
        self.down2 = ResidualBlock(wide, 2 * wide, time)
        self.attend = SpatialAttention(2 * wide)
        self.middle = ResidualBlock(2 * wide, 2 * wide, time)
        self.up2 = ResidualBlock(4 * wide, wide, time)
        self.grow = nn.ConvTranspose2d(wide, wide, 4, stride=2, padding=1)
        self.up1 = ResidualBlock(2 * wide, wide, time)
        self.last = nn.Sequential(
            nn.GroupNorm(8, wide), nn.SiLU(), nn.Conv2d(wide, 3, 3, padding=1)
        )

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        time = self.time(timestep_embedding(steps, self.wide))
        fine = self.down1(self.first(x), time)
        coarse = self.attend(self.down2(self.shrink(fine), time))
        half = functional.avg_pool2d(coarse, 2)
        middle = functional.interpolate(self.middle(half, time), scale_factor=2.0, mode="nearest")
        up = self.up2(torch.cat([middle, coarse], dim=1), time)
        made: Tensor = self.last(self.up1(torch.cat([self.grow(up), fine], dim=1), time))
        return made


class SelectiveScan(nn.Module):
    """Mamba's mixer: a depthwise convolution, then a state that is carried token by token."""

    def __init__(self, width: int = 64, state: int = 8, rank: int = 4) -> None:
        super().__init__()
        inner = 2 * width
        self.inner, self.state, self.rank = inner, state, rank
        self.into = nn.Linear(width, 2 * inner, bias=False)
        self.conv = nn.Conv1d(inner, inner, 4, groups=inner, padding=3)
        self.mix = nn.Linear(inner, rank + 2 * state, bias=False)
        self.step = nn.Linear(rank, inner)
        self.decay = nn.Parameter(torch.log(torch.arange(1, state + 1).float().repeat(inner, 1)))
        self.skip = nn.Parameter(torch.ones(inner))
        self.out = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        h, gate = self.into(x).chunk(2, dim=-1)
        h = functional.silu(self.conv(h.transpose(1, 2))[..., :length].transpose(1, 2))
        step, b, c = self.mix(h).split([self.rank, self.state, self.state], dim=-1)
        step = functional.softplus(self.step(step))
        decay = torch.exp(step.unsqueeze(-1) * -self.decay.exp())
        entering = step.unsqueeze(-1) * b.unsqueeze(2) * h.unsqueeze(-1)
        state = x.new_zeros(x.shape[0], self.inner, self.state)
        made = []
        for t in range(length):
            state = decay[:, t] * state + entering[:, t]
            made.append((state @ c[:, t].unsqueeze(-1)).squeeze(-1))
        y = torch.stack(made, dim=1) + h * self.skip
        result: Tensor = self.out(y * functional.silu(gate))
        return result


class CapacityExperts(nn.Module):
    """Switch-style experts: one-hot dispatch to places of a fixed number."""

    def __init__(self, width: int, ffn: int, experts: int = 4, capacity: int = 24) -> None:
        super().__init__()
        self.experts, self.capacity = experts, capacity
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, ffn) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, ffn, width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        weight, choice = functional.softmax(self.router(tokens), dim=-1).topk(2, dim=-1)
        chosen = functional.one_hot(choice, self.experts).flatten(0, 1)
        place = (chosen.cumsum(0) - 1) * chosen
        fits = chosen * (place < self.capacity)
        seat = functional.one_hot((place * fits).sum(-1), self.capacity).to(x.dtype)
        to = torch.einsum("te,tc->tec", fits.to(x.dtype), seat)
        to = to.view(-1, 2, self.experts, self.capacity)
        gathered = torch.einsum("tkec,td->ecd", to, tokens)
        h = functional.gelu(torch.bmm(gathered, self.up))
        done = torch.bmm(h, self.down)
        return torch.einsum("tkec,ecd,tk->td", to, done, weight).view_as(x)


class GPT2Block(nn.Module):
    """GPT-2's with nn.MultiheadAttention and a causal mask handed in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        h = self.norm1(x)
        x = x + self.attention(h, h, h, attn_mask=mask, need_weights=False, is_causal=True)[0]
        made: Tensor = x + self.mlp(self.norm2(x))
        return made


class GPT2(nn.Module):
    def __init__(self, vocabulary: int = 512, width: int = 128, depth: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width, padding_idx=0)
        self.places = nn.Embedding(256, width)
        self.blocks = nn.ModuleList(GPT2Block(width, 4) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        length = ids.shape[1]
        x = self.words(ids) + self.places(torch.arange(length, device=ids.device))
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=ids.device)
        for block in self.blocks:
            x = block(x, mask)
        made: Tensor = self.head(self.norm(x))
        return made


class LSTM(nn.Module):
    def __init__(self, vocabulary: int = 256, width: int = 128) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.cells = nn.LSTM(width, width, 2, dropout=0.1, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: Tensor) -> Tensor:
        made: Tensor = self.head(self.cells(self.words(ids))[0])
        return made


class RMSNormed(nn.Module):
    """A Llama-like MLP under nn.RMSNorm."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.gate, self.up = nn.Linear(width, 256, bias=False), nn.Linear(width, 256, bias=False)
        self.down = nn.Linear(256, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        made: Tensor = x + self.down(functional.silu(self.gate(h)) * self.up(h))
        return made
