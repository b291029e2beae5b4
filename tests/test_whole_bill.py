"""The whole bill: the best interval, limits of goodput, published runs, dollars, the command."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from math import exp, log

import numpy as np
import pytest

import trueflops as tf
from trueflops.catalog import accelerator, accelerators, price
from trueflops.catalog.operation import Lasting, accelerator_mtbf, failure_logs, spot_lifetime
from trueflops.catalog.prices import Purchase, purchase, purchases
from trueflops.cli import main
from trueflops.cli.question import dollars
from trueflops.errors import BadInput
from trueflops.predict import TrainingStep, WholeBill
from trueflops.predict.money.bill import training_bill
from trueflops.predict.money.checkpoint import checkpoint_bytes, checkpoint_of
from trueflops.predict.money.goodput import Interrupted, best_interval
from trueflops.predict.money.operation import Operation, usual_operation
from trueflops.predict.money.ownership import HOURS_PER_YEAR, ownership

Capture = pytest.CaptureFixture[str]
HOUR = 3600.0


@cache
def step(on: str = "64xH100", model: str = "Llama-3.1-8B", tokens: float = 1e12) -> TrainingStep:
    where = tf.cluster(on)
    asked = tf.Training(seq=4096, global_batch=1024, tokens=tokens)
    trainer = tf.Trainer(tf.read_model(model), asked, where, tf.profile_of(where.accelerator))
    return trainer.predict_one(tf.Plan(dp_shard=where.count, zero=3, recompute="full"))


def how(**changes: object) -> Operation:
    return replace(usual_operation(step().cluster), **changes)  # type: ignore[arg-type]


# ── goodput ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stall", [0.5, 6.0, 60.0, 600.0])
@pytest.mark.parametrize("mtbf", [0.5 * HOUR, 3 * HOUR, 300 * HOUR])
def test_the_best_interval_is_where_the_run_is_shortest(stall: float, mtbf: float) -> None:
    found = float(best_interval(stall, mtbf))
    tried = found * np.geomspace(0.2, 5.0, 4001)
    run = Interrupted(mtbf, stall, restart_seconds=300.0, interval_seconds=tried)
    shortest = tried[np.argmin(run.stretch)]
    # Daly's series is cut after the third term; what matters is that no time is lost by it.
    assert found == pytest.approx(shortest, rel=0.01 if stall < 0.1 * mtbf else 0.1)
    best = replace(run, interval_seconds=found)
    assert float(best.stretch) <= float(np.min(run.stretch)) * (1 + 1e-3)


def test_youngs_interval_is_its_first_order() -> None:
    assert float(best_interval(1.0, 1e8)) == pytest.approx((2.0 * 1e8) ** 0.5, rel=1e-3)
    assert float(best_interval(50.0, 10.0)) == 10.0  # Daly: M, where a checkpoint outlasts it


def test_goodput_has_its_limits() -> None:
    never = Interrupted(1e15, 10.0, 600.0, interval_seconds=990.0)
    assert float(never.goodput) == pytest.approx(0.99, rel=1e-6)  # checkpoints alone
    often = Interrupted(600.0, 10.0, 600.0, interval_seconds=100.0)
    assert float(often.goodput) < exp(-1.0)  # a restart survives with e⁻¹
    rates = np.geomspace(1e2, 1e8, 50)
    goodput = np.asarray(Interrupted(rates, 10.0, 300.0, interval_seconds=600.0).goodput)
    assert np.all(np.diff(goodput) > 0.0)
    assert np.all((goodput >= 0.0) & (goodput < 1.0))


def test_shares_of_the_time_sum_to_all_of_it() -> None:
    for mtbf in (2 * HOUR, 50 * HOUR):
        run = Interrupted(mtbf, 6.0, 700.0, unsafe_seconds=100.0, interval_seconds=500.0)
        shares = (run.goodput, run.stalled, run.restarting, run.repeated)
        assert sum(map(float, shares)) == pytest.approx(1.0)
        assert min(map(float, shares)) >= 0.0


def test_goodput_is_that_of_a_simulated_run() -> None:
    """Failures drawn at random, one by one, against the closed form."""
    rng, mtbf, tau, stall, restart = np.random.default_rng(1), 3000.0, 400.0, 20.0, 300.0
    spent, done, need, again = 0.0, 0, 4000, 0.0
    left = rng.exponential(mtbf)
    while done < need:
        if left >= tau + stall:
            left, spent, done = left - tau - stall, spent + tau + stall, done + 1
            continue
        spent, left = spent + left, rng.exponential(mtbf)
        while left < restart:
            spent, again, left = spent + left, again + left, rng.exponential(mtbf)
        spent, again, left = spent + restart, again + restart, left - restart
    run = Interrupted(mtbf, stall, restart, interval_seconds=tau)
    assert need * tau / spent == pytest.approx(float(run.goodput), rel=0.02)
    assert need * stall / spent == pytest.approx(float(run.stalled), rel=0.02)
    assert again / spent == pytest.approx(float(run.restarting), rel=0.05)


# ── published runs ──────────────────────────────────────────────────────────────────────────────


def test_llama_3_spends_nine_tenths_of_its_time_training() -> None:
    """ArXiv 2407.21783, section 3.3.4: 419 interruptions in 54 days, more than 90 % effective.

    Its failures and storage (2 TB/s) are stated there; restarts are MegaScale's ten minutes.
    """
    log_of = next(each for each in failure_logs() if each.name == "Llama 3 405B")
    mtbf = log_of.mtbf_seconds / 16384
    assert mtbf == pytest.approx(54 * 24 * HOUR / 419)
    size = checkpoint_bytes(tf.read_model("Llama-3.1-405B"), tf.Plan(tp=8, pp=16))
    write = size / 2e12
    restart = usual_operation(step().cluster).restart_seconds + write
    run = Interrupted(mtbf, write, restart, interval_seconds=float(best_interval(write, mtbf)))
    assert 0.90 < float(run.goodput) < 0.95


def test_a_checkpoint_of_bloom_takes_what_it_took() -> None:
    """bigscience.notion.site: 2.3 TB with the optimizer's states, of which 329 GB are weights."""
    model = tf.read_model("BLOOM-176B")
    tebi = 2.0**40
    assert checkpoint_bytes(model, tf.Plan()) / tebi == pytest.approx(2.3, rel=0.03)


