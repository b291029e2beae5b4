"""Flags of the commands about kernels and programs: ops, capture, guard, diagnose, explain."""

from __future__ import annotations

import argparse

from trueflops.cli.arguments.shared import (
    common_flags,
    integer,
    natural,
    percentage,
    profile_flags,
    provenance_flag,
    real,
    top_flags,
    whole,
)
from trueflops.language import say


def ops_flags(p: argparse.ArgumentParser) -> None:
    """Flags of `trueflops ops`."""
    p.add_argument(
        "file",
        metavar="FILE.csv",
        help="kernels by header: m,n,k | num_heads,…,isl | …,kv_len | experts,topk,… | "
        "op,gpus,bytes | kind,rows,columns",
    )
    p.add_argument("--on", metavar="CHIP", default=None, help="H100, or 8xH100 for collectives")
    profile_flags(p)
    provenance_flag(p)
    common_flags(p)


def run_flags(p: argparse.ArgumentParser) -> None:
    """Flags of `trueflops run`."""
    p.add_argument(
        "plan", metavar="PLAN.json", help='an answer of train --json, or {"tp": 2, "dp_shard": 2}'
    )
    p.add_argument("--model", metavar="MODEL", help="catalog name or config.json (the answer's)")
    p.add_argument("--steps", type=whole, default=20, metavar="N", help="steps in all (20)")
    p.add_argument("--seq", type=whole, metavar="N", help="tokens a sequence (128 at most)")
    p.add_argument(
        "--global-batch", type=whole, metavar="N", help="sequences a step (some micro-batches)"
    )
    p.add_argument("--lr", type=real, default=1e-3, metavar="X", help="learning rate (0.001)")
    p.add_argument("--seed", type=integer, default=0, metavar="N", help="of weights, tokens (0)")
    p.add_argument("--text", metavar="FILE", help="train on its bytes (default: made-up tokens)")
    p.add_argument("--checkpoint", metavar="DIR", help="save there, and go on from what is there")
    p.add_argument(
        "--save-every", type=whole, default=10, metavar="N", help="steps between checkpoints (10)"
    )
    p.add_argument(
        "--max-restarts", type=integer, default=0, metavar="N",
        help="how often torchrun starts all ranks again when one dies (0)",
    )  # fmt: skip
    p.add_argument(
        "--trace", metavar="FILE", help="write rank 0's trace of two steps, for diagnose: t.json.gz"
    )
    p.add_argument(
        "--calibrate", metavar="PROFILE.json",
        help="keep the steps there, in a profile that they correct; further plans add to it",
    )  # fmt: skip
    p.add_argument(
        "--log", metavar="FILE", help="--calibrate by this log of torchtitan or Megatron-LM instead"
    )
    p.add_argument("--device", choices=("cpu", "cuda"), help="default: GPUs where torch sees some")
    p.add_argument("--bind", action="store_true", help="each rank to one NUMA node and its memory")
    p.add_argument("--on", metavar="CLUSTER", help="what it runs on, to predict seconds: 8xH100")
    _replica_flags(p)
    profile_flags(p)
    common_flags(p)


def _replica_flags(p: argparse.ArgumentParser) -> None:
    """How replicas agree, and what is run beside one another."""
    group = p.add_argument_group("replicas", "how they agree on weights; in which precision")
    group.add_argument(
        "--compare", choices=("engines", "precisions", "binding"),
        help="run the plan in all these ways, side by side",
    )  # fmt: skip
    group.add_argument(
        "--dp-engine", dest="engine", choices=("ddp", "dataparallel", "parameter-server"),
        help="instead of the plan's",
    )  # fmt: skip
    group.add_argument(
        "--updates", choices=("synchronous", "drops", "bounded", "asynchronous"),
        help="when a parameter server uses a gradient (synchronous)",
    )  # fmt: skip
    group.add_argument(
        "--staleness", type=natural, metavar="S", help="bounded: steps ahead of the slowest (3)"
    )
    group.add_argument("--drop", type=natural, metavar="B", help="drops: gradients left out (1)")
    group.add_argument(
        "--pause", metavar="TIME", help="the first worker waits so long in each step: 50ms"
    )
    group.add_argument(
        "--loss-scale", type=real, metavar="X", help="of fp16, fixed (default: found on the way)"
    )


def _program_flags(p: argparse.ArgumentParser, or_else: str = "") -> None:
    """A PyTorch program, and where it shall run."""
    p.add_argument(
        "program",
        metavar="FILE.py[:FUNCTION]",
        help="a script that trains; or a function that builds all and returns the step, a callable"
        + or_else,
    )
    p.add_argument("words", nargs="*", metavar="ARG", help="sys.argv of the program, after --")
    p.add_argument("--on", metavar="CHIP", default=None, help="H100, or 64xH100 for one rank of 64")
    p.add_argument("--world", type=whole, metavar="N", help="ranks (default: as --on has chips)")
    p.add_argument("--rank", type=integer, metavar="R", help="which of them (default 0)")
    p.add_argument(
        "--assume", action="append", default=[], metavar="NAME=VALUE",
        help="a value that nobody knows: mask=0.25 (share of true), train.py:14=true",
    )  # fmt: skip


