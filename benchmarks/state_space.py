"""What a layer of Mamba-2 takes on a GPU: a decode step, and the kernels that read a prompt.

    python benchmarks/state_space.py FILE.csv

Needs Triton. Kernels of our own, written from the equations (arXiv 2405.21060 §6): a step reads the
state of every head and writes it back; a prompt is read in chunks by four kernels, whose tensors
between them are those of graph/build/chunks.py. Heads are those of Nemotron-H and Nemotron 3 on one
of 1 to 8 ranks, states of 64 × 128 in bf16 and in fp32. Of several tiles each is a row: engines
choose the fastest of theirs. Before anything is timed, all kernels are held to plain PyTorch.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from trueflops.measure.device import Device, find_device
from trueflops.measure.timing import copies_of, time_launch

VALUES, KEYS = 64, 128  # of a head
CHUNK, BLOCK = 128, 64  # tokens
SEQUENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
HEADS = ((16, 1), (32, 2), (64, 4), (128, 8), (64, 8))  # of values, and of queries and keys
STATES = {"bf16": torch.bfloat16, "fp32": torch.float32}
ROWS = (4, 16, 64)  # values of a head that one block handles in a step
TOKENS = (512, 2048, 8192, 32768)
CLOSE = 0.03  # relative, of the largest number: products are of bf16


@triton.jit  # type: ignore[untyped-decorator]
def step(  # type: ignore[no-untyped-def]
    x, b, c, rates, state, out,
    heads: tl.constexpr, groups: tl.constexpr, values: tl.constexpr, keys: tl.constexpr,
    rows: tl.constexpr,
):  # fmt: skip
    """S ← α·S + Δ·x·Bᵀ;  y = S·C, with α = exp(−Δ): some values of a head."""
    at, part = tl.program_id(0), tl.program_id(1)  # of the first there may be more than 65,535
    own = (at // heads) * groups + (at % heads) // (heads // groups)
    at_value, at_key = part * rows + tl.arange(0, rows), tl.arange(0, keys)
    delta = tl.log(1.0 + tl.exp(tl.load(rates + at).to(tl.float32)))
    place = state + at * values * keys + at_value[:, None] * keys + at_key[None, :]
    written = tl.load(x + at * values + at_value).to(tl.float32) * delta
    key = tl.load(b + own * keys + at_key).to(tl.float32)
    query = tl.load(c + own * keys + at_key).to(tl.float32)
    held = tl.load(place).to(tl.float32) * tl.exp(-delta) + written[:, None] * key[None, :]
    tl.store(out + at * values + at_value, tl.sum(held * query[None, :], 1))
    tl.store(place, held)


@triton.jit  # type: ignore[untyped-decorator]
def chunk_states(  # type: ignore[no-untyped-def]
    x, b, fading, states,
    heads: tl.constexpr, groups: tl.constexpr, values: tl.constexpr, keys: tl.constexpr,
    chunk: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """What the tokens of a chunk leave behind at its end, as if there had been none before."""
    at, head = tl.program_id(0), tl.program_id(1)
    group = head // (heads // groups)
    at_value, at_key = tl.arange(0, values), tl.arange(0, keys)
    last = tl.load(fading + (at * chunk + chunk - 1) * heads + head)
    left = tl.zeros((values, keys), tl.float32)
    for first in range(0, chunk, block):
        token = at * chunk + first + tl.arange(0, block)
        weight = tl.exp(last - tl.load(fading + token * heads + head))
        own = tl.load(x + (token[None, :] * heads + head) * values + at_value[:, None])
        key = tl.load(b + (token[:, None] * groups + group) * keys + at_key[None, :])
        left += tl.dot((own * weight[None, :]).to(tl.bfloat16), key)
    tl.store(
        states + ((at * heads + head) * values + at_value[:, None]) * keys + at_key[None, :], left
    )


@triton.jit  # type: ignore[untyped-decorator]
def chunk_pass(  # type: ignore[no-untyped-def]
    states, fading, passed, chunks,
    heads: tl.constexpr, size: tl.constexpr, chunk: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """The state before each chunk, one after the other."""
    part, head = tl.program_id(0), tl.program_id(1)
    at = part * block + tl.arange(0, block)
    held = tl.zeros((block,), tl.float32)
    for n in range(chunks):
        place = (n * heads + head) * size + at
        tl.store(passed + place, held)
        last = tl.load(fading + (n * chunk + chunk - 1) * heads + head)
        held = held * tl.exp(last) + tl.load(states + place)


@triton.jit  # type: ignore[untyped-decorator]
def chunk_products(  # type: ignore[no-untyped-def]
    c, b, made,
    groups: tl.constexpr, keys: tl.constexpr, chunk: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Queries times keys of one chunk and group: a tile."""
    at, group, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    tiles: tl.constexpr = chunk // block
    row = (tile // tiles) * block + tl.arange(0, block)
    column = (tile % tiles) * block + tl.arange(0, block)
    at_key = tl.arange(0, keys)
    query = tl.load(c + ((at * chunk + row)[:, None] * groups + group) * keys + at_key[None, :])
    key = tl.load(b + ((at * chunk + column)[None, :] * groups + group) * keys + at_key[:, None])
    place = ((at * groups + group) * chunk + row[:, None]) * chunk + column[None, :]
    tl.store(made + place, tl.dot(query, key))


@triton.jit  # type: ignore[untyped-decorator]
def chunk_mix(  # type: ignore[no-untyped-def]
    made, c, x, passed, fading, out,
    heads: tl.constexpr, groups: tl.constexpr, values: tl.constexpr, keys: tl.constexpr,
    chunk: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """What tokens read of the state before their chunk, and of one another: some of a head."""
    at, head, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    group = head // (heads // groups)
    at_value, at_key = tl.arange(0, values), tl.arange(0, keys)
    row = tile * block + tl.arange(0, block)
    token = at * chunk + row
    fade = tl.load(fading + token * heads + head)
    query = tl.load(c + (token[:, None] * groups + group) * keys + at_key[None, :])
    place = ((at * heads + head) * values + at_value[None, :]) * keys + at_key[:, None]
    mixed = tl.dot(query, tl.load(passed + place)) * tl.exp(fade)[:, None]
    for first in range(0, tile * block + block, block):
        column = first + tl.arange(0, block)
        other = at * chunk + column
        before = tl.load(fading + other * heads + head)
        inner = tl.load(
            made + ((at * groups + group) * chunk + row[:, None]) * chunk + column[None, :]
        )
        # Those that come later are left out before the exponential, which would overflow.
        apart = tl.where(row[:, None] >= column[None, :], fade[:, None] - before[None, :], -1e30)
        own = tl.load(x + (other[:, None] * heads + head) * values + at_value[None, :])
        mixed += tl.dot((inner * tl.exp(apart)).to(tl.bfloat16), own)
    tl.store(out + (token[:, None] * heads + head) * values + at_value[None, :], mixed)


class Prompt(NamedTuple):
    """The tensors of a prompt: what is read, and what lies between its kernels."""

    x: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor
    fading: torch.Tensor  # the running sum of log α inside each chunk
    states: torch.Tensor
    passed: torch.Tensor
    made: torch.Tensor
    out: torch.Tensor


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Random numbers on the GPU."""
    return torch.randn(shape, device="cuda", dtype=dtype)


def prompt_of(tokens: int, heads: int, groups: int) -> Prompt:
    """One copy of all tensors."""
    chunks = tokens // CHUNK
    rates = -0.1 * torch.rand((chunks, CHUNK, heads), device="cuda")
    states = normal(chunks, heads, VALUES, KEYS, dtype=torch.float32)
    return Prompt(
        normal(tokens, heads, VALUES), normal(tokens, groups, KEYS), normal(tokens, groups, KEYS),
        rates.cumsum(1).reshape(tokens, heads).contiguous(), states, states.to(torch.bfloat16),
        normal(chunks, groups, CHUNK, CHUNK, dtype=torch.float32), normal(tokens, heads, VALUES),
    )  # fmt: skip


def kernels(tokens: int, heads: int, groups: int) -> dict[str, Callable[[Prompt], Any]]:
    """The four, each with the tensors it needs."""
    chunks, tiles = tokens // CHUNK, CHUNK // BLOCK
    own = {"groups": groups, "keys": KEYS, "chunk": CHUNK, "block": BLOCK}
    whole = {"heads": heads, "values": VALUES, **own}
    flat = {"heads": heads, "size": VALUES * KEYS, "chunk": CHUNK, "block": 1024}
    return {
        "chunk_states": lambda p: chunk_states[(chunks, heads)](
            p.x, p.b, p.fading, p.states, **whole
        ),
        "chunk_pass": lambda p: chunk_pass[(VALUES * KEYS // 1024, heads)](
            p.states, p.fading, p.passed, chunks, **flat
        ),
        "chunk_products": lambda p: chunk_products[(chunks, groups, tiles * tiles)](
            p.c, p.b, p.made, **own
        ),
        "chunk_mix": lambda p: chunk_mix[(chunks, heads, tiles)](
            p.made, p.c, p.x, p.passed, p.fading, p.out, **whole
        ),
    }


def check() -> None:
    """All kernels beside the same token by token in plain PyTorch."""
    tokens, heads, groups = 3 * CHUNK, 4, 2
    prompt = prompt_of(tokens, heads, groups)
    for run in kernels(tokens, heads, groups).values():
        run(prompt)
    shared = heads // groups
    key = prompt.b.float().repeat_interleave(shared, 1)
    query = prompt.c.float().repeat_interleave(shared, 1)
    rates = prompt.fading.reshape(-1, CHUNK, heads)
    rates = torch.cat([rates[:, :1], rates.diff(dim=1)], 1).reshape(tokens, heads)
    state = torch.zeros((heads, VALUES, KEYS), device="cuda")
    expected = torch.empty((tokens, heads, VALUES), device="cuda")
    for t in range(tokens):
        state = state * rates[t].exp()[:, None, None]
        state = state + prompt.x[t].float()[:, :, None] * key[t][:, None, :]
        expected[t] = (state * query[t][:, None, :]).sum(-1)
    _close("a prompt", prompt.out.float(), expected)
    rate, held = normal(heads), state.clone()
    x, b, c, out = (
        normal(heads, VALUES),
        normal(groups, KEYS),
        normal(groups, KEYS),
        normal(heads, VALUES),
    )
    step[(heads, VALUES // 16)](
        x, b, c, rate, held, out, heads=heads, groups=groups, values=VALUES, keys=KEYS, rows=16
    )
    delta = torch.nn.functional.softplus(rate.float())[:, None, None]
    one = x.float()[:, :, None] * b.float().repeat_interleave(shared, 0)[:, None, :]
    state = state * (-delta).exp() + delta * one
    wanted = (state * c.float().repeat_interleave(shared, 0)[:, None, :]).sum(-1)
    _close("a step", out.float(), wanted)
    _close("its state", held, state)


def _close(what: str, made: torch.Tensor, wanted: torch.Tensor) -> None:
    off = float((made - wanted).abs().max() / wanted.abs().max())
    if off > CLOSE:
        raise SystemExit(f"{what} is off by {off:.3f} of its largest number")


def steps(device: Device) -> Iterator[tuple[Any, ...]]:
    """A row for every step."""
    shapes = product(STATES.items(), SEQUENCES, HEADS, ROWS)
    for (name, dtype), sequences, (heads, groups), rows in shapes:
        every = sequences * heads
        copies = copies_of(2 * every * VALUES * KEYS * dtype.itemsize, device)
        x, out = ([normal(every, VALUES) for _ in range(copies)] for _ in range(2))
        b, c = ([normal(sequences * groups, KEYS) for _ in range(copies)] for _ in range(2))
        rates = [normal(every) for _ in range(copies)]
        states = [normal(every, VALUES, KEYS, dtype=dtype) for _ in range(copies)]

        def launch(
            at: int, heads: int = heads, groups: int = groups, rows: int = rows,
            every: int = every, own: Any = (x, b, c, rates, states, out),
        ) -> Any:  # fmt: skip
            return step[(every, VALUES // rows)](
                *(tensors[at] for tensors in own), heads=heads, groups=groups, values=VALUES,
                keys=KEYS, rows=rows, num_warps=1 if rows < 64 else 4,
            )  # fmt: skip

        taken = time_launch(device, launch, copies).seconds
        yield "step", name, sequences, heads, groups, rows, f"{1e6 * taken:.3f}"


def prompts(device: Device) -> Iterator[tuple[Any, ...]]:
    """A row for every kernel of a prompt."""
    for tokens, (heads, groups) in product(TOKENS, HEADS):
        copies = copies_of(tokens * heads * VALUES * 4, device, most=8)
        every = [prompt_of(tokens, heads, groups) for _ in range(copies)]
        for name, run in kernels(tokens, heads, groups).items():

            def launch(at: int, run: Any = run, every: Any = every) -> Any:
                return run(every[at])

            taken = time_launch(device, launch, copies).seconds
            yield name, "bf16", tokens, heads, groups, BLOCK, f"{1e6 * taken:.3f}"
        del every


def main() -> None:
    """Steps and prompts, row by row."""
    check()
    device = find_device("cuda")
    with Path(sys.argv[1]).open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("gpu", "kernel", "state", "tokens", "heads", "groups", "rows", "latency_us"))
        for found in (steps, prompts):
            for row in found(device):
                rows.writerow(("h200", *row))
                file.flush()


if __name__ == "__main__":
    main()
