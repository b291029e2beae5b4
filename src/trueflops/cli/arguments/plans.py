"""Flags of the commands that ask about a model and a plan: train, infer, sweep."""

from __future__ import annotations

import argparse
from typing import Any

from trueflops.cli.arguments.deployment import deployment_flags
from trueflops.cli.arguments.load import load_flags
from trueflops.cli.arguments.operation import operation_flags
from trueflops.cli.arguments.several import degrees, degrees_or_largest, one_or_more, zero_stages
from trueflops.cli.arguments.shared import (
    common_flags,
    launch_flags,
    profile_flags,
    provenance_flag,
    real,
    share,
    what_helps_flag,
    whole,
)
from trueflops.cli.arguments.software import engine_flag, framework_flag
from trueflops.cli.arguments.speculation import speculation_flags
from trueflops.cli.arguments.tuning import tuning_flags
from trueflops.language import mark, say


def where_flags(p: argparse.ArgumentParser) -> None:
    """What train and infer share: a model, a place, a price."""
    p.add_argument(
        "model",
        metavar="MODEL",
        help="catalog name, config.json, a folder with one, or an answer of --json; any: the "
        "largest models that fit",
    )
    p.add_argument(
        "--on",
        metavar="CLUSTER",
        help="64xH100, 16x8xH100 (nodes × chips), 4xDGX-H100, Selene, or a TOML file; to be told "
        "which chips to take: any, or H100,H200",
    )
    p.add_argument(
        "--minimise",
        choices=("usd", "time", "kwh", "chips"),
        default=None,
        help="with --on any: what is to be least (default: usd)",
    )
    p.add_argument(
        "--network",
        metavar="LINKS",
        default=None,
        help="links of a node to the network, each way, as 8x400Gb (default: the node's own)",
    )
    p.add_argument("--price", metavar="USD", help="dollars an hour for one accelerator, as 2.50")
    p.add_argument(
        "--spot", action="store_true", default=None, help="price at spot instead of on demand"
    )
    p.add_argument(
        "--pue",
        type=real,
        default=None,
        metavar="X",
        help="data-centre overhead on energy (default 1: the machines alone; in the whole bill of "
        "train 1.58, the average)",
    )
    p.add_argument(
        "--power",
        metavar="WATTS",
        default=None,
        help="power limit of each accelerator, as 220W (default: its own)",
    )
    profile_flags(p)
    p.add_argument("--explain", action="store_true", help="every part of every total")
    provenance_flag(p)
    p.add_argument(
        "--ops",
        action="store_true",
        help="every op under the chip's roofs: flop, bytes, time, what binds it",
    )
    p.add_argument("--top", type=whole, default=5, metavar="N", help="plans to list (default 5)")
    common_flags(p)


