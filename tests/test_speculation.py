"""Speculative decoding: what a step gives, what it takes, where it stops paying."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import trueflops as tf
from conftest import Ask
from trueflops.cli import main
from trueflops.cli.arguments.speculation import METHODS, TASKS
from trueflops.errors import BadInput
from trueflops.model import drafting_head, prediction_module, read_model
from trueflops.plan import Plan, serving_plan
from trueflops.predict import Server
from trueflops.predict.serving import Acceptance, Speculation, Speculator
from trueflops.profile import engine_of
from trueflops.profile.speculation import method_of, methods, task_of, tasks, tokens_by_rate
from trueflops.workload import Serving

Capture = pytest.CaptureFixture[str]


@cache
def server_of(name: str, where: str, engine: str = "sglang", weights: str = "bf16") -> Server:
    cluster = tf.cluster(where)
    profile = tf.profile_of(cluster.accelerator, engine)
    load = Serving(1024, 256, concurrency=8)
    return Server(
        read_model(name), load, cluster, profile, weights=weights, engine=engine_of(engine)
    )


def speculator_of(server: Server, method: str, **said: Any) -> tuple[Speculator, Plan]:
    drafts = Speculation.of(server.model, method, **said)
    count = server.cluster.count
    plan = serving_plan(server.model, server.dtype, tp=count)
    return Speculator(server.passes, server.engine.name, drafts), plan


class TestAcceptance:
    def test_one_rate_is_the_paper_s_formula(self) -> None:
        assert tokens_by_rate(0.8, 4) == pytest.approx((1 - 0.8**5) / (1 - 0.8))
        assert tokens_by_rate(1.0, 4) == 5.0

    def test_what_is_stated_of_a_family_is_what_was_measured(self) -> None:
        """SemiAnalysisAI/InferenceX's golden acceptance lengths of GLM-5.2, 1 … 8 tokens."""
        measured = (1.84, 2.5, 2.99, 3.33, 3.61, 3.78, 3.91, 4.06)
        known = method_of("mtp", "GLM-5.2")
        for drafted, length in enumerate(measured, 1):
            assert known.accepted(drafted, "mixed", tree=False) == pytest.approx(length, rel=0.02)

    def test_a_task_changes_what_is_copied_more_than_what_is_drafted(self) -> None:
        copied, drafted = method_of("ngram"), method_of("eagle3")
        more = copied.accepted(10, "summarization", tree=False) - 1.0
        assert more > 1.5 * (copied.accepted(10, "mixed", tree=False) - 1.0)
        less = drafted.accepted(3, "summarization", tree=False)
        assert less < drafted.accepted(3, "mixed", tree=False)

    @pytest.mark.parametrize(
        ("said", "task"),
        [
            ("HumanEval", "code"),
            ("gsm8k", "math"),
            ("MT-Bench", "chat"),
            ("question answering", "qa"),
            ("summarization", "summarization"),
            ("anything else", "mixed"),
        ],
    )
    def test_benchmarks_stand_for_tasks(self, said: str, task: str) -> None:
        assert task_of(said) == task

    def test_a_drafter_sees_less_of_texts_longer_than_it_was_trained_on(self) -> None:
        model = read_model("Llama-3.1-8B")
        drafts = Speculation.of(model, "eagle3")
        assert drafts.tokens(100.0) == drafts.tokens(4000.0) > drafts.tokens(40_000.0) > 1.0
        given = Speculation.of(model, "eagle3", acceptance=Acceptance(length=2.0))
        assert given.tokens(40_000.0) == 2.0

    def test_flags_name_what_is_known(self) -> None:
        assert set(METHODS) == set(methods())
        assert set(TASKS) == set(tasks())


class TestDrafters:
    def test_a_head_is_one_layer_and_a_small_table(self) -> None:
        """EAGLE-3 for Llama-3.1-8B: 0.4 B of weights beside the shared embedding."""
        model = read_model("Llama-3.1-8B")
        head = drafting_head(model, vocab=32000)
        own = head.parameter_count - 32000 * model.hidden
        assert head.layers == 1
        assert own == pytest.approx(0.38e9, rel=0.1)

    def test_a_module_is_one_more_layer_of_the_model(self) -> None:
        """DeepSeek-V3's is 14 B with table and head, 11.5 B without (its README)."""
        model = read_model("DeepSeek-V3")
        module = prediction_module(model)
        own = module.parameter_count - 2 * model.vocab * model.hidden
        assert own == pytest.approx(11.5e9, rel=0.03)

    def test_a_smaller_model_must_be_named(self) -> None:
        with pytest.raises(BadInput, match="needs --draft-model"):
            Speculation.of(read_model("Llama-3.1-8B"), "draft")


