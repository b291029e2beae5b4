"""Whole training steps of GPT and Llama models in plain PyTorch: time, memory, power, as CSV.

    python benchmarks/training_steps.py FOLDER [--gpu H200] [--apart]
writes steps.csv (or steps_apart.csv), in the columns of train_runs.csv and more. Needs torch alone.
Precisions: bf16 (everything in bf16), amp (fp32 weights under autocast). Random tokens.
"""

from __future__ import annotations

import argparse
import csv
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from trueflops.measure.device import find_device
from trueflops.measure.state import Meter


@dataclass(frozen=True)
class Shape:
    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    llama: bool


SHAPES = {
    s.name: s
    for s in (
        Shape("GPT-125M", 12, 768, 12, 12, 3072, 50304, llama=False),
        Shape("GPT-760M", 24, 1536, 16, 16, 6144, 50304, llama=False),
        Shape("GPT-1.3B", 24, 2048, 16, 16, 8192, 50304, llama=False),
        Shape("GPT-2.7B", 32, 2560, 20, 20, 10240, 50304, llama=False),
        Shape("GPT-6.7B", 32, 4096, 32, 32, 16384, 50304, llama=False),
        Shape("Llama-1B", 16, 2048, 32, 8, 8192, 128256, llama=True),
        Shape("Llama-3B", 28, 3072, 24, 8, 8192, 128256, llama=True),
        Shape("Llama-7B", 32, 4096, 32, 32, 11008, 32000, llama=True),
        Shape("Llama-8B", 32, 4096, 32, 8, 14336, 128256, llama=True),
    )
}


class Attention(nn.Module):
    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.s, self.dim = s, s.hidden // s.heads
        self.sizes = [s.heads * self.dim, s.kv_heads * self.dim, s.kv_heads * self.dim]
        self.qkv = nn.Linear(s.hidden, sum(self.sizes), bias=not s.llama)
        self.out = nn.Linear(s.hidden, s.hidden, bias=not s.llama)

    def forward(self, x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        b, t, _ = x.shape
        q, k, v = (
            part.view(b, t, -1, self.dim).transpose(1, 2)
            for part in self.qkv(x).split(self.sizes, -1)
        )
        if self.s.llama:
            q, k = rotate(q, *turn), rotate(k, *turn)
        grouped = self.s.heads != self.s.kv_heads
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
        return self.out(mixed.transpose(1, 2).reshape(b, t, -1))


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    return x * cos + turned * sin


class Block(nn.Module):
    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.s = s
        norm = nn.RMSNorm if s.llama else nn.LayerNorm
        self.norm1, self.norm2 = norm(s.hidden), norm(s.hidden)
        self.attention = Attention(s)
        self.up = nn.Linear(s.hidden, s.ffn * (2 if s.llama else 1), bias=not s.llama)
        self.down = nn.Linear(s.ffn, s.hidden, bias=not s.llama)

    def forward(self, x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        x = x + self.attention(self.norm1(x), turn)
        wide = self.up(self.norm2(x))
        if self.s.llama:
            gate, up = wide.chunk(2, -1)
            return x + self.down(F.silu(gate) * up)
        return x + self.down(F.gelu(wide, approximate="tanh"))


class Transformer(nn.Module):
    def __init__(self, s: Shape, seq: int, recompute: bool) -> None:
        super().__init__()
        self.s, self.recompute = s, recompute
        self.embed = nn.Embedding(s.vocab, s.hidden)
        self.place = None if s.llama else nn.Embedding(seq, s.hidden)
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.layers))
        self.norm = (nn.RMSNorm if s.llama else nn.LayerNorm)(s.hidden)
        self.head = nn.Linear(s.hidden, s.vocab, bias=False)
        # As models are begun: embeddings of deviation 1 would saturate the loss, its gradients
        # would be zeros, and multiplying zeros takes little power.
        nn.init.normal_(self.embed.weight, std=0.02)
        if self.place is not None:
            nn.init.normal_(self.place.weight, std=0.02)
        if not s.llama:
            self.head.weight = self.embed.weight
        angle = torch.randn(seq, s.hidden // s.heads)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        if self.place is not None:
            x = x + self.place.weight
        turn = (self.cos.to(x.dtype), self.sin.to(x.dtype))
        for block in self.blocks:
            x = (
                checkpoint(block, x, turn, use_reentrant=False)
                if self.recompute
                else block(x, turn)
            )
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.float().view(-1, self.s.vocab), ids.view(-1))


