"""NeMo (Megatron-Bridge): a YAML of overrides for a recipe's ConfigContainer, and back.

As of Megatron-Bridge 0.6.0: src/megatron/bridge/training/config.py (sections and their fields),
training/mixed_precision.py, training/utils/omegaconf_utils.py (how overrides are applied, with
`_target_` for what a recipe has as a name), tutorials/recipes/llama/02_pretrain_with_yaml.py.
"""

from __future__ import annotations

from typing import Any, Final

from trueflops.interop.launch.core import (
    IMPLIES,
    STATES,
    computed_in,
    core_plan,
    core_settings,
    environment,
    held_in,
)
from trueflops.interop.launch.core_model import check_model
from trueflops.interop.launch.settings import (
    Asked,
    Found,
    Said,
    Settings,
    Written,
    check_implied,
    implied_by,
)
from trueflops.interop.launch.shell import TORCHRUN, about, script
from trueflops.interop.launch.texts import to_yaml
from trueflops.model import Model
from trueflops.plan.captures import STEP

NAME: Final = "nemo"
FRAMEWORKS: Final = ("nemo", "megatron")
RELEASE: Final = "Megatron-Bridge 0.6.0"
FILE: Final = "nemo.yaml"
USUAL: Final[dict[str, Any]] = {}
_PRECISION: Final = "mixed_precision"
_DTYPES: Final = {"bf16": "torch.bfloat16", "fp16": "torch.float16", "fp32": "torch.float32"}
_BACKEND: Final = "model.attention_backend"
_BACKENDS: Final = {"flash": 1, "fused": 2, "unfused": 3, "local": 4, "auto": 5}  # of the enum
_OF_PRECISION: Final = ("bf16", "fp16", "fp8", "fp8_recipe", "fp4")


def write(asked: Asked) -> Written:
    """The overrides, and a script that starts a recipe with them."""
    check_implied(NAME, asked.plan, IMPLIES, STATES)
    settings = _with_precision(core_settings(NAME, asked), asked)
    del settings[_BACKEND]
    settings[f"{_BACKEND}._target_"] = "megatron.core.transformer.enums.AttnBackend"
    settings[f"{_BACKEND}._args_"] = [_BACKENDS["auto" if asked.plan.flash else "unfused"]]
    settings["model.seq_length"] = settings["dataset.seq_length"] = asked.workload.seq
    if asked.plan.zero >= 2:  # as Megatron-FSDP asks: training/fsdp_compat.py, config.py
        settings |= {
            "dist.use_megatron_fsdp": True,
            "checkpoint.ckpt_format": "fsdp_dtensor",
            "model.gradient_accumulation_fusion": False,
        }
    if asked.plan.captured == {STEP}:
        settings["rerun_state_machine.check_for_nan_in_loss"] = False
    before = [
        "# Like tutorials/recipes/llama/02_pretrain_with_yaml.py, with the recipe of the model.",
        "PROGRAM=${PROGRAM:-pretrain_with_yaml.py}",
        *environment(asked),
    ]
    command = f'{TORCHRUN} "$PROGRAM"'
    words = [f'--config-file "$HERE/{FILE}"']
    files = {
        FILE: to_yaml(settings, about(asked, RELEASE), nulls=True),
        "run.sh": script(asked, RELEASE, command, words, before=before),
    }
    return Written(files, RELEASE)


def _with_precision(core: Settings, asked: Asked) -> Settings:
    """Dtypes are one section, which a recipe has as a name and writes over the others' fields."""
    said = {
        key: value for key, value in core.items() if key.rpartition(".")[2] not in _OF_PRECISION
    }
    held = {"_target_": _DTYPES[asked.plan.parameter_dtype], "_call_": False}
    said[f"{_PRECISION}._target_"] = "megatron.bridge.training.mixed_precision.MixedPrecisionConfig"
    for name in _OF_PRECISION:
        said[f"{_PRECISION}.{name}"] = core.get(f"model.{name}")
    said[f"{_PRECISION}.fp32"] = asked.plan.parameter_dtype == "fp32"
    for key, value in held.items():
        said[f"{_PRECISION}.params_dtype.{key}"] = value
        said[f"{_PRECISION}.pipeline_dtype.{key}"] = value
    said[f"{_PRECISION}.grad_reduce_in_fp32"] = core["ddp.grad_reduce_in_fp32"]
    return said


def read(said: Said, model: Model, accelerators: int) -> Found:
    """What the overrides say; what they leave out is as megatron-core has it, not as the recipe."""
    core = _as_core(said)
    other = check_model(core, model, alone=False)  # what it leaves out is the recipe's
    plan = core_plan(core, model, accelerators)
    plan["compute"] = computed_in(core)
    plan["parameter_dtype"] = plan["gradient_dtype"] = held_in(plan["compute"])
    if core.switch("ddp.grad_reduce_in_fp32", usual=True):
        plan["gradient_dtype"] = "fp32"
    seq = core.whole("dataset.seq_length", core.whole("model.seq_length", 0))
    core.get("model.seq_length")
    batch = core.whole("train.global_batch_size", 0)
    work = {"seq": seq, "global_batch": batch}
    work["tokens"] = core.whole("train.train_iters", 0) * batch * seq
    core.asked.update(key for key in core.values if "_dtype._" in key or key.endswith("_target_"))
    core.get("model.gradient_accumulation_fusion")
    core.get("dist.use_megatron_fsdp")
    fields = implied_by(IMPLIES, STATES) | plan
    found = {name: value for name, value in work.items() if value}
    return Found(NAME, "nemo", fields, found, None, (*other, *core.unread()))


def _as_core(said: Said) -> Said:
    """The section of dtypes as the fields that it writes over; a name of one stands for those."""
    values = dict(said.values)
    if number := values.pop(f"{_BACKEND}._args_", None):
        values[_BACKEND] = next((n for n, v in _BACKENDS.items() if [v] == number), str(number))
    name = str(values.pop(_PRECISION, "") or "").replace("-", "_")
    if name:  # bf16_mixed, fp16_mixed, bf16_with_fp8_delayed_scaling_mixed …
        values |= {"model.bf16": "bf16" in name, "model.fp16": name.startswith("fp16")}
        values |= {"model.fp8": "hybrid" if "fp8" in name else None}
        values |= {"model.fp4": "e2m1" if "nvfp4" in name else None}
        values["ddp.grad_reduce_in_fp32"] = not name.startswith("fp16")
    for key in [key for key in values if key.startswith(f"{_PRECISION}.")]:
        field = key.partition(".")[2]
        section = "ddp" if field == "grad_reduce_in_fp32" else "model"
        if field in (*_OF_PRECISION, "grad_reduce_in_fp32"):
            values[f"{section}.{field}"] = values.pop(key)
        elif field == "fp32":
            values.pop(key)
    if not any(key in values for key in ("model.bf16", "model.fp16")) and not name:
        values["model.bf16"] = True  # recipes of Megatron-Bridge are bf16_mixed unless told so
    return Said(said.where, values, said.lines)
