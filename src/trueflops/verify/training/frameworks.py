"""The free text of `framework` as one key of `profile/data/frameworks.toml`.

The key names the software that runs the step: the same plan takes other kernels and other
collectives under another one. The first line of the table whose words all occur decides.
"""

from __future__ import annotations

import re
from typing import Final

from trueflops.verify.cells import NO, YES

PLAIN: Final = "plain"
HUGGING_FACE: Final = "transformers"
"""Also of those that write their models as Hugging Face does, one function after another."""
_LIKE_HUGGING_FACE: Final = (
    "trainer", "accelerate", "peft", "trl", "transformers", "hf ", "hf-", "hugging", "axolotl",
    "swift", "factory", "unsloth", "litgpt", "lit-gpt", "xtuner", "qlora", "bitsandbytes",
    "optimum", "llama-recipes", "llama-cookbook", "fastchat", "liger", "alpaca", "lmflow",
    "autotrain", "galore",
)  # fmt: skip
_ONE_PROGRAM: Final = (
    "maxtext", "pax", "jax", "flax", "t5x", "levanter", "easylm", "axlearn", "torch_xla",
    "torch-xla", "pytorch/xla", "alpa ",
)  # fmt: skip
_DEEPSPEEDS: Final = ("openrlhf", "open-instruct", "open_instruct", "zero-infinity", "zero-offload")
"""Its own, and who runs under it: openrlhf/utils/deepspeed, configs/ds_configs of open-instruct."""
_OF_GRAPHS: Final = (
    "oneflow", "libai", "tensorflow", "mxnet", "mindspore", "mindformers", "llm.c",
)  # fmt: skip
"""An executor of their own issues their kernels, not Python op after op (assumed as usual): that
of a graph, or a program in C that calls kernels fused by hand (karpathy/llm.c, train_gpt2.cu)."""
_KEYS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("neuron",), "neuron"),
    (("megatron", "deepspeed"), "megatron-deepspeed"),
    (("neox",), "megatron-deepspeed"),  # based on both: the README of EleutherAI/gpt-neox
    (("deepspeed",), "deepspeed"),
    *(((word,), "deepspeed") for word in _DEEPSPEEDS),
    (("prime-rl",), "prime-rl"),
    (("torchtitan",), "torchtitan"),
    (("torchtune",), "torchtune"),
    *(((word,), "maxtext") for word in _ONE_PROGRAM),
    (("internevo",), "internevo"),
    (("internlm",), "internevo"),  # its README: pre-trained by InternEvo
    (("nxd",), "neuron"),
    (("olmo-core",), "olmo-core"),
    (("olmo core",), "olmo-core"),
    (("nanotron",), "nanotron"),
    (("automodel",), "automodel"),
    (("bridge",), "nemo"),
    (("nemo",), "nemo"),
    (("megatron", "own loop"), "megatron-core"),
    (("megatron",), "megatron"),
    (("primus",), "megatron"),
    (("mindspeed",), "megatron"),  # gitcode.com/Ascend/MindSpeed-LLM, docs/zh/introduction.md
    (("foundry",), "composer"),
    (("composer",), "composer"),
    (("mosaic",), "composer"),
    (("colossal",), "colossal-ai"),
    (("paddle",), "paddle"),
    *(((word,), "usual") for word in _OF_GRAPHS),
    # Compiled, and unlike Hugging Face's its attention gets no mask as a tensor (litgpt/model.py,
    # CausalSelfAttention: is_causal where there is none).
    (("litgpt", "thunder"), "compiled"),
    *(((word,), HUGGING_FACE) for word in _LIKE_HUGGING_FACE),
    (("fsdp2",), "fsdp2"),
    (("fully_shard",), "fsdp2"),
    (("fsdp",), "fsdp"),
    *(((word,), "fsdp") for word in ("fairscale", "fairseq", "metaseq")),
    (("compil",), "compiled"),
    (("nanogpt",), "compiled"),  # train.py: compile = True
    (("thunder",), "compiled"),
    *(((word,), PLAIN) for word in ("torch", "lightning", "ddp", "eager")),
)


_COMPILED: Final = {
    "fsdp": "fsdp-compiled",
    "fsdp2": "fsdp2-compiled",
    PLAIN: "compiled",
    HUGGING_FACE: "transformers-compiled",
    "torchtune": "torchtune-compiled",
}

_EAGER: Final = {"compiled": PLAIN, "torchtitan": "torchtitan-eager"}
"""Where a row says that what compiles by default, or as its benchmarks do, did not."""

_STAGE: Final = re.compile(r"zero[- ]?[123]\b(?!.*fsdp)")


def framework_key(text: str, notes: str = "", compiled: str = "", sharing: str = "") -> str:
    """The canonical key of a framework's free text; what no line knows is judged as `plain`.

    `compiled` is what a row says of torch.compile: y, n, or nothing; `sharing` its ZeRO or FSDP.
    Hugging Face's trainers have stages of ZeRO from DeepSpeed alone (accelerate/utils/
    dataclasses.py: DeepSpeedPlugin.zero_stage); their other way to share is FSDP.
    """
    key = _found(text) or PLAIN
    if key == HUGGING_FACE and _STAGE.match(sharing.casefold()):
        key = "deepspeed"
    said = f"{text} {notes}".casefold()
    noted = "compile" in said and not re.search(r"\b(no|not|without) (torch\.)?compile", said)
    stated = compiled.casefold() in YES or re.search(r"compile|inductor", compiled.casefold())
    if stated or (noted and not compiled):
        return _COMPILED.get(key, key)
    return _EAGER.get(key, key) if compiled.casefold() in NO else key


def knows_framework(text: str) -> bool:
    """Whether some line of the table knows it."""
    return _found(text) is not None


def _found(text: str) -> str | None:
    folded = text.casefold()
    return next((key for words, key in _KEYS if all(word in folded for word in words)), None)
