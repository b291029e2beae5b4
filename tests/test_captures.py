"""CUDA graphs in training: what is captured waits for no host; what a recipe sets is read."""

from __future__ import annotations

import ast
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import recipes
import trueflops as tf
from trueflops.catalog import accelerator
from trueflops.cli import main
from trueflops.errors import BadInput, TrueflopsError
from trueflops.plan import check_plan
from trueflops.plan.captures import PARTS, STEP, read_captures
from trueflops.predict.training.guessed import widened
from trueflops.predict.training.simulated import simulate_pipeline
from trueflops.profile import CurveKey
from trueflops.runtime.terms import Z90
from trueflops.verify.training.recipes import read_graphs, read_recipe

SHARED = tf.Plan(dp_shard=8, zero=1)
ROUTED = tf.Plan(dp_shard=8, zero=1, ep=8, dispatch="deduplicated")
RECIPE = {"model": "llama3-8b", "framework": "NeMo 25.04", "dtype": "bf16", "task": "pretrain"}


def trainer(name: str = "Llama-3.2-1B", seq: int = 512, batch: int = 8) -> tf.Trainer:
    """Of small kernels, whose host is slow beside them."""
    where = tf.cluster("8xH100")
    profile = tf.profile_of(where.accelerator, "megatron")
    return tf.Trainer(tf.read_model(name), tf.Training(seq, batch, 1e9), where, profile)


def seconds(asked: tf.Trainer, plan: tf.Plan) -> float:
    return float(asked.predict_one(plan).step.value)


class TestTheHost:
    def test_the_more_is_captured_the_less_a_step_waits(self) -> None:
        asked = trainer()
        taken = [
            seconds(asked, SHARED.but(cuda_graphs=parts))
            for parts in ("", "attention", "attention,ffn", STEP)
        ]
        assert all(later < before for before, later in pairwise(taken))

    def test_a_captured_step_has_no_host(self) -> None:
        asked = trainer()
        assert seconds(asked, SHARED.but(cuda_graphs=STEP)) == seconds(asked.on_host(0.0), SHARED)

    def test_experts_stay_with_the_host(self) -> None:
        asked = trainer("Qwen3-30B-A3B")
        router, step = (
            seconds(asked, ROUTED.but(cuda_graphs=parts)) for parts in ("attention,router", STEP)
        )
        assert step < 0.9 * router
        assert router < seconds(asked, ROUTED)
        # No layer of it is dense.
        assert seconds(asked, ROUTED.but(cuda_graphs="attention,ffn,router")) == router

    def test_parts_make_up_a_layer(self) -> None:
        asked = trainer("Qwen3-30B-A3B")
        block = asked.keyed_costs(ROUTED).spread().blocks[0]
        for phase, whole in block.host.items():
            parts = [s for (of, _), s in block.host_of_parts.items() if of == phase]
            assert sum(map(float, parts)) == pytest.approx(float(whole)), phase
        assert {part for _, part in block.host_of_parts} <= {*PARTS, ""} - {STEP}

    def test_an_answer_reaches_as_far_as_its_host_may_be_slow(self) -> None:
        """Of a step that waits for its host; hardly of one that does not."""
        reach = []
        for asked, plan in ((trainer(), SHARED), (trainer("Llama-3.1-8B", 8192), SHARED)):
            step = asked.predict_one(plan.but(recompute="full"))
            wider = widened(asked, step, ())
            assert wider.step.value == step.step.value
            reach.append(float(wider.step.estimate.reach(1) - step.step.estimate.reach(1)))
        assert reach[0] > 0.02 > 0.001 > reach[1] >= 0.0

    def test_it_reaches_by_the_spread_of_hosts(self) -> None:
        asked = trainer()
        step = asked.predict_one(SHARED)
        times = np.exp(Z90 * asked.profile.curve(CurveKey("dispatch")).error)
        slow = np.log(seconds(asked.on_host(times), SHARED) / float(step.step.value))
        reach = widened(asked, step, ()).step.estimate.reach(1)
        assert reach == pytest.approx(np.hypot(slow, step.step.estimate.reach(1)))


class TestWords:
    def test_parts_are_named(self) -> None:
        assert read_captures(" Router,attention") == {"router", "attention"}
        assert read_captures("none") == read_captures("") == frozenset()
        with pytest.raises(TrueflopsError, match=r"rooter.*router"):
            read_captures("rooter")
        with pytest.raises(BadInput, match="step alone"):
            read_captures("step,ffn")

    def test_a_plan_that_cannot_pair_is_refused(self) -> None:
        asked = trainer("Qwen3-30B-A3B", 4096, 64)
        for change in ({"pp": 2, "dp_shard": 4}, {"pp": 2, "dp_shard": 4, "schedule": "zb-h1"}):
            plan = ROUTED.but(ep=4, overlap_dispatch=True, **change)
            with pytest.raises(TrueflopsError, match="schedule 1f1b, and vpp"):
                check_plan(plan, asked.model, 8, asked.workload)

    def test_only_gpus_have_graphs(self, capsys: pytest.CaptureFixture[str]) -> None:
        words = ["train", "Llama-3.2-1B", "--on", "8xTPUv5e", "--cuda-graphs"]
        assert main([*words, "step"]) == 2
        assert "TPU v5e runs none" in " ".join(capsys.readouterr().err.split())
        assert main([*words, "none", "--dp", "8", "--json"]) in (0, 1)

    def test_a_row_says_what_was_captured(self) -> None:
        assert read_graphs({"cuda_graphs": "n"}) == ""
        assert read_graphs({"cuda_graphs": "router, attention"}) == "attention,router"
        assert read_graphs({"notes": "no CUDA graphs"}) == ""
        assert read_graphs({"notes": "CUDA graphs off"}) == ""
        assert read_graphs({"notes": "with CUDA graphs"}) == "attention,ffn,router"
        assert read_graphs({"notes": "graphs of losses"}) is None


