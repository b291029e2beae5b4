"""One attention explained: blocks, shares, limits, and one statement of what binds."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Ask
from trueflops.cli import main

Capture = pytest.CaptureFixture[str]


def test_a_prompt(ask: Ask) -> None:
    found = ask("explain", "attention", "1x32x8x4096x128", "--on", "H100")
    assert found["blocks"]["blocks"] == 32 * 32
    assert found["blocks"]["waves"] == pytest.approx(1024 / 132)
    assert found["flop"] == pytest.approx(4 * 32 * 4096 * 128 * 2048.5)
    assert found["keys_seen_per_query"] == 2048.5
    assert found["bound"] == "compute"
    assert set(found["limits"]) == {
        "compute_seconds", "memory_seconds", "serial_seconds", "start_seconds"
    }  # fmt: skip
    assert found["traffic"]["compulsory_bytes"] == 2 * 4096 * 128 * (32 + 8 + 8 + 32)
    assert found["curve"]["held_out"]["rows"] > 0
    assert found["seconds"]["low"] < found["seconds"]["value"] < found["seconds"]["high"]


def test_the_time_is_that_of_ops(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "ops.csv"
    file.write_text("num_heads,num_kv_heads,head_dim,batch,kv_len\n32,8,128,64,4096\n")
    row = ask("ops", str(file), "--on", "H100")["rows"][0]
    found = ask("explain", "attention", "64x32x8x4096x128", "--decode", "--on", "H100")
    assert found["seconds"]["value"] == row["seconds"]
    assert found["bound"] == row["bound"] == "memory"
    assert found["shares"]["shares"] == 512


def test_what_is_asked_for_matters(ask: Ask) -> None:
    def seconds(*words: str) -> float:
        found = ask("explain", "attention", "1x32x8x4096x128", "--on", "H100", *words)
        return float(found["seconds"]["value"])

    plain = seconds()
    assert seconds("--no-causal") > 1.5 * plain
    assert seconds("--window", "512") < plain
    assert seconds("--backward") > 2 * plain
    assert seconds("--queries", "512") < plain
    decode = ("--decode", "--on", "H100")
    wide = ask("explain", "attention", "64x32x8x8192x128", *decode)
    narrow = ask("explain", "attention", "64x32x8x8192x128", *decode, "--cache", "fp8")
    assert narrow["traffic"]["cache_bytes"] == wide["traffic"]["cache_bytes"] / 2
    assert narrow["curve"]["name"] == "attention_decode.kv8"


@pytest.mark.parametrize(
    "words",
    [
        ["matmul", "1x28672x4096", "--on", "H20"],
        ["matmul", "4096x11008x4096", "--on", "H100"],
        ["matmul", "64x64x64", "--on", "H100"],
        ["attention", "1x1x64x64", "--on", "H100"],
        ["attention", "1x32x8x4096x128", "--on", "MI300X"],
    ],
    ids=" ".join,
)
def test_a_page_says_once_what_binds(ask: Ask, capsys: Capture, words: list[str]) -> None:
    bound = ask("explain", *words)["bound"]
    assert main(["explain", *words]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("bound by") == 1
    assert f"bound by {bound}" in said
    assert "side of" not in said  # of the ridge a kernel is left or right


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["attention", "1x32x8", "--on", "H100"], "is not batch×heads×kv_heads×length×head_dim"),
        (["attention", "1x32x7x64x64", "--on", "H100"], "cannot share 7 key heads"),
        (["attention", "1x0x8x64x64", "--on", "H100"], "heads = '0' must be a whole number"),
        (["attention", "1x8x64x64", "--queries", "65", "--on", "H100"], "at most the 64 keys"),
        (["attention", "1x8x64x64", "--decode", "--backward", "--on", "H100"], "drop the other"),
        (["attention", "1x8x64x64", "--dtype", "fp8", "--on", "H100"], "dtype of attention"),
        (["attention", "4096x64x999999x128", "--on", "H100"], "GiB"),
        (["matmul", "64x64x64", "--window", "9", "--on", "H100"], "is of explain attention"),
        (["atention", "1x8x64x64", "--on", "H100"], "did you mean attention"),
    ],
)
def test_bad_input(capsys: Capture, words: list[str], says: str) -> None:
    assert main(["explain", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert says in " ".join(said.err.split())
