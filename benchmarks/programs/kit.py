"""What all programs share: the list of them, their families, and one way of training a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any, Literal, NamedTuple

import torch

Step = Callable[[], Any]
Optimize = Callable[[Any], torch.optim.Optimizer]
Split = Literal["fit", "apart"]

# Laws may be fitted to kernels of the programs of one half; the other half only judges. Families
# stand whole in one half, in turn, as they were listed before anything was measured.
FAMILIES: tuple[str, ...] = (
    "residual", "depthwise", "bert", "deberta", "vit", "windowed", "gpt", "encoder-decoder",
    "segmentation", "diffusion", "gan", "dit", "recurrent", "graph", "points", "whisper",
    "wav2vec", "wavenet", "conformer", "recommender", "autoencoder", "clip", "moe", "state-space",
    "lora", "decode", "compiled", "vgg", "nn-transformer", "detection", "convnext",
    "super-resolution",
)  # fmt: skip


class Program(NamedTuple):
    """A named program; `build` makes model, inputs and optimizer and returns the step."""

    name: str
    family: str
    build: Callable[[], Step]
    assume: tuple[str, ...] = ()  # values that it asks for, as `capture --assume` takes them

    @property
    def split(self) -> Split:
        """Which half its family belongs to."""
        return "apart" if FAMILIES.index(self.family) % 2 else "fit"


PROGRAMS: dict[str, Program] = {}


def program(family: str, *assume: str) -> Callable[[Callable[[], Step]], Callable[[], Step]]:
    """Enter a function under its own name."""
    if family not in FAMILIES:
        raise ValueError(f"no such family of programs: {family}")

    def enter(build: Callable[[], Step]) -> Callable[[], Step]:
        name = build.__name__
        PROGRAMS[name] = Program(name, family, build, assume)
        return build

    return enter


def made(kind: Callable[..., Any], *args: Any, **more: Any) -> Any:
    """A model whose weights are made where they are used."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        return kind(*args, **more).train()


def tokens(vocabulary: int, *shape: int) -> torch.Tensor:
    """Random token ids."""
    return torch.randint(0, vocabulary, shape, device="cuda")


def noise(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random numbers, as an image or a sound would be."""
    return torch.randn(*shape, device="cuda", dtype=dtype)


def autocast(dtype: torch.dtype | None) -> Any:
    """Mixed precision on the GPU, or none."""
    return nullcontext() if dtype is None else torch.autocast("cuda", dtype)


def training(
    parameters: Iterable[torch.nn.Parameter],
    loss_of: Callable[[], torch.Tensor],
    optimizer: Optimize | None = None,
    mixed: torch.dtype | None = None,
    clip: float | None = None,
    scaled: bool = False,
) -> Step:
    """The usual step: forward in autocast, backward, perhaps clipping, the optimizer."""
    trained = [p for p in parameters if p.requires_grad]
    updates = optimizer(trained) if optimizer else torch.optim.AdamW(trained, lr=1e-4)
    scaler = torch.amp.GradScaler("cuda", enabled=scaled)

    def step() -> None:
        with autocast(mixed):
            loss = loss_of()
        scaler.scale(loss).backward()
        if clip is not None:
            scaler.unscale_(updates)
            torch.nn.utils.clip_grad_norm_(trained, clip)
        scaler.step(updates)
        scaler.update()
        updates.zero_grad(set_to_none=True)

    return step


def sgd(parameters: Any) -> torch.optim.Optimizer:
    """Stochastic gradient descent with momentum, as image models are trained."""
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4)


def adam(parameters: Any) -> torch.optim.Optimizer:
    """Adam without decay."""
    return torch.optim.Adam(parameters, lr=2e-4, betas=(0.5, 0.999))


def fused(parameters: Any) -> torch.optim.Optimizer:
    """AdamW in one kernel for many tensors."""
    return torch.optim.AdamW(parameters, lr=1e-4, fused=True)
