"""The simulated scheduler: its limits are known, its books balance, its doors answer."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import trueflops as tf
from trueflops.catalog import accelerator
from trueflops.cli import main
from trueflops.errors import BadInput
from trueflops.plan import serving_plan
from trueflops.predict import Server
from trueflops.predict.serving import Speculation
from trueflops.profile import Engine, engine_of, engine_on
from trueflops.serve.front import Front
from trueflops.serve.interval import queueing
from trueflops.serve.load import Lengths, Requests, arrivals, draw_requests
from trueflops.serve.outcome import Outcome, outcome
from trueflops.serve.scheduler import serve
from trueflops.serve.simulated import Deployed
from trueflops.serve.step_clock import StepClock
from trueflops.serve.trace_file import read_requests
from trueflops.workload import Serving

ROOM = 1e7


def made_up_clock(most: int = 64) -> StepClock:
    """A decode step of 10 ms and 1 µs for every hundred cached tokens; a prompt of 1 ms a token."""
    return StepClock(
        writing=[0.010] * (most + 1),
        per_cached=[1e-8] * (most + 1),
        tokens=[1.0, 1e5],
        reading=[0.001, 100.0],
        per_pair=0.0,
        usual=100.0,
    )


def fixed(count: int, read: float, written: float, **more: float | int) -> Requests:
    """Requests that are all alike."""
    lengths = (Lengths(size, 1.0, 1.0) for size in (read, written))
    return draw_requests(count, *lengths, **more)  # type: ignore[arg-type]


def engine(**changes: object) -> Engine:
    """One that sees requests at once."""
    return engine_of("vllm").but(**({"ahead": 0, "most_sequences": 64} | changes))


@pytest.mark.parametrize("load", [0.3, 0.7, 0.85])
def test_one_at_a_time_waits_as_pollaczek_and_khinchine_say(load: float) -> None:
    """M/D/1: a mean wait of ρ s / (2 (1 − ρ))."""
    service = 0.1  # a prompt of 100 tokens, and no token after the first
    requests = fixed(200_000, 100.0, 1.0, rate=load / service)
    served = serve(requests, made_up_clock(), engine(most_sequences=1, step_tokens=100), ROOM)
    waited = outcome([served]).queue.mean
    assert waited == pytest.approx(load * service / (2.0 * (1.0 - load)), rel=0.04)


@pytest.mark.parametrize("policy", ["mixed", "prefill-first"])
@pytest.mark.parametrize(("model", "on", "tp", "users"), [
    ("Llama-3.1-8B", "1xH100", 1, 32), ("Llama-3.1-70B", "8xH200", 8, 64),
])  # fmt: skip
def test_a_full_server_reaches_what_the_closed_form_says(
    model: str, on: str, tp: int, users: int, policy: str
) -> None:
    """The fluid limit: a long closed loop writes as many tokens a second as the formula."""
    where, asked = tf.cluster(on), tf.Serving(1024, 512, users)
    profile = tf.profile_of(where.accelerator, "vllm")
    server = tf.Server(
        tf.read_model(model), asked, where, profile, engine=engine(policy=policy, ahead=1)
    )
    plan = tf.Plan(tp=tp)
    point = server.predict(plan)
    deployed = Deployed(server, plan)
    requests = draw_requests(60 * users, Lengths(1024), Lengths(512), users=users)
    served = serve(requests, deployed.clock(requests, users), deployed.engine, ROOM)
    steady = outcome([served]).tokens_per_second
    assert steady == pytest.approx(float(point.tokens_per_second.value), rel=0.03)


def test_drafts_are_simulated_too() -> None:
    """A token takes its share of a step that verifies; SGLang runs 48 requests with them."""
    where, model = tf.cluster("8xH200"), tf.read_model("DeepSeek-V3")
    profile = tf.profile_of(where.accelerator, "sglang")
    seen = {}
    for drafts in (None, Speculation.of(model, "mtp", drafted=1)):
        server = tf.Server(
            model, tf.Serving(1024, 512, 16), where, profile, weights="fp8_block",
            engine=engine_on("sglang", where.accelerator), speculation=drafts,
        )  # fmt: skip
        plan = tf.Plan(tp=8, etp=8)
        requests = draw_requests(320, Lengths(1024.0), Lengths(512.0), users=16)
        deployed = Deployed(server, plan)
        seen[drafts is not None] = deployed.outcome(requests).tpot.mean
        closed = float(server.predict(plan).tpot.value)
        assert seen[drafts is not None] == pytest.approx(closed, rel=0.05)
    assert deployed.engine.most_sequences == 48
    assert seen[True] < 0.85 * seen[False]


def test_books_balance_with_a_cache_that_is_too_small() -> None:
    """Preempted requests end, too; nobody is answered before it was sent."""
    requests = draw_requests(400, Lengths(200), Lengths(300), users=40)
    served = serve(requests, made_up_clock(), engine(), 6000.0)
    assert served.preempted > 0
    assert np.all(np.isfinite(served.ended))
    assert np.all(served.sent <= served.started)
    assert np.all(served.started < served.first)
    assert np.all(served.first < served.ended)
    assert served.steps.cached.max() <= 6000.0
    under_way = [np.sum((served.sent <= t) & (t < served.ended)) for t in served.sent]
    assert max(under_way) <= 40
    # Every token after the first of a request came in some gap; one read again gives one more.
    gaps = served.gap_weights.sum()
    assert gaps == requests.output.sum() - requests.count - served.preempted


def test_an_engine_that_sets_all_aside_never_preempts() -> None:
    requests = draw_requests(400, Lengths(200), Lengths(300), users=40)
    assert serve(requests, made_up_clock(), engine(reserve=1.0), 6000.0).preempted == 0


def test_equal_lengths_march_in_step_where_prompts_come_first() -> None:
    """All are read before any writes, so that all end at once and queue at once again."""
    first = engine(policy="prefill-first", step_tokens=100)
    march = outcome([serve(fixed(320, 100.0, 50.0, users=32), made_up_clock(), first, ROOM)])
    loose = draw_requests(320, Lengths(100.0), Lengths(50.0), users=32)
    apart = outcome([serve(loose, made_up_clock(), first, ROOM)])
    assert march.ttft.mean > 1.3 * apart.ttft.mean
    assert march.tpot.mean < 0.8 * apart.tpot.mean


def test_prompts_first_answer_sooner_and_stall_those_that_write() -> None:
    requests = draw_requests(2000, Lengths(100.0), Lengths(50.0), rate=4.0)
    first, mixed = (
        outcome([serve(requests, made_up_clock(), engine(policy=policy, step_tokens=64), ROOM)])
        for policy in ("prefill-first", "mixed")
    )
    assert first.ttft.mean < mixed.ttft.mean
    assert first.itl.at(99.0) > mixed.itl.at(99.0)


def test_few_that_wait_do_not_stop_those_that_write() -> None:
    """TGI's waiting_served_ratio: a first token waits, up to so many steps."""
    requests = draw_requests(500, Lengths(100.0), Lengths(50.0), rate=4.0)
    held, at_once = (
        outcome([serve(requests, made_up_clock(), engine(policy="prefill-first", **own), ROOM)])
        for own in ({"waiting_ratio": 0.9, "waiting_steps": 20}, {})
    )
    assert held.queue.mean > at_once.queue.mean + 0.02


