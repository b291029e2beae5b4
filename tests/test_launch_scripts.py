"""Other people's scripts: shell as it is written, programs of their own, contradictions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import trueflops as tf
from conftest import Ask
from test_launch import asked_of
from trueflops.cli.main import main
from trueflops.errors import BadInput
from trueflops.interop.launch import Found, read_launch, write_launch
from trueflops.interop.launch.megatron_flags import FLAGS
from trueflops.interop.launch.texts import from_flags
from trueflops.interop.shell_text import Lines, words
from trueflops.interop.variables import Variables

MEGATRON = (
    "torchrun --nproc_per_node=8 pretrain_gpt.py --pipeline-model-parallel-size 2 --num-layers 32 "
    "--seq-length 2048 --micro-batch-size 1 --global-batch-size 32"
)
TEMPLATE: dict[str, Any] = {  # Hugging Face's own: docs/source/en/deepspeed.md of transformers
    "fp16": {"enabled": "auto", "loss_scale": 0},
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"},
    "gradient_accumulation_steps": "auto",
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
}


def read(folder: Path, text: str, name: str = "run.sh", model: str = "Llama-3.1-8B") -> Found:
    (folder / name).write_text(text)
    return read_launch(folder / name, tf.read_model(model), 8)


def started(folder: Path, flags: str, config: dict[str, Any] = TEMPLATE) -> Found:
    """A program that is started with a config of DeepSpeed."""
    (folder / "ds.json").write_text(json.dumps(config, indent=1))
    return read(folder, f"torchrun --nproc_per_node 8 {flags} --deepspeed ds.json\n")


class TestShell:
    @pytest.mark.parametrize(
        "end",
        [
            "2>&1 | tee log.txt",
            "> log.txt 2>&1 &",
            ">> log.txt",
            "&> log.txt",
            '"$@"',
            "$*",
            '"${@:2}"',
            "${MORE[@]}",
            "; echo done",
            "&& echo done",
            "|| exit 1",
            "</dev/null >log 2>/dev/null",
            "|& tee log # all of it",
        ],
    )
    @pytest.mark.parametrize("last", ["--tensor-model-parallel-size 4 --bf16",
                                      "--bf16 --tensor-model-parallel-size 4"])  # fmt: skip
    def test_what_follows_a_command_is_no_value(self, tmp_path: Path, last: str, end: str) -> None:
        found = read(tmp_path, f"#!/bin/bash\n{MEGATRON} {last} {end}\n")
        assert (found.plan["tp"], found.plan["compute"]) == (4, "bf16")
        assert found.processes is None
        assert from_flags(f"{MEGATRON} {last} {end}", "t").values["nproc_per_node"] == "8"

    def test_operators_without_spaces_and_in_another_shells_quotes(self) -> None:
        assert from_flags("x --a 8;y --b 1|tee z", "t").values == {"a": "8", "b": "1"}
        assert from_flags("x --a 1>log --b", "t").values == {"a": True, "b": True}  # of file 1
        assert from_flags("srun bash -c 'x --a 8 2>&1 | tee log'", "t").values == {"a": "8"}
        assert from_flags("x --a \"E|(t|)*4L\" --b='c|d'", "t").values == {
            "a": "E|(t|)*4L",
            "b": "c|d",
        }

    def test_quotes_that_go_on_for_lines(self) -> None:
        text = 'ARGS=" --a 1 \\\n  --b E|t \\\n  --c 3"\necho "don\'t"\nx $ARGS --d 4 # --e 5\n'
        said = from_flags(text, "t")
        assert said.values == {"a": "1", "b": "E|t", "c": "3", "d": "4"}
        assert said.lines == {"a": 1, "b": 2, "c": 3, "d": 5}

    def test_a_substitution_is_one_word(self) -> None:
        lines = Lines().commands("x --a $(scontrol show hostnames | wc -l) --b 2 | tee y")
        assert lines == ["x --a $(scontrol show hostnames | wc -l) --b 2", "tee y"]
        assert words(lines[0])[2] == "$(scontrol show hostnames | wc -l)"

    @pytest.mark.parametrize(
        "line",
        ["TP=4; PP=2", "TP=4 PP=2", "export TP=4 && PP=2", "TP=4;PP=$((TP / 2)) # half"],
    )
    def test_several_variables_are_set_on_a_line(self, tmp_path: Path, line: str) -> None:
        variables = Variables()
        assert variables.takes(line)
        assert variables.fill("$TP ${PP}") == "4 2"
        text = MEGATRON.replace("size 2", "size $PP", 1) + " --tensor-model-parallel-size $TP\n"
        found = read(tmp_path, f"{line}\n{text}")
        assert (found.plan["tp"], found.plan["pp"]) == (4, 2)

    def test_arithmetic_of_what_is_set(self, tmp_path: Path) -> None:
        variables = Variables()
        for line in ("A=2", 'B=${B:-"3"}', "C=$((A * $B * (4 + 1)))", "D=$(($C % $SET_ELSEWHERE))"):
            assert variables.takes(line)
        assert variables.fill("$C") == "30"
        assert variables.fill("$D") == "$((30 % $SET_ELSEWHERE))"
        assert variables.fill("$((1 / 0)) $((2 ** 9)) $((__import__))").count("$((") == 3

    def test_a_list_is_shown_as_it_was_written(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match="--tensor-model-parallel-size is 4 8; it may be a num"):
            read(tmp_path, f"{MEGATRON} --tensor-model-parallel-size 4 8\n")

    def test_files_are_sought_beside_the_script_and_then_where_one_is(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "s").mkdir()
        monkeypatch.chdir(tmp_path)
        (tmp_path / "s/fsdp.yaml").write_text("distributed_type: FSDP\nmixed_precision: bf16\n")
        text = "accelerate launch --config_file s/fsdp.yaml train.py\n"
        assert read(tmp_path / "s", text).framework == "fsdp"
        (tmp_path / "s/s").mkdir()
        (tmp_path / "s/s/fsdp.yaml").write_text("distributed_type: MULTI_GPU\n")
        assert read(tmp_path / "s", text).framework == "trainer"


class TestPrograms:
    @pytest.mark.parametrize(
        ("flags", "half"),
        [
            ("train.py --bf16 True", "bf16"),
            ("train.py --bf16", "bf16"),
            ("train.py --fp16 True", "fp16"),
            ("train.py", "fp32"),
            ("trl/scripts/sft.py", "bf16"),  # its own default
            ("trl/scripts/sft.py --fp16", "fp16"),
        ],
    )
    def test_auto_is_what_the_program_says(self, tmp_path: Path, flags: str, half: str) -> None:
        found = started(tmp_path, f"{flags} --per_device_train_batch_size 4")
        assert (found.plan["compute"], found.plan["parameter_dtype"]) == (half, half)
        assert (found.plan["micro_batch"], found.workload["global_batch"]) == (4, 32)
        assert found.plan["reduce_bucket"] == 4096**2
        assert ("bf16 False" in " ".join(found.notes)) == (half == "fp32")

    def test_auto_without_a_program_is_said(self, tmp_path: Path) -> None:
        found = read(tmp_path, json.dumps(TEMPLATE, indent=1), "ds.json")
        assert found.plan["compute"] == "bf16"
        assert "micro_batch" not in found.plan
        assert any("line 7: bf16.enabled is auto, taken as true" in note for note in found.notes)

    def test_sizes_that_the_config_says_stay(self, tmp_path: Path) -> None:
        config = {**TEMPLATE, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3}
        found = started(tmp_path, "train.py --bf16", config)
        assert (found.plan["micro_batch"], found.workload["global_batch"]) == (2, 48)
        with pytest.raises(BadInput, match=r"is 2, and the program says --per_device\w+ 4, which"):
            started(tmp_path, "train.py --per_device_train_batch_size 4", config)

    @pytest.mark.parametrize("name", ["model_max_length", "block_size", "max_seq_length",
                                      "max_seq_len", "cutoff_len", "max_length"])  # fmt: skip
    def test_lengths_by_the_names_that_programs_have(self, tmp_path: Path, name: str) -> None:
        found = started(tmp_path, f"train.py --bf16 --{name} 2048")
        assert found.workload["seq"] == 2048
        assert found.plan["recompute"] == "none"
        (note,) = [note for note in found.notes if "default" in note]
        assert "gradient_checkpointing False by Trainer's own default" in note
        assert "per_device_train_batch_size 8, gradient_accumulation_steps 1" in note

    @pytest.mark.parametrize("program", ["-m trl.scripts.sft", "trl/scripts/sft.py"])
    def test_defaults_of_trl_are_those_of_its_program(self, tmp_path: Path, program: str) -> None:
        found = started(tmp_path, f"--standalone {program} --bf16 --per_device_train_batch_size 1")
        assert (found.workload["seq"], found.plan["recompute"]) == (1024, "full")
        (note,) = [note for note in found.notes if "default" in note]
        assert "gradient_checkpointing True, max_length 1024 by TRL's own default" in note

    def test_trl_as_a_command_and_another_program_beside_accelerates_config(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "a.yaml").write_text("distributed_type: FSDP\nnum_processes: 8\n")
        start = "accelerate launch --config_file a.yaml"
        found = read(tmp_path, f"{start} train.py --bf16 True --per_device_train_batch_size 2\n")
        assert (found.plan["recompute"], found.plan["compute"]) == ("none", "bf16")
        assert "seq" not in found.workload
        assert any("gradient_accumulation_steps 1" in note for note in found.notes)
        (tmp_path / "ds.json").write_text(json.dumps(TEMPLATE))
        found = read(tmp_path, "trl sft --deepspeed ds.json\n")
        assert (found.workload["seq"], found.plan["compute"]) == (1024, "bf16")

    def test_deepspeeds_own_flags(self, tmp_path: Path) -> None:
        """https://www.deepspeed.ai/getting-started/: --deepspeed is a switch there."""
        (tmp_path / "ds.json").write_text(json.dumps(TEMPLATE))
        found = read(tmp_path, "deepspeed train.py --deepspeed --deepspeed_config ds.json\n")
        assert (found.framework, found.plan["zero"]) == ("deepspeed", 3)

    def test_degrees_of_megatron_are_not_lost_beside_deepspeed(self, tmp_path: Path) -> None:
        (tmp_path / "ds.json").write_text(json.dumps(TEMPLATE))
        start = MEGATRON.replace("torchrun --nproc_per_node=8", "deepspeed")
        found = read(tmp_path, f"{start} --deepspeed --deepspeed_config ds.json\n")
        assert (found.framework, found.plan["pp"]) == ("megatron", 2)
        assert any("deepspeed_config is not read" in note for note in found.notes)

    def test_what_is_written_agrees_with_the_trainer(self) -> None:
        """It refuses a config whose bf16.enabled is not its --bf16 (fill_match)."""
        changes = {"dp_shard": 16, "zero": 3}
        asked = asked_of("deepspeed", "deepspeed", tf.read_model("Llama-3.1-8B"), changes)
        files = write_launch("deepspeed", asked).files
        assert json.loads(files["ds_config.json"])["bf16"]["enabled"] is True
        assert "--bf16 True" in files["run.sh"]


