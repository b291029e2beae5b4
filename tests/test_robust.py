"""No input crashes it: each kind of input that once did, and a short run of every fuzzer."""

from __future__ import annotations

import gzip
import io
import json
import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuzz import fuzz
from fuzz_inputs import CLASSES
from patience import HUNG
from trueflops.catalog.models import model_record
from trueflops.cli import main
from trueflops.errors import BadInput, BadQuantity
from trueflops.graph.routing import load
from trueflops.interop.kernels import Batch
from trueflops.interop.kineto import file as kineto_file
from trueflops.interop.kineto import stream
from trueflops.interop.kineto.arguments import TracedOp
from trueflops.interop.kineto.calls import call_of
from trueflops.records import tables
from trueflops.units import read_number

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[1]
TRACE = ROOT / "tests" / "data" / "llama_160m_step.json.gz"
H200 = ROOT / "src/trueflops/profile/data/measured/H200-SXM-141GB.json"


@pytest.mark.parametrize("name", CLASSES)
def test_spoilt_inputs_are_answered_or_refused(name: str) -> None:
    tally = fuzz(name, seed=7, inputs=60)
    assert not tally.failures, [str(result) for _, result in tally.failures.values()]
    assert tally.codes[0] > 0
    assert tally.codes[2] > 0


def refused(capsys: Capture, *words: str) -> str:
    """What is said of bad input, on one line."""
    assert main(list(words)) == 2
    out, err = capsys.readouterr()
    assert not out
    return " ".join(err.split())


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "text", ["1_", "1__0", "1_000", "nan", "inf", "1e999", "١٢", "", "0x10", "."]
)
def test_what_only_python_reads_as_a_number_is_none(text: str) -> None:
    with pytest.raises(BadQuantity):
        read_number(text)


@pytest.mark.parametrize(
    "words",
    [
        ["train", "GPT-2", "--on", "H100", "--tp", "1_0"],
        ["train", "GPT-2", "--on", "H100", "--tp", "1", "--seq", "1_0"],
        ["infer", "GPT-2", "--on", "H100", "--tp", "1", "--pue", "1_0"],
        ["compare", "H100", "--since", "2_000"],
        ["capture", "x.py:f", "--on", "H100", "--rank", "0_0"],
    ],
)
def test_underscores_are_refused_everywhere(capsys: Capture, words: list[str]) -> None:
    assert "_" in refused(capsys, *words)


# ── tables ───────────────────────────────────────────────────────────────────────────────────────


def test_tables_of_eager_kernels_are_priced_and_judged(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "eager.csv"
    rows = (ROOT / "truth/h200/eager.csv").read_text().splitlines()[:30]
    path.write_text("\n".join(rows) + "\n")
    for words in (["verify", str(path)], ["ops", str(path), "--on", "H200"]):
        assert main(words) == 0
        assert main([*words, "--json"]) == 0
    assert capsys.readouterr().err == ""


def test_equal_rows_are_priced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    priced, real = [], Batch.distinct

    def spy(batch: Batch) -> Any:
        priced.append(batch.kernels)
        return real(batch)

    monkeypatch.setattr(Batch, "distinct", spy)
    path = tmp_path / "many.csv"
    rows = ["h200,16,32,64,5.0", "h200,16,32,64,6.0", "h200,32,32,64,5.0"] * 2000
    path.write_text("gpu,m,n,k,latency_us\n" + "\n".join(rows) + "\n")
    assert main(["verify", str(path)]) == 0
    assert main(["ops", str(path), "--on", "H200"]) == 0
    assert priced == [2, 2]  # two kernels, whatever their lines say they took
    table = tables.read_table(path)
    assert len(table.distinct) == 3
    assert [line for line, _ in table.rows] == list(range(2, 6002))


def test_a_table_is_bounded_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "long.csv"
    path.write_text("m,n,k\n" + "1,1,1\n" * 20)
    monkeypatch.setattr(tables, "MOST_ROWS", 10)
    with pytest.raises(BadInput, match="more than 10 rows"):
        tables.read_table(path)
    path.write_text("m" * 100)
    monkeypatch.setattr(tables, "LONGEST_LINE", 50)
    with pytest.raises(BadInput, match="a line of more than"):
        tables.read_table(path)


def test_a_power_law_of_one_is_the_limit_of_its_neighbours() -> None:
    at, near = load(4096.0, 8.0, 64.0, 8.0, 1.0), load(4096.0, 8.0, 64.0, 8.0, 1.0 + 1e-6)
    assert np.isfinite(at.rows)
    assert at.rows == pytest.approx(near.rows, rel=1e-4)


@pytest.mark.parametrize(
    "skew", ["power_law_1.2.3", "power_law_", "power_law_1_0", "zipf", "power_law_99"]
)
def test_a_distribution_that_is_none(tmp_path: Path, capsys: Capture, skew: str) -> None:
    path = tmp_path / "moe.csv"
    path.write_text(f"num_tokens,hidden,inter,topk,experts,distribution\n64,512,512,2,8,{skew}\n")
    assert "power_law_1.2" in refused(capsys, "ops", str(path), "--on", "H100")


def test_calibrating_on_one_row_is_refused_and_loses_nothing(
    tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "one.csv").write_text("gpu,m,n,k,latency_us\nh200,16,32,64,5.0\n")
    (tmp_path / "transfer.json").write_text("kept")
    assert "too few rows" in refused(capsys, "calibrate", str(tmp_path), "-o", str(tmp_path))
    assert (tmp_path / "transfer.json").read_text() == "kept"


# ── configs, clusters, profiles ──────────────────────────────────────────────────────────────────


def config(tmp_path: Path, name: str, **changed: Any) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**model_record(name)["config"], **changed}))
    return str(path)


