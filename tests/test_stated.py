"""What a run states and what is guessed: rules, intervals, hosts, networks, sources left out."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import trueflops as tf
from trueflops.catalog.networks import noted_network, read_network, with_network
from trueflops.errors import BadInput
from trueflops.plan import Plan
from trueflops.plan.guesses import EVERY_FIELD, LAID_OUT, laid_out, layouts, unstated
from trueflops.predict.training.guessed import widened
from trueflops.profile.frameworks import chosen_by
from trueflops.verify.profiles import best_known, leaving_out
from trueflops.verify.training.runs import Predictor, read_case

MODEL = tf.read_model("Llama-3.2-1B")


def trainer(on: str, framework: str, batch: int = 64, seq: int = 2048) -> tf.Trainer:
    where = tf.cluster(on)
    profile = tf.profile_of(where.accelerator, framework)
    return tf.Trainer(MODEL, tf.Training(seq, batch, 1e9), where, profile)


class TestGuesses:
    plan = tf.Plan(dp_replicate=8, micro_batch=2)

    def test_only_what_was_not_stated_is_guessed(self) -> None:
        assert unstated(self.plan, EVERY_FIELD, "megatron", experts=False) == ()
        (guess,) = unstated(self.plan, EVERY_FIELD - {"gradient_dtype"}, "megatron", experts=False)
        assert str(guess) == "gradients bf16: the default of megatron"
        assert guess.others == ({"gradient_dtype": "fp32"},)

    def test_rules_ask_only_where_they_matter(self) -> None:
        asked = {
            str(guess).split(":")[0]
            for guess in unstated(tf.Plan(), frozenset(), "megatron", experts=False)
        }
        assert "ZeRO 0" not in asked  # one replica has nothing to share
        assert "dispatch all-to-all" not in asked  # and no experts

    def test_a_guess_reaches_as_far_as_its_alternatives(self) -> None:
        asked = trainer("8xH100", "megatron")
        step = asked.predict_one(self.plan)
        guesses = unstated(self.plan, EVERY_FIELD - {"recompute"}, "megatron", experts=False)
        wider = widened(asked, step, guesses)
        full = asked.predict_one(self.plan.but(recompute="full"))
        told = widened(asked, step, ()).step.estimate
        assert wider.step.value == step.step.value
        assert wider.step.estimate.low == pytest.approx(told.low)
        apart = np.log(full.step.value / step.step.value)
        assert wider.step.estimate.reach(1) == pytest.approx(np.hypot(told.reach(1), apart))

    def test_what_surely_does_not_fit_was_not_what_ran(self) -> None:
        asked = trainer("1xRTX4090", "megatron", batch=32, seq=8192)
        plan = tf.Plan(micro_batch=32, recompute="full")
        step = asked.predict_one(plan)
        assert not asked.predict_one(plan.but(recompute="none")).fits
        guesses = unstated(plan, EVERY_FIELD - {"recompute"}, "megatron", experts=False)
        told = widened(asked, step, ()).step.estimate
        assert widened(asked, step, guesses).step.estimate.low == told.low

    def test_who_lays_out_a_plan_states_it(self) -> None:
        assert {"recompute", "zero"} <= LAID_OUT
        assert "gradient_dtype" not in LAID_OUT


class TestHosts:
    def test_hooks_grow_with_the_stage(self) -> None:
        asked = trainer("8xH100", "deepspeed", batch=8, seq=128)
        plan = tf.Plan(dp_shard=8, implementation="eager")
        steps = [asked.predict_one(plan.but(zero=stage)).step.value for stage in (1, 2, 3)]
        assert steps == sorted(steps)
        assert steps[2] > 1.5 * steps[0]

    def test_a_host_that_waits_for_every_kernel_adds_its_own_time(self) -> None:
        asked = trainer("1xH100", "megatron", batch=8)
        plan = tf.Plan(micro_batch=8)
        free, blocked = (asked.predict_one(plan.but(launch_blocking=how)) for how in (False, True))
        assert blocked.step.value > 1.2 * free.step.value


class TestNetworks:
    @pytest.mark.parametrize(
        ("text", "gigabits"),
        [("4x100Gb", 400), ("8x400Gb InfiniBand", 3200), ("network 1600 Gbps", 1600)],
    )
    def test_texts(self, text: str, gigabits: int) -> None:
        assert noted_network(text) == gigabits * 1e9 / 8

    def test_a_slow_network_is_slow(self) -> None:
        where = tf.cluster("16xH100")
        slow = with_network(where, read_network("1x25Gb"), where.per_node)
        assert slow.tiers[-1].bandwidth == pytest.approx(25e9 / 8 / 8)
        assert slow.tiers[0] == where.tiers[0]

    def test_nonsense_is_refused(self) -> None:
        with pytest.raises(BadInput, match="8x400Gb"):
            read_network("fast")


class TestSourcesLeftOut:
    def test_settings_of_a_source_alone_are_dropped(self) -> None:
        assert "attention_speed" in chosen_by("composer", "llm-foundry")
        assert chosen_by("composer", "another") == set()

    def test_what_another_source_decided_too_stays(self) -> None:
        assert chosen_by("nemo", "nemo-perf-summary") == set()
        assert chosen_by("nemo", "megatron-bridge") == {"experts_speed"}

    def test_other_sources_are_judged_as_ever(self) -> None:
        chip = tf.accelerator("A100")
        usual, without = (
            known(chip, "composer", "llm-foundry").curve("attention").values
            for known in (best_known, leaving_out)
        )
        assert usual != without
        assert leaving_out(chip, "composer", "fms-fsdp").curve("attention").values == usual


def test_many_plans_of_one_depth_are_each_alone() -> None:
    asked = trainer("8xH100", "fsdp2")
    many = tf.Plan(dp_shard=8, zero=np.array([1, 2, 3]), micro_batch=np.array([1, 2, 4]))
    alone = [asked.predict_one(many.pick(i)).memory.value for i in range(3)]
    assert np.allclose(asked.predict(many).memory.value, alone)


class TestLayouts:
    """Rows that do not say how a model was split."""

    def test_a_node_first_and_then_stages(self) -> None:
        found = list(layouts(64, 8, 96))
        assert found[:5] == [(1, 1), (2, 1), (4, 1), (8, 1), (8, 2)]
        assert all(96 % pp == 0 and 64 % (tp * pp) == 0 for tp, pp in found)
        assert list(layouts(3, 8, 7)) == [(1, 1)]

    def test_replicas_keep_what_they_share(self) -> None:
        shared = Plan(dp_shard=64, zero=1)
        assert laid_out(shared, 8, 2) == {"tp": 8, "pp": 2, "dp_shard": 4, "dp_replicate": 1}
        whole = laid_out(Plan(dp_replicate=64), 8, 2)
        assert whole == {"tp": 8, "pp": 2, "dp_shard": 1, "dp_replicate": 4}

    def test_a_guess_is_said_and_has_neighbours(self) -> None:
        plan = Plan(tp=8, pp=2, dp_shard=4, zero=1)
        (guess,) = unstated(plan, EVERY_FIELD - {"layout"}, "nemo", experts=False)
        assert str(guess) == "tp 8, pp 2: the fewest ranks that hold the model"
        degrees = [(other["tp"], other["pp"], other["dp_shard"]) for other in guess.others]
        assert degrees == [(16, 2, 2), (8, 4, 2), (4, 2, 8), (8, 1, 8)]

    def test_a_micro_batch_that_nobody_states_fills_the_chip(self) -> None:
        row = {
            "id": "a", "source_key": "somewhere", "year": "2025", "model": "GPT-2",
            "seq_len": "1024", "accelerator": "RTX 4090", "n_devices": "2", "dtype": "amp_bf16",
            "zero_or_fsdp": "DDP", "global_batch": "512", "step_time_s": "2.8", "recompute": "none",
            "framework": "PyTorch DDP + torch.compile", "flash_attention": "y",
        }  # fmt: skip
        predictor = Predictor(best_known)
        filled, one, piped = (
            predictor.predict(read_case({**row, **cells}, "a"))
            for cells in ({}, {"micro_batch": "1"}, {"pp": "2", "framework": "Megatron-LM"})
        )
        assert filled.plan.micro_batch > 8
        assert filled.memory.value <= filled.capacity_bytes
        assert filled.step.value < 0.7 * one.step.value
        assert piped.plan.micro_batch == one.plan.micro_batch == 1
        case = read_case(row, "a")
        said = [str(guess) for guess in predictor.guesses(case, filled.plan)]
        assert any("as many sequences as the chip holds" in guess for guess in said)

    def test_a_model_is_spread_until_it_fits(self) -> None:
        row = {
            "id": "a", "source_key": "somewhere", "year": "2023", "model": "GPT3-175B",
            "params_b": "174.56", "layers": "96", "hidden": "12288", "heads": "96",
            "ffn": "49152", "vocab": "50304", "seq_len": "2048", "accelerator": "A100-80GB",
            "n_devices": "64", "dtype": "bf16", "global_batch": "2048", "framework": "NeMo",
            "tokens_per_s_per_gpu": "117",
        }  # fmt: skip
        predictor = Predictor(best_known)
        step = predictor.predict(read_case(row, "a"))
        assert step.plan.tp == 8
        assert step.plan.pp > 1
        assert not step.surely_too_full
        # said to be one, it is not touched, and surely too full
        said = predictor.predict(read_case({**row, "tp": "1", "pp": "1"}, "a"))
        assert (said.plan.tp, said.plan.pp) == (1, 1)
        # as many replicas as sequences, and no more
        few = read_case({**row, "global_batch": "16"}, "a")
        assert few.plan.dp <= 16
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # no layout is tried that leaves replicas idle
            fitted = predictor.predict(few).plan
        assert fitted.dp <= 16
