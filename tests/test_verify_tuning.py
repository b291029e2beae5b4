"""What a published run trained is read from its column, its notes, and scripts that they name."""

from __future__ import annotations

import pytest

from trueflops.plan import Plan
from trueflops.plan.guesses import unstated
from trueflops.verify.run_plan import stated_fields
from trueflops.verify.run_tuning import read_tuning

FMS = "HF Trainer/TRL (fms-hf-tuning), torch 2.4, FA2"


def row(**cells: str) -> dict[str, str]:
    return {"peft": "lora", "year": "2024", "framework": "HF Trainer + PEFT", "notes": "", **cells}


def test_a_run_without_adapters_trains_everything() -> None:
    assert read_tuning(row(peft=""), 0) == {}


@pytest.mark.parametrize(
    ("notes", "rank", "targets"),
    [
        ("LoRA r16 on q,k,v,o; packed", 16, "q,k,v,o"),
        ("LoRA rank 8; grad accumulation 16", 8, "attention"),
        ("LoRA r 32 all linear", 32, "all-linear"),
        ("gradient checkpointing from finetune/*.sh", 64, "qkv,o,gate,up,down"),
    ],
)
def test_rank_and_layers(notes: str, rank: int, targets: str) -> None:
    plan = Plan(**read_tuning(row(notes=notes), 0))
    assert (plan.adapters, plan.lora_rank, plan.lora_targets) == ("lora", rank, targets)


def test_what_is_not_stated_is_a_guess() -> None:
    bare, said = row(), row(notes="LoRA r16 on q,v")
    plan = Plan(**read_tuning(bare, 0))
    guessed = [str(guess) for guess in unstated(plan, stated_fields(bare), "x", experts=False)]
    assert "rank 16: the default of x" in guessed
    assert "adapters of attention: the default of x" in guessed
    assert {"lora_rank", "lora_targets"} <= stated_fields(said)


def test_adapters_of_2023_were_as_wide_as_the_weights() -> None:
    assert Plan(**read_tuning(row(year="2023"), 0)).adapter_dtype == "bf16"
    assert Plan(**read_tuning(row(), 0)).adapter_dtype == "fp32"


@pytest.mark.parametrize(
    ("notes", "zero", "packed", "stream"),
    [
        ("config baseline-peft-bnb; 4-bit bitsandbytes base", 0, "nf4", "fp32"),
        ("config baseline-peft-bnb; 4-bit bitsandbytes base", 3, "nf4", "bf16"),
        ("config accelerated-peft-bnb; 4-bit bitsandbytes base", 0, "nf4", "bf16"),
        ("config accelerated-peft-autogptq; 4-bit GPTQ base", 0, "gptq-int4", ""),
        ("base = Int4 GPTQ chat model", 0, "gptq-int4-torch", ""),
    ],
)
def test_packed_weights(notes: str, zero: int, packed: str, stream: str) -> None:
    plan = Plan(**read_tuning(row(peft="qlora", notes=notes), zero))
    assert (plan.base_format, plan.stream_dtype) == (packed, stream)


def test_kernels_of_triton() -> None:
    fused = read_tuning(row(peft="qlora", framework=f"{FMS} + FOAK kernels"), 0)
    assert fused["lora_fused"]
    assert fused["implementation"] == "library"
    assert not read_tuning(row(peft="qlora", framework=FMS), 0)["lora_fused"]


def test_nemo_adapts_one_layer_of_attention() -> None:
    plan = Plan(**read_tuning(row(framework="NeMo 24.12"), 1))
    assert (plan.lora_targets, plan.adapter_dtype) == ("qkv", "bf16")