def test_published_logs_agree_within_a_factor_of_three_of_their_mean() -> None:
    mean = accelerator_mtbf()
    assert len(failure_logs()) >= 5
    for each in failure_logs():
        assert abs(log(each.mtbf_seconds / mean.seconds)) < log(3.0), each.name


# ── the bill ────────────────────────────────────────────────────────────────────────────────────


def test_dollars_and_energy_grow_with_the_time() -> None:
    bill = tf.whole_bill(step(), how(pue=1.5))
    longer = float(bill.seconds.value) / float(bill.ideal.seconds.value)
    assert longer == pytest.approx(1.0 / float(bill.goodput.value))
    assert bill.usd
    assert bill.kwh
    assert bill.ideal.usd
    assert bill.ideal.kwh
    assert bill.ideal.price
    hours = float(bill.seconds.value) / HOUR * 64
    assert float(bill.accelerator_hours.value) == pytest.approx(hours)
    assert float(bill.usd.value) == pytest.approx(hours * bill.ideal.price.usd_per_hour)
    assert float(bill.kwh.value) == pytest.approx(1.5 * longer * float(bill.ideal.kwh.value))
    # More than the ideal bill, whose energy is that of the machines alone.
    assert float(bill.ideal.kwh.value) == float(training_bill(step()).kwh.value)  # type: ignore[union-attr]


def test_every_part_has_an_interval_within_what_can_be() -> None:
    bill = tf.whole_bill(step())
    for each in (bill.goodput, bill.seconds, bill.interruptions, bill.usd, bill.kwh):
        assert each is not None
        assert float(each.low) < float(each.value) < float(each.high)
    assert float(bill.goodput.high) <= 1.0
    assert float(bill.seconds.low) >= float(bill.ideal.seconds.low)


def test_more_accelerators_fail_more_often() -> None:
    few, many = (tf.whole_bill(step(on)) for on in ("64xH100", "512xH100"))
    ratio = float(few.mtbf_seconds.value) / float(many.mtbf_seconds.value)
    assert ratio == pytest.approx(8.0)
    assert float(many.goodput.value) < float(few.goodput.value)


