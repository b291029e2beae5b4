"""The format that a checkpoint is released in, by the `quantization_config` of its config.json.

In: a Config and whether the model has experts. Out: the name of a weight format of
`graph/passes/quantise.py`, or none where the weights are 16 bits wide. As Hugging Face spells it:
fp8 (DeepSeek-V3, with `weight_block_size`), mxfp4 (GPT-OSS), awq, gptq, bitsandbytes,
compressed-tensors (`config_groups`), NVIDIA's modelopt (`quant_algo`) and AMD's Quark
(`global_quant_config`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from trueflops.model.config import Config

_FIELD: Final = "quantization_config"
_BY_BITS: Final = {4: "int4", 8: "w8a16"}
_ALGORITHMS: Final = {"FP8": "fp8", "NVFP4": "nvfp4", "W4A16_AWQ": "int4", "W8A8": "int8"}
# (bits, type, inputs narrowed too) of a group of compressed-tensors
_GROUPS: Final = {
    (4, "int", False): "int4",
    (8, "int", False): "w8a16",
    (8, "int", True): "int8",
    (8, "float", False): "w8a16",
    (8, "float", True): "fp8",
    (4, "float", False): "nvfp4-weights",
    (4, "float", True): "nvfp4",
}
# Types of weights and of inputs, "" where those are not narrowed, as Quark names them (vLLM's
# quantization/quark/quark.py); fp4 has a scale for 32 numbers there: MXFP4.
_QUARK: Final = {
    ("fp4", ""): "mxfp4",
    ("fp4", "fp8_e4m3"): "mxfp4_fp8",
    ("fp4", "fp4"): "mxfp4_fp4",
    ("fp8_e4m3", ""): "w8a16",
    ("fp8_e4m3", "fp8_e4m3"): "fp8",
    ("int8", ""): "w8a16",
    ("int8", "int8"): "int8",
    ("int4", ""): "int4",
    ("uint4", ""): "int4",
}
_WITH_WIDE_ATTENTION: Final = {name: f"{name}-experts" for name in ("int4", "mxfp4", "mxfp4_fp4")}


class Released(NamedTuple):
    """What a checkpoint says of its weights. `format` is empty where nothing known is said."""

    format: str = ""
    method: str = ""  # as the file calls it
    checkpoint: str = ""  # by whose name the format is known, where no file says it


def read_released(config: Config, is_moe: bool) -> Released:
    """The format of the released weights."""
    if not isinstance(config.fields.get(_FIELD), Mapping):
        return Released()
    said = config.nested(_FIELD)
    method = said.text("quant_method", default="modelopt" if said.has("quant_algo") else "unknown")
    name = _format(said, method.lower())
    # Experts narrower than the rest: DeepSeek-V4 (vLLM's models/deepseek_v4/quant_config.py).
    if name == "fp8_block" and config.text("expert_dtype", default="") == "fp4":
        name = "mxfp4-experts-fp8"
    if is_moe and _attention_stays_wide(said):
        name = _WITH_WIDE_ATTENTION.get(name, name)
    return Released(name, method[:40])


def _format(said: Config, method: str) -> str:
    match method:
        case "fp8" | "fbgemm_fp8":
            return "fp8_block" if said.has("weight_block_size") else "fp8"
        case "mxfp4":
            return "mxfp4"
        case "awq" | "gptq":
            return _BY_BITS.get(said.size("bits", "w_bit", default=4, most=64), "")
        case "bitsandbytes":
            return "int4" if said.flag("load_in_4bit", "_load_in_4bit", default=False) else "int8"
    if method == "quark":
        return _of_quark(said)
    if said.has("config_groups"):
        return _of_group(said.nested("config_groups"))
    return _ALGORITHMS.get(said.text("quant_algo", default=""), "")


def _of_quark(said: Config) -> str:
    """The format of all layers; nothing is read of some with their own (`layer_quant_config`)."""
    parts = said.fields.get("global_quant_config")
    if not isinstance(parts, Mapping):
        return ""
    narrow = {}
    for name in ("weight", "input_tensors"):
        part = parts.get(name)
        if isinstance(part, list):  # scales in fp8, and one in fp32 over them: NVFP4
            return "nvfp4" if part else ""
        narrow[name] = part if isinstance(part, Mapping) else {}
    weights, inputs = narrow["weight"], narrow["input_tensors"]
    found = _QUARK.get((str(weights.get("dtype", "")), str(inputs.get("dtype", ""))), "")
    return "fp8_block" if found == "fp8" and weights.get("qscheme") == "per_block" else found


def _of_group(groups: Config) -> str:
    """One format for all; a checkpoint of several is not known."""
    if len(groups.fields) != 1:
        return ""
    (name,) = groups.fields
    group = groups.nested(name)
    if not isinstance(group.fields.get("weights"), Mapping):
        return ""  # activations or the cache alone
    weights = group.nested("weights")
    bits = weights.size("num_bits", default=16, most=64)
    kind = weights.text("type", default="int")
    found = _GROUPS.get((bits, kind, group.has("input_activations")), "")
    if found == "nvfp4-weights" and weights.size("group_size", default=16) == 32:
        return "mxfp4"  # one scale for 32 numbers, where NVFP4 has one for 16
    return found


def _attention_stays_wide(said: Config) -> bool:
    left: list[Any] = []
    for name in ("modules_to_not_convert", "ignore", "ignored_layers", "exclude"):
        value = said.fields.get(name)
        left += value if isinstance(value, list) else []
    return any("attn" in str(module) for module in left)