def train_flags(p: argparse.ArgumentParser) -> None:
    """Flags of `trueflops train`."""
    where_flags(p)
    framework_flag(p)
    asked = p.add_argument_group("workload")
    asked.add_argument("--tokens", metavar="N", help="15T, 300B … (default: 20 a parameter)")
    asked.add_argument(
        "--seq",
        metavar="N",
        help="tokens a sequence (default: up to 8192); longest: as many as surely fit",
    )
    asked.add_argument(
        "--global-batch", metavar="N", help="sequences a step (default: about 4 M tokens)"
    )
    asked.add_argument("--within", metavar="TIME", help="the whole run at most so long, as 30days")
    asked.add_argument("--budget", metavar="USD", help="the whole run at most so dear, as 2M$")
    p.add_argument("--plot", metavar="FILE.png", help="draw the waterfall (needs matplotlib)")
    p.add_argument(
        "--plot-front", metavar="FILE.png", help="draw time against memory of what a search found"
    )
    p.add_argument("--trace", metavar="FILE.json", help="the timeline of every stage, for Perfetto")
    p.add_argument(
        "--timeline",
        action="store_true",
        help="every stage over time, task by task; with --json each task and the memory held",
    )
    what_helps_flag(p)
    operation_flags(p)
    launch_flags(
        p,
        emit=mark(
            "write the files that start this plan: megatron, torchtitan, deepspeed, nemo, "
            "accelerate, or slurm around one of them"
        ),
        read=mark(
            "read the plan from such a file, or a config of axolotl, LLaMA-Factory or torchtune; "
            "flags given beside it win"
        ),
    )
    plan = p.add_argument_group(
        "plan", "without any of tp, pp, cp, dp, ep: search; with --search: search the rest"
    )
    plan.add_argument(
        "--search", action="store_true", default=None, help="keep what is given, search the rest"
    )
    degree: dict[str, Any] = {"type": degrees, "metavar": "N", "default": None}
    plan.add_argument("--tp", help="tensor parallel: 8; to search among some: 1..8, 2,4", **degree)
    plan.add_argument("--pp", help="pipeline stages", **degree)
    plan.add_argument("--vpp", help="interleaved pieces of each stage", **degree)
    plan.add_argument("--cp", help="context parallel", **degree)
    plan.add_argument("--dp", help="data parallel (default: what is left)", **degree)
    plan.add_argument("--dp-replicate", help="replicas that hold everything", **degree)
    plan.add_argument("--dp-shard", help="replicas that share by ZeRO", **degree)
    plan.add_argument("--ep", help="expert parallel", **degree)
    plan.add_argument(
        "--dispatch",
        type=one_or_more("all-to-all", "deduplicated"),
        metavar="HOW",
        default=None,
        help="all-to-all: send tokens once per expert; deduplicated: once per node, which forwards "
        "them (DeepEP)",
    )
    plan.add_argument("--etp", help="tensor parallel of each expert", **degree)
    plan.add_argument(
        "--mtp", help="modules that predict further tokens (DeepSeek-V3 trains with 1)", **degree
    )
    plan.add_argument(
        "--micro-batch",
        "--mb",
        help="sequences a micro-batch; largest: as many as surely fit",
        **degree | {"type": degrees_or_largest},
    )
    plan.add_argument(
        "--zero",
        type=zero_stages,
        metavar="0..3",
        default=None,
        help="1: optimizer states shared, 2: and gradients, 3: and weights (FSDP)",
    )
    plan.add_argument(
        "--sp",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="sequence parallel beside tp (default: on when tp > 1)",
    )
    plan.add_argument(
        "--cp-kind",
        type=one_or_more("ring", "all-to-all"),
        metavar="HOW",
        default=None,
        help="ring or all-to-all",
    )
    plan.add_argument(
        "--schedule",
        type=one_or_more("gpipe", "1f1b", "zb-h1", "zb-h2", "zb-v", "dualpipe"),
        metavar="NAME",
        default=None,
        help="pipeline schedule: gpipe, 1f1b (vpp > 1 interleaves it), zb-h1, zb-h2, zb-v (two "
        "pieces a rank), dualpipe; several with commas, or any",
    )
    plan.add_argument("--first-stage-layers", help="layers of the first stage", **degree)
    plan.add_argument("--last-stage-layers", help="layers of the last stage", **degree)
    plan.add_argument(
        "--recompute",
        type=one_or_more("none", "selective", "products", "full"),
        metavar="WHAT",
        default=None,
        help="none; selective: attention's scores, or what --framework calls so; products: all "
        "but attention and every second product; full",
    )
    plan.add_argument("--recompute-layers", help="layers of each stage that recompute", **degree)
    for what in ("optimizer", "parameters", "activations"):
        plan.add_argument(
            f"--offload-{what}",
            nargs="?",
            type=share,
            const=1.0,
            default=None,
            metavar="SHARE",
            help=say("keep {what} outside the accelerator", what=what),
        )
    plan.add_argument(
        "--offload", choices=("any",), default=None, help="any: search with and without offload"
    )
    plan.add_argument("--offload-to", choices=("host", "nvme"), default=None)
    plan.add_argument(
        "--optimizer",
        default=None,
        help="adamw (16 bytes a parameter), sgd, muon, adamw-8bit, lion (12 bytes), lion-8bit, "
        "adafactor (8 bytes, and rows and columns); of bf16 weights alone: adamw-bf16, "
        "adamw-8bit-bf16, lion-bf16, lion-8bit-bf16, adafactor-bf16",
    )
    plan.add_argument(
        "--compute",
        type=one_or_more("bf16", "fp16", "fp8", "fp4", "tf32", "fp32"),
        metavar="DTYPE",
        default=None,
        help="dtype of matmuls: bf16, fp16, fp8, fp4, tf32, fp32 (default: bf16 where the chip has "
        "it); any of those the chip has",
    )
    plan.add_argument("--parameter-dtype", choices=("fp32", "bf16", "fp16"), default=None)
    plan.add_argument("--gradient-dtype", choices=("fp32", "bf16", "fp16"), default=None)
    plan.add_argument(
        "--mixed",
        choices=("autocast", "engine"),
        default=None,
        help="who narrows fp32 weights: torch.autocast before each product, or FSDP, DeepSpeed … "
        "as they hold them (default: the framework's)",
    )
    plan.add_argument(
        "--reduce-bucket",
        type=real,
        default=None,
        metavar="N",
        help="gradients that ZeRO sums at a time (DeepSpeed: 5e8)",
    )
    plan.add_argument(
        "--dp-engine",
        "--engine",
        dest="engine",
        choices=("ddp", "dataparallel", "parameter-server"),
        default=None,
        help="how replicas agree on gradients",
    )
    switch: dict[str, Any] = {"action": argparse.BooleanOptionalAction, "default": None}
    tuning_flags(p, degree, switch)
    plan.add_argument("--flash", help="fused attention (default: on)", **switch)
    plan.add_argument(
        "--implementation", choices=("library", "eager", "compiled"),
        help="of norms, rotations, activations, loss: a library's kernels, PyTorch's functions one "
        "by one, or these compiled (default: library)",
    )  # fmt: skip
    plan.add_argument("--fused", help="fused pointwise chains (default: on)", **switch)
    plan.add_argument(
        "--loss",
        choices=("plain", "narrow", "fused", "chunked"),
        default=None,
        help="cross-entropy: of fp32 logits; of 16-bit ones; in one kernel, without fp32 ones (TE, "
        "compiled); or with the head, logits never whole (Liger, Cut-CE) (default: plain)",
    )
    plan.add_argument(
        "--update-in-backward",
        help="update each weight as soon as its gradient is made, which is then let go of "
        "(torchtune's optimizer_in_bwd, LOMO) (default: off)",
        **switch,
    )
    plan.add_argument(
        "--paged-states",
        help="states in unified memory (bitsandbytes' paged optimizers), not counted on the device "
        "(default: off)",
        **switch,
    )
    plan.add_argument(
        "--launch-blocking",
        help="CUDA_LAUNCH_BLOCKING=1: the host waits for every kernel (default: off)",
        **switch,
    )
    plan.add_argument(
        "--cuda-graphs",
        default=None,
        metavar="PARTS",
        help="what is captured: step, or parts of each layer, as attention,ffn,router (default: "
        "nothing, the host issues every kernel)",
    )
    plan.add_argument(
        "--overlap", help="data-parallel communication beside compute (default: on)", **switch
    )
    plan.add_argument(
        "--overlap-dispatch",
        help="tokens travel to experts beside another micro-batch's compute (default: off)",
        **switch,
    )