class TestOverlappedDispatch:
    PLAN = ROUTED.but(pp=2, vpp=2, dp_shard=4, ep=4)

    def test_tokens_that_travel_beside_compute_show_less(self) -> None:
        """The more, the more micro-batches there are to travel beside; two are a warm-up alone."""
        plain = self.PLAN.but(cuda_graphs=STEP, dispatch="all-to-all")
        gains = []
        for batch in (8, 16, 64):
            asked = trainer("Qwen3-30B-A3B", 4096, batch)
            beside = seconds(asked, plain.but(overlap_dispatch=True))
            gains.append(seconds(asked, plain) / beside)
        assert gains[0] == 1.0
        assert gains == sorted(gains)
        assert gains[-1] > 1.02

    def test_its_timeline_is_as_long_as_its_answer(self) -> None:
        asked = trainer("Qwen3-30B-A3B", 4096, 64)
        plan = self.PLAN.but(overlap_dispatch=True)
        assert abs(simulate_pipeline(asked, plan).off) < 0.02


class TestRecipes:
    def test_recipes_that_set_different_things_say_nothing(self) -> None:
        """Of one plan on 128 chips the step is captured, on 256 nothing is."""
        row = {
            "model": "llama31-405b", "framework": "Megatron-Bridge 26.06", "dtype": "NVFP4",
            "task": "pretrain",
        }  # fmt: skip
        plan = {"tp": 4, "pp": 8, "cp": 1, "ep": 1, "micro_batch": 1}
        said = [
            dict(read_recipe(row | {"n_devices": count}, accelerator("GB300"), plan))
            for count in ("128", "256", "")
        ]
        assert said[0]["cuda_graphs"] != said[1]["cuda_graphs"]
        assert "cuda_graphs" not in said[2]

    PLAN: ClassVar = {"tp": 1, "pp": 1, "cp": 2, "ep": 1, "micro_batch": 1}

    def read(self, **row: str) -> Any:
        return dict(read_recipe(RECIPE | row, accelerator("H100"), self.PLAN))

    def test_a_row_gets_what_its_recipe_sets(self) -> None:
        said = self.read()
        assert set(said) >= {"cuda_graphs", "overlap_dispatch"}
        assert said["overlap_dispatch"] is False

    def test_other_frameworks_and_plans_get_nothing(self) -> None:
        assert self.read(framework="torchtitan") == {}
        assert self.read(model="Llama-9") == {}
        other = read_recipe(RECIPE, accelerator("H100"), self.PLAN | {"tp": 64})
        assert other == {}


def test_a_recipe_that_takes_another_s_settings_is_read() -> None:
    source = (
        "from megatron.bridge.perf_recipes.common import other_config, _with_global_batch_size\n"
        "def own_config():\n"
        "    ep = 8\n"
        "    cfg = _with_global_batch_size(other_config(), 64)\n"
        "    cfg.model.expert_model_parallel_size = ep\n"
        "    set_cuda_graph_modules(cfg.model, ['attn', 'mamba'])\n"
        "    cfg.model.pipeline_model_parallel_size = stages()\n"
    )
    other = "def other_config():\n    cfg.model.tensor_model_parallel_size = 2\n"
    folder = "src/megatron/bridge/perf_recipes"
    files = {f"{folder}/own.py": source, f"{folder}/common.py": other}
    sources = recipes.Sources(Path(), "", frozenset(files))
    sources._trees |= {path: ast.parse(text) for path, text in files.items()}
    path = f"{folder}/own.py"
    said = recipes.settings_of(sources, path, sources.functions(path)["own_config"])
    assert said["global_batch_size"] == 64
    assert (said["tensor_model_parallel_size"], said["expert_model_parallel_size"]) == (2, 8)
    assert said["pipeline_model_parallel_size"] == recipes.UNKNOWN
    assert said["cuda_graph_scope"] == ["attn", "mamba"]
    tree = ast.parse(
        "BASE_LLAMA3_8B_CONFIG = WorkloadBaseConfig(num_gpus=8, micro_batch_size=1)\n"
        "LLAMA3_8B_PRETRAIN_CONFIG_H100_BF16_V1 = replace(BASE_LLAMA3_8B_CONFIG,\n"
        "    context_parallel_size=2, cuda_graph_impl='transformer_engine',\n"
        "    cuda_graph_scope=['attn', 'moe_router'])\n"
    )
    (line,) = recipes.of_assignments(tree, "25.11")
    assert (line["model"], line["accelerator"], line["precision"]) == ("llama3-8b", "H100", "BF16")
    assert (line["chips"], line["cp"], line["tp"]) == (8, 2, 1)
    assert line["cuda_graphs"] == "attention,router"


def test_what_no_layer_has_is_no_part() -> None:
    """Every part that a plan may name is one that some node of some model is of."""
    asked = trainer("DeepSeek-V3", 4096)
    plan = tf.Plan(dp_shard=8, zero=1, ep=8)
    costs = asked.keyed_costs(plan).spread()
    found = {part for block in costs.blocks for _, part in block.host_of_parts}
    assert found == {*PARTS, ""} - {STEP}