def test_asynchronous_checkpoints_stall_less_and_lose_more_work() -> None:
    slow = 1e9
    beside, waiting = (checkpoint_of(step(), slow, asynchronous=a) for a in (True, False))
    assert beside.size_bytes == waiting.size_bytes
    assert beside.stall_seconds < waiting.stall_seconds == waiting.write_seconds
    assert beside.unsafe_seconds == beside.write_seconds > waiting.unsafe_seconds == 0.0
    bills = [
        tf.whole_bill(step(), how(asynchronous=a, storage_bytes_per_second=slow))
        for a in (True, False)
    ]
    assert float(bills[0].goodput.value) > float(bills[1].goodput.value)
    # The next one cannot begin before the last is written.
    assert float(bills[0].interrupted.interval_seconds) >= beside.write_seconds


def test_adapters_alone_are_saved_of_a_fine_tune() -> None:
    model = tf.read_model("Llama-3.1-8B")
    whole = checkpoint_bytes(model, tf.Plan())
    lora = checkpoint_bytes(model, tf.Plan(adapters="lora", lora_rank=16))
    assert whole == 14.0 * model.parameter_count
    assert lora < 0.01 * whole


def test_spot_is_cheaper_and_interrupted_more_often() -> None:
    rent = price(accelerator("H100"), spot=True)
    spot = spot_lifetime(accelerator("H100"))
    usual, on_spot = tf.whole_bill(step()), tf.whole_bill(step(), how(spot=spot), rent)
    assert usual.usd
    assert on_spot.usd
    assert float(on_spot.mtbf_seconds.value) < float(usual.mtbf_seconds.value)
    assert float(on_spot.goodput.value) < float(usual.goodput.value)
    assert float(on_spot.usd.value) < float(usual.usd.value)
    nodes = 1.0 / (64 / accelerator_mtbf().seconds + 8 / spot.seconds)
    assert float(on_spot.mtbf_seconds.value) == pytest.approx(nodes)


def test_a_job_that_fails_before_it_has_restarted_hopeless() -> None:
    bill = tf.whole_bill(step(), how(mtbf=Lasting(HOUR, 0.0, "given"), restart_seconds=HOUR))
    assert bill.hopeless
    assert not tf.whole_bill(step()).hopeless


# ── rent or buy ─────────────────────────────────────────────────────────────────────────────────


def bought(usd: float = 30000.0, **changes: object) -> Operation:
    return how(purchase=Purchase(usd, usd, usd, "", 0), **changes)


def test_owning_costs_what_was_paid_over_the_years_and_the_power() -> None:
    plain = bought(server=1.0, network=1.0, hosting_usd_per_kw_month=0.0, years=3.0, pue=1.0)
    own = ownership(replace(plain, usd_per_kwh=0.1), 1000.0, 500.0)
    assert own
    assert own.power_usd_per_hour == pytest.approx(0.05)
    assert float(own.fixed_usd_per_hour.value) == pytest.approx(30000.0 / (3 * HOURS_PER_YEAR))


def test_at_the_break_even_use_owning_and_renting_cost_the_same() -> None:
    own = ownership(bought(), 1300.0, 900.0)
    assert own
    rent = 3.0
    use = own.break_even(rent)
    assert use
    assert 0.0 < use < 1.0
    a_year = use * HOURS_PER_YEAR
    owned = float(own.fixed_usd_per_hour.value) * HOURS_PER_YEAR + own.power_usd_per_hour * a_year
    assert owned == pytest.approx(rent * a_year)
    assert own.break_even(float(own.usd_per_hour.value) * 0.99) is None


def test_without_a_purchase_price_nothing_is_said_of_owning() -> None:
    assert ownership(how(purchase=None), 1000.0, 500.0) is None
    assert purchase(accelerator("TPU v5p")) is None