def guard_flags(p: argparse.ArgumentParser) -> None:
    """Flags of `trueflops guard`."""
    _program_flags(p)
    p.add_argument(
        "--baseline",
        metavar="FILE.json",
        help="the step as it was accepted (default: FILE.FUNCTION.CHIP.baseline.json, beside it)",
    )
    p.add_argument(
        "--tolerance",
        type=percentage,
        default=0.02,
        metavar="SHARE",
        help="by which time and memory may grow (2%%)",
    )
    p.add_argument("--update", action="store_true", help="accept the step as it is now")
    p.add_argument(
        "--no-write", action="store_true", help="a missing baseline is an error, as in CI"
    )
    profile_flags(p)
    common_flags(p)


def capture_flags(p: argparse.ArgumentParser) -> None:
    """Flags of `trueflops capture`."""
    _program_flags(p, say("; or a model, FILE.onnx"))
    p.add_argument(
        "--pipeline", action="store_true", help="all stages of its pipeline, replayed together"
    )
    asked = p.add_argument_group("FILE.onnx", "sizes that the file leaves open; may be repeated")
    asked.add_argument("--dim", action="append", metavar="NAME=N", help="of a dimension: batch=8")
    asked.add_argument(
        "--shape", action="append", metavar="NAME=SHAPE", help="of a tensor: pixels=1x3x224x224"
    )
    top_flags(p)
    p.add_argument(
        "--advise", action="store_true", help="try changes, and say what each would save"
    )
    p.add_argument("--graph", action="store_true", help="the IR: work and intensity by module")
    p.add_argument("--roofline", metavar="FILE.png", help="draw its kernels under the roofline")
    p.add_argument("--timeline", metavar="FILE.png", help="draw its memory over the step")
    p.add_argument("--trace", metavar="FILE.json", help="the timeline, for Perfetto")
    profile_flags(p)
    provenance_flag(p)
    common_flags(p)


def diagnose_flags(p: argparse.ArgumentParser) -> None:
    """Flags of `trueflops diagnose`."""
    p.add_argument("trace", metavar="TRACE.json", help="of PyTorch's profiler, packed or not")
    p.add_argument("--on", metavar="CHIP", default=None, help="H100 … (default: as the trace says)")
    top_flags(p)
    profile_flags(p)
    provenance_flag(p)
    common_flags(p)


def explain_flags(p: argparse.ArgumentParser) -> None:
    """Flags of `trueflops explain`."""
    p.add_argument(
        "what",
        choices=("matmul", "attention"),
        metavar="KERNEL",
        help="matmul, or attention",
    )
    p.add_argument(
        "shape",
        nargs="+",
        metavar="SHAPE",
        help="matmul: MxNxK of y[m,n] = x[m,k]·W[n,k]ᵀ, as 4096x11008x4096; attention: "
        "batch x heads x kv_heads x length x head_dim, as 1x32x8x4096x128",
    )
    p.add_argument("--on", metavar="CHIP", default=None, help="H100, MI300X, RTX4090 …")
    p.add_argument(
        "--dtype",
        default=None,
        help="bf16 (default, or fp32), fp16, tf32, fp32, fp8, fp8_block, int8, w8a16, int4, mxfp4, "
        "nvfp4; attention: bf16, fp16 or fp32",
    )
    asked = p.add_argument_group("attention", "a prompt or a training sequence, if nothing is said")
    asked.add_argument(
        "--decode", action="store_true", default=None, help="one new token; length is of the cache"
    )
    asked.add_argument("--backward", action="store_true", default=None, help="its gradients")
    asked.add_argument(
        "--queries", type=whole, metavar="N", help="the last N of length (a chunk of a prompt)"
    )
    asked.add_argument("--window", type=whole, metavar="N", help="keys that a query sees at most")
    asked.add_argument(
        "--causal",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="a query sees only what is before it (default: on)",
    )
    asked.add_argument(
        "--cache", choices=("bf16", "fp16", "fp8"), default=None, help="dtype of keys and values"
    )
    asked.add_argument(
        "--kernel", choices=("fa2", "cudnn"), default=None, help="whose (default: the chip's best)"
    )
    profile_flags(p)
    provenance_flag(p)
    p.add_argument("--plot", metavar="FILE.png", help="draw the roofline (needs matplotlib)")
    common_flags(p)
