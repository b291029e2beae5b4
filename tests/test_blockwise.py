"""8-bit optimizers: slower than their bytes; the Trainer keeps the moments of tables wide."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import trueflops as tf
from trueflops.clock import Clock
from trueflops.plan import ONE_8BIT, Plan
from trueflops.predict.training.blockwise import Blockwise
from trueflops.predict.training.memory import Held

MEASURED = Path(__file__).parents[1] / "truth/h200/bitsandbytes.csv"
MOMENTS = {"adamw_bnb_8bit": 2, "lion_8bit": 1}


def rows() -> list[dict[str, str]]:
    with MEASURED.open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["call"] in MOMENTS]


@pytest.mark.parametrize("row", rows(), ids=lambda r: f"{r['call']} {r['what']} {r['dtype']}")
def test_an_update_searches_for_its_moments(row: dict[str, str]) -> None:
    where = tf.cluster("1xH200")
    clock = Clock(where, tf.profile_of(where.accelerator))
    held = Held(dense=float(row["parameters"]), experts=0.0, largest=0.0)
    told = Blockwise(MOMENTS[row["call"]], 0.0).seconds(clock, held, 1.0)
    # Smaller models launch as many kernels: what each begins with is no part of the search.
    within = 0.03 if float(row["parameters"]) > 1e9 else 0.15
    assert told == pytest.approx(float(row["device_us"]) * 1e-6, rel=within)


def step_of(framework: str, optimizer: str) -> tf.TrainingStep:
    where = tf.cluster("1xH200")
    asked = tf.Training(seq=2048, global_batch=2, tokens=1e9)
    model = tf.read_model("Llama-3.2-1B")
    trainer = tf.Trainer(model, asked, where, tf.profile_of(where.accelerator, framework))
    return trainer.predict_one(Plan(optimizer=optimizer))


def states_of(step: tf.TrainingStep) -> float:
    (found,) = (part for part in step.memory.parts if part.name == "optimizer states")
    return float(found.value)


def test_the_trainer_keeps_the_table_in_32_bits() -> None:
    table = 128256 * 2048
    plain, trainer = (states_of(step_of(f, "adamw-8bit-bf16")) for f in ("torchtune", "trainer"))
    assert plain == pytest.approx(1235814400 * 2 * ONE_8BIT, rel=1e-6)
    assert trainer - plain == pytest.approx(table * 2 * (4 - ONE_8BIT), rel=1e-6)


def test_eight_bits_save_memory_and_no_time() -> None:
    wide, narrow = (step_of("trainer", o) for o in ("adamw", "adamw-8bit"))
    assert states_of(narrow) < states_of(wide)
    assert float(narrow.step.value) > float(wide.step.value) + 0.01