def test_purchases_are_of_one_device() -> None:
    found = purchase(accelerator("H100"))
    assert found
    assert found.low <= found.usd <= found.high
    assert found.offers == len(purchases("H100-SXM5-80GB"))
    spark = purchase(accelerator("GB10"))
    assert spark
    assert spark.machine
    whole, chip = (ownership(how(purchase=p), 240.0, 100.0) for p in (spark, found))
    assert whole
    assert whole.purchase_usd == spark.usd
    assert chip
    assert chip.purchase_usd > 1.3 * found.usd


def test_more_chips_have_a_price_than_in_release_0_5() -> None:
    priced = [chip.name for chip in accelerators() if price(chip)]
    assert len(priced) >= 52
    either = [c.name for c in accelerators() if price(c) or purchases(c.name)]
    assert len(either) >= 67


# ── the command ─────────────────────────────────────────────────────────────────────────────────

ASK = ("train", "Llama-3.1-8B", "--on", "64xH100", "--tokens", "1T", "--dp", "64", "--zero", "3")


def answer(capsys: Capture, *flags: str) -> dict[str, object]:
    assert main([*ASK, *flags, "--json"]) == 0
    whole: dict[str, object] = json.loads(capsys.readouterr().out)["whole_bill"]
    return whole


def test_the_command_says_what_it_assumes_and_takes_what_is_said(capsys: Capture) -> None:
    usual = answer(capsys)
    assert usual["given"] == []
    said = answer(capsys, "--mtbf", "5000h", "--restart", "1h", "--pue", "1.1", "--buy", "$20000")
    assert said["given"] == ["mtbf", "pue", "purchase", "restart"]
    assert said["mtbf_seconds"]["value"] == pytest.approx(5000 * HOUR / 64)  # type: ignore[index]
    assert said["pue"] == 1.1
    assert said["goodput"]["value"] < usual["goodput"]["value"]  # type: ignore[index]
    every = answer(capsys, "--checkpoint-every", "2h")
    assert every["checkpoint"]["interval_seconds"] == 2 * HOUR  # type: ignore[index]


@pytest.mark.parametrize("text", ["30000", "$30000", "30k USD", "$30k", "USD 30000", "0.03M$"])
def test_sums_of_dollars_are_read_alike(text: str) -> None:
    assert dollars(text, "--buy", "30000") == 30_000


@pytest.mark.parametrize("text", ["", "30 EUR", "3$0", "-5", "nan", "1_000", "30mUSD"])
def test_what_is_no_sum_of_dollars_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"--buy .*: write dollars, as 30000"):
        dollars(text, "--buy", "30000")


def test_an_answer_can_be_asked_again(capsys: Capture, tmp_path: object) -> None:
    flags = ("--mtbf", "5000h", "--storage", "20GB/s", "--checkpoint", "sync", "--spot")
    assert main([*ASK, *flags, "--json"]) == 0
    first = capsys.readouterr().out
    path = f"{tmp_path}/answer.json"
    with open(path, "w") as file:
        file.write(first)
    assert main(["train", path, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["whole_bill"] == json.loads(first)["whole_bill"]


def test_the_table_names_what_is_missing(capsys: Capture) -> None:
    assert main([*ASK]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "The whole bill" in said
    assert "5 published logs" in said
    assert main(["train", "Llama-3.1-8B", "--on", "8xH800", "--tokens", "1B", "--top", "1"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "no price known" in said
    assert "no purchase price known" in said


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--mtbf", "0h"), "--mtbf 0h: must lie between a second"),
        (("--mtbf", "50000"), "write for example '50000h'"),
        (("--storage", "100"), "write for example '100GB/s'"),
        (("--storage", "1kB/s"), "must be at least 1 MB/s"),
        (("--restart", "-1h"), "--restart"),
        (("--checkpoint-every", "often"), "--checkpoint-every"),
        (("--spot-lifetime", "3h"), "say also --spot"),
        (("--buy", "cheap"), "--buy"),
        (("--buy", "1e12"), "at most"),
        (("--years", "0"), "--years 0"),
        (("--electricity", "500"), "at most"),
    ],
)
def test_what_cannot_be_is_refused(capsys: Capture, flags: tuple[str, ...], says: str) -> None:
    assert main([*ASK, *flags]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert says in said
    assert "Traceback" not in said


def test_a_whole_bill_is_what_the_public_name_gives() -> None:
    assert isinstance(tf.whole_bill(step()), WholeBill)