class TestSteps:
    def test_a_verification_of_one_token_is_a_decode_step(self) -> None:
        server = server_of("Llama-3.1-8B", "1xH100")
        by, plan = speculator_of(server, "ngram", drafted=3)
        plain = by.plain(plan, 8.0, 1152.0)
        assert float(plain.value) == pytest.approx(float(server.decode(plan).value), rel=1e-9)

    def test_a_step_is_the_sum_of_its_parts(self) -> None:
        by, plan = speculator_of(server_of("Llama-3.1-8B", "1xH100"), "eagle3", drafted=4)
        step = by.step(plan, 8.0, 1000.0)
        assert float(step.value) == pytest.approx(sum(float(p.value) for p in step.parts))
        assert [p.name for p in step.parts] == [
            "verification",
            "first drafting pass",
            "later drafting passes",
            "sampling and host",
        ]

    def test_the_cache_is_read_once_for_all_drafted_tokens(self) -> None:
        server = server_of("Llama-3.1-8B", "1xH100")
        by, plan = speculator_of(server, "ngram", drafted=3)
        one = by.passes.costs(plan, 32.0, 1.0, 30_000.0, verifies=True)
        four = by.passes.costs(plan, 32.0, 4.0, 30_000.0, verifies=True)
        attention = [c.blocks[0].of_cause("forward", "attention") for c in (one, four)]
        assert attention[1] < 1.5 * attention[0]

    def test_every_drafted_token_needs_its_logits(self) -> None:
        server = server_of("Llama-3.1-8B", "1xH100")
        by, plan = speculator_of(server, "ngram", drafted=3)
        few = by.passes.program(plan, 64.0, 1.0, 100.0, verifies=True).head.forward
        many = by.passes.program(plan, 64.0, 4.0, 100.0, verifies=True).head.forward
        prompt = by.passes.program(plan, 64.0, 4.0, 100.0).head.forward
        sizes = [ops[-1].inputs[0].elements for ops in (few, many, prompt)]
        assert sizes[1] == 4 * sizes[0] == 4 * sizes[2]

    def test_more_tokens_touch_more_experts(self) -> None:
        def growth(name: str) -> float:
            by, plan = speculator_of(server_of(name, "1xH200"), "ngram", drafted=3)
            step, plain = by.step(plan, 4.0, 500.0), by.plain(plan, 4.0, 500.0)
            return float(step["verification"].value / plain.value)

        assert growth("Qwen3-30B-A3B") > 1.3 > 1.1 > growth("Llama-3.1-8B")

    def test_drafting_passes_of_a_larger_model_take_longer(self) -> None:
        server = server_of("Llama-3.1-70B", "4xH100", "vllm")
        took = []
        for name in ("Llama-3.2-1B", "Llama-3.1-8B"):
            draft = read_model(name)
            by, plan = speculator_of(server, "draft", drafted=3, draft=draft)
            took.append(float(by.step(plan, 1.0, 500.0)["later drafting passes"].value))
        assert took[0] < took[1]

    @pytest.mark.parametrize("method", [m for m in METHODS if m != "draft"])
    def test_every_method_gives_more_than_a_token_a_step(self, method: str) -> None:
        by, plan = speculator_of(server_of("Llama-3.1-8B", "1xH100"), method)
        gain = by.speedup(plan, 1.0, 500.0)
        assert 1.0 < by.speculation.tokens() <= 1.0 + by.speculation.drafted
        assert float(gain.low) < float(gain.value) < float(gain.high)
        assert 1.0 < float(gain.value) < by.speculation.tokens()

    def test_a_drafter_takes_room(self) -> None:
        plain = server_of("Llama-3.1-70B", "4xH100", "vllm")
        plan = serving_plan(plain.model, plain.dtype, tp=4)
        drafts = Speculation.of(plain.model, "draft", draft=read_model("Llama-3.1-8B"))
        drafted = Server(
            plain.model,
            plain.workload,
            plain.cluster,
            plain.profile,
            engine=plain.engine,
            speculation=drafts,
        )
        without, beside = plain.predict(plan), drafted.predict(plan)
        assert float(beside.memory["drafter"].value) == pytest.approx(16.06e9 / 4, rel=0.01)
        # Of 8 key heads, 32 layers beside 80: two fifths more cache a request.
        own = without.cache_bytes_per_accelerator
        assert beside.cache_bytes_per_accelerator == pytest.approx(1.4 * own)
        assert beside.most_requests < without.most_requests


