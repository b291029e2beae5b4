"""Training programs as users write them, each a function that builds and returns its step.

They are captured by test_capture_programs.py, and ask nothing of the machine that runs the tests.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.nn import functional

from capture_models import (
    GPT2,
    LSTM,
    CapacityExperts,
    RMSNormed,
    SelectiveScan,
    UNet,
    ViT,
    resnet,
)

Step = Callable[[], Any]
Build = Callable[[], Step]
CUDA = "cuda"


def trained(
    model: nn.Module,
    loss: Callable[[], Tensor],
    optimizer: torch.optim.Optimizer | None = None,
    lower: torch.dtype | None = None,
) -> Step:
    """The usual loop: forward under autocast, backward, optimizer."""
    chosen = optimizer or torch.optim.AdamW(model.parameters())

    def step() -> None:
        with torch.autocast(CUDA, lower or torch.bfloat16, enabled=lower is not None):
            made = loss()
        made.backward()
        chosen.step()
        chosen.zero_grad()

    return step


def mlp(width: int = 64) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


def batch(*shape: int) -> Tensor:
    return torch.randn(*(shape or (8, 64)), device=CUDA)


def ids(most: int, *shape: int) -> Tensor:
    return torch.randint(0, most, shape, device=CUDA)


# ── models ───────────────────────────────────────────────────────────────────────────────────────


def residual_network() -> Step:
    model = resnet().cuda()
    x, y = batch(2, 3, 64, 64), ids(1000, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
    return trained(model, lambda: functional.cross_entropy(model(x), y), optimizer)


def channels_last_network() -> Step:
    last: Any = torch.channels_last
    model = resnet(groups=8).cuda().to(memory_format=last)  # type: ignore[call-overload]
    x, y = batch(2, 3, 64, 64).to(memory_format=last), ids(1000, 2)
    return trained(
        model,
        lambda: functional.cross_entropy(model(x), y, label_smoothing=0.1, ignore_index=3),
        lower=torch.bfloat16,
    )


def vision_transformer() -> Step:
    model = ViT().to(CUDA)
    x, y = batch(2, 3, 64, 64), ids(1000, 2)
    return trained(model, lambda: functional.cross_entropy(model(x), y), lower=torch.bfloat16)


def diffusion() -> Step:
    model = UNet().cuda()
    x, t = batch(2, 3, 32, 32), ids(1000, 2)
    return trained(model, lambda: functional.mse_loss(model(x, t), x), lower=torch.bfloat16)


def selective_scan() -> Step:
    model, x = SelectiveScan().cuda(), batch(2, 16, 64)
    return trained(model, lambda: model(x).square().mean(), lower=torch.bfloat16)


def gpt2() -> Step:
    model, x = GPT2().cuda(), ids(512, 2, 32)

    def loss() -> Tensor:
        return functional.cross_entropy(model(x).flatten(0, 1), x.flatten(), ignore_index=0)

    return trained(model, loss, lower=torch.bfloat16)


def encoder() -> Step:
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).cuda()
    x, padding = batch(2, 16, 64), torch.zeros(2, 16, dtype=torch.bool, device=CUDA)
    padding[:, 12:] = True
    return trained(model, lambda: model(x, src_key_padding_mask=padding).square().mean())


def recurrent() -> Step:
    model, x = LSTM().cuda(), ids(256, 2, 16)
    return trained(
        model,
        lambda: functional.cross_entropy(model(x).flatten(0, 1), x.flatten()),
        lower=torch.float16,
    )


def packed_recurrent() -> Step:
    model, x = nn.GRU(32, 64, bidirectional=True).cuda(), batch(16, 2, 32)
    lengths = torch.tensor([16, 10])

    def loss() -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths)
        made: Tensor = nn.utils.rnn.pad_packed_sequence(model(packed)[0])[0]
        return made.square().mean()

    return trained(model, loss)


def experts() -> Step:
    model, x = CapacityExperts(64, 128).cuda(), batch(2, 16, 64)
    return trained(model, lambda: model(x).square().mean())


def rms_norm() -> Step:
    model, x = RMSNormed().cuda().bfloat16(), batch(2, 16, 128).bfloat16()
    return trained(model, lambda: model(x).square().mean())


def bert() -> Step:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(num_hidden_layers=2, hidden_size=128, num_attention_heads=2,
                        intermediate_size=256, vocab_size=512)  # fmt: skip
    model = BertForMaskedLM(config).to(CUDA).train()
    x, mask = ids(512, 2, 64), torch.ones(2, 64, dtype=torch.long, device=CUDA)
    mask[:, 50:] = 0
    return trained(
        model,
        lambda: model(input_ids=x, attention_mask=mask, labels=x).loss,
        torch.optim.AdamW(model.parameters(), fused=True),
        lower=torch.float16,
    )


def mamba() -> Step:
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(vocab_size=512, hidden_size=64, num_hidden_layers=1, state_size=8,
                         use_cache=False)  # fmt: skip
    model, x = MambaForCausalLM(config).cuda(), ids(512, 2, 8)
    return trained(model, lambda: model(input_ids=x, labels=x).loss)


def mixtral() -> Step:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(vocab_size=512, hidden_size=64, intermediate_size=128,
                           num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
                           num_local_experts=4)  # fmt: skip
    model, x = MixtralForCausalLM(config).cuda().bfloat16(), ids(512, 2, 16)
    return trained(model, lambda: model(input_ids=x, labels=x).loss)


MODELS: tuple[Build, ...] = (
    residual_network, channels_last_network, vision_transformer, diffusion, selective_scan, gpt2,
    encoder, recurrent, packed_recurrent, experts, rms_norm, bert, mamba, mixtral,
)  # fmt: skip


# ── ways of training ─────────────────────────────────────────────────────────────────────────────


def gradient_scaler() -> Step:
    model, x = mlp().cuda(), batch()
    optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler(CUDA)

    def step() -> None:
        with torch.autocast(CUDA, torch.float16):
            loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return step


def checkpointed(*, reentrant: bool) -> Build:
    def build() -> Step:
        model, x = mlp().cuda(), batch().requires_grad_()

        def loss() -> Tensor:
            made = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=reentrant)
            return made.square().mean()

        return trained(model, loss)

    return build


def with_optimizer(make: Callable[[Iterable[Any]], torch.optim.Optimizer]) -> Build:
    def build() -> Step:
        model, x = mlp().cuda(), batch()
        return trained(model, lambda: model(x).square().mean(), make(model.parameters()))

    return build


_OPTIM = torch.optim
OPTIMIZERS: dict[str, Build] = {
    "sgd": with_optimizer(lambda p: _OPTIM.SGD(p, 0.1, momentum=0.9)),
    "sgd, one by one": with_optimizer(lambda p: _OPTIM.SGD(p, 0.1, momentum=0.9, foreach=False)),
    "sgd, fused": with_optimizer(lambda p: _OPTIM.SGD(p, 0.1, momentum=0.9, fused=True)),
    "adam, one by one": with_optimizer(lambda p: _OPTIM.Adam(p, foreach=False)),
    "adam, fused": with_optimizer(lambda p: _OPTIM.Adam(p, fused=True)),
    "adamw": with_optimizer(lambda p: _OPTIM.AdamW(p)),
    "adamw, capturable": with_optimizer(lambda p: _OPTIM.AdamW(p, capturable=True)),
    "amsgrad, fused": with_optimizer(lambda p: _OPTIM.AdamW(p, amsgrad=True, fused=True)),
    "adafactor": with_optimizer(lambda p: _OPTIM.Adafactor(p)),
    "adagrad, fused": with_optimizer(lambda p: _OPTIM.Adagrad(p, fused=True)),
    "rmsprop": with_optimizer(lambda p: _OPTIM.RMSprop(p)),
}


def accumulated() -> Step:
    model, x = mlp().cuda(), batch()
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        for _ in range(4):
            (model(x).square().mean() / 4).backward()
        optimizer.step()  # gradients stay: the next step adds to them

    return step


def averaged_weights() -> Step:
    model, x = resnet().cuda(), batch(2, 3, 32, 32)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step() -> None:
        model(x).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for kept, new in zip(average.parameters(), model.parameters(), strict=True):
                kept.lerp_(new, 0.01)
            for buffer, seen in zip(average.buffers(), model.buffers(), strict=True):
                buffer.copy_(seen)

    return step


def per_sample_gradients() -> Step:
    model, x = mlp().cuda(), batch()
    weights = {name: p.detach() for name, p in model.named_parameters()}

    def loss(given: dict[str, Tensor], sample: Tensor) -> Tensor:
        made: Tensor = torch.func.functional_call(model, given, (sample,))
        return made.square().mean()

    return lambda: torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, x)


def gradient_penalty() -> Step:
    model, x = mlp().cuda(), batch().requires_grad_()

    def loss() -> Tensor:
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return (slope.norm(2, dim=1) - 1.0).square().mean()

    return trained(model, loss)


def streams_and_marks() -> Step:
    model, x, side = mlp().cuda(), batch(), torch.cuda.Stream()
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.manual_seed_all(0)

    def step() -> None:
        torch.cuda.nvtx.range_push("forward")
        before.record()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = model(x)
        torch.cuda.current_stream().wait_stream(side)
        y.record_stream(torch.cuda.current_stream())
        y.sum().backward()
        after.record()
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_pop()
        peak = torch.cuda.max_memory_allocated() / torch.cuda.get_device_properties(0).total_memory
        print(f"{before.elapsed_time(after):.1f} ms, {peak:.0%}", torch.cuda.memory_summary())
        model.zero_grad()

    return step


def logged() -> Step:
    model, x = mlp().cuda(), batch()
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    losses: list[float] = []

    def step() -> None:
        loss = model(x).square().mean()
        if torch.isnan(loss) or not torch.isfinite(loss):
            raise RuntimeError("the loss is not a number")
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        mean = sum(losses) / len(losses)
        if not math.isfinite(loss.item()):
            raise SystemExit(1)
        print(f"{loss.item():.3f} {loss:.4f} {mean:.2e} {float(loss)} {math.exp(mean)}", loss, x)

    return step


def loaded() -> Step:
    from torch.utils.data import DataLoader, TensorDataset

    model = mlp().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    rows = TensorDataset(torch.randn(32, 64), torch.randint(0, 64, (32,)))
    loader = DataLoader(rows, batch_size=8, shuffle=True, pin_memory=True)

    def step() -> None:
        for x, y in loader:
            guess = model(x.to(CUDA, non_blocking=True))
            y = y.cuda(non_blocking=True)
            functional.cross_entropy(guess, y).backward()
            optimizer.step()
            optimizer.zero_grad()
            right = (guess.argmax(-1) == y).float().mean().item()
            print(f"{right:.1%}")

    return step


def compiled() -> Step:
    model: Any = torch.compile(mlp().cuda())
    x = batch()

    @torch.compile(mode="max-autotune")
    def loss(y: Tensor) -> Tensor:
        return y.square().mean()

    return trained(model, lambda: loss(model(x)))


class Swish(torch.autograd.Function):
    """With a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        gate = torch.sigmoid(x)
        made: Tensor = grad * (gate + x * gate * (1 - gate))
        return made


