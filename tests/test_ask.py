"""The Python door: it answers what the command prints, and its errors say what to write."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trueflops as tf
from trueflops.cli import main

TRAIN: dict[str, Any] = {"tp": 2, "sp": True, "zero": 1, "seq": 4096, "global_batch": 32}


def printed(capsys: pytest.CaptureFixture[str], command: str) -> tuple[int, dict[str, Any]]:
    code = main([*command.split(), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_given_plan(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = printed(
        capsys, "train Llama-3.1-8B --on 8xH100 --tp 2 --sp --zero 1 --seq 4096 --global-batch 32"
    )
    answer = tf.train("Llama-3.1-8B", on="8xH100", **TRAIN)
    assert capsys.readouterr().out == ""
    assert answer.json == said
    assert answer.ok == (code == 0)
    assert answer.step is not None
    assert answer.bill is not None
    assert answer.whole_bill is not None
    assert float(answer.bill.mfu.value) == said["mfu"]["value"]
    assert answer.plans == (answer.step,)
    assert str(answer).startswith("Llama-3.1-8B on 8xH100")
    assert repr(answer) == f"<TrainingAnswer: {answer}>"


def test_a_search_and_its_runners_up(capsys: pytest.CaptureFixture[str]) -> None:
    """A list is what a search may choose among; numbers may be numpy's."""
    code, said = printed(
        capsys, "train Llama-3.2-1B --on 8xH100 --tp 1,2 --micro-batch 1 --search --what-helps"
    )
    answer = tf.train(
        "Llama-3.2-1B", on="8xH100", tp=[1, 2], micro_batch=np.int64(1), search=True,
        what_helps=True,
    )  # fmt: skip
    assert answer.json == said
    assert (code, answer.ok) == (0, True)
    assert len(answer.plans) > 1
    assert answer.plans[0].step.value <= answer.plans[1].step.value
    assert answer.json["what_helps"]


def test_what_does_not_fit_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = printed(capsys, "train Llama-3.1-70B --on RTX4090")
    answer = tf.train("Llama-3.1-70B", on="RTX4090")
    assert (code, answer.ok, answer.step, answer.plans) == (1, False, None, ())
    assert answer.json == said
    assert answer.why == str(answer) == said["why"]


def test_chips_are_sought(capsys: pytest.CaptureFixture[str]) -> None:
    _, said = printed(capsys, "train Llama-3.2-1B --on H100,L40S --tokens 1B --within 30days")
    answer = tf.train("Llama-3.2-1B", on="H100,L40S", tokens="1B", within="30days")
    assert answer.json == said
    assert answer.market is not None
    assert answer.market.offers
    assert answer.market.offers[0].chip.name in str(answer)


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        ("--tp 8", {"tp": 8}),
        ("--ttft 2s --tpot 50ms", {"ttft": "2s", "tpot": "50ms"}),
        ("--prefill 1xtp4 --decode 1xtp4", {"prefill": "1xtp4", "decode": "1xtp4"}),
        ("--tp 8 --rate 2 --requests 40", {"tp": 8, "rate": 2, "requests": 40}),
        ("--tp 1", {"tp": 1}),  # does not fit
    ],
)
def test_every_road_of_infer(
    capsys: pytest.CaptureFixture[str], words: str, flags: dict[str, Any]
) -> None:
    code, said = printed(capsys, f"infer Llama-3.1-70B --on 8xH100 {words}")
    answer = tf.infer("Llama-3.1-70B", on="8xH100", **flags)
    assert answer.json == said
    assert answer.ok == (code == 0)
    assert answer.point is not None
    assert float(answer.point.tpot.value) == said["tpot_seconds"]["value"]
    assert "tokens/s" in str(answer)


def test_comparing(capsys: pytest.CaptureFixture[str]) -> None:
    _, said = printed(capsys, "compare H100 L40S --for Llama-3.2-1B")
    answer = tf.compare("H100", "L40S", model="Llama-3.2-1B")
    assert answer.json == said
    assert answer.comparison is not None
    assert str(answer) == "H100-SXM5-80GB, L40S"
    assert tf.compare("H100").comparison is None


def test_a_config_may_be_a_path(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    config = {"model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 2,
              "num_attention_heads": 8, "intermediate_size": 4096, "vocab_size": 32000,
              "max_position_embeddings": 2048, "architectures": ["LlamaForCausalLM"]}  # fmt: skip
    file.write_text(json.dumps(config))
    assert tf.train(file, on="H100", dp=1).ok


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"tpp": 8}, "did you mean tp?"),
        ({"tp": "eight"}, "tp: "),
        ({"zero": 7}, "zero: 7 is no stage of ZeRO; write "),
        ({"tokens": object()}, "tokens: a object cannot be typed"),
        ({"explain": True}, "explain only changes how one answer looks"),
        ({"emit": "megatron"}, "emit writes files: ask trueflops train … --emit"),
        ({"spot": "yes"}, "spot: 'yes' is neither; write true or false"),
    ],
)
def test_a_wrong_flag_says_what_to_write(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(tf.TrueflopsError) as error:
        tf.train("Llama-3.1-8B", on="8xH100", **flags)
    assert said in str(error.value)


def test_a_wrong_name_raises_what_the_command_says() -> None:
    with pytest.raises(tf.TrueflopsError) as error:
        tf.train("Llama-3.1-8B", on="8xH10")
    assert error.value.code == "UNKNOWN_NAME"
    with pytest.raises(tf.TrueflopsError, match="cannot be a chip"):
        tf.compare("--json")


def test_threads_get_their_own_answers() -> None:
    got: dict[int, int] = {}

    def one(tp: int) -> None:
        got[tp] = tf.train("Llama-3.1-8B", on="8xH100", **TRAIN | {"tp": tp}).json["plan"]["tp"]

    threads = [threading.Thread(target=one, args=(tp,)) for tp in (1, 2, 4, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {1: 1, 2: 2, 4: 4, 8: 8}
