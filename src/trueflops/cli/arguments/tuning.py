"""Flags of what is trained, where not everything is."""

from __future__ import annotations

import argparse
from typing import Any

from trueflops.cli.arguments.shared import share, whole


def tuning_flags(
    p: argparse.ArgumentParser, degree: dict[str, Any], switch: dict[str, Any]
) -> None:
    """What is trained, where not everything is."""
    tuned = p.add_argument_group("fine-tuning", "without these all weights are trained")
    rank: dict[str, Any] = {"type": whole, "nargs": "?", "const": 0, "metavar": "RANK"}
    tuned.add_argument(
        "--lora", help="train adapters beside frozen weights (default: rank 16)", **rank
    )
    tuned.add_argument("--qlora", help="the same beside packed 4-bit weights", **rank)
    tuned.add_argument(
        "--lora-targets",
        default=None,
        metavar="LAYERS",
        help="attention (q,k,v,o; default), q,v (PEFT's default for Llama), all-linear, or any of "
        "q,k,v,o,gate,up,down; qkv where these three are one layer",
    )
    tuned.add_argument("--lora-dropout", type=share, default=None, metavar="SHARE")
    tuned.add_argument(
        "--lora-fused", help="scaling and sum within an adapter's product (Unsloth)", **switch
    )
    tuned.add_argument(
        "--adapter-dtype",
        choices=("fp32", "bf16", "fp16"),
        default=None,
        help="of adapters, their gradients and sums (default: fp32, as PEFT)",
    )
    tuned.add_argument(
        "--base-format",
        choices=("nf4", "gptq-int4", "gptq-int4-torch"),
        default=None,
        help="of --qlora's frozen weights: bitsandbytes' (default), AutoGPTQ's by Triton, or by "
        "PyTorch's functions",
    )
    tuned.add_argument(
        "--residual-dtype",
        choices=("fp32", "bf16", "fp16"),
        default=None,
        help="of the residual stream (default: fp32 with nf4, as PEFT prepares a model)",
    )
    tuned.add_argument("--freeze-layers", help="first layers that are not trained", **degree)