def infer_flags(p: argparse.ArgumentParser) -> None:
    """Flags of `trueflops infer`."""
    where_flags(p)
    engine_flag(p)
    asked = p.add_argument_group("workload")
    asked.add_argument("--input", metavar="N", help="tokens to read (default 1024)")
    asked.add_argument("--output", metavar="N", help="tokens to write (default 256)")
    asked.add_argument(
        "--concurrency",
        metavar="N",
        help="requests in flight (default 64, or fewer that need not wait)",
    )
    asked.add_argument("--ttft", metavar="TIME", help="time to first token at most, as 500ms")
    asked.add_argument("--tpot", metavar="TIME", help="time per output token at most, as 50ms")
    asked.add_argument(
        "--users", metavar="N", help="accelerators for so many at a time, each within the goals"
    )
    p.add_argument(
        "--pareto",
        action="store_true",
        default=None,
        help="tokens/s for one user against those per accelerator",
    )
    p.add_argument("--plot", metavar="FILE.png", help="draw that front (needs matplotlib)")
    load_flags(p)
    plan = p.add_argument_group(
        "plan", "without one: every cut of the cluster; with goals, every pair of pools too"
    )
    plan.add_argument("--tp", type=whole, default=None, metavar="N", help="tensor parallel")
    plan.add_argument("--pp", type=whole, default=None, metavar="N", help="pipeline stages")
    plan.add_argument("--ep", type=whole, default=None, metavar="N", help="expert parallel")
    plan.add_argument(
        "--etp",
        type=whole,
        default=None,
        metavar="N",
        help="ranks that split each expert, of all attention replicas that share it",
    )
    plan.add_argument(
        "--dcp",
        type=whole,
        default=None,
        metavar="N",
        help="decode context parallel: ranks of tp over which cached keys are spread",
    )
    plan.add_argument("--prefill", metavar="POOL", help="workers that only read prompts, as 2xtp4")
    plan.add_argument(
        "--decode", metavar="POOL", help="and those that only write, as 1xtp1dp16ep16"
    )
    plan.add_argument(
        "--pools", action="store_true", default=None, help="try pairs of pools without goals too"
    )
    plan.add_argument(
        "--two-batch-overlap",
        action="store_true",
        default=None,
        help="half of a batch computes while the other goes to its experts",
    )
    plan.add_argument(
        "--redundant-experts",
        type=whole,
        default=None,
        metavar="N",
        help="copies of experts in every layer, as 32 for ep 72 of 256",
    )
    plan.add_argument(
        "--weights",
        default=None,
        help="bf16, fp8, int8, w8a16, int4, mxfp4, nvfp4, fp32, bf16-2:4 … (default: as it is "
        "released); any: try narrower ones too",
    )
    deployment_flags(p)
    speculation_flags(p)


def sweep_flags(p: argparse.ArgumentParser) -> None:
    """Flags of `trueflops sweep`."""
    p.add_argument(
        "spec", metavar="SPEC.toml", help="axes: any flags of train or infer, by their name"
    )
    p.add_argument(
        "-o",
        "--output",
        metavar="TABLE",
        default=None,
        help="FILE.csv or FILE.parquet (default: SPEC.csv, beside the spec)",
    )
    p.add_argument(
        "--jobs", type=whole, metavar="N", default=None, help="questions at a time (one a core)"
    )
    p.add_argument(
        "--ray",
        metavar="ADDRESS",
        default=None,
        help="answer on a Ray cluster: HOST:6379, auto (the one of this machine), or local (one "
        "that is started here and ends with the sweep)",
    )
    p.add_argument(
        "--dry-run", action="store_true", help="say what would be asked, and ask nothing"
    )
    common_flags(p)