def test_a_scheduler_that_looks_seldom_lets_requests_wait() -> None:
    requests = draw_requests(500, Lengths(100.0), Lengths(50.0), rate=3.0)
    seldom, often = (
        outcome([serve(requests, made_up_clock(), engine(poll=poll), ROOM)]) for poll in (20, 1)
    )
    assert seldom.queue.mean > often.queue.mean + 0.02


def test_a_cached_prefix_is_not_read_again() -> None:
    requests = fixed(50, 1000.0, 10.0, rate=0.1)
    half = replace(requests, cached=np.full(50, 500.0))
    whole, part = (
        outcome([serve(each, made_up_clock(), engine(), ROOM)]).ttft.mean
        for each in (requests, half)
    )
    assert part == pytest.approx(whole / 2.0, rel=0.05)


def test_a_front_shares_itself_among_the_requests_it_has() -> None:
    front = Front(each=1.0)
    assert front.taken_in([0.0, 5.0]) == [1.0, 6.0]
    assert front.taken_in([0.0, 0.0, 0.0]) == [3.0, 3.0, 3.0]
    assert front.taken_in([0.0, 0.5]) == [1.5, 2.0]  # half of one alone, then both by turns


def test_of_a_burst_none_is_served_before_all_were_taken_in() -> None:
    requests = fixed(100, 1.0, 1.0)
    served = serve(requests, made_up_clock(), engine(), ROOM, Front(each=0.05, lag=0.2))
    assert served.first.min() > 100 * 0.05 + 0.2
    one_by_one = fixed(100, 1.0, 1.0, users=1)
    served = serve(one_by_one, made_up_clock(), engine(), ROOM, Front(each=0.05, lag=0.2))
    assert np.max(served.first - served.sent) < 0.05 + 0.2 + 0.02


