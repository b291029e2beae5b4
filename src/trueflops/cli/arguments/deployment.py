"""Flags that set an engine, in the words of engines: what it may fill, and what a step takes."""

from __future__ import annotations

import argparse
from typing import Any, Final

from trueflops.cli.arguments.shared import launch_flags, natural, whole
from trueflops.language import mark

CACHES: Final = ("bf16", "fp16", "fp8", "int8", "nvfp4", "q8_0", "q4_0", "fp32")
"""As predict/serving/cache.py knows them (a test compares)."""
ANY: Final = "any"


def deployment_flags(p: argparse.ArgumentParser) -> None:
    """How the engine is set; what is not given is its default on the chip."""
    engine = p.add_argument_group("engine", "where nothing is given: its default on this chip")
    engine.add_argument(
        "--memory-share",
        "--gpu-memory-utilization",
        "--mem-fraction-static",
        metavar="X",
        default=None,
        help="of the memory that it may fill, 0 to 1: vLLM's gpu-memory-utilization, SGLang's "
        "mem-fraction-static, TensorRT-LLM's free_gpu_memory_fraction",
    )
    number: dict[str, Any] = {"type": whole, "metavar": "N", "default": None}
    engine.add_argument(
        "--max-model-len",
        help="tokens of the longest request (default: input and output)",
        **number,
    )
    engine.add_argument("--block-size", help="tokens of a block of the KV cache", **number)
    engine.add_argument("--max-num-seqs", help="requests that a replica runs at once", **number)
    engine.add_argument(
        "--max-num-batched-tokens", help="tokens of one step, or of a pass of prompts", **number
    )
    engine.add_argument(
        "--enforce-eager",
        "--disable-cuda-graph",
        action="store_true",
        default=None,
        help="no step is a captured graph: the host issues every kernel",
    )
    engine.add_argument(
        "--gpu-layers",
        "--n-gpu-layers",
        type=natural,
        metavar="N",
        default=None,
        help="llama.cpp: layers on accelerators; the host computes the others (default: all)",
    )
    engine.add_argument(
        "--tensor-split",
        metavar="N,N",
        default=None,
        help="how layers are dealt out to cards, as 3,1 or 45,35, or best: llama.cpp's "
        "--tensor-split, vLLM's VLLM_PP_LAYER_PARTITION (default: as the engine does)",
    )
    engine.add_argument(
        "--cpu-offload-gb",
        metavar="GIB",
        default=None,
        help="vLLM: weights of each accelerator that stay in host memory",
    )
    engine.add_argument(
        "--host-cpu",
        metavar="NAME",
        default=None,
        help="what computes layers that --gpu-layers leaves to the host, as EPYC-9654 "
        "(default: the node's, else a usual one)",
    )
    engine.add_argument(
        "--policy",
        choices=("mixed", "prefill-first"),
        default=None,
        help="whether a step reads prompts beside those that write, or before them",
    )
    engine.add_argument(
        "--release", metavar="X", default=None, help="of the engine, as 0.11.0 (default: newest)"
    )
    engine.add_argument(
        "--cache",
        choices=(*CACHES, ANY),
        default=None,
        help="dtype of the KV cache: %(choices)s (default: 16 bits); any: try 8 bits too",
        metavar="DTYPE",
    )
    launch_flags(
        p,
        emit=mark("write what starts this deployment: vllm, sglang, trtllm, llamacpp or dynamo"),
        read=mark("read the deployment from such a file; flags given beside it win"),
    )