class TestBatches:
    def test_the_gain_is_gone_at_the_batch_that_is_named(self) -> None:
        by, plan = speculator_of(server_of("Llama-3.1-8B", "1xH100"), "eagle3", drafted=7)
        limit = by.batch_without_gain(plan, 300.0)
        assert limit is not None
        gains = [float(by.speedup(plan, float(n), 300.0).value) for n in (limit // 2, limit)]
        assert gains[0] > 1.0 > gains[1]

    def test_none_is_named_where_drafts_always_pay(self) -> None:
        by, plan = speculator_of(server_of("Llama-3.1-8B", "1xH100"), "eagle3", drafted=2)
        assert by.batch_without_gain(plan, 2000.0, most=16) is None

    def test_long_drafts_stop_paying_before_short_ones(self) -> None:
        server = server_of("Llama-3.1-8B", "1xH100")
        limits = []
        for drafted in (2, 8):
            by, plan = speculator_of(server, "eagle3", drafted=drafted)
            limits.append(by.batch_without_gain(plan, 300.0) or 10**9)
        assert limits[0] > limits[1]

    def test_sglang_runs_48_requests_at_once_with_drafts(self) -> None:
        by, plan = speculator_of(server_of("Llama-3.1-8B", "1xH100"), "eagle3", drafted=3)
        assert engine_of("sglang").drafting().most_sequences == 48
        assert engine_of("sglang").told(128).drafting().most_sequences == 128
        other, _ = speculator_of(server_of("Llama-3.1-8B", "1xH100", "vllm"), "eagle3", drafted=3)
        assert engine_of("vllm").drafting() == engine_of("vllm")
        few, all_of_them = (float(each.speedup(plan, 400.0, 300.0).value) for each in (by, other))
        assert few < 0.75 * all_of_them

    def test_r1_gains_nothing_at_some_dozens_of_requests_on_16_h20(self) -> None:
        """SGLang issue 4543: throughput falls below that without drafts above batch 32, and the
        next that was tried is some multiple of that.
        """
        server = server_of("DeepSeek-R1", "16xH20", "sglang", "fp8")
        by, plan = speculator_of(server, "mtp", drafted=3)
        limit = by.batch_without_gain(plan, 1000.0)
        assert limit is not None
        assert 32 <= limit <= 3 * 32


class TestDoor:
    def test_with_and_without(self, ask: Ask) -> None:
        words = ("Llama-3.1-8B", "--on", "H100", "--tp", "1", "--concurrency", "4")
        plain = ask("infer", *words)
        drafted = ask("infer", *words, "--speculate", "eagle3", "--acceptance-length", "2.8")
        gain = drafted["speculation"]
        assert gain["tokens_per_step"] == 2.8
        assert gain["step_without_drafts"]["seconds"] == pytest.approx(plain["decode"]["seconds"])
        assert gain["speedup"]["value"] == pytest.approx(
            2.8 * gain["step_without_drafts"]["seconds"] / gain["step"]["seconds"]
        )
        assert drafted["tpot_seconds"]["value"] < plain["tpot_seconds"]["value"]
        assert drafted["tokens_per_second"]["value"] > plain["tokens_per_second"]["value"]
        assert drafted["joules_per_token"]["value"] < plain["joules_per_token"]["value"]
        assert gain["by_drafted_tokens"] == []  # a length was measured with one k alone

    def test_the_best_length_is_the_best_of_those_listed(self, ask: Ask, capsys: Capture) -> None:
        words = ("Llama-3.1-8B", "--on", "H100", "--speculate", "eagle3", "--task", "code")
        lengths = ask("infer", *words)["speculation"]["by_drafted_tokens"]
        best = max(lengths, key=lambda each: each["speedup"])["drafted_tokens"]
        main(["infer", *words])
        assert f"best length {best} tokens" in " ".join(capsys.readouterr().out.split())

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            ("--speculate eagle9", "'eagle9' is not known: use"),
            ("--num-speculative-tokens 3", "add --speculate METHOD"),
            ("--speculate draft", "needs --draft-model"),
            ("--speculate mtp --draft-model Llama-3.2-1B", "goes with --speculate draft"),
            ("--speculate eagle3 --acceptance-length 9", "use 1 to 4"),
            ("--speculate eagle3 --acceptance-rate 1.5", "is no share"),
            ("--speculate eagle3 --acceptance-rate 0", "must be above 0"),
            ("--speculate eagle3 --num-speculative-tokens 9999", "use 1 to 512"),
            ("--speculate ngram --acceptance-length 2 --acceptance-rate .5", "give one of them"),
        ],
    )
    def test_what_cannot_be_is_said_in_a_sentence(
        self, capsys: Capture, words: str, says: str
    ) -> None:
        assert main(["infer", "Llama-3.1-8B", "--on", "H100", *words.split()]) == 2
        assert says in " ".join(capsys.readouterr().err.split())

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            ("Llama-3.1-8B --engine vllm --speculate mtp", "write --speculate eagle3, ngram or"),
            ("Kimi-K2 --engine sglang --speculate mtp", "no module that predicts"),
            ("Qwen2.5-32B --engine vllm --speculate draft --draft-model Qwen2.5-0.5B",
             "knows 151,936 tokens and Qwen2.5-32B 152,064, which vllm refuses"),
        ],
    )  # fmt: skip
    def test_what_an_engine_would_not_start_with_is_refused(
        self, capsys: Capture, words: str, says: str
    ) -> None:
        assert main(["infer", *words.split(), "--on", "8xH200"]) == 2
        assert says in " ".join(capsys.readouterr().err.split())

    @pytest.mark.parametrize("engine", ["sglang", None])
    def test_another_vocabulary_is_told(self, ask: Ask, engine: str | None) -> None:
        words = ["Qwen2.5-32B", "--on", "H200", "--tp", "1", "--speculate", "draft"]
        named = ["--engine", engine] if engine else []
        notes = ask("infer", *words, "--draft-model", "Qwen2.5-0.5B", *named)["notes"]
        assert any("knows 151,936 tokens and Qwen2.5-32B 152,064" in note for note in notes)
        alike = ask("infer", *words, "--draft-model", "Qwen2.5-7B", *named)["notes"]
        assert not any("refuse that" in note for note in alike)

    @pytest.mark.parametrize("model", ["DeepSeek-V3", "GLM-4.5-Air", "Qwen3.5-27B", "MiMo-7B"])
    def test_models_with_a_module_draft_by_it(self, ask: Ask, model: str) -> None:
        words = ("--on", "8xH200", "--tp", "8", "--engine", "vllm", "--speculate", "mtp")
        assert ask("infer", model, *words)["speculation"]["method"] == "mtp"


