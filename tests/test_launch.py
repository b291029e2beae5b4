"""Launch files of other tools: written and read back to the same plan, or refused plainly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import trueflops as tf
from conftest import Ask
from trueflops.cli import main
from trueflops.cli.arguments import parse
from trueflops.cli.launching import Launch
from trueflops.cli.planning import base_plan, given_plan
from trueflops.errors import BadInput
from trueflops.interop.launch import (
    TOOLS,
    Asked,
    framework_of,
    read_launch,
    trainer,
    usual_of,
    write_launch,
)
from trueflops.interop.launch.settings import canonical
from trueflops.interop.launch.texts import from_flags, from_yaml, to_yaml
from trueflops.plan import possible
from trueflops.plan.pieces import deal

WHERE = tf.cluster("2x8xH100")
WORK = tf.Training(seq=4096, global_batch=64, tokens=1e9)
INF = float("inf")

# What each tool says beside degrees; every combination is written that it does not refuse.
DEGREES: list[dict[str, Any]] = [
    {"dp_replicate": 16},
    {"dp_shard": 16},
    {"dp_replicate": 2, "dp_shard": 8},
    {"tp": 2, "sp": True, "dp_shard": 8},
    {"tp": 4, "dp_replicate": 4},
    {"cp": 2, "dp_shard": 8},
    {"cp": 2, "cp_kind": "all-to-all", "tp": 2, "sp": True, "dp_shard": 4},
    {"pp": 2, "dp_shard": 8},
    {"pp": 4, "vpp": 2, "tp": 2, "sp": True, "dp_shard": 2},
    {"pp": 4, "vpp": 3, "dp_shard": 4},
    {"pp": 4, "vpp": 2, "first_stage_layers": 7, "last_stage_layers": 7, "dp_shard": 4},
    {"pp": 4, "vpp": 4, "last_stage_layers": 5, "dp_replicate": 4},
    {"pp": 4, "first_stage_layers": 7, "last_stage_layers": 7, "dp_replicate": 4},
    {"pp": 4, "last_stage_layers": 5, "dp_shard": 4},
    {"pp": 4, "first_stage_layers": 9, "dp_shard": 4},
    {"pp": 16},
    {"pp": 2, "schedule": "gpipe", "dp_replicate": 8},
]
ROUTED: list[dict[str, Any]] = [
    {"ep": 8, "dp_shard": 16},
    {"ep": 8, "dispatch": "deduplicated", "dp_shard": 16},
    {"tp": 2, "sp": True, "etp": 2, "ep": 4, "dp_shard": 8},
]
CHANGES: list[dict[str, Any]] = [
    {},
    {"micro_batch": 2},
    {"recompute": "full"},
    {"recompute": "products", "loss": "fused", "fused": True},
    {"recompute": "full", "recompute_layers": 2},
    {"overlap": False, "loss": "plain"},
    {"loss": "fused", "residual_dtype": "fp32"},
    {"flash": False},
    {"cuda_graphs": "attention,ffn"},
    {"cuda_graphs": "attention,router"},
    {"cuda_graphs": "step"},
    {"overlap_dispatch": True, "vpp": 2, "cuda_graphs": "attention"},
    {"reduce_bucket": 40_000_000.0},
    {"compute": "fp8", "loss": "fused"},
    {"compute": "fp16", "parameter_dtype": "fp16", "gradient_dtype": "fp16"},
    {"compute": "fp32", "parameter_dtype": "fp32", "gradient_dtype": "fp32"},
    {"parameter_dtype": "bf16", "optimizer": "adamw-bf16"},
    {"gradient_dtype": "bf16", "optimizer": "sgd"},
    {"optimizer": "adamw-8bit", "implementation": "compiled"},
    {"optimizer": "lion"},
    {"optimizer": "lion-8bit"},
    {"optimizer": "adafactor"},
    {"offload_optimizer": 1.0},
    {"offload_optimizer": 0.5},
    {"offload_optimizer": 1.0, "offload_parameters": 1.0},
    {"offload_optimizer": 1.0, "offload_parameters": 1.0, "offload_to": "nvme"},
    {"adapters": "lora", "lora_rank": 8, "lora_targets": "q,v"},
    {"adapters": "qlora", "lora_targets": "all-linear", "lora_dropout": 0.1},
    {"adapters": "qlora", "lora_targets": "all-linear", **trainer.PACKED},
]
LEAST = {"megatron": 140, "nemo": 140, "torchtitan": 60, "deepspeed": 30, "fsdp2": 15}
LEAST |= {"fsdp": 8, "trainer": 8, "torchtitan-eager": 40}
"""Plans of the grid that each tool must be able to say, by framework."""
LEAST_OF_MIXTURES = {"torchtitan-eager": 8}
"""Of mixtures, where it is not ten: the grid's compiled plans are not of this one."""


