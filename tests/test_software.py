"""Which framework trains, which engine serves, in which format: chosen, named, or refused."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from conftest import Ask
from trueflops.catalog import accelerator, accelerators, cluster
from trueflops.cli import main
from trueflops.cli.arguments.software import ENGINES, FRAMEWORKS
from trueflops.graph.passes import FORMATS
from trueflops.model import read_model
from trueflops.model.config import Config
from trueflops.model.quantization import read_released
from trueflops.plan import Plan
from trueflops.predict import Server, Trainer
from trueflops.predict.released import served_weights
from trueflops.profile import profile_of
from trueflops.profile.frameworks import SERVING, frameworks, lacking, runs_on
from trueflops.search import Limits, search_serving
from trueflops.workload import Serving, Training

Capture = pytest.CaptureFixture[str]


class TestSoftware:
    def test_help_lists_what_there_is_and_nothing_of_the_other_kind(self, capsys: Capture) -> None:
        assert set(FRAMEWORKS) == set(frameworks(serving=False))
        assert {*ENGINES, SERVING} == set(frameworks(serving=True))
        for command, own, others in (
            ("train", FRAMEWORKS, ENGINES),
            ("infer", ENGINES, FRAMEWORKS),
        ):
            assert main([command, "--help"]) == 0
            said = capsys.readouterr().out.replace(",", " ").split()
            assert set(own) <= set(said)
            assert not set(others) & set(said)

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (["train", "GPT-2", "--framework", "vllm"], "vllm serves; write --framework with"),
            (["train", "GPT-2", "--framework", "vllm"], "trueflops infer … --engine vllm"),
            (["infer", "GPT-2", "--engine", "fsdp"], "fsdp trains; write --engine with one of"),
            (["infer", "GPT-2", "--engine", "vlm"], "did you mean vllm"),
            (["infer", "GPT-2", "--engine", "megatrn"], "unknown engine 'megatrn'; known: exllama"),
            (
                ["train", "GPT-2", "--framework", "torchtitn"],
                "did you mean torchtitan, torchtune or torchtitan-eager? [UNK",
            ),
        ],
    )
    def test_the_other_kind_is_refused(self, capsys: Capture, words: list[str], says: str) -> None:
        assert main([*words, "--on", "8xH100"]) == 2
        assert says in " ".join(capsys.readouterr().err.split())

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (["train", "GPT-2", "--on", "8xTPUv5e", "--framework", "transformers"],
             "transformers: it does not run on Google's chips, such as TPU v5e; write one that "
             "does: maxtext; without"),
            (["train", "GPT-2", "--on", "8xH100", "--framework", "neuron"], "on NVIDIA's chips"),
            (["train", "GPT-2", "--on", "8xTrainium2", "--framework", "maxtext"], "on AWS's chips"),
            (["infer", "GPT-2", "--on", "MI300X", "--engine", "trt-llm"], "vllm, sglang, llama"),
            (["infer", "GPT-2", "--on", "H100", "--engine", "mlx"], "mlx: it does not run"),
            (["train", "GPT-2", "--on", "8xH100", "--framework", "fsdp", "--pp", "2"],
             "--pp 2: fsdp has no pipeline parallelism; leave it out, or name another"),
        ],
    )  # fmt: skip
    def test_chips_and_plans_that_it_lacks_are_refused(
        self, capsys: Capture, words: list[str], says: str
    ) -> None:
        assert main(words) == 2
        assert says in " ".join(capsys.readouterr().err.split())

    def test_a_search_keeps_to_what_a_framework_has(self, ask: Ask) -> None:
        words = ("train", "Llama-3.1-70B", "--on", "64xH100", "--seq", "8192")
        assert ask(*words, "--framework", "megatron")["plan"]["pp"] > 1
        assert ask(*words, "--framework", "fsdp", "--top", "20")["plan"]["pp"] == 1

    def test_every_vendor_and_degree_is_one(self) -> None:
        vendors = {chip.vendor for chip in accelerators()}
        for name in frameworks():
            assert any(runs_on(name, vendor) for vendor in vendors)
            assert set(lacking(name)) <= {field.name for field in fields(Plan)}

    def test_what_a_framework_keeps_its_weights_in_is_taken_unless_another_is_given(
        self, ask: Ask
    ) -> None:
        words = ("train", "GPT-2", "--on", "8xH100", "--dp", "8", "--framework", "prime-rl")
        assert "--parameter-dtype fp32" in ask(*words)["plan_flags"]
        narrow = ask(*words, "--parameter-dtype", "bf16")["plan_flags"]
        assert "--parameter-dtype" not in narrow

    def test_the_default_is_named(self, ask: Ask, capsys: Capture) -> None:
        words = ("train", "GPT-2", "--on", "8xH100", "--dp", "8")
        assert ask(*words)["framework"] == {
            "name": "usual",
            "given": False,
            "about": "compiled or hand-fused kernels; gradients overlap with the backward",
        }
        assert main(list(words)) == 0
        assert "framework usual, as none was named: compiled" in capsys.readouterr().out
        given = ask(*words, "--framework", "maxtext")["framework"]
        assert (given["name"], given["given"]) == ("xla-gpu", True)  # what it is on a GPU
        infer = ("infer", "GPT-2", "--on", "H100", "--input", "100", "--output", "20")
        assert ask(*infer)["engine"]["name"] == "serving"
        assert ask(*infer, "--framework", "vllm")["engine"]["name"] == "vllm"
        assert main(list(infer)) == 0
        assert "engine serving, as none was named: an engine" in capsys.readouterr().out


RELEASED = {
    "DeepSeek-V3": "fp8_block",
    "DeepSeek-R1": "fp8_block",
    "Kimi-K2": "fp8_block",
    "MiniMax-M2": "fp8_block",
    "GPT-OSS-20B": "mxfp4-experts",
    "GPT-OSS-120B": "mxfp4-experts",
    "Llama-3.1-8B": "",
    "Qwen3-235B-A22B": "",
}
INT4 = {"weights": {"num_bits": 4, "type": "int"}, "input_activations": None}
MXFP4 = {"weights": {"num_bits": 4, "type": "float", "group_size": 32}}
NVFP4 = {"weights": {"num_bits": 4, "type": "float"}, "input_activations": {"num_bits": 4}}
FP8 = {"weights": {"num_bits": 8, "type": "float"}, "input_activations": {"num_bits": 8}}


class TestReleased:
    @pytest.mark.parametrize(("name", "found"), RELEASED.items())
    def test_of_the_catalog(self, name: str, found: str) -> None:
        assert read_model(name).released.format == found

    @pytest.mark.parametrize(
        ("said", "is_moe", "found"),
        [
            ({"quant_method": "fp8"}, False, "fp8"),
            ({"quant_method": "fbgemm_fp8"}, False, "fp8"),
            ({"quant_method": "awq", "bits": 4}, False, "int4"),
            ({"quant_method": "gptq", "bits": 8}, False, "w8a16"),
            ({"quant_method": "gptq", "bits": 3}, False, ""),
            ({"quant_method": "bitsandbytes", "load_in_4bit": True}, False, "int4"),
            ({"quant_method": "compressed-tensors", "config_groups": {"a": INT4}}, False, "int4"),
            ({"quant_method": "compressed-tensors", "config_groups": {"a": INT4},
              "ignore": ["lm_head", "re:.*self_attn.*"]}, True, "int4-experts"),
            ({"quant_method": "compressed-tensors", "config_groups": {"a": MXFP4}}, True, "mxfp4"),
            ({"quant_method": "modelopt", "config_groups": {"a": NVFP4}}, False, "nvfp4"),
            ({"config_groups": {"a": FP8}, "quant_algo": "FP8"}, False, "fp8"),
            ({"config_groups": {"a": FP8, "b": NVFP4}}, False, ""),
            ({"config_groups": {"a": {"weights": None}}}, False, ""),
            ({"quant_algo": "NVFP4"}, False, "nvfp4"),
            ({"quant_method": "quark", "global_quant_config": {
                "weight": {"dtype": "fp4", "group_size": 32}, "input_tensors": {"dtype": "fp4"},
            }}, True, "mxfp4_fp4"),
            ({"quant_method": "quark", "exclude": ["re:.*self_attn.*"], "global_quant_config": {
                "weight": {"dtype": "fp4", "group_size": 32}, "input_tensors": None,
            }}, True, "mxfp4-experts"),
            ({"quant_method": "quark", "exclude": ["re:.*self_attn.*"], "global_quant_config": {
                "weight": {"dtype": "fp4"}, "input_tensors": {"dtype": "fp4"},
            }}, True, "mxfp4_fp4-experts"),
            ({"quant_method": "quark", "global_quant_config": {
                "weight": {"dtype": "fp8_e4m3", "qscheme": "per_block"},
                "input_tensors": {"dtype": "fp8_e4m3", "qscheme": "per_group"},
            }}, False, "fp8_block"),
            ({"quant_method": "quark", "global_quant_config": {
                "weight": [{"dtype": "fp4"}, {"dtype": "fp8_e4m3"}],
                "input_tensors": [{"dtype": "fp4"}, {"dtype": "fp8_e4m3"}],
            }}, False, "nvfp4"),
            ({"quant_method": "quark", "global_quant_config": "none"}, False, ""),
            ({"quant_method": "quark", "global_quant_config": {"weight": []}}, False, ""),
            ({"quant_method": "aqlm"}, False, ""),
            ({}, False, ""),
        ],
        ids=str,
    )  # fmt: skip
    def test_as_hugging_face_spells_it(
        self, said: dict[str, Any], is_moe: bool, found: str
    ) -> None:
        released = read_released(Config({"quantization_config": said}, "test"), is_moe)
        assert released.format == found
        assert found in ("", *FORMATS)

    def test_the_answer_says_which_and_why(self, ask: Ask, capsys: Capture) -> None:
        words = ("infer", "GPT-OSS-20B", "--on", "H100")
        found = ask(*words)
        assert found["weights"] == "mxfp4-experts"
        assert found["weights_why"] == "as GPT-OSS-20B is released (its quantization_config)"
        assert ask(*words, "--weights", "bf16")["weights"] == "bf16"
        assert main(list(words)) == 0
        assert "weights mxfp4-experts: as GPT-OSS-20B is released" in capsys.readouterr().out
        assert ask("infer", "Llama-3.1-8B", "--on", "H100")["weights"] == "bf16"

    def test_a_chip_without_the_format_keeps_the_weights_narrow(self) -> None:
        model = read_model("DeepSeek-V3")
        found = served_weights(model, accelerator("A100"))
        assert found.name == "w8a16"
        assert "has no fp8" in found.why
        where = cluster("16xA100")
        server = Server(
            model, Serving(1024, 256, 16), where, profile_of(where.accelerator, SERVING),
            weights=found.name,
        )  # fmt: skip
        assert search_serving(server, Limits(), 1)[0].fits

    def test_an_unknown_method_is_said(self) -> None:
        raw = {"model_type": "gpt2", "n_embd": 64, "n_head": 2, "n_layer": 1, "vocab_size": 99,
               "n_positions": 64, "quantization_config": {"quant_method": "aqlm"}}  # fmt: skip
        from trueflops.model.read import model_from

        found = served_weights(model_from(Config(raw, "x"), "x"), accelerator("H100"))
        assert found.name == "bf16"
        assert "aqlm" in found.why


def test_a_model_needs_the_same_flop_however_its_kernels_walk() -> None:
    """Compiled Hugging Face code hands its mask over, so that no hidden key is skipped."""
    where, work = cluster("8xH100"), Training(8192, 8, 1e9)
    trainer = Trainer(read_model("Qwen3-8B"), work, where, profile_of(where.accelerator))
    steps = {
        how: trainer.predict_one(Plan(dp_replicate=8, implementation=how, recompute="full"))
        for how in ("library", "eager", "compiled")
    }
    needed = {how: float(step.work.model_flop) for how, step in steps.items()}
    assert needed["eager"] == pytest.approx(needed["library"])
    assert needed["compiled"] == pytest.approx(needed["library"])
    assert float(steps["compiled"].step.value) > float(steps["library"].step.value)
