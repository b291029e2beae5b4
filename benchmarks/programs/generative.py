"""Models that make images: U-Nets, DCGAN, DiT."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from programs.images import conv_norm
from programs.kit import Step, adam, fused, made, noise, program, tokens, training

BF16 = torch.bfloat16


class UNet(nn.Module):
    """U-Net of Ronneberger et al. 2015 with batch norm, up by transposed convolutions."""

    def __init__(self, width: int = 64, depth: int = 4, classes: int = 21) -> None:
        super().__init__()
        sizes = [width << i for i in range(depth + 1)]
        self.down = nn.ModuleList(
            nn.Sequential(conv_norm(a, b), conv_norm(b, b))
            for a, b in zip([3, *sizes[:-1]], sizes, strict=True)
        )
        wide = list(zip(sizes[:0:-1], sizes[-2::-1], strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in wide)
        self.join = nn.ModuleList(nn.Sequential(conv_norm(a, b), conv_norm(b, b)) for a, b in wide)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes for every pixel."""
        held = []
        for level, down in enumerate(self.down):
            x = down(functional.max_pool2d(x, 2) if level else x)
            held.append(x)
        for up, join, side in zip(self.up, self.join, held[-2::-1], strict=True):
            x = join(torch.cat([side, up(x)], 1))
        return self.head(x)


@program("segmentation")
def unet_segmentation() -> Step:
    """Images of 256 pixels in fp32."""
    model, images, labels = made(UNet), noise(8, 3, 256, 256), tokens(21, 8, 256, 256)
    return training(
        model.parameters(), lambda: functional.cross_entropy(model(images), labels), adam
    )


@program("segmentation")
def unet_channels_last() -> Step:
    """Images of 512 pixels, channels-last, bf16 autocast."""
    model = made(UNet).to(memory_format=torch.channels_last)
    images = noise(8, 3, 512, 512).contiguous(memory_format=torch.channels_last)
    labels = tokens(21, 8, 512, 512)
    return training(
        model.parameters(), lambda: functional.cross_entropy(model(images), labels), adam,
        mixed=BF16,
    )  # fmt: skip


class Resample(nn.Module):
    """Group norm, SiLU, convolution, twice, with the moment added in between."""

    def __init__(self, inputs: int, outputs: int, moment: int, groups: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(groups, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1)
        )
        self.moment = nn.Sequential(nn.SiLU(), nn.Linear(moment, outputs))
        self.second = nn.Sequential(
            nn.GroupNorm(groups, outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, padding=1)
        )
        self.short = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, moment: Tensor) -> Tensor:
        """Add what the block makes to what came in."""
        h = self.first(x) + self.moment(moment)[:, :, None, None]
        return self.short(x) + self.second(h)