def test_what_is_set_aside_falls_while_an_engine_writes() -> None:
    """A burst finds an idle engine, which sets 0.7 of the outputs aside: 10 of 10 + 0.7 · 100."""
    cautious = engine(reserve=0.0, reserve_at_first=0.7, reserve_steps=50, block=1)
    served = serve(fixed(40, 10.0, 100.0), made_up_clock(), cautious, 800.0)
    at_once = np.count_nonzero(served.started == served.started.min())
    assert at_once == 10
    bold = serve(fixed(40, 10.0, 100.0), made_up_clock(), engine(block=1), 800.0)
    assert np.count_nonzero(bold.started == bold.started.min()) == 40
    # After 50 steps nothing is set aside, and others come in before the first have ended.
    assert np.sort(served.started)[10] < served.ended.min()


def test_gaps_between_arrivals_have_the_rate_and_the_burstiness() -> None:
    random = np.random.default_rng(1)
    gaps = np.diff(arrivals(100_000, 5.0, 0.25, random))
    assert gaps.mean() == pytest.approx(0.2, rel=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(2.0, rel=0.03)  # 1 / sqrt(shape)


def test_a_request_larger_than_the_cache_is_refused() -> None:
    with pytest.raises(BadInput, match="does not fit"):
        serve(fixed(1, 100.0, 100.0), made_up_clock(), engine(), 150.0)


def test_it_is_fast() -> None:
    """A hundred thousand requests on one core in under ten seconds."""
    requests = draw_requests(100_000, Lengths(500), Lengths(200), users=64)
    start = time.process_time()
    serve(requests, made_up_clock(), engine(), ROOM)
    assert time.process_time() - start < 10.0


def test_engines_choose_budgets_by_memory() -> None:
    """As vLLM's get_batch_defaults and SGLang's server_args.py have it."""
    assert engine_on("vllm", accelerator("H100-SXM5-80GB")).step_tokens == 8192
    assert engine_on("vllm", accelerator("A100-SXM4-80GB")).step_tokens == 2048
    assert engine_on("vllm", accelerator("B200")).step_tokens == 16384
    assert engine_on("sglang", accelerator("RTX4090")).step_tokens == 2048
    assert engine_of("trt-llm").reserve == 1.0


def test_traces_of_others_are_read(tmp_path: Path) -> None:
    azure = tmp_path / "azure.csv"
    azure.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    )
    read = read_requests(azure)
    assert read.arrival[1] == pytest.approx(4.314579)
    assert read.input.tolist() == [374, 396]
    mooncake = tmp_path / "mooncake.jsonl"
    mooncake.write_text(
        '{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [1, 2, 3]}\n'
        '{"timestamp": 3000, "input_length": 1200, "output_length": 7, "hash_ids": [1, 2, 4]}\n'
    )
    read = read_requests(mooncake)
    assert read.arrival.tolist() == [0.0, 3.0]
    assert read.cached.tolist() == [0.0, 1024.0]


@pytest.mark.parametrize(("text", "said"), [
    ("a,b\n1,2\n", "no column of arrival"), ("arrival,input,output\nx,1,1\n", "neither seconds"),
    ("arrival,input,output\n0,many,1\n", "not a number"),
])  # fmt: skip
def test_a_trace_that_is_none_says_why(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with pytest.raises(BadInput, match=said):
        read_requests(file)


ASK = ["infer", "Llama-3.1-8B", "--on", "1xH100", "--tp", "1", "--requests", "200"]


def test_the_command_answers_with_percentiles(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASK, "--rate", "5/s", "--json"]) == 0
    load = json.loads(capsys.readouterr().out)["load"]
    ttft = load["ttft_seconds"]
    assert ttft["p50"] <= ttft["p90"] <= ttft["p99"]
    assert load["requests"] == 200
    for name in ("ttft_seconds", "tpot_seconds", "e2e_seconds"):
        mean = load[f"mean_{name}"]
        assert mean["value"] == pytest.approx(load[name]["mean"])
        assert mean["low"] < mean["value"] < mean["high"]