@cache
def base_of(tool: str, framework: str) -> tf.Plan:
    """A plan as a command line with --emit asks for it: the tool's own defaults."""
    words = ["train", "Llama-3.1-8B", "--on", "2x8xH100", "--emit", tool, "nowhere", "--tp", "1"]
    options = parse([*words, "--framework", framework])
    Launch(options, tf.read_model("Llama-3.1-8B"), WHERE)
    return base_plan(options, WHERE)[0]


def asked_of(tool: str, framework: str, model: tf.Model, changes: dict[str, Any]) -> Asked:
    plan = canonical(base_of(tool, framework).but(**changes))
    names = ("pp", "vpp", "first_stage_layers", "last_stage_layers")
    stages = deal(model.layers, *(int(getattr(plan, name)) for name in names))
    return Asked(plan, model, WORK, WHERE, framework, tuple(stages))


def grid(tool: str, framework: str, model: tf.Model) -> Iterator[Asked]:
    degrees = ROUTED if model.is_moe else DEGREES
    plain = product(degrees, range(4), CHANGES[:1])
    pairs = enumerate(product(degrees, CHANGES[1:]))
    for some, zero, change in (*plain, *((some, n % 4, change) for n, (some, change) in pairs)):
        asked = asked_of(tool, framework, model, {**some, "zero": zero, **change})
        if possible(asked.plan, model, WHERE.count, WORK).all():
            yield asked


def read_back(asked: Asked, file: Path) -> tuple[tf.Plan, Any]:
    """The plan of `train --from FILE`, and its options."""
    options = parse(["train", asked.model.name, "--on", "2x8xH100", "--from", str(file)])
    Launch(options, asked.model, WHERE)
    base, _ = base_plan(options, WHERE)
    return canonical(given_plan(options, base, WHERE, asked.model)), options