def test_more_experts_a_token_than_there_are(tmp_path: Path, capsys: Capture) -> None:
    path = config(tmp_path, "Mixtral-8x7B", num_experts_per_tok=9)
    said = refused(capsys, "infer", path, "--on", "8xH100", "--tp", "8")
    assert "9 experts a token, but there are 8" in said


def test_a_narrow_embedding_with_a_head_of_its_own(tmp_path: Path, capsys: Capture) -> None:
    path = config(tmp_path, "OPT-66B", word_embed_proj_dim=512, tie_word_embeddings=False)
    assert main(["infer", path, "--on", "8xH100", "--tp", "8", "--json"]) == 0


@pytest.mark.parametrize("value", ["nan", "inf", "-5", "0", "1e300", "'1_0'"])
def test_a_plain_number_of_a_chip_file(tmp_path: Path, capsys: Capture, value: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(f'[accelerator]\nlike = "H100"\ncompute.units = {value}\n')
    assert "compute.units" in refused(capsys, "infer", "GPT-2", "--on", str(path), "--tp", "1")


def spoilt(tmp_path: Path, curve: str, **values: float | None) -> str:
    """The shipped profile of an H200 with parameters of one curve changed, or taken away."""
    raw = json.loads(H200.read_text())
    del raw["measured"]
    raw["curves"] = {curve: raw["curves"][curve]}
    kept = {**raw["curves"][curve]["values"], **values}
    raw["curves"][curve]["values"] = {k: v for k, v in kept.items() if v is not None}
    path = tmp_path / "p.json"
    path.write_text(json.dumps(raw))
    return str(path)


@pytest.mark.parametrize(
    ("curve", "values", "says"),
    [
        ("matmul", {"sharpness": None}, "matmul has no 'sharpness'"),
        ("memory", {"bandwidth": 2.62}, "of memory.bandwidth, 4.80 TB/s, can be"),
        ("matmul", {"efficiency": 3.0}, "of the dense peak"),
        ("matmul", {"sharpness": 1e9}, "must lie between"),
        ("matmul", {"start_cycles": 1e11}, "must lie between"),
        ("memory", {"nonsense": 1.0}, "unknown parameter"),
    ],
)
def test_a_profile_is_held_to_its_laws_and_its_chip(
    tmp_path: Path, capsys: Capture, curve: str, values: dict[str, float | None], says: str
) -> None:
    path = spoilt(tmp_path, curve, **values)
    assert says in refused(capsys, "explain", "matmul", "64x64x64", "--profile", path)


def test_a_file_of_nobodys_home(capsys: Capture) -> None:
    said = refused(capsys, "infer", "GPT-2", "--on", "~nosuchuser/p.toml")
    assert "~nosuchuser/p.toml: no such file" in said


def test_a_user_without_a_home(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for name in ("HOME", "XDG_DATA_HOME", "TRUEFLOPS_PROFILES"):
        monkeypatch.delenv(name, raising=False)
    assert main(["catalog"]) == 0
    capsys.readouterr()
    assert "unknown profile" in refused(capsys, "explain", "matmul", "8x8x8", "--profile", "mine")


# ── traces ───────────────────────────────────────────────────────────────────────────────────────


def test_a_trace_is_the_same_however_it_is_cut_into_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = json.loads(gzip.decompress(TRACE.read_bytes()))
    whole["traceEvents"] = whole["traceEvents"][:40]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({**whole, "baseTimeNanoseconds": 1.5e18, "µ": "é" * 99}))
    once = kineto_file.read_document(path)
    monkeypatch.setattr(stream, "PIECE", 7)
    again = kineto_file.read_document(path)
    assert [(e.name, e.start, e.args) for e in once.events] == [
        (e.name, e.start, e.args) for e in again.events
    ]
    assert once.devices == again.devices


def test_a_small_file_of_endless_entries_is_refused_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b"0," * 10**6 + b"0]}"))
    monkeypatch.setattr(stream, "MOST_ENTRIES", 1000)
    with pytest.raises(BadInput, match="more than 1,000 events"):
        kineto_file.read_document(path)


