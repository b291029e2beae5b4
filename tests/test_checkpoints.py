"""What names of checkpoints say of the format that weights are stored in."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Ask
from trueflops.catalog import accelerator
from trueflops.errors import UnknownName
from trueflops.graph.passes import FORMATS
from trueflops.model import read_model
from trueflops.model.checkpoints import bare_name, format_in
from trueflops.predict.released import served_weights


@pytest.mark.parametrize(
    ("checkpoint", "model", "form"),
    [
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "Llama-3.3-70B", "fp8"),
        ("neuralmagic/Meta-Llama-3.1-8B-Instruct-FP8", "Llama-3.1-8B", "fp8"),
        ("Qwen/Qwen2.5-72B-Instruct-AWQ", "Qwen2.5-72B", "int4"),
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int8", "Qwen2.5-72B", "w8a16"),
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4", "Qwen2.5-72B", "int4"),
        ("RedHatAI/gemma-3-27b-it-quantized.w4a16", "Gemma-3-27B", "int4"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", "Llama-3.1-8B", "int8"),
        ("unsloth/Llama-3.2-3B-Instruct-bnb-4bit", "Llama-3.2-3B", "int4"),
        ("nvidia/DeepSeek-R1-FP4", "DeepSeek-R1", "nvfp4"),
        ("amd/DeepSeek-R1-MXFP4", "DeepSeek-R1", "mxfp4_fp4"),
        ("ggml-org/Qwen3-8B-GGUF:Q8_0", "Qwen3-8B", "q8_0"),
        ("Llama-3.1-8B-Instruct-Q4_K_M.gguf", "Llama-3.1-8B", "q4_k_m"),
        ("Llama-3.3-70B-Instruct-UD-Q4_K.gguf", "Llama-3.3-70B", "q4_k_m"),
        ("Qwen3-32B-Q6_K-00001-of-00002.gguf", "Qwen3-32B", "q6_k"),
        ("Qwen/Qwen3-32B", "Qwen3-32B", ""),
        ("unsloth/Qwen3-32B-GGUF", "Qwen3-32B", ""),
    ],
)
def test_a_name_tells_the_model_and_its_format(checkpoint: str, model: str, form: str) -> None:
    assert format_in(checkpoint) == form
    assert form in ("", *FORMATS)
    read = read_model(checkpoint)
    assert read.name == model
    assert read.released.format == (form or read_model(model).released.format)


def test_a_chip_without_such_products_keeps_weights_narrow_alone() -> None:
    model = read_model("Llama-3.1-8B-FP8")
    assert served_weights(model, accelerator("H100")).name == "fp8"
    assert served_weights(model, accelerator("A100")).name == "w8a16"


def test_a_name_does_not_overrule_what_its_config_says_better() -> None:
    """DeepSeek-V3 is released in fp8 with a scale for every block."""
    assert read_model("deepseek-ai/DeepSeek-V3-FP8").released.format == "fp8_block"
    assert read_model("unsloth/DeepSeek-V3-bf16").released.format == ""


def test_what_is_no_word_of_a_format_stays_in_the_name() -> None:
    assert bare_name("Qwen3-Coder-Next") == "Qwen3-Coder-Next"
    with pytest.raises(UnknownName):
        read_model("Nonsense-7B-AWQ")


@pytest.mark.parametrize(
    ("command", "chip", "weights", "why"),
    [
        ("vllm serve RedHatAI/Llama-3.1-8B-Instruct-FP8-dynamic", "H100", "fp8",
         "as Llama-3.1-8B-Instruct-FP8-dynamic is named"),
        ("vllm serve meta-llama/Llama-3.1-8B --quantization fp8", "A100", "w8a16",
         "as serve.sh says"),
        ("llama-server -hf bartowski/Llama-3.1-8B-Instruct-GGUF:Q4_K_M", "RTX-4090", "q4_k_m",
         "is named"),
        ("vllm serve $MODEL", "H100", "bf16", "is released in 16 bits"),
    ],
)  # fmt: skip
def test_a_launch_file_serves_the_checkpoint_that_it_names(
    command: str, chip: str, weights: str, why: str, tmp_path: Path, ask: Ask
) -> None:
    file = tmp_path / "serve.sh"
    file.write_text(command)
    said = ask("infer", "Llama-3.1-8B", "--on", chip, "--from", str(file))
    assert said["weights"] == weights
    assert said["weights_why"].endswith(why)
    assert "--weights-why" not in said["question"]["arguments"]
    typed = ask("infer", "Llama-3.1-8B", "--on", chip, "--from", str(file), "--weights", "int4")
    assert (typed["weights"], typed["weights_why"]) == ("int4", "as asked for")


def test_a_launch_file_of_another_model_is_noticed(tmp_path: Path, ask: Ask) -> None:
    file = tmp_path / "serve.sh"
    file.write_text("vllm serve /data/hub/Qwen3-32B-AWQ")
    said = ask("infer", "Llama-3.1-8B", "--on", "H100", "--from", str(file))["notes"]
    assert "serve.sh starts Qwen3-32B: the answer is of Llama-3.1-8B, as you asked for" in said
    said = ask("infer", "Qwen3-32B", "--on", "H100", "--from", str(file))["notes"]
    assert not any("the answer is of" in note for note in said)