def differing(one: tf.Plan, other: tf.Plan) -> dict[str, tuple[Any, Any]]:
    pairs = {f.name: (getattr(one, f.name), getattr(other, f.name)) for f in fields(tf.Plan)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


CASES = [
    (tool, framework, name)
    for tool, module in TOOLS.items()
    for framework in module.FRAMEWORKS
    if not (tool == "nemo" and framework == "megatron")
    for name in ("Llama-3.1-8B", "Qwen3-30B-A3B")
    if name == "Llama-3.1-8B" or tool in ("megatron", "nemo", "torchtitan")
]


@pytest.mark.parametrize(("tool", "framework", "name"), CASES)
def test_what_is_written_reads_back_as_the_same_plan(
    tool: str, framework: str, name: str, tmp_path: Path
) -> None:
    model = tf.read_model(name)
    said = 0
    for asked in grid(tool, framework, model):
        try:
            written = write_launch(tool, asked)
        except BadInput:
            continue  # what is refused, and how, is the next test's
        said += 1
        for file, text in written.files.items():
            (tmp_path / file).write_text(text)
        plan, options = read_back(asked, tmp_path / "run.sh")
        assert differing(asked.plan, plan) == {}
        assert (options.seq, options.global_batch) == (WORK.seq, WORK.global_batch)
        assert 0 <= options.tokens - WORK.tokens < WORK.tokens_per_step
    least = LEAST_OF_MIXTURES.get(framework, 10) if model.is_moe else LEAST[framework]
    assert said >= least


def test_packed_weights_are_written_as_trl_runs_them(tmp_path: Path, ask: Ask) -> None:
    """Products are in --dtype, adapters in bf16, and scales are packed as well."""
    asked = ("train", "Llama-3.1-8B", "--on", "H100", "--seq", "2048", "--global-batch", "8")
    flags = ("--framework", "trainer", "--micro-batch", "1", "--dp", "1", "--qlora", "16")
    first = ask(*asked, *flags, "--emit", "accelerate", str(tmp_path))
    script = (tmp_path / "run.sh").read_text()
    for said in ("--dtype bfloat16", "--load_in_4bit True", "--use_bnb_nested_quant True"):
        assert said in script
    assert first["plan"]["adapter_dtype"] == first["plan"]["residual_dtype"] == "bf16"
    again = ask(*asked, "--from", str(tmp_path / "run.sh"))
    assert again["step_seconds"]["value"] == first["step_seconds"]["value"]


def test_a_batch_script_is_read_by_what_it_starts(tmp_path: Path) -> None:
    model = tf.read_model("Llama-3.1-8B")
    asked = asked_of("slurm", "megatron", model, {"tp": 2, "sp": True, "dp_shard": 8, "zero": 1})
    for file, text in write_launch("slurm", asked).files.items():
        (tmp_path / file).write_text(text)
    for start in (tmp_path / "train.sbatch", tmp_path):
        plan, _ = read_back(asked, start)
        assert differing(asked.plan, plan) == {}
        assert read_launch(start, model, 16).processes == 16


@pytest.mark.parametrize("tool", TOOLS)
def test_settings_alone_say_what_they_hold(tool: str, tmp_path: Path) -> None:
    """The file of settings without the script beside it: degrees and dtypes, not the program."""
    model = tf.read_model("Llama-3.1-8B")
    changes = {"dp_shard": 16, "zero": 3} | ({"loss": "fused"} if tool == "torchtitan" else {})
    asked = asked_of(tool, framework_of(tool, None), model, changes)
    for file, text in write_launch(tool, asked).files.items():
        if file != "run.sh" or tool == "megatron":
            (tmp_path / file).write_text(text)
            plan, _ = read_back(asked, tmp_path / file)
            assert not differing(asked.plan, plan).keys() & {"tp", "dp_shard", "zero", "compute"}


REFUSED = [
    ("megatron", {"schedule": "dualpipe", "pp": 2, "dp_replicate": 8}, "--schedule dualpipe"),
    ("megatron", {"recompute": "products", "dp_replicate": 16}, "--recompute products"),
    ("megatron", {"loss": "chunked", "dp_replicate": 16}, "--loss chunked"),
    ("megatron", {"freeze_layers": 2, "dp_replicate": 16}, "--freeze-layers 2"),
    ("megatron", {"adapters": "lora", "dp_replicate": 16}, "--lora"),
    ("megatron", {"cuda_graphs": "router", "dp_replicate": 16}, "model with experts"),
    ("megatron", {"cuda_graphs": "ffn", "recompute": "full", "dp_replicate": 16}, "step goes"),
    ("deepspeed", {"cuda_graphs": "step", "dp_replicate": 16}, "--cuda-graphs step"),
    ("nemo", {"implementation": "eager", "dp_replicate": 16}, "--implementation eager"),
    ("torchtitan", {"zero": 1, "dp_shard": 16}, "--zero 2 or 3"),
    ("torchtitan", {"schedule": "zb-h1", "pp": 2, "zero": 3, "dp_shard": 8}, "--schedule zb-h1"),
    ("torchtitan", {"pp": 4, "vpp": 3, "zero": 3, "dp_shard": 4}, "32 in 12 pieces"),
    ("torchtitan", {"optimizer": "muon", "dp_replicate": 16}, "--optimizer muon"),
    ("torchtitan", {"cp_kind": "all-to-all", "cp": 2, "zero": 3, "dp_shard": 8}, "--cp-kind"),
    ("deepspeed", {"pp": 2, "dp_replicate": 8}, "--pp 2"),
    ("deepspeed", {"tp": 2, "zero": 3, "dp_shard": 8}, "AutoTP"),
    ("accelerate", {"zero": 1, "dp_shard": 16}, "--framework deepspeed"),
    ("accelerate", {"flash": True, "recompute": "selective", "dp_shard": 16, "zero": 3}, "full"),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "changes", "words"), REFUSED)