@pytest.mark.parametrize("dims", [None, 5, "x", (1, 2), ((1, 2), None)])
def test_a_list_of_tensors_that_is_none(dims: Any) -> None:
    op = TracedOp("aten::cat", (dims, ()), ("TensorList", "Scalar"), (3,), ("", "0"), (("k", 1),))
    assert call_of(op) is None


# ── the terminal ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("letter", ["\x1b[31m", "\x9b2J", "\u202e", "\x07"])
def test_names_do_not_move_the_cursor(tmp_path: Path, capsys: Capture, letter: str) -> None:
    path = tmp_path / f"a{letter}.csv"
    path.write_text(f"gpu,m,n,k,latency_us\nh200{letter},16,32,64,5.0\nh200,16,32,64,5{letter}\n")
    for words in (["verify", str(path)], ["verify", str(path), "--json"], ["train", str(path)]):
        main(words)
    out, err = capsys.readouterr()
    assert all(ch.isprintable() or ch == "\n" for ch in out + err)


def test_closed_streams(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["catalog", "H100"]) == 2
    monkeypatch.undo()
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", None)
    assert main(["catalog", "--nosuch"]) == 2
    assert out.getvalue() == ""


def python(code: str, *, close: bool = False) -> tuple[int, str, str]:
    """A process of its own; `close` the reader of its answer before it writes."""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stderr
        if close:
            process.stdout.close()
            return process.wait(60), "", process.stderr.read()
        out, err = process.communicate(timeout=HUNG)
        return process.returncode, out, err


def test_a_reader_who_has_seen_enough_is_no_answer_of_no() -> None:
    code = "from trueflops.cli import main; raise SystemExit(main(['catalog', 'H100']))"
    assert python(code, close=True) == (0, "", "")


def test_an_interruption_while_modules_load_says_nothing() -> None:
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a job ignores it
        "class Key:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'trueflops.cli': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Key())\n"
        "from trueflops.__main__ import main\n"
        "main()\n"
    )
    assert python(code) == (130, "", "")


def test_what_a_program_prints_never_reaches_the_answer() -> None:
    code = (
        "import os, subprocess, sys, threading, time\n"
        "from trueflops.cli.capture import program_apart\n"
        "def late():\n"
        "    while True: os.write(1, b'late'); print('late'); time.sleep(0.001)\n"
        "with program_apart() as answers:\n"
        "    print('python'); os.write(1, b'descriptor'); subprocess.run(['echo', 'child'])\n"
        "    threading.Thread(target=late, daemon=True).start()\n"
        "    print('answer', file=answers)\n"
        "time.sleep(0.05)\n"
    )
    done, out, err = python(code)
    assert (done, out) == (0, "answer\n")
    assert all(word in err for word in ("python", "descriptor", "child", "late"))


def test_bad_arguments_of_capture_are_refused_without_torch(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text("def build():\n    return 1\n")
    program = f"{tmp_path}/p.py:build"
    bad = [
        [program, "--on", "H1OO"],
        [program, "--on", "8xH100", "--world", "4"],
        [program, "--on", "H100", "--rank", "3"],
        [f"{tmp_path}/none.py:build", "--on", "H100"],
        [f"{tmp_path}/p.py:nosuch", "--on", "H100"],
        [program, "--on", "H100", "--trace", f"{tmp_path}/none/t.json"],
        [program, "--on", "H100", "--roofline", f"{tmp_path}/t.jpg"],
        [program, "--on", "H100", "--profile", "nosuch"],
    ]
    code = (
        "import sys; from trueflops.cli import main\n"
        f"assert [main(['capture', *words]) for words in {bad!r}] == [2] * {len(bad)}\n"
        "assert 'torch' not in sys.modules\n"
    )
    done, out, err = python(code)
    assert (done, out) == (0, ""), err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_full_disk_under_the_answer() -> None:
    code = (
        "import sys; from trueflops.cli import main\n"
        "sys.stdout = open('/dev/full', 'w'); raise SystemExit(main(['catalog', 'H100']))"
    )
    done, _, err = python(code)
    assert done == 2
    assert "No space left" in err
    assert "Traceback" not in err