def own_function() -> Step:
    model, x = mlp().cuda(), batch()
    return trained(model, lambda: Swish.apply(model(x)).sum())


def own_op() -> Step:
    @torch.library.custom_op("trueflops_tests::blend", mutates_args=())
    def blend(x: Tensor, y: Tensor, by: float) -> Tensor:
        return x * by + y

    @blend.register_fake
    def _(x: Tensor, y: Tensor, by: float) -> Tensor:
        return torch.empty_like(x)

    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return grad * 2.0, grad, None

    blend.register_autograd(backward)
    model, x = mlp().cuda(), batch()
    return trained(model, lambda: blend(model(x), x, 2.0).sum())


def made_empty() -> Step:
    with torch.device("meta"):
        model = mlp()
    model = model.to_empty(device=CUDA)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.reset_parameters()
    x = batch()
    return trained(model, lambda: model(x).square().mean())


def by_default_device() -> Step:
    torch.set_default_device(CUDA)
    try:
        model, x, scale = mlp(), torch.randn(8, 64), torch.tensor([1.0, 2.0]).sum()
    finally:
        torch.set_default_device(None)
    assert x.is_cuda
    assert scale.is_cuda
    return trained(model, lambda: (model(x) * scale).square().mean())


def inferred() -> Step:
    model, norm, x = mlp().cuda().eval(), nn.RMSNorm(64).cuda(), batch()
    q = torch.randn(2, 4, 16, 64, device=CUDA, dtype=torch.bfloat16)

    @torch.inference_mode()
    def step() -> None:
        norm(functional.dropout(model(x), 0.1))
        functional.scaled_dot_product_attention(q, q, q, is_causal=True)

    return step


def checked() -> Step:
    x = batch(4, 4)

    def step() -> None:
        if (x < -9.0).any():
            raise ValueError("far out")
        assert x.abs().max() < 9.0
        if not (x == x.T).all() or x.sum().item() > 1e9:
            raise ValueError("not symmetric")

    return step


def saved() -> Step:
    model, x = mlp().cuda(), batch()
    model.load_state_dict(copy.deepcopy(model.state_dict()))

    def step() -> None:
        model(x).sum().backward()
        model.zero_grad()
        torch.save(model.state_dict(), "never-written.pt")

    return step


WAYS: tuple[Build, ...] = (
    gradient_scaler, accumulated, averaged_weights, per_sample_gradients, gradient_penalty,
    streams_and_marks, logged, loaded, compiled, own_function, own_op, made_empty,
    by_default_device, inferred, checked, saved,
)  # fmt: skip
