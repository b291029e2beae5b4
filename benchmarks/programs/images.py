"""Convolutional image models in plain torch, as their papers and torchvision lay them out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from programs.kit import Optimize, Step, fused, made, noise, program, sgd, tokens, training


def conv_norm(
    inputs: int, outputs: int, side: int = 3, stride: int = 1, groups: int = 1,
    activation: type[nn.Module] | None = nn.ReLU,
) -> nn.Sequential:  # fmt: skip
    """Convolution without bias, batch norm, activation."""
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, side, stride, side // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    if activation is not None:
        layers.append(activation(inplace=True))
    return nn.Sequential(*layers)


class Residual(nn.Module):
    """A basic block (two 3×3) or a bottleneck (1×1, 3×3, 1×1) of He et al. 2015."""

    def __init__(self, inputs: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        outputs = width * 4 if bottleneck else width
        if bottleneck:
            self.body = nn.Sequential(
                conv_norm(inputs, width, 1), conv_norm(width, width, 3, stride),
                conv_norm(width, outputs, 1, activation=None),
            )  # fmt: skip
        else:
            self.body = nn.Sequential(
                conv_norm(inputs, width, 3, stride), conv_norm(width, width, activation=None)
            )
        same = stride == 1 and inputs == outputs
        self.short = nn.Identity() if same else conv_norm(inputs, outputs, 1, stride, 1, None)

    def forward(self, x: Tensor) -> Tensor:
        """Add what the block makes to what came in."""
        return functional.relu(self.body(x) + self.short(x), inplace=True)


class ResNet(nn.Module):
    """ResNet-18 or -50."""

    def __init__(self, depths: tuple[int, ...], bottleneck: bool, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_norm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
        inputs = 64
        for level, depth in enumerate(depths):
            for place in range(depth):
                stride = 2 if level and not place else 1
                layers.append(Residual(inputs, 64 << level, stride, bottleneck))
                inputs = (64 << level) * (4 if bottleneck else 1)
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        return self.head(self.body(x).mean((2, 3)))


def resnet50() -> ResNet:
    """The one with bottlenecks, 25.6 million weights."""
    return ResNet((3, 4, 6, 3), True)


def channels_last_of(model: Any) -> Any:
    """The model with its weights laid out channels-last, which torch's types do not know."""
    return model.to(memory_format=torch.channels_last)


def classify(
    model: nn.Module, batch: int, side: int = 224, channels_last: bool = False,
    mixed: torch.dtype | None = None, optimizer: Optimize = sgd, scaled: bool = False,
    run: Callable[..., Any] | None = None,
) -> Step:  # fmt: skip
    """Train on one batch of random images and labels."""
    images, labels = noise(batch, 3, side, side), tokens(1000, batch)
    if channels_last:
        model = channels_last_of(model)
        images = images.contiguous(memory_format=torch.channels_last)
    called = model if run is None else run
    return training(
        model.parameters(), lambda: functional.cross_entropy(called(images), labels), optimizer,
        mixed, scaled=scaled,
    )  # fmt: skip


@program("residual")
def resnet18_fp32() -> Step:
    """NCHW in fp32 with SGD, as tutorials do it."""
    return classify(made(ResNet, (2, 2, 2, 2), False), 128)


@program("residual")
def resnet18_small() -> Step:
    """CIFAR-size images, few of them: bound by launches."""
    return classify(made(ResNet, (2, 2, 2, 2), False), 32, 32)


@program("residual")
def resnet50_nchw() -> Step:
    """Autocast in the default layout."""
    return classify(made(resnet50), 64, mixed=torch.bfloat16)


@program("residual")
def resnet50_channels_last() -> Step:
    """Autocast fp16 with a gradient scaler, as NVIDIA's recipes have it."""
    return classify(
        made(resnet50), 128, channels_last=True, mixed=torch.float16, scaled=True
    )  # fmt: skip