# model, precision, micro batch, sequence, accumulation, recompute, compiled
JOBS = [
    ("GPT-125M", "amp", 8, 1024, 1, False, False),
    ("GPT-125M", "bf16", 32, 1024, 1, False, False),
    ("GPT-125M", "bf16", 1, 1024, 1, False, False),
    ("GPT-760M", "amp", 8, 2048, 1, False, False),
    ("GPT-760M", "bf16", 16, 1024, 2, False, False),
    ("GPT-1.3B", "amp", 4, 2048, 1, False, False),
    ("GPT-1.3B", "amp", 16, 2048, 1, False, False),
    ("GPT-1.3B", "bf16", 8, 2048, 1, False, False),
    ("GPT-1.3B", "bf16", 8, 2048, 4, True, False),
    ("GPT-1.3B", "bf16", 1, 2048, 1, False, False),
    ("GPT-1.3B", "bf16", 2, 8192, 1, False, False),
    ("GPT-2.7B", "amp", 4, 2048, 2, False, False),
    ("GPT-2.7B", "bf16", 8, 2048, 1, True, False),
    ("GPT-6.7B", "bf16", 4, 2048, 1, False, False),
    ("GPT-6.7B", "amp", 2, 2048, 1, True, False),
    ("Llama-1B", "amp", 4, 2048, 1, False, False),
    ("Llama-1B", "bf16", 8, 2048, 1, False, False),
    ("Llama-1B", "bf16", 1, 8192, 2, False, False),
    ("Llama-1B", "bf16", 1, 32768, 1, True, False),
    ("Llama-3B", "bf16", 4, 2048, 1, False, False),
    ("Llama-3B", "amp", 2, 4096, 1, True, False),
    ("Llama-7B", "bf16", 4, 2048, 1, False, False),
    ("Llama-7B", "bf16", 4, 4096, 2, True, False),
    ("Llama-8B", "bf16", 1, 8192, 1, False, False),
    ("Llama-8B", "bf16", 2, 8192, 2, True, False),
    ("GPT-1.3B", "bf16", 8, 2048, 1, False, True),
    ("GPT-1.3B", "amp", 8, 2048, 1, False, True),
    ("Llama-1B", "bf16", 8, 2048, 1, False, True),
    ("Llama-8B", "bf16", 1, 8192, 1, False, True),
    ("Llama-8B", "bf16", 2, 8192, 2, True, True),
    ("Llama-1B", "amp", 2, 2048, 1, False, True),
    ("Llama-3B", "amp", 4, 2048, 1, False, True),
    ("Llama-3B", "bf16", 1, 2048, 1, False, False),
    ("GPT-6.7B", "bf16", 8, 1024, 1, False, True),
]


# Never fitted to: measured after the settings of PyTorch were chosen.
APART = [
    ("GPT-125M", "amp", 16, 1024, 1, False, False),
    ("GPT-760M", "bf16", 4, 4096, 1, False, True),
    ("GPT-1.3B", "bf16", 4, 4096, 2, True, False),
    ("GPT-2.7B", "bf16", 4, 2048, 1, False, False),
    ("GPT-6.7B", "bf16", 2, 4096, 1, True, True),
    ("Llama-1B", "bf16", 2, 4096, 1, False, False),
    ("Llama-1B", "amp", 8, 1024, 1, False, True),
    ("Llama-3B", "bf16", 2, 8192, 1, True, False),
    ("Llama-3B", "amp", 1, 8192, 1, True, False),
    ("Llama-7B", "bf16", 2, 4096, 1, False, True),
    ("Llama-8B", "bf16", 4, 2048, 1, False, False),
    ("Llama-8B", "bf16", 1, 16384, 1, True, False),
]


