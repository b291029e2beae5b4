"""trueflops explain: how one product of matrices runs on a chip."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import numpy as np

from trueflops.catalog import Cluster, accelerator
from trueflops.cli.question import cluster_of, profile_for
from trueflops.clock import Clock
from trueflops.errors import BadInput, UnknownName, printable
from trueflops.graph.ir import Op
from trueflops.interop.kernel_ops import DTYPES, KINDS, Form
from trueflops.predict.explain import explain_matmul
from trueflops.report import encode
from trueflops.report.explain import encode_matmul, show_matmul
from trueflops.report.plots import plot_roofline
from trueflops.report.tables import console


def run(options: argparse.Namespace) -> int:
    """Price the product and show where its time goes."""
    m, n, k = read_shape(" ".join(options.shape))
    where = find_chip(options)
    clock = Clock(where, profile_for(options, where.accelerator))
    usual = "bf16" if where.accelerator.computes("bf16") else "fp32"
    explained = explain_matmul(clock, build_product(m, n, k, options.dtype or usual))
    if options.plot is not None:
        plot_roofline(explained, Path(options.plot))
    if options.json:
        print(encode.to_json(encode_matmul(explained)))
    else:
        show_matmul(console(), explained)
    return 0


def read_shape(text: str) -> tuple[int, int, int]:
    """'4096x11008x4096', with ×, * or commas too, as m, n, k."""
    words = [word for word in re.split(r"[x×*,\s]+", text.strip().lower()) if word]
    if len(words) != 3:
        raise BadInput(
            f"{printable(text, 60)!r} is not m×n×k; write for example 4096x11008x4096 "
            "(a batch that shares its weights is more rows m)"
        )
    for name, word in zip("mnk", words, strict=True):
        if not re.fullmatch("[0-9]{1,15}", word) or int(word) == 0:
            raise BadInput(
                f"{printable(text, 60)!r}: {name} = {printable(word, 30)!r} must be a whole number "
                "of at least 1; write for example 4096x11008x4096"
            )
    m, n, k = map(int, words)
    return m, n, k


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