class Vgg(nn.Module):
    """VGG-16 of Simonyan and Zisserman 2014, without norms."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for width, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(depth):
                layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(inplace=True)]
                inputs = width
            layers.append(nn.MaxPool2d(2, 2))
        self.body = nn.Sequential(*layers)
        self.head = nn.Sequential(
            nn.Linear(512 * 49, 4096), nn.ReLU(True), nn.Dropout(), nn.Linear(4096, 4096),
            nn.ReLU(True), nn.Dropout(), nn.Linear(4096, 1000),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        return self.head(functional.adaptive_avg_pool2d(self.body(x), 7).flatten(1))


@program("vgg")
def vgg16() -> Step:
    """Large 3×3 convolutions and a large product, bf16 autocast."""
    return classify(made(Vgg), 64, mixed=torch.bfloat16)


class Gate(nn.Module):
    """Squeeze and excite of Hu et al. 2017: channels weighted by what the whole image shows."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.fold = nn.Conv2d(channels, squeezed, 1)
        self.unfold = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Scale each channel."""
        pooled = functional.adaptive_avg_pool2d(x, 1)
        return x * functional.hardsigmoid(self.unfold(functional.relu(self.fold(pooled))))


class Inverted(nn.Module):
    """Widen, convolve each channel alone, gate, narrow: MobileNetV3, Howard et al. 2019."""

    def __init__(
        self, inputs: int, side: int, wide: int, outputs: int, gated: bool, hard: bool, stride: int
    ) -> None:
        super().__init__()
        act = nn.Hardswish if hard else nn.ReLU
        layers: list[nn.Module] = []
        if wide != inputs:
            layers.append(conv_norm(inputs, wide, 1, activation=act))
        layers.append(conv_norm(wide, wide, side, stride, wide, act))
        if gated:
            layers.append(Gate(wide, (wide // 4 + 7) // 8 * 8))
        layers.append(conv_norm(wide, outputs, 1, activation=None))
        self.body = nn.Sequential(*layers)
        self.kept = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Add where sizes allow it."""
        return x + self.body(x) if self.kept else self.body(x)


MOBILE_V3 = (
    # side, wide, outputs, gated, hard, stride: MobileNetV3-Large, table 1
    (3, 16, 16, False, False, 1), (3, 64, 24, False, False, 2), (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2), (5, 120, 40, True, False, 1), (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2), (3, 200, 80, False, True, 1), (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1), (3, 480, 112, True, True, 1), (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2), (5, 960, 160, True, True, 1), (5, 960, 160, True, True, 1),
)  # fmt: skip


class MobileV3(nn.Module):
    """MobileNetV3-Large."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_norm(3, 16, 3, 2, activation=nn.Hardswish)]
        inputs = 16
        for side, wide, outputs, gated, hard, stride in MOBILE_V3:
            layers.append(Inverted(inputs, side, wide, outputs, gated, hard, stride))
            inputs = outputs
        layers.append(conv_norm(160, 960, 1, activation=nn.Hardswish))
        self.body = nn.Sequential(*layers)
        self.head = nn.Sequential(
            nn.Linear(960, 1280), nn.Hardswish(True), nn.Dropout(0.2), nn.Linear(1280, 1000)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        return self.head(self.body(x).mean((2, 3)))


@program("depthwise")
def mobilenet_v3() -> Step:
    """NCHW in fp32."""
    return classify(made(MobileV3), 128)


@program("depthwise")
def mobilenet_v3_channels_last() -> Step:
    """The same in bf16 autocast and channels-last, with fused AdamW."""
    return classify(
        made(MobileV3), 128, channels_last=True, mixed=torch.bfloat16, optimizer=fused
    )  # fmt: skip


class Sharper(nn.Module):
    """EDSR of Lim et al. 2017: residual blocks without norms, pixels shuffled up four times."""

    def __init__(self, width: int = 64, depth: int = 16) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1), nn.ReLU(True),
                nn.Conv2d(width, width, 3, padding=1),
            )
            for _ in range(depth)
        )  # fmt: skip
        self.up = nn.Sequential(
            nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2),
            nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2),
            nn.Conv2d(width, 3, 3, padding=1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """An image of four times the side."""
        x = held = self.first(x)
        for block in self.blocks:
            x = x + 0.1 * block(x)
        return self.up(x + held)


@program("super-resolution")
def edsr() -> Step:
    """Patches of 48 pixels made 192, fp32, L1 loss."""
    model, small, large = made(Sharper), noise(16, 3, 48, 48), noise(16, 3, 192, 192)
    return training(model.parameters(), lambda: functional.l1_loss(model(small), large))