def test_a_whole_request_is_known_as_well_as_its_parts(capsys: pytest.CaptureFixture[str]) -> None:
    """Long answers as their tokens, a single token as the first one; in between, in between."""

    def widths(written: str) -> dict[str, float]:
        main([*ASK, "--rate", "1/s", "--output", written, "--json"])
        load = json.loads(capsys.readouterr().out)["load"]
        names = [name for name in ("ttft", "tpot", "e2e") if f"mean_{name}_seconds" in load]
        means = {name: load[f"mean_{name}_seconds"] for name in names}
        return {name: mean["high"] / mean["low"] for name, mean in means.items()}

    alone, short, long = widths("1"), widths("4"), widths("2000")
    assert alone["e2e"] == pytest.approx(alone["ttft"])
    assert long["e2e"] == pytest.approx(long["tpot"], rel=0.02)
    assert min(short["ttft"], short["tpot"]) < short["e2e"] < max(short["ttft"], short["tpot"])


def test_a_crowd_widens_what_is_known_of_a_token(capsys: pytest.CaptureFixture[str]) -> None:
    """Sent at once, most of a first token is waiting; a request now and then waits for nobody."""

    def width(*sent: str) -> float:
        main([*ASK, *sent, "--json"])
        mean = json.loads(capsys.readouterr().out)["load"]["mean_tpot_seconds"]
        return float(mean["high"] / mean["low"])

    assert width("--arrival", "at-once", "--concurrency", "200") > 1.5 * width("--rate", "1/s")


def test_a_single_token_has_no_time_per_token(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASK, "--rate", "5/s", "--output", "1", "--json"]) == 0
    assert "mean_tpot_seconds" not in json.loads(capsys.readouterr().out)["load"]


def test_limits_hold_at_the_percentile(capsys: pytest.CaptureFixture[str]) -> None:
    """A limit between the median and p99 is kept at the one and not at the other."""
    main([*ASK, "--rate", "5/s", "--json"])
    ttft = json.loads(capsys.readouterr().out)["load"]["ttft_seconds"]
    between = f"{(ttft['p50'] + ttft['p99']) / 2.0:.4f}s"
    assert main([*ASK, "--rate", "5/s", "--ttft", between, "--percentile", "50"]) == 0
    assert main([*ASK, "--rate", "5/s", "--ttft", between]) == 1


def test_requests_over_time_are_written(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    assert main([*ASK, "--rate", "5/s", "--trace", str(file)]) == 0
    events = json.loads(file.read_text())["traceEvents"]
    assert sum(event.get("cat") == "writing" for event in events) == 200
    lanes: dict[int, float] = {}
    for event in sorted((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"]):
        assert event["ts"] >= lanes.get(event["tid"], 0.0) - 1e-3  # lanes hold one at a time
        lanes[event["tid"]] = event["ts"] + event["dur"]


@pytest.mark.parametrize(("flags", "said"), [
    (["--rate", "0"], "above 0"), (["--arrival", "poisson"], "needs --rate"),
    (["--lengths", "wild"], "lognormal"), (["--prefix-hits", "2"], "below 1"),
    (["--rate", "5", "--arrival", "at-once"], "no --rate"),
    (["--rate", "5", "--think", "1s"], "loop"),
])  # fmt: skip
def test_a_load_that_is_none_is_refused(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*ASK, *flags]) == 2
    assert said in capsys.readouterr().err


def test_a_queue_near_its_limit_is_known_less_well_than_its_steps() -> None:
    """A server of M/D/1 kind at nine tenths of what it serves, and at a tenth."""
    where = tf.cluster("1xH100")
    server = Server(
        tf.read_model("Llama-3.1-8B"), Serving(1024, 1, 1), where, tf.profile_of(where.accelerator)
    )
    point = server.predict(serving_plan(server.model, server.dtype))
    alone = float(point.prefill.value)

    def far(rate: float) -> tuple[float, float]:
        requests = draw_requests(3000, Lengths(1024.0), Lengths(1.0), rate=rate)
        deployed = Deployed(server, point.plan, server.engine.but(most_sequences=1))

        def at_pace(pace: float) -> Outcome:
            return outcome(deployed.serve(requests, pace))

        return queueing(at_pace(1.0), requests, point, at_pace).queueing

    crowded, idle = far(0.9 / alone), far(0.1 / alone)
    assert crowded[1] > 0.7
    assert crowded[0] > 0.3
    assert max(idle) < 0.2
    assert far(np.inf) == (0.0, 0.0), "a burst waits as long as its steps take"
