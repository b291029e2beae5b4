"""Experts that more tokens choose than others: the busiest rank, and what the answer says of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import trueflops as tf
from trueflops.cli import main
from trueflops.graph.ir import Op
from trueflops.graph.kinds import Kind
from trueflops.graph.routing import fullest_share
from trueflops.graph.shapes import expert_shape
from trueflops.model import add_copies, read_model
from trueflops.plan import Plan, serving_plan
from trueflops.predict import Server
from trueflops.predict.serving.ranks import fullest_experts, uneven_experts
from trueflops.profile import engine_on, profile_of
from trueflops.runtime.terms import exact, total
from trueflops.workload import Serving

Capture = pytest.CaptureFixture[str]
MODEL = read_model("DeepSeek-V3")


def server(ranks: int, copies: int = 0, asked: Serving | None = None) -> Server:
    where = tf.cluster(f"{ranks}xH100")
    return Server(
        add_copies(MODEL, copies), asked or Serving(1024, 256, 64 * ranks), where,
        profile_of(where.accelerator, "sglang"), weights="fp8",
        engine=engine_on("sglang", where.accelerator),
    )  # fmt: skip


def wide(of: Server) -> Plan:
    ranks = of.cluster.count
    return serving_plan(of.model, of.dtype, replicas=ranks, ep=ranks)


@pytest.mark.parametrize(
    ("experts", "chosen", "ranks", "tokens"),
    [(256, 8, 8, 8), (256, 8, 32, 2048), (288, 8, 72, 4608), (128, 8, 8, 1), (8, 2, 8, 16)],
)
def test_the_busiest_rank_is_as_busy_as_tokens_that_choose_at_random_make_it(
    experts: int, chosen: int, ranks: int, tokens: int
) -> None:
    rng, own, most = np.random.default_rng(1), experts // ranks, []
    for _ in range(100):
        picked = np.argpartition(rng.random((tokens, experts)), chosen, axis=1)[:, :chosen]
        most.append(np.bincount(picked.ravel() // own, minlength=ranks).max())
    mean = tokens * chosen / ranks
    found = fullest_share(mean, float(ranks), float(experts), float(chosen))
    assert float(found) == pytest.approx(np.mean(most) / mean, rel=0.06)


def test_one_rank_waits_for_nobody_and_no_rank_has_more_than_all() -> None:
    assert float(fullest_share(64.0, 1.0, 256.0, 8.0)) == 1.0
    assert float(fullest_share(1e-3, 8.0, 256.0, 8.0)) == 8.0
    several = fullest_share(np.array([8.0, 800.0]), np.array([8.0, 64.0]), 256.0, 8.0)
    alone = [
        float(fullest_share(8.0, 8.0, 256.0, 8.0)),
        float(fullest_share(800.0, 64.0, 256.0, 8.0)),
    ]
    assert np.asarray(several).tolist() == pytest.approx(alone)


def test_a_layer_of_experts_takes_what_its_busiest_rank_takes() -> None:
    asked = server(32)
    nodes = asked.passes.program(wide(asked), 64.0, 1.0, 1024.0).blocks[-1].forward
    layer = next(node for node in nodes if isinstance(node, Op) and node.kind is Kind.EXPERTS)
    share = fullest_experts(asked.model, wide(asked), 64)
    assert share > 1.05
    assert float(expert_shape(layer).rows) == pytest.approx(64 * 8 * share)
    even = layer.changed(facts={**layer.facts, "fullest": 1.0})
    assert float(expert_shape(even).rows) == pytest.approx(64 * 8)
    busiest, mean = (float(asked.clock.price_ops([op])[0].seconds) for op in (layer, even))
    assert mean < busiest < share * mean * 1.01


def test_experts_of_a_trained_step_are_taken_as_even() -> None:
    """Losses and biases keep them so, and what is trained was fitted so."""
    from trueflops.graph import compile_program
    from trueflops.predict.costs import training_pass

    plan = Plan(dp_shard=8, ep=8)
    program = compile_program(read_model("Mixtral-8x7B"), plan, training_pass(plan, 1024))
    facts = {name for block in program.blocks for node in block.forward
             if isinstance(node, Op) for name in node.facts}  # fmt: skip
    assert "chosen" in facts
    assert "fullest" not in facts


def test_popular_experts_widen_the_interval_to_the_slow_side_and_copies_narrow_it() -> None:
    doubts = {
        (ranks, copies): float(
            uneven_experts(add_copies(MODEL, copies), Plan(ep=ranks), reads=False)
        )
        for ranks in (1, 8, 64)
        for copies in (0, 32)
    }
    assert doubts[1, 0] == 0.0
    assert 0.0 < doubts[8, 32] < doubts[8, 0] < doubts[64, 0]
    # What SGLang published without EPLB, at the ranks where it did.
    assert float(np.exp(uneven_experts(MODEL, Plan(ep=32), reads=True))) == pytest.approx(1.49)
    assert float(np.exp(uneven_experts(MODEL, Plan(ep=72), reads=False))) == pytest.approx(2.54)
    plain, kept = (server(32, copies) for copies in (0, 32))
    bare, balanced = (each.predict(wide(each)) for each in (plain, kept))
    reach = [float(point.tpot.high / point.tpot.value) for point in (bare, balanced)]
    assert reach[0] > 1.15 * reach[1]
    down = [float(point.tpot.low / point.tpot.value) for point in (bare, balanced)]
    assert down[0] == pytest.approx(down[1], rel=0.02)  # nothing is faster for that
    assert float(bare.tokens_per_second.low) < float(balanced.tokens_per_second.low)


def test_a_sum_is_in_doubt_by_its_parts_shares() -> None:
    sure, unsure = exact("a", 3.0, "seconds"), exact("b", 1.0, "seconds")
    doubted = tf.predict.Term(**{**vars(unsure), "unstated": (0.0, float(np.log(2.0)))})
    whole = total("all", sure, doubted)
    assert float(whole.estimate.high) == pytest.approx(5.0)  # 3 and twice 1
    assert float(whole.estimate.low) == pytest.approx(4.0)
    assert float(total("more", whole, sure).estimate.high) == pytest.approx(8.0)


def test_the_answer_names_the_busiest_rank(capsys: Capture) -> None:
    words = ["infer", "DeepSeek-V3", "--on", "4x8xH100", "--ep", "32", "--concurrency", "512"]
    main(words)
    said = " ".join(capsys.readouterr().out.split())
    assert "the busiest of 32 ranks has 1.19 times the tokens of the mean one" in said
    assert "popular ones add to it" in said
    main([*words, "--redundant-experts", "32"])
    assert "copies keep popular ones apart (EPLB)" in " ".join(capsys.readouterr().out.split())
    main([*words, "--json"])
    assert json.loads(capsys.readouterr().out)["experts_busiest_over_mean"] > 1.1


def test_copies_are_written_for_sglang_and_read_back(tmp_path: Path, capsys: Capture) -> None:
    words = ["infer", "DeepSeek-V3", "--on", "4x8xH100", "--concurrency", "512", "--json"]
    words += ["--memory-share", "0.8"]  # by default SGLang leaves 72 GiB for 32 padded replicas
    main([*words, "--ep", "32", "--redundant-experts", "32", "--emit", "sglang", str(tmp_path)])
    before = json.loads(capsys.readouterr().out)
    written = (tmp_path / "serve.sh").read_text()
    assert "--ep-num-redundant-experts 32" in written
    assert "--enable-eplb" in written
    main([*words, "--from", str(tmp_path / "serve.sh")])
    after = json.loads(capsys.readouterr().out)
    assert after["model"] == before["model"]
    assert after["tpot_seconds"] == before["tpot_seconds"]
    assert not any("is ignored" in note for note in after["notes"])