class TestContradictions:
    @pytest.mark.parametrize(
        ("sizes", "words"),
        [
            ((64, 2, 3), "64 is not micro-batch 2 × accumulation 3 × 8 data-parallel ranks = 48"),
            ((64, 3, None), "64 is not micro-batch 3 × accumulation 2 × 8 .* = 48"),
            ((60, None, None), "60 is not micro-batch 7 × accumulation 1 × 8 .* = 56"),
        ],
    )
    def test_batches_are_those_of_deepspeeds_assertion(
        self, tmp_path: Path, sizes: tuple[int | None, ...], words: str
    ) -> None:
        keys = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
        config = {key: size for key, size in zip(keys, sizes, strict=True) if size}
        with pytest.raises(BadInput, match=words):
            read(tmp_path, json.dumps(config | {"bf16": {"enabled": True}}), "ds.json")

    def test_a_batch_that_is_typed_wins_over_a_configs(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        sizes = {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2}
        config = sizes | {"bf16": {"enabled": True}, "zero_optimization": {"stage": 1}}
        asked = ["train", "Llama-3.1-8B", "--on", "8xH100", "--from", str(tmp_path / "ds.json")]
        for more, batch in (({}, "128"), ({"gradient_accumulation_steps": 3}, "48")):
            (tmp_path / "ds.json").write_text(json.dumps(config | more))
            assert main([*asked, "--global-batch", batch]) in (0, 1)
            said = " ".join(capsys.readouterr().out.split())
            assert f"--global-batch {batch} is taken, not the 64 of ds.json" in said
            assert f"global batch {batch} = " in said
        assert main(asked) == 2  # the last one contradicts itself
        assert "or write --global-batch" in " ".join(capsys.readouterr().err.split())

    def test_weights_are_offloaded_at_stage_3_alone(self, tmp_path: Path) -> None:
        """As the engine of DeepSpeed has it; a share of the states is refused below, likewise."""
        for stage, offloaded in ((2, 0.0), (3, 1.0)):
            zero = {"stage": stage, "offload_param": {"device": "nvme"}}
            config = {"train_batch_size": 64, "zero_optimization": zero}
            found = read(tmp_path, json.dumps(config), "ds.json")
            assert found.plan["offload_parameters"] == offloaded
            assert found.plan["offload_to"] == ("nvme" if offloaded else "host")
            notes = [note for note in found.notes if "offload_param" in note]
            heeded = [] if offloaded else [
                "ds.json: offload_param moves nothing at ZeRO stage 2, DeepSpeed heeds it at stage "
                "3 alone: weights stay on the accelerators"
            ]  # fmt: skip
            assert [re.sub(", line [0-9]+", "", note) for note in notes] == heeded
        zero = {"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}
        with pytest.raises(BadInput, match=r"ratio is 0\.5; it may be 1; less goes"):
            read(
                tmp_path, json.dumps({"train_batch_size": 64, "zero_optimization": zero}), "d.json"
            )

    def test_another_model_is_named(self, tmp_path: Path) -> None:
        flags = "--tensor-model-parallel-size 4 --hidden-size 12288 --num-attention-heads 96"
        found = read(tmp_path, MEGATRON.replace("layers 32", "layers 96") + f" {flags}\n")
        (note,) = [note for note in found.notes if "another" in note]
        assert "96 layers, not 32; 12,288 wide, not 4,096; 96 heads, not 32" in note

    def test_the_same_model_is_not_named(self, tmp_path: Path) -> None:
        for name in ("Llama-3.1-8B", "Mixtral-8x7B", "Qwen3-30B-A3B", "DeepSeek-V3", "GPT-3-175B"):
            asked = asked_of("megatron", "megatron", tf.read_model(name), {"dp_replicate": 16})
            text = write_launch("megatron", asked).files["run.sh"]
            assert read(tmp_path, text, model=name).notes == ()

    def test_experts_of_a_dense_model(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match=r"line 1: the script's model has 8 experts, and Llama"):
            read(tmp_path, f"{MEGATRON} --num-experts 8 --moe-router-topk 2\n")
        found = read(tmp_path, f"{MEGATRON} --hidden-size 4096\n", model="Mixtral-8x7B")
        assert any("0 experts, not 8" in note for note in found.notes)

    def test_another_model_of_nemo(self, tmp_path: Path) -> None:
        text = "model:\n  num_layers: 80\n  tensor_model_parallel_size: 8\n"
        found = read(tmp_path, text, "nemo.yaml", "Mixtral-8x7B")
        (note,) = [note for note in found.notes if "another" in note]
        assert note.endswith("80 layers, not 32")  # what is left out is the recipe's


class TestNames:
    def test_a_flag_that_is_nearly_one_of_megatrons(self, tmp_path: Path) -> None:
        found = read(tmp_path, f"{MEGATRON} --hidden-droput 0.1 --my-own-flag 3 --lr-decay-iters 1")
        assert found.notes == (
            "run.sh, line 1: --hidden-droput is not read; did you mean --hidden-dropout?",
        )
        with pytest.raises(BadInput, match="did you mean --sequence-parallel"):
            read(tmp_path, f"{MEGATRON} --sequence-paralel\n")

    def test_flags_that_are_written_are_known(self) -> None:
        for name in ("Llama-3.1-8B", "DeepSeek-V3", "GPT-3-175B"):
            asked = asked_of("megatron", "megatron", tf.read_model(name), {"dp_replicate": 16})
            said = from_flags(write_launch("megatron", asked).files["run.sh"], "t")
            assert {key.replace("_", "-") for key in said.values} <= FLAGS

    @pytest.mark.parametrize("own", [{}, {"stage": 3}])
    def test_a_section_that_is_nearly_one_of_deepspeeds(
        self, tmp_path: Path, own: dict[str, Any]
    ) -> None:
        config = {**TEMPLATE, "zero_optimizaton": own}
        with pytest.raises(BadInput, match="zero_optimizaton is not read; did you mean zero_opt"):
            read(tmp_path, json.dumps(config), "ds.json")


class TestCompilation:
    @pytest.mark.parametrize(
        ("section", "framework"),
        [
            ("", "torchtitan-eager"),
            ("[compile]\nenable = false\n", "torchtitan-eager"),
            ('[compile]\nenable = true\ncomponents = ["loss"]\n', "torchtitan-eager"),
            ("[compile]\nenable = true\n", "torchtitan"),
        ],
    )
    def test_a_job_config_is_compiled_where_it_says_so(
        self, tmp_path: Path, section: str, framework: str
    ) -> None:
        text = f"[training]\nlocal_batch_size = 1\n[parallelism]\n{section}"
        found = read(tmp_path, text, "a.toml")
        eager = framework == "torchtitan-eager"
        assert found.framework == framework
        assert found.plan["implementation"] == ("eager" if eager else "library")
        assert found.plan["fused"] != eager

    def test_configs_of_0_3_that_are_compiled(self, tmp_path: Path) -> None:
        start = (
            "torchrun -m torchtitan.train --module llama3 --parallelism.tensor_parallel_degree 2"
        )
        assert read(tmp_path, f"{start} --config llama3_405b\n").framework == "torchtitan"
        assert read(tmp_path, f"{start} --config llama3_8b\n").framework == "torchtitan-eager"

    def test_no_compilation_is_another_framework(self) -> None:
        changes = {"fused": False, "dp_shard": 16, "zero": 3}
        asked = asked_of("torchtitan", "torchtitan", tf.read_model("Llama-3.1-8B"), changes)
        with pytest.raises(BadInput, match="--framework torchtitan-eager has it"):
            write_launch("torchtitan", asked)

    def test_the_answer_is_of_eager_kernels(self, tmp_path: Path, ask: Ask) -> None:
        (tmp_path / "a.toml").write_text("[training]\nlocal_batch_size = 1\n[parallelism]\n")
        asked = ("train", "Llama-3.1-8B", "--on", "8xH100", "--from", str(tmp_path / "a.toml"))
        assert ask(*asked)["plan"]["implementation"] == "eager"


def test_another_framework_than_the_files_is_said() -> None:
    found = Found("accelerate", "fsdp", {}, {})
    assert found.beside(None) == found.beside("fsdp") == ()
    assert found.beside("megatron") == ("--framework megatron is priced, and the file starts fsdp",)
