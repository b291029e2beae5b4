"""The tools' own parsers accept what --emit writes, where they are installed.

`torchtitan` (0.3 and 0.2), `deepspeed`, `accelerate`, `trl` and `megatron-core` come from PyPI;
Megatron-LM's arguments.py is in its repository alone, which PYTHONPATH must name.
"""

from __future__ import annotations

import importlib
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import trueflops as tf
from test_launch import WHERE, WORK, asked_of, grid
from trueflops.errors import BadInput
from trueflops.interop.launch import Asked, write_launch


def needs(module: str) -> Any:
    """The tool, or a skip that says what is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        pytest.skip(f"{module} is not installed here ({error})")


def some(tool: str, framework: str, name: str = "Llama-3.1-8B", every: int = 4) -> list[Asked]:
    """Plans of the grid that a tool can be told."""
    kept = []
    for asked in list(grid(tool, framework, tf.read_model(name)))[::every]:
        try:
            write_launch(tool, asked)
        except BadInput:
            continue
        kept.append(asked)
    assert len(kept) > 3
    return kept


def words_of(script: str, after: str, **variables: str) -> list[str]:
    """The words of a script's last command after a word, as bash would pass them."""
    command = script.replace('"$@"', "").replace("\\\n", " ").rstrip().splitlines()[-1]
    given = {"HERE": ".", "MODEL": "m", "DATASET": "d", "NODE_RANK": "0", **variables}
    command = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", command)
    command = re.sub(r"\$(\w+)", lambda found: given.get(found[1], "1"), command)
    words = shlex.split(command)
    return words[words.index(after) + 1 :]


class TestTorchtitan:
    @pytest.mark.parametrize("name", ["Llama-3.1-8B", "Qwen3-30B-A3B"])
    def test_flags_of_its_newest_release(self, name: str) -> None:
        manager = needs("torchtitan.config.manager")
        if not hasattr(manager.ConfigManager, "_load_config"):
            pytest.skip("this torchtitan reads job configs; flags of a registry came with 0.3")
        for asked in some("torchtitan", "torchtitan", name):
            files = write_launch("torchtitan", asked).files
            if len(files) > 1:
                continue  # a job config of 0.2
            config = manager.ConfigManager().parse_args(
                words_of(files["run.sh"], "torchtitan.train")
            )
            plan, said = asked.plan, config.parallelism
            assert said.tensor_parallel_degree == plan.tp
            assert said.data_parallel_shard_degree == plan.dp_shard
            assert said.expert_parallel_degree == plan.ep
            assert config.training.seq_len == WORK.seq
            assert config.compile.enable == plan.fused
            kind = type(config.activation_checkpoint).__qualname__.partition(".")[0]
            kinds = {"none": "NoneType", "products": "SelectiveAC", "full": "FullAC"}
            assert kind == kinds[plan.recompute]

    def test_job_config_of_0_2(self, tmp_path: Path) -> None:
        manager = needs("torchtitan.config.manager")
        if not hasattr(manager.ConfigManager, "_maybe_load_toml"):
            pytest.skip("this torchtitan reads no job config; 0.2 was the last that did")
        read = 0
        for asked in some("torchtitan", "torchtitan"):
            files = write_launch("torchtitan", asked).files
            if len(files) == 1:
                continue
            (tmp_path / "job.toml").write_text(files["torchtitan.toml"])
            config = manager.ConfigManager().parse_args(
                ["--job.config_file", str(tmp_path / "job.toml")]
            )
            read += 1
            assert config.parallelism.pipeline_parallel_degree == asked.plan.pp
            assert config.training.global_batch_size == WORK.global_batch
        assert read

    def test_stages_are_as_planned(self) -> None:
        """Its own function lays layers on stages as the plan that asked for them."""
        pipeline = needs("torchtitan.distributed.pipeline_parallel")
        name = "generate_llm_fqn_per_model_part"
        lay = getattr(pipeline, name, None) or getattr(pipeline, f"_{name}")  # of 0.2 and 0.3
        for plan in (
            {"pp": 4, "first_stage_layers": 7, "last_stage_layers": 7},
            {"pp": 4, "last_stage_layers": 5},
            *({"pp": pp} for pp in range(2, 16)),
        ):
            asked = asked_of("torchtitan", "torchtitan", tf.read_model("Llama-3.1-8B"), plan)
            script = write_launch("torchtitan", asked).files["run.sh"]
            less = [int(n) for n in re.findall(r"stage_less_layers (\d+)", script)]
            parts = lay(plan["pp"], 32, *less)
            counts = [sum(n.startswith("layers.") for n in part) for part in parts]
            assert tuple(counts) == asked.stages