def measure(job: tuple[Any, ...], meter: Meter) -> dict[str, Any]:
    name, precision, micro, seq, accumulate, recompute, compiled = job
    shape = SHAPES[name]
    torch.manual_seed(0)
    torch.cuda.reset_peak_memory_stats()
    with torch.device("cuda"):
        model = Transformer(shape, seq, recompute)
    if precision == "bf16":
        model = model.to(torch.bfloat16)
    if compiled:
        for block in model.blocks:
            block.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    ids = torch.randint(0, shape.vocab, (micro, seq), device="cuda")
    auto = torch.autocast("cuda", torch.bfloat16, enabled=precision == "amp")
    marks = [torch.Event("cuda", enable_timing=True) for _ in range(4)]
    parts = [0.0, 0.0, 0.0]

    def step(listen: bool = False) -> None:
        for i in range(accumulate):
            if listen and i == 0:
                marks[0].record()
            with auto:
                loss = model(ids)
            if listen and i == 0:
                marks[1].record()
            loss.backward()
            if listen and i == 0:
                marks[2].record()
        if listen:
            marks[2].record()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if listen:
            marks[3].record()

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    begun = time.monotonic()
    count = 0
    while time.monotonic() < begun + 2.0:  # settle
        step()
        torch.cuda.synchronize()
        count += 1
    times: list[float] = []
    since = time.monotonic()
    while len(times) < 5 or time.monotonic() < since + 3.0:
        at = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - at)
    state = meter.mean(since + 0.2, time.monotonic())
    step(listen=True)
    torch.cuda.synchronize()
    if accumulate == 1:
        parts = [marks[i].elapsed_time(marks[i + 1]) * 1e-3 for i in range(3)]
    peak, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    return {
        "model": name, "params_b": round(sum(p.numel() for p in model.parameters()) / 1e9, 4),
        "layers": shape.layers, "hidden": shape.hidden, "heads": shape.heads,
        "kv_heads": shape.kv_heads, "ffn": shape.ffn, "vocab": shape.vocab, "seq_len": seq,
        "n_devices": 1, "dtype": {"amp": "amp_bf16", "bf16": "bf16 pure"}[precision],
        "micro_batch": micro, "global_batch": micro * accumulate,
        "recompute": "full" if recompute else "none", "flash_attention": "y",
        "framework": "PyTorch compiled" if compiled else "PyTorch eager",
        "step_time_s": round(sorted(times)[len(times) // 2], 6),
        "forward_s": round(parts[0], 6), "backward_s": round(parts[1], 6),
        "optimizer_s": round(parts[2], 6), "peak_mem_gb_measured": round(peak / 2**30, 3),
        "peak_reserved_gb": round(reserved / 2**30, 3), "watts": round(state.watts, 1),
        "clock_mhz": round(state.mhz), "complete_for_sim": "y", "trust": "A", "task": "pretrain",
    }  # fmt: skip


COLUMNS = (
    "id source_key model params_b accelerator n_devices layers hidden heads kv_heads ffn vocab "
    "seq_len dtype micro_batch global_batch recompute flash_attention framework step_time_s "
    "forward_s backward_s optimizer_s peak_mem_gb_measured peak_reserved_gb watts clock_mhz "
    "complete_for_sim trust task"
)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("folder", type=Path)
    words.add_argument("--gpu", default="H200")
    words.add_argument("--apart", action="store_true", help="the jobs that nothing is fitted to")
    asked = words.parse_args()
    rows = []
    with Meter(find_device("cuda")) as meter:
        for at, job in enumerate(APART if asked.apart else JOBS):
            source = f"{asked.gpu.lower()}-steps{'-apart' if asked.apart else ''}"
            known = {"id": f"{source}-{at:02d}", "source_key": source, "accelerator": asked.gpu}
            try:
                rows.append(known | measure(job, meter))
                print(rows[-1], flush=True)
            except (RuntimeError, torch.OutOfMemoryError) as error:
                print("skipped", job, str(error)[:200], flush=True)
            torch._dynamo.reset()
            torch.cuda.empty_cache()
            name = "steps_apart.csv" if asked.apart else "steps.csv"
            with (asked.folder / name).open("w", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS.split(), restval="")
                writer.writeheader()
                writer.writerows(rows)


if __name__ == "__main__":
    main()
