"""Frameworks that train and engines that serve, as --help lists them (a test compares the data).

Names alone, so that --help needs no file; what each is stands in profile/data/frameworks.toml.
"""

from __future__ import annotations

import argparse
from typing import Final

from trueflops.language import say

FRAMEWORKS: Final = (
    "megatron", "nemo", "torchtitan", "fsdp", "fsdp-compiled", "fsdp2", "deepspeed",
    "megatron-deepspeed", "maxtext", "composer", "internevo", "neuron", "xla-gpu", "transformers",
    "transformers-compiled", "trainer", "plain", "compiled", "run", "run-sharded", "torchtune",
    "torchtune-compiled", "automodel", "colossal-ai", "paddle", "fsdp2-compiled", "olmo-core",
    "prime-rl", "nanotron", "torchtitan-eager", "megatron-core",
)  # fmt: skip
ENGINES: Final = (
    "vllm", "sglang", "trt-llm", "llama.cpp", "mlx", "exllama", "exllamav3", "lmdeploy", "mlc",
    "gpt-fast", "vllm-0.2", "llama.cpp-2023", "exllamav3-0",
)  # fmt: skip


def framework_flag(p: argparse.ArgumentParser) -> None:
    """Whose launches, overlap and kernels train is priced with."""
    p.add_argument(
        "--framework",
        metavar="NAME",
        default=None,
        help=say(
            "what trains it: {names} (default: usual, fused kernels and overlap)",
            names=", ".join(FRAMEWORKS),
        ),
    )


def engine_flag(p: argparse.ArgumentParser) -> None:
    """Whose kernels and scheduler infer is priced with."""
    p.add_argument(
        "--engine",
        "--framework",
        dest="framework",
        metavar="NAME",
        default=None,
        help=say(
            "what serves it: {names} (default: serving, as most of them are)",
            names=", ".join(ENGINES),
        ),
    )