class TestSparsity:
    def test_half_of_the_weights_speed_up_decoding_and_no_prompt(self) -> None:
        dense = server_of("Llama-3.1-70B", "4xH100", "vllm")
        sparse = server_of("Llama-3.1-70B", "4xH100", "vllm", "bf16-2:4")
        plan = serving_plan(dense.model, dense.dtype, tp=4)
        one = [float(s.asked(Serving(1024, 256, 1)).decode(plan).value) for s in (dense, sparse)]
        assert 9 / 16 < one[1] / one[0] < 0.8
        prompts = [float(s.prefill(plan).value) for s in (dense, sparse)]
        assert prompts[1] == pytest.approx(prompts[0], rel=0.03)

    def test_a_chip_without_it_says_so(self, capsys: Capture) -> None:
        assert main(["infer", "Llama-3.1-8B", "--on", "V100-32GB", "--weights", "bf16-2:4"]) == 2
        assert "has no 2:4 sparsity: use --weights bf16" in " ".join(
            capsys.readouterr().err.split()
        )


def test_flash_attention_2_walks_over_the_cache_alone_where_it_verifies() -> None:
    """It splits the cache for one query alone: else 64 rows of a head stay on one unit."""
    past, drafted = 131072.0, 4
    server = server_of("Llama-3.1-8B", "RTX 3090", "vllm")
    by, plan = speculator_of(server, "ngram", drafted=drafted)
    chip, attention = server.passes.clock.silicon, server.model.attentions[0]
    flop = server.model.layers * past * 64.0 * 4.0 * attention.head_dim
    alone = flop / (chip.peak("bf16") / chip.units)
    assert float(by.step(plan, 1.0, past).value) > alone
    assert float(by.plain(plan, 1.0, past).value) < alone  # one token: keys are split
    # FlashAttention-3 splits them for several, and other engines run other kernels.
    for where, engine in (("H100", "vllm"), ("RTX 3090", "sglang")):
        other, plan = speculator_of(server_of("Llama-3.1-8B", where, engine), "ngram", drafted=4)
        one, several = (float(t(plan, 1.0, past).value) for t in (other.plain, other.step))
        assert several < 1.5 * one


def test_each_query_head_reads_the_cache_for_itself_on_metal() -> None:
    """Bytes that its units load, not those of the memory, decide how a long text slows tokens."""
    cluster = tf.cluster("M2-Ultra")
    profile = tf.profile_of(cluster.accelerator, "llama.cpp")
    model = read_model("Qwen3-30B-A3B")
    server = Server(model, Serving(1, 1, 1), cluster, profile, engine=engine_of("llama.cpp"))
    short, long = (
        float(server.asked(Serving(n, 2, 1)).decode(Plan()).value) for n in (16384, 32768)
    )
    chip, attention = server.passes.clock.silicon, model.attentions[0]
    loaded = model.layers * 16384.0 * attention.heads * 2.0 * attention.head_dim * 2.0
    assert long - short > loaded / (32.0 * chip.units * chip.hertz) * 0.9