def test_what_a_tool_cannot_be_told_is_named(
    tool: str, changes: dict[str, Any], words: str
) -> None:
    asked = asked_of(tool, framework_of(tool, None), tf.read_model("Llama-3.1-8B"), changes)
    with pytest.raises(BadInput) as error:
        write_launch(tool, asked)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["Gemma-2-9B", "Falcon-7B", "MPT-7B", "OPT-13B"])
def test_a_model_that_megatron_has_no_flag_for_is_refused(name: str) -> None:
    asked = asked_of("megatron", "megatron", tf.read_model(name), {"dp_replicate": 16})
    with pytest.raises(BadInput, match=f"{name} has .* no flag"):
        write_launch("megatron", asked)


def test_latent_attention_and_a_few_dense_layers_are_flags() -> None:
    asked = asked_of("megatron", "megatron", tf.read_model("DeepSeek-V3"), {"dp_replicate": 16})
    text = write_launch("megatron", asked).files["run.sh"]
    for flags in ("--kv-lora-rank 512", '--moe-layer-freq "([0]*3+[1]*58)"', "--num-experts 256"):
        assert flags in text


def test_every_default_of_a_tool_is_a_flag_of_train() -> None:
    options = vars(parse(["train", "Llama-3.1-8B", "--on", "8xH100"]))
    for tool, module in TOOLS.items():
        for framework in module.FRAMEWORKS:
            assert usual_of(tool, framework).keys() <= options.keys()


WRONG = [
    ("run.sh", "--micro-batch-size 8\n--context-parallel-sizes 2", "line 2.*mean"),
    ("run.sh", "x --tensor-model-parallel-size $TP", r"line 1.*\$TP.*number"),
    ("run.sh", "x --micro-batch-size 1 --cp-comm-type a2a+p2p", "cp-comm-type.*p2p or a2a"),
    ("a.toml", "[parallelism]\ntensor_parallel_degre = 8", "line 2.*did you mean"),
    ("a.toml", "[parallelism]\ntensor_parallel_degree = 'x'", "line 2.*number"),
    ("a.toml", "[parallelism]\npipeline_parallel_schedule = 'DualPipeV'", "1F1B, GPipe or"),
    ("a.toml", "[parallelism\n", "not TOML"),
    ("a.toml", "[tool]\nx = 1", "starts nothing"),
    ("a.json", '{"zero_optimization": {"stages": 3}}', "line 1.*did you mean"),
    ("a.json", '{"zero_optimization": ', "line 1: not JSON"),
    ("a.json", '{"a": 1}', "starts nothing"),
    ("a.yaml", "distributed_type: TPU", "line 1.*DEEPSPEED"),
    ("a.yaml", "distributed_type: FSDP\nfsdp_config: &x\n  a: 1", "line 2"),
    ("a.yaml", "model:\n\ttensor_model_parallel_size: 1", "line 2.*tabs"),
    ("a.yaml", "hello", "line 1.*key: value"),
    ("a.sh", "#!/bin/sh\necho hello", "starts nothing"),
    ("a.sh", "accelerate launch --config_file other.yaml x.py", "no file other.yaml"),
]