class TestDeepspeed:
    def test_its_config(self, monkeypatch: pytest.MonkeyPatch) -> None:
        config = needs("deepspeed.runtime.config")
        for asked in some("deepspeed", "deepspeed"):
            plan = asked.plan
            replicas = int(plan.dp)
            monkeypatch.setattr(config.dist, "get_rank", lambda: 0)
            monkeypatch.setattr(config.dist, "get_world_size", lambda n=replicas: n)
            text = write_launch("deepspeed", asked).files["ds_config.json"]
            said = config.DeepSpeedConfig(json.loads(text))
            assert said.zero_optimization_stage == plan.zero
            assert said.gradient_accumulation_steps == WORK.global_batch // (
                plan.micro_batch * replicas
            )
            assert said.zero_config.overlap_comm == plan.overlap
            offloaded = said.zero_config.offload_optimizer
            assert bool(offloaded) == bool(plan.offload_optimizer)
            assert said.tensor_parallel_config.autotp_size in (plan.tp, plan.tp - 1)


class TestAccelerate:
    @pytest.mark.parametrize("framework", ["fsdp2", "fsdp", "trainer", "deepspeed"])
    def test_its_config_and_launcher(self, framework: str, tmp_path: Path) -> None:
        launch = needs("accelerate.commands.launch")
        for asked in some("accelerate", framework, every=2):
            for file, text in write_launch("accelerate", asked).files.items():
                (tmp_path / file).write_text(text)
            script = (tmp_path / "run.sh").read_text()
            words = words_of(script, "launch", HERE=str(tmp_path), MASTER_PORT="29500")
            args, defaults, _ = launch._validate_launch_command(
                launch.launch_command_parser().parse_args(words)
            )
            assert args.num_processes == 16
            assert args.training_script == "trl.scripts.sft"
            assert args.use_fsdp == framework.startswith("fsdp")
            assert args.use_deepspeed == (framework == "deepspeed")
            if framework == "fsdp2":
                assert args.parallelism_config_tp_size == asked.plan.tp
                assert args.fsdp_activation_checkpointing == (asked.plan.recompute == "full")
            assert defaults.num_machines == WHERE.nodes


