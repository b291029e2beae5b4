"""What a published run trained is read from its column, its notes, and scripts that they name."""

from __future__ import annotations

import pytest

from trueflops.plan import Plan
from trueflops.plan.guesses import unstated
from trueflops.verify.cells import Missing
from trueflops.verify.training.plan import stated_fields
from trueflops.verify.training.scripts import scripted_plan
from trueflops.verify.training.tuning import read_tuning, usual_recomputation

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
        ("max_memory_allocated of rank 0; lora_rank=64", 64, "attention"),
        ("rank-16, target q_proj,v_proj", 16, "q,v"),
        ("core_r0.8.0; r: 32; lora_target=all", 32, "all-linear"),
        ("LoRA on attention and MLP, r=8", 8, "all-linear"),
        ("query_key_value, rank 4", 4, "qkv"),
        ("LoRA rank 8 on linear_qkv and linear_proj", 8, "qkv,o"),
        ("LoRA rank 8 on linear_q_down_proj, linear_kv_up_proj, linear_proj", 8, "q,v,o"),
        ("rank 32 on linear_qkv, linear_fc1, linear_fc2", 32, "qkv,gate,up,down"),
    ],
)
def test_rank_and_layers(notes: str, rank: int, targets: str) -> None:
    plan = Plan(**read_tuning(row(notes=notes), 0))
    assert (plan.adapters, plan.lora_rank, plan.lora_targets) == ("lora", rank, targets)


def test_soup_loads_frozen_weights_in_fp32() -> None:
    soup = {
        "framework": "Soup (transformers Trainer, PEFT)",
        "source": "MakazhanAlpamys/Soup benchmarks/gate-h100-validation.md {} @2428453",
    }
    trained = row(**soup, notes="LoRA r=16")
    for step, kept in (("STEP 17", {"parameter_dtype": "fp32"}), ("STEP 14", {})):
        assert scripted_plan({**trained, "source": soup["source"].format(step)}) == kept
    fields = read_tuning(trained, 0)
    assert (fields["lora_targets"], fields["lora_dropout"]) == ("q,v", 0.05)


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
    assert not read_tuning(row(peft="qlora", framework=FMS), 0)["lora_fused"]


def test_nemo_adapts_one_layer_of_attention() -> None:
    plan = Plan(**read_tuning(row(framework="NeMo 24.12"), 1))
    assert (plan.lora_targets, plan.adapter_dtype) == ("qkv", "bf16")


@pytest.mark.parametrize(
    ("cells", "adapters", "rank"),
    [
        ({"peft": "LoRA r=8"}, "lora", 8),
        ({"peft": "QLoRA (nf4)"}, "qlora", 16),
        ({"peft": "", "task": "LoRA"}, "lora", 16),
        ({"peft": "rsLoRA"}, "lora", 16),
        ({"peft": "full (no LoRA)"}, None, None),
        ({"peft": "none", "task": "full fine-tune"}, None, None),
    ],
)
def test_the_column_in_other_words(
    cells: dict[str, str], adapters: str | None, rank: int | None
) -> None:
    fields = read_tuning(row(**cells), 0)
    assert fields.get("adapters") == adapters
    assert not rank or Plan(**fields).lora_rank == rank


def test_what_is_no_lora_is_not_taken_for_a_full_fine_tune() -> None:
    with pytest.raises(Missing, match="peft 'dora' is not modelled: lora, qlora, or empty"):
        read_tuning(row(peft="DoRA"), 0)


@pytest.mark.parametrize(
    ("framework", "rank", "targets", "dropout"),
    [
        ("litgpt", 8, "q,v", 0.05),
        ("LLaMA-Factory 0.9", 8, "all-linear", 0.0),
        ("Unsloth", 16, "q,k,v,o,gate,up,down", 0.0),
        ("Megatron-Bridge", 32, "qkv,o,gate,up,down", 0.0),
        ("Megatron-Bridge / Megatron-Core 26.06 NeMo Container", 16, "qkv", 0.0),
    ],
)
def test_defaults_of_frameworks(framework: str, rank: int, targets: str, dropout: float) -> None:
    plan = Plan(**read_tuning(row(framework=framework), 0))
    assert (plan.lora_rank, plan.lora_targets, plan.lora_dropout) == (rank, targets, dropout)
    stated = Plan(**read_tuning(row(framework=framework, notes="r=4 on q, dropout 0.2"), 0))
    assert (stated.lora_rank, stated.lora_targets, stated.lora_dropout) == (4, "q", 0.2)


@pytest.mark.parametrize(
    ("framework", "peft", "kind"),
    [
        ("LLaMA-Factory (HF Trainer)", "lora", "full"),
        ("LLaMA-Factory", "", "full"),
        ("Unsloth", "qlora", "full"),
        ("HF Trainer/TRL, PEFT", "qlora", "full"),  # prepare_model_for_kbit_training
        ("HF Trainer/TRL, PEFT", "lora", "none"),
        ("LitGPT (Fabric)", "qlora", "none"),
    ],
)
def test_who_recomputes_by_default(framework: str, peft: str, kind: str) -> None:
    said = row(framework=framework, peft=peft)
    assert usual_recomputation(said) == kind


@pytest.mark.parametrize(
    ("framework", "stream"),
    [
        ("HF Trainer/TRL, PEFT", "fp32"),
        ("LLaMA-Factory", "bf16"),
        ("Unsloth", "bf16"),
        ("Axolotl (HF Trainer)", "bf16"),
    ],
)
def test_who_lifts_what_lies_beside_packed_weights(framework: str, stream: str) -> None:
    plan = Plan(**read_tuning(row(framework=framework, peft="qlora"), 0))
    assert plan.stream_dtype == stream