class Attention(nn.Module):
    """Attention to itself or to a text, heads of `width / heads`."""

    def __init__(self, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(context, width, bias=False)
        self.v = nn.Linear(context, width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """Every place sees all of the context."""
        q, k, v = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for t in (self.q(x), self.k(context), self.v(context))
        )
        seen = functional.scaled_dot_product_attention(q, k, v)
        return self.out(seen.transpose(1, 2).flatten(2))


class Spatial(nn.Module):
    """A transformer block over the places of an image, as in Rombach et al. 2022."""

    def __init__(self, width: int, heads: int, context: int, groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, width)
        self.inward, self.outward = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.itself = Attention(width, heads, width)
        self.text = Attention(width, heads, context)
        self.wide, self.narrow = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """Attention to itself, to the text, and a gated feed-forward."""
        high, wide = x.shape[2:]
        y = self.inward(self.norm(x)).flatten(2).transpose(1, 2)
        seen = self.norms[0](y)
        y = y + self.itself(seen, seen)
        y = y + self.text(self.norms[1](y), context)
        signal, gate = self.wide(self.norms[2](y)).chunk(2, -1)
        y = y + self.narrow(signal * functional.gelu(gate))
        return x + self.outward(y.transpose(1, 2).unflatten(2, (high, wide)))


class Diffusion(nn.Module):
    """The U-Net of latent diffusion: `depth` blocks a level, attention on all but the last."""

    def __init__(
        self, width: int, context: int, heads: int, depth: int = 2, groups: int = 32
    ) -> None:
        super().__init__()
        sizes, moment = [width, 2 * width, 4 * width, 4 * width], 4 * width
        self.width = width

        def attend(size: int) -> Spatial:
            return Spatial(size, heads, context, groups)

        self.moment = nn.Sequential(
            nn.Linear(width, moment), nn.SiLU(), nn.Linear(moment, moment)
        )  # fmt: skip
        self.first = nn.Conv2d(4, width, 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        held, inputs = [width], width
        for level, size in enumerate(sizes):
            for _ in range(depth):
                self.down.append(Resample(inputs, size, moment, groups))
                self.down.append(attend(size) if level < 3 else nn.Identity())
                inputs = size
                held.append(size)
            if level < 3:
                self.down.append(nn.Conv2d(size, size, 3, 2, 1))
                held.append(size)
        self.middle = nn.ModuleList(
            [Resample(inputs, inputs, moment, groups), attend(inputs),
             Resample(inputs, inputs, moment, groups)]
        )  # fmt: skip
        for level, size in reversed(list(enumerate(sizes))):
            for place in range(depth + 1):
                self.up.append(Resample(inputs + held.pop(), size, moment, groups))
                self.up.append(attend(size) if level < 3 else nn.Identity())
                inputs = size
                if place == depth and level:
                    self.up.append(nn.Conv2d(size, size, 3, padding=1))
        self.last = nn.Sequential(
            nn.GroupNorm(groups, width), nn.SiLU(), nn.Conv2d(width, 4, 3, padding=1)
        )

    def forward(self, x: Tensor, moment: Tensor, context: Tensor) -> Tensor:
        """The noise in x."""
        rates = torch.exp(-torch.arange(self.width // 2, device=x.device) * 0.05)
        angles = moment[:, None].float() * rates
        seen = self.moment(torch.cat([angles.cos(), angles.sin()], -1))
        x = self.first(x)
        held = [x]
        for layer in self.down:
            if isinstance(layer, Resample):
                x = layer(x, seen)
            elif isinstance(layer, Spatial):
                held.append(x := layer(x, context))
            else:
                held.append(x := layer(x))
        x = self.middle[2](self.middle[1](self.middle[0](x, seen), context), seen)
        for layer in self.up:
            if isinstance(layer, Resample):
                x = layer(torch.cat([x, held.pop()], 1), seen)
            elif isinstance(layer, Spatial):
                x = layer(x, context)
            elif isinstance(layer, nn.Conv2d):
                x = layer(functional.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.last(x)


def denoise(model: nn.Module, batch: int, side: int, context: int, mixed: torch.dtype) -> Step:
    """Train on random latents, moments and texts of 77 tokens."""
    latents, target = noise(batch, 4, side, side), noise(batch, 4, side, side)
    moments, text = tokens(1000, batch), noise(batch, 77, context)
    return training(
        model.parameters(), lambda: functional.mse_loss(model(latents, moments, text), target),
        fused, mixed=mixed,
    )  # fmt: skip


@program("diffusion")
def stable_diffusion_unet() -> Step:
    """The sizes of Stable Diffusion 1: heads of 40, 80 and 160, latents of 64 pixels."""
    return denoise(made(Diffusion, 320, 768, 8), 4, 64, 768, BF16)


@program("diffusion")
def small_diffusion_unet() -> Step:
    """Channels of 150, 300 and 600 in two heads: odd sizes that few fused kernels take."""
    return denoise(made(Diffusion, 150, 512, 2, groups=30), 16, 32, 512, BF16)


def generator() -> nn.Sequential:
    """DCGAN's of Radford et al. 2015: from 100 numbers to 64 × 64 pixels."""
    sizes = ((100, 512, 1, 0), (512, 256, 2, 1), (256, 128, 2, 1), (128, 64, 2, 1))
    layers: list[nn.Module] = []
    for inputs, outputs, stride, pad in sizes:
        layers += [nn.ConvTranspose2d(inputs, outputs, 4, stride, pad, bias=False),
                   nn.BatchNorm2d(outputs), nn.ReLU(True)]  # fmt: skip
    return nn.Sequential(*layers, nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False), nn.Tanh())


def discriminator() -> nn.Sequential:
    """DCGAN's other half."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True)]
    for width in (64, 128, 256):
        layers += [nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width),
                   nn.LeakyReLU(0.2, True)]  # fmt: skip
    return nn.Sequential(*layers, nn.Conv2d(512, 1, 4, 1, 0, bias=False))


@program("gan")
def dcgan() -> Step:
    """Both players in one step, fp32, Adam."""
    makes, judges = made(generator), made(discriminator)
    first, second = adam(makes.parameters()), adam(judges.parameters())
    images = noise(256, 3, 64, 64)
    real, false = torch.ones(256, device="cuda"), torch.zeros(256, device="cuda")
    judge = functional.binary_cross_entropy_with_logits

    def step() -> None:
        drawn = makes(torch.randn(256, 100, 1, 1, device="cuda"))
        second.zero_grad()
        judge(judges(images).view(-1), real).backward()
        judge(judges(drawn.detach()).view(-1), false).backward()
        second.step()
        first.zero_grad()
        judge(judges(drawn).view(-1), real).backward()
        first.step()

    return step


class DiTBlock(nn.Module):
    """A block of Peebles and Xie 2022: norms without weights, shifted and scaled by the moment."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )
        self.moment = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: Tensor, moment: Tensor) -> Tensor:
        """Attention and feed-forward, each gated by the moment."""
        shift, scale, gate, shift2, scale2, gate2 = self.moment(moment)[:, None].chunk(6, -1)
        y = self.norm1(x) * (1 + scale) + shift
        q, k, v = self.qkv(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + gate * self.out(seen)
        return x + gate2 * self.feed(self.norm2(x) * (1 + scale2) + shift2)


class DiT(nn.Module):
    """DiT-B/2 on latents of 32 pixels."""

    def __init__(self, width: int = 768, depth: int = 12, heads: int = 12) -> None:
        super().__init__()
        self.width = width
        self.first = nn.Conv2d(4, width, 2, 2)
        self.place = nn.Parameter(torch.zeros(1, 256, width))
        self.moment = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.label = nn.Embedding(1001, width)
        self.blocks = nn.ModuleList(DiTBlock(width, heads) for _ in range(depth))
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, 2 * 2 * 8)

    def forward(self, x: Tensor, moment: Tensor, label: Tensor) -> Tensor:
        """Noise and its variance, as places of 2 × 2 × 8."""
        rates = torch.exp(-torch.arange(128, device=x.device) * 0.07)
        angles = moment[:, None].float() * rates
        seen = self.moment(torch.cat([angles.cos(), angles.sin()], -1)) + self.label(label)
        y = self.first(x).flatten(2).transpose(1, 2) + self.place
        for block in self.blocks:
            y = block(y, seen)
        return self.last(self.norm(y))


@program("dit")
def dit_base() -> Step:
    """bf16 autocast with AdamW."""
    model, latents, target = made(DiT), noise(64, 4, 32, 32), noise(64, 256, 32)
    moments, labels = tokens(1000, 64), tokens(1000, 64)
    return training(
        model.parameters(), lambda: functional.mse_loss(model(latents, moments, labels), target),
        mixed=BF16,
    )  # fmt: skip
