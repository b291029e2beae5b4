"""trueflops explain: how one product of matrices, or one attention, runs on a chip."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import numpy as np

from trueflops.catalog import Accelerator, Cluster, accelerator
from trueflops.cli.question import cluster_of, profile_for
from trueflops.clock import Clock
from trueflops.errors import BadInput, UnknownName, join_or, printable
from trueflops.graph.ir import Op
from trueflops.graph.kinds import Kind
from trueflops.graph.variants import AttentionKernel
from trueflops.interop.kernel_ops import DTYPES, KINDS, Form, attend, attend_backward
from trueflops.language import say
from trueflops.predict.explain import KernelExplained, explain_attention, explain_matmul
from trueflops.predict.provenance import kernel_provenance
from trueflops.profile.frameworks import by_itself
from trueflops.report import encode
from trueflops.report.explain import (
    encode_attention,
    encode_matmul,
    show_attention,
    show_matmul,
)
from trueflops.report.plots import plot_roofline
from trueflops.report.provenance import encode_provenance, show_provenance
from trueflops.report.tables import console
from trueflops.sizes import divisors

OF_ATTENTION = ("queries", "window", "causal", "backward", "decode", "cache", "kernel")
ATTENTION_DTYPES = ("bf16", "fp16", "fp32")


def run(options: argparse.Namespace) -> int:
    """Price the kernel and show where its time goes."""
    if options.what == "matmul":
        return _run_matmul(options)
    sizes = read_attention_shape(" ".join(options.shape))
    clock = _clock(options)
    found = explain_attention(clock, build_attention(sizes, options, clock.chip))
    if options.plot is not None:
        plot_roofline(found, Path(options.plot))
    if options.json:
        print(encode.to_json(encode_attention(found) | _encoded(options, found)))
    else:
        show_attention(console(), found)
        _show_provenance(options, found)
    return 0


def _run_matmul(options: argparse.Namespace) -> int:
    for name in OF_ATTENTION:
        if getattr(options, name) is not None:
            raise BadInput(
                say("--{name} is of explain attention; a product has no such thing", name=name)
            )
    m, n, k = read_shape(" ".join(options.shape))
    clock = _clock(options)
    found = explain_matmul(clock, build_product(m, n, k, options.dtype or _usual(clock.chip)))
    if options.plot is not None:
        plot_roofline(found, Path(options.plot))
    if options.json:
        print(encode.to_json(encode_matmul(found) | _encoded(options, found)))
    else:
        show_matmul(console(), found)
        _show_provenance(options, found)
    return 0


def _encoded(options: argparse.Namespace, found: KernelExplained) -> dict[str, Any]:
    if not options.provenance:
        return {}
    return {"provenance": encode_provenance(kernel_provenance(found))}


def _show_provenance(options: argparse.Namespace, found: KernelExplained) -> None:
    if options.provenance:
        show_provenance(console(), kernel_provenance(found))


def _clock(options: argparse.Namespace) -> Clock:
    where = find_chip(options)
    chip = where.accelerator
    return Clock(where, profile_for(options, chip, by_itself(chip.vendor)))


def _usual(chip: Accelerator) -> str:
    return "bf16" if chip.computes("bf16") else "fp32"


def read_shape(text: str) -> tuple[int, int, int]:
    """'4096x11008x4096', with ×, * or commas too, as m, n, k."""
    example = "4096x11008x4096"
    words = _split(text)
    if len(words) != 3:
        raise BadInput(
            say(
                "{text!r} is not m×n×k; write for example {example} (a batch that shares its "
                "weights is more rows m)",
                text=printable(text, 60),
                example=example,
            )
        )
    m, n, k = _whole(text, dict(zip("mnk", words, strict=True)), example)
    return m, n, k


def read_attention_shape(text: str) -> tuple[int, int, int, int, int]:
    """'1x32x8x4096x128' as batch, heads, key heads, length, head dimension; four: key heads too."""
    example = "1x32x8x4096x128"
    words = _split(text)
    if len(words) == 4:
        words.insert(2, words[1])
    if len(words) != 5:
        raise BadInput(
            say(
                "{text!r} is not batch×heads×kv_heads×length×head_dim; write for example "
                "{example}, or four numbers where every head has keys of its own",
                text=printable(text, 60),
                example=example,
            )
        )
    names = ("batch", "heads", "kv heads", "length", "head dim")
    batch, heads, kv_heads, length, width = _whole(
        text, dict(zip(names, words, strict=True)), example
    )
    if heads % kv_heads:
        raise BadInput(
            say(
                "{heads} heads cannot share {kv_heads} key heads evenly; write {divisors} of them",
                heads=heads,
                kv_heads=kv_heads,
                divisors=join_or(divisors(heads)),
            )
        )
    return batch, heads, kv_heads, length, width


def _split(text: str) -> list[str]:
    return [word for word in re.split(r"[x×*,\s]+", text.strip().lower()) if word]


def _whole(text: str, words: dict[str, str], example: str) -> list[int]:
    for name, word in words.items():
        if not re.fullmatch("[0-9]{1,15}", word) or int(word) == 0:
            raise BadInput(
                say(
                    "{text!r}: {name} = {word!r} must be a whole number of at least 1; write for "
                    "example {example}",
                    text=printable(text, 60),
                    name=name,
                    word=printable(word, 30),
                    example=example,
                )
            )
    return [int(word) for word in words.values()]


def find_chip(options: argparse.Namespace) -> Cluster:
    """One chip, or a cluster whose chip is meant; an unknown name is answered with near chips."""
    try:
        return cluster_of(options)
    except UnknownName as unknown:
        if options.on and unknown.name == options.on:
            accelerator(options.on)
        raise


def build_product(m: int, n: int, k: int, dtype: str) -> Op:
    """The product of a row of a kernel table, without the cast that may come before it."""
    name = dtype.strip().lower()
    if name not in DTYPES:
        raise UnknownName("dtype", name, DTYPES)
    usual = {column: value or 0.0 for column, value in KINDS["matmul"].columns.items()}
    columns = {**usual, "m": float(m), "n": float(n), "k": float(k)}
    arrays = {column: np.array([value]) for column, value in columns.items()}
    ops, _ = KINDS["matmul"].build(arrays, Form(DTYPES[name]))
    return ops[-1]


def build_attention(
    sizes: tuple[int, int, int, int, int], options: argparse.Namespace, chip: Accelerator
) -> Op:
    """A prompt, its backward, or a step of decoding, as a row of a kernel table has it."""
    batch, heads, kv_heads, keys, width = sizes
    queries = options.queries or (1 if options.decode else keys)
    if queries > keys:
        raise BadInput(
            say(
                "--queries {queries}: at most the {keys} keys that they look back at",
                queries=queries,
                keys=keys,
            )
        )
    if options.decode and (options.backward or queries > 1):
        raise BadInput(say("--decode is one query for each sequence, forward: drop the other flag"))
    if options.backward and queries != keys:
        raise BadInput(say("--backward is of a whole sequence: drop --queries"))
    dtype = (options.dtype or _usual(chip)).lower()
    if dtype not in ATTENTION_DTYPES:
        raise UnknownName("dtype of attention", dtype, ATTENTION_DTYPES, "(8-bit keys: --cache)")
    kernel = AttentionKernel(options.kernel) if options.kernel else None
    form = Form("fp8" if options.cache == "fp8" else dtype, kernel)
    numbers = {
        "batch": batch,
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "head_dim": width,
        "window": options.window or 0,
        "causal": options.causal is not False,
    }
    columns = {name: np.array([float(value)]) for name, value in numbers.items()}
    lengths = np.array([float(queries)]), np.array([float(keys)])
    kind = Kind.ATTENTION_DECODE if options.decode else Kind.ATTENTION
    forward = attend(columns, *lengths, form, kind)
    return attend_backward(forward) if options.backward else forward