class TestOtherPeoplesFiles:
    """Files that were not written by us."""

    def read(self, tmp_path: Path, name: str, text: str, count: int = 64) -> Any:
        (tmp_path / name).write_text(text)
        return read_launch(tmp_path / name, tf.read_model("Llama-3.1-70B"), count)

    def stages(self, tmp_path: Path, flags: str) -> tuple[int, int, int]:
        """Interleaving, first and last stage of 126 layers on 16 stages, as Llama 3 405B ran."""
        text = f"x --micro-batch-size 1 --pipeline-model-parallel-size 16 {flags}"
        (tmp_path / "run.sh").write_text(text)
        plan = read_launch(tmp_path / "run.sh", tf.read_model("Llama-3.1-405B"), 128).plan
        names = ("vpp", "first_stage_layers", "last_stage_layers")
        return tuple(int(plan[name]) for name in names)  # type: ignore[return-value]

    def test_ends_that_count_as_layers_are_read(self, tmp_path: Path) -> None:
        """Interleaved or not, the first and the last stage have a layer less."""
        split = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
        assert self.stages(tmp_path, split) == (1, 7, 7)
        pieces = "--num-virtual-stages-per-pipeline-rank 8"
        assert self.stages(tmp_path, f"{split} {pieces}") == (8, 7, 7)
        assert deal(126, 16, 8, 7, 7) == deal(126, 16, 8) == [0, *[1] * 126, 0]
        with pytest.raises(BadInput, match="126 layers even over 16 stages"):
            self.stages(tmp_path, "--account-for-loss-in-pipeline-split")

    def test_layouts_of_interleaved_stages_are_read(self, tmp_path: Path) -> None:
        def layout(text: str) -> tuple[int, int, int]:
            return self.stages(tmp_path, f'--pipeline-model-parallel-layout "{text}"')

        assert layout("E|(t|)*126L") == (8, 0, 0)
        assert layout("Et*3|(tttt|)*30ttt,L") == (2, 0, 0)
        # Stage 1 has a layer less than those between, where we deal it to the last of them.
        assert layout("Et*3|t*3|(tttt|)*29t*4L") == (2, 0, 8)
        assert layout("Ett|t*5|(tttt|)*29t*3L") == (2, 6, 7)
        for wrong, why in (
            ("Ett|(tttt|)*30tttL", "126 layers, not 125"),
            ("Et*6|t*6|(tttt|)*24(ttt|)*5t*3L", "even but for the first and the last"),
        ):
            with pytest.raises(BadInput, match=why):
                layout(wrong)

    def test_a_script_with_variables_and_arrays(self, tmp_path: Path) -> None:
        text = (
            "#!/bin/bash\nTP=8\nPP=${PP:-4}  # stages\nMODEL_PARALLEL_ARGS=(\n"
            "    --tensor-model-parallel-size $TP\n"
            '    --pipeline-model-parallel-size "${PP}"\n    --sequence-parallel\n)\n'
            "TRAINING_ARGS=( --micro-batch-size=2 --global-batch-size 256 --seq-length 8192 \n"
            "  --bf16 --use-distributed-optimizer --num-layers-per-virtual-pipeline-stage 5)\n"
            "torchrun pretrain_gpt.py ${MODEL_PARALLEL_ARGS[@]} ${TRAINING_ARGS[@]} "
            "--tp-comm-overlap\n"
        )
        found = self.read(tmp_path, "train.sh", text)
        said = {name: found.plan[name] for name in ("tp", "pp", "vpp", "sp", "zero", "dp_shard")}
        assert said == {"tp": 8, "pp": 4, "vpp": 4, "sp": True, "zero": 1, "dp_shard": 2}
        assert found.plan["gradient_dtype"] == "fp32"  # what --bf16 brings along
        assert found.workload == {"seq": 8192, "global_batch": 256}
        assert found.notes == ("train.sh, line 11: --tp-comm-overlap is not read",)

    def test_a_job_config_with_torchtitans_defaults(self, tmp_path: Path) -> None:
        text = (
            '[model]\nname = "llama3"\nflavor = "70B"\nconverters = ["float8"]\n'
            "[training]\nlocal_batch_size = 2\nseq_len = 8192\n"
            "[parallelism]\ndata_parallel_shard_degree = -1\ntensor_parallel_degree = 8\n"
            "enable_async_tensor_parallel = true\n[activation_checkpoint]\nmode = 'selective'\n"
        )
        found = self.read(tmp_path, "llama3.toml", text)
        assert (found.plan["dp_shard"], found.plan["zero"], found.plan["compute"]) == (8, 3, "fp8")
        assert (found.plan["recompute"], found.plan["recompute_layers"]) == ("full", 40)
        assert found.workload["global_batch"] == 16
        assert found.notes == (
            "llama3.toml, line 11: parallelism.enable_async_tensor_parallel is not read",
        )

    def test_a_config_of_accelerates_questionnaire(self, tmp_path: Path) -> None:
        text = (
            "compute_environment: LOCAL_MACHINE\ndebug: false\ndistributed_type: FSDP\n"
            "downcast_bf16: 'no'\nfsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
            "  fsdp_sharding_strategy: HYBRID_SHARD\n  fsdp_offload_params: false\n"
            "machine_rank: 0\nmain_training_function: main\nmixed_precision: bf16\n"
            "num_machines: 8\nnum_processes: 64\nuse_cpu: false\n"
        )
        found = self.read(tmp_path, "default_config.yaml", text)
        assert found.framework == "fsdp"
        assert (found.plan["dp_replicate"], found.plan["dp_shard"], found.plan["zero"]) == (8, 8, 3)

    def test_deepspeed_inside_accelerates_config(self, tmp_path: Path) -> None:
        text = (
            "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n"
            "  gradient_accumulation_steps: 4\n  offload_optimizer_device: cpu\n"
            "  offload_param_device: none\nmixed_precision: bf16\nnum_processes: 64\n"
        )
        found = self.read(tmp_path, "default_config.yaml", text)
        assert found.framework == "deepspeed"
        assert (found.plan["zero"], found.plan["compute"], found.plan["dp_shard"]) == (
            3,
            "bf16",
            64,
        )
        assert (found.plan["offload_optimizer"], found.plan["offload_parameters"]) == (1.0, 0.0)

    def test_a_config_of_deepspeed_with_auto(self, tmp_path: Path) -> None:
        text = json.dumps(
            {
                "train_micro_batch_size_per_gpu": "auto",
                "bf16": {"enabled": True},
                "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
            }
        )
        found = self.read(tmp_path, "ds.json", text)
        assert (found.plan["zero"], found.plan["offload_optimizer"]) == (3, 1.0)
        assert "micro_batch" not in found.plan

    @pytest.mark.parametrize(("name", "text", "words"), WRONG)
    def test_what_is_wrong_is_named_with_its_line(
        self, name: str, text: str, words: str, tmp_path: Path
    ) -> None:
        with pytest.raises(BadInput, match=words) as error:
            self.read(tmp_path, name, text)
        assert "\n" not in str(error.value)