class TestTrainer:
    @pytest.mark.parametrize("framework", ["trainer", "deepspeed"])
    def test_trls_arguments(self, framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
        trl = needs("trl")
        needs("accelerate")
        parser = needs("transformers").HfArgumentParser
        read = 0
        tool = "deepspeed" if framework == "deepspeed" else "accelerate"
        for asked in some(tool, framework):
            if asked.plan.compute == "fp16" or asked.plan.optimizer == "adamw-8bit":
                continue  # asks for a GPU, or for bitsandbytes, before anything is read
            script = write_launch(tool, asked).files["run.sh"]
            words = words_of(script, "trl.scripts.sft")
            if "--deepspeed" in words:  # its file is the affair of TestDeepspeed
                at = words.index("--deepspeed")
                del words[at : at + 2]
            kinds = (trl.ScriptArguments, trl.SFTConfig, trl.ModelConfig)
            _, args, model = parser(kinds).parse_args_into_dataclasses([*words, "--use_cpu"])
            read += 1
            assert args.max_length == WORK.seq
            assert args.per_device_train_batch_size == asked.plan.micro_batch
            assert args.gradient_checkpointing == (asked.plan.recompute == "full")
            assert bool(model.use_peft) == bool(asked.plan.adapters)
        assert read


class TestMegatron:
    @pytest.mark.parametrize("name", ["Llama-3.1-8B", "Qwen3-30B-A3B", "DeepSeek-V3"])
    def test_its_arguments(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """parse_args and validate_args of Megatron-LM, on 16 ranks of what says it is an H100."""
        arguments = needs("megatron.training.arguments")
        torch = needs("torch")
        monkeypatch.setattr(arguments, "get_device_arch_version", lambda: 9)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
        # fp4 needs a TransformerEngine, which has no build for a CPU.
        monkeypatch.setattr(arguments, "is_te_min_version", lambda *_, **__: True)
        monkeypatch.setenv("WORLD_SIZE", "16")
        monkeypatch.setenv("RANK", "1")
        for asked in some("megatron", "megatron", name, every=8 if name == "DeepSeek-V3" else 3):
            script = write_launch("megatron", asked).files["run.sh"]
            if "export CUDA_DEVICE_MAX_CONNECTIONS=1" in script:
                monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")
            else:
                monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS", raising=False)
            words = words_of(script, "pretrain_gpt.py", PROGRAM="pretrain_gpt.py")
            monkeypatch.setattr("sys.argv", ["pretrain_gpt.py", *words])
            args = arguments.validate_args(arguments.parse_args())
            plan = asked.plan
            assert args.data_parallel_size == plan.dp
            assert (args.virtual_pipeline_model_parallel_size or 1) == plan.vpp
            assert args.num_layers == asked.model.layers
            assert args.accumulate_allreduce_grads_in_fp32 == (
                plan.gradient_dtype == "fp32" and plan.compute != "fp32"
            )
            assert (args.fp8 is not None) == (plan.compute == "fp8")


class TestNemo:
    def test_sections_hold_fields_of_megatron_core(self) -> None:
        """Every override is a field of the dataclass that its section is made of."""
        core = needs("megatron.core.transformer.transformer_config")
        ddp = needs("megatron.core.distributed").DistributedDataParallelConfig
        optimizer = needs("megatron.core.optimizer").OptimizerConfig
        yaml = needs("yaml")
        for name in ("Llama-3.1-8B", "Qwen3-30B-A3B"):
            for asked in some("nemo", "nemo", name):
                said = yaml.safe_load(write_launch("nemo", asked).files["nemo.yaml"])
                model = {k: v for k, v in said["model"].items() if not isinstance(v, dict)}
                del model["seq_length"]
                shape: dict[str, Any] = {
                    "num_layers": 32,
                    "hidden_size": 4096,
                    "num_attention_heads": 32,
                }
                shape |= {"num_moe_experts": 128} if asked.model.is_moe else {}
                shape |= {"pipeline_dtype": "bf16", "add_bias_linear": False}
                config = core.TransformerConfig(**shape, **model)
                assert config.tensor_model_parallel_size == asked.plan.tp
                assert ddp(**said["ddp"]).use_distributed_optimizer == (asked.plan.zero >= 1)
                optimizer(**said["optimizer"])

    def test_omegaconf_reads_it(self, tmp_path: Path) -> None:
        conf = needs("omegaconf").OmegaConf
        asked = asked_of(
            "nemo", "nemo", tf.read_model("Llama-3.1-8B"), {"tp": 4, "dp_replicate": 4}
        )
        (tmp_path / "nemo.yaml").write_text(write_launch("nemo", asked).files["nemo.yaml"])
        read = conf.load(tmp_path / "nemo.yaml")
        assert read.model.tensor_model_parallel_size == 4
        assert read.mixed_precision.params_dtype._target_ == "torch.bfloat16"