class TestCommand:
    def ask(self, *words: str) -> int:
        return main(["train", "Llama-3.1-8B", "--on", "8xH100", "--global-batch", "64", *words])

    def test_emit_writes_and_says_how_to_start(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = tmp_path / "new" / "megatron"
        assert self.ask("--tp", "2", "--zero", "1", "--emit", "megatron", str(folder)) == 0
        said = capsys.readouterr().out
        assert f"start: bash {folder}/run.sh" in said
        assert self.ask("--from", str(folder / "run.sh"), "--json") == 0
        answer = json.loads(capsys.readouterr().out)
        assert (answer["plan"]["tp"], answer["plan"]["zero"]) == (2, 1)
        assert any("run.sh" in note for note in answer["notes"])
        assert "--from" not in answer["question"]["arguments"]

    def test_files_are_not_overwritten_unless_forced(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = ("--dp", "8", "--zero", "3", "--emit", "torchtitan", str(tmp_path))
        (tmp_path / "run.sh").write_text("mine")
        assert self.ask(*words) == 2
        assert "--force" in capsys.readouterr().err
        assert (tmp_path / "run.sh").read_text() == "mine"
        assert self.ask(*words, "--force") == 0
        assert "torchtitan.train" in (tmp_path / "run.sh").read_text()

    def test_flags_beside_a_file_win(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert self.ask("--tp", "2", "--zero", "1", "--emit", "megatron", str(tmp_path)) == 0
        capsys.readouterr()
        words = ("--from", str(tmp_path), "--tp", "4", "--seq", "2048", "--json")
        assert self.ask(*words) == 0
        answer = json.loads(capsys.readouterr().out)
        plan = answer["plan"]
        assert (plan["tp"], plan["dp_shard"], plan["dp_replicate"]) == (4, 2, 1)

    @pytest.mark.parametrize("tool", TOOLS)
    def test_a_search_finds_a_plan_that_can_be_written(self, tool: str, tmp_path: Path) -> None:
        assert self.ask("--emit", tool, str(tmp_path / "out")) == 0
        assert (tmp_path / "out" / "run.sh").exists()

    def test_a_plan_that_does_not_fit_is_not_written(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert self.ask("--dp", "8", "--zero", "0", "--emit", "megatron", str(tmp_path)) == 1
        assert "nothing was written" in " ".join(capsys.readouterr().out.split())
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (("--emit", "megatrom", "x"), "megatron"),
            (("--emit", "slurm", "x"), "--framework megatron, torchtitan"),
            (("--emit", "megatron", "x", "--framework", "fsdp"), "write megatron"),
            (("--emit", "megatron", __file__), "a file; name a folder"),
            (("--force",), "--emit TOOL DIR"),
            (("--from", "nowhere.sh"), "no such file"),
        ],
    )
    def test_wrong_words(
        self, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert self.ask(*words) == 2
        assert said in " ".join(capsys.readouterr().err.split())


def test_predictions_do_not_depend_on_what_canonical_drops() -> None:
    model = tf.read_model("Llama-3.1-8B")
    for framework in ("megatron", "torchtitan", "fsdp2"):
        profile = tf.profile_of(WHERE.accelerator, framework)
        trainer = tf.Trainer(model, WORK, WHERE, profile)
        for plan in (
            tf.Plan(dp_replicate=16, sp=True, cp_kind="all-to-all", schedule="gpipe"),
            tf.Plan(tp=2, dp_shard=8, zero=0, recompute_layers=4, offload_to="nvme"),
        ):
            one, other = trainer.predict_one(plan), trainer.predict_one(canonical(plan))
            assert one.step.value == pytest.approx(other.step.value, rel=1e-12)
            assert one.memory.value == pytest.approx(other.memory.value, rel=1e-12)


def test_yaml_is_read_as_pyyaml_reads_it() -> None:
    yaml: Any = pytest.importorskip("yaml")
    text = (
        "# a comment\na: 1\nb: 'no'  # quoted\nc: no\nd:\n  e: 2.5\n  f: [x, 1, true]\n  g:\n"
        '    h: null\nk:\n  - one\n  - 2\nl: "a # b"\nm: text with spaces\nn: {}\n'
    )
    flat: dict[str, Any] = {}

    def walk(values: dict[str, Any], prefix: str) -> None:
        for key, value in values.items():
            if isinstance(value, dict) and value:
                walk(value, f"{prefix}{key}.")
            else:
                flat[prefix + key] = value

    walk(yaml.safe_load(text), "")
    assert dict(from_yaml(text, "t").values) == {k: v if v != {} else None for k, v in flat.items()}
    settings = {"a.b": "no", "a.c": True, "a.d": "x: y", "e": 1.5, "f": "8", "g.h.i": [1, 2]}
    written = to_yaml(settings, "about")
    assert yaml.safe_load(written)["a"] == {"b": "no", "c": True, "d": "x: y"}
    assert dict(from_yaml(written, "t").values) == settings


def test_flags_are_read_wherever_they_stand() -> None:
    said = from_flags('A=1\nx --a-b $A --c=2 \\\n  --d "e f" --g\n# --h 1\n', "t")
    assert said.values == {"a_b": "1", "c": "2", "d": ["e", "f"], "g": True}
    assert said.lines == {"a_b": 2, "c": 2, "d": 3, "g": 3}


TITAN = "# start: torchrun x --job.config_file a.toml\n[training]\nlocal_batch_size = 1\n"
TITAN += "[parallelism]\ntensor_parallel_degree = 2\n"


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_remarks_and_byte_order_marks_change_nothing(tmp_path: Path, mark: str) -> None:
    (tmp_path / "a.toml").write_text(mark + TITAN)
    found = read_launch(tmp_path / "a.toml", tf.read_model("Llama-3.1-8B"), 16)
    assert found.plan["tp"] == 2


def test_flags_beside_a_job_config_win(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(TITAN)
    run = "torchrun -m torchtitan.train --job.config_file=a.toml --training.local_batch_size 4"
    (tmp_path / "run.sh").write_text(f"{run} --parallelism.tensor-parallel-degree=4\n")
    found = read_launch(tmp_path / "run.sh", tf.read_model("Llama-3.1-8B"), 16)
    assert (found.plan["tp"], found.workload["global_batch"]) == (4, 16)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ('{"zero_optimization": {"stage": 1e999}}', "stage is inf; it may be a number"),
        ('{"train_micro_batch_size_per_gpu": NaN}', "is nan; it may be a number"),
        ('{"train_micro_batch_size_per_gpu": -2}', "is -2; it may be a whole number from 1 on"),
        ('{"train_batch_size": %s}' % ("9" * 5000), "not JSON"),
    ],
)
def test_numbers_that_no_setting_is_are_refused(settings: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(settings)
    with pytest.raises(BadInput, match=reason):
        read_launch(tmp_path / "ds.json", tf.read_model("Llama-3.1-8B"), 8)
