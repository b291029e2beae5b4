"""A sweep: the same table whoever answers, also after kills; a bad spec is one clear sentence."""

from __future__ import annotations

import csv
import functools
import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from patience import HUNG
from trueflops.cli import main
from trueflops.cli import sweep as command
from trueflops.cli.arguments import parse
from trueflops.errors import BadInput
from trueflops.report.progress import how_far
from trueflops.sweep.flags import text_of
from trueflops.sweep.journal import Journal, journal_of, keys_of
from trueflops.sweep.local import TRIES, answer_by_processes
from trueflops.sweep.on_ray import answer_on_ray
from trueflops.sweep.questions import Question, Questions, questions_of
from trueflops.sweep.rows import Row, columns_of
from trueflops.sweep.spec import read_spec

SPEC = """
command = "train"

[fixed]
tokens = "1T"
global_batch = 512

[axes]
model = ["Llama-3.1-8B", "Llama-3.1-70B"]
on = ["64xH100"]
plan = [{ tp = 8, zero = 1 }, { tp = 4, pp = 2, zero = 1 }, { tp = 3 }]
seq = [4096, 8192]

[[exclude]]
model = "Llama-3.1-8B"
pp = 2

[[include]]
model = "Llama-3.1-405B"
on = ["8xH100"]
"""
ROWS = 11
ROOT = Path(__file__).parents[1]
NEEDS_RAY = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs ray: pip install 'trueflops[ray]'"
)
NEEDS_PARQUET = pytest.mark.skipif(
    importlib.util.find_spec("pyarrow") is None,
    reason="needs pyarrow: pip install 'trueflops[parquet]'",
)
PROCESSES = pytest.param(
    lambda asked, answer: answer_by_processes(asked, answer, 2), id="processes"
)
RAY = pytest.param(
    lambda asked, answer: answer_on_ray(asked, answer, "local", 2), id="ray", marks=NEEDS_RAY
)

GPT_2 = "[axes]\nmodel = ['GPT-2']\n"
BAD = [
    ("[axes]\nmodle = ['GPT-2']", "[axes]: 'modle' is no flag of train; did you mean model?"),
    ("[axes]\nbatch_size = [8]", "did you mean global_batch?"),
    ("comand = 'train'", "'comand' is no key of a sweep; did you mean command?"),
    ("model = 'GPT-2'", "a flag belongs under [axes] or [fixed]"),
    ("command = 'serve'", "command = 'serve'; write 'train' or 'infer'"),
    ("[axes]\nmodel = ['GPT-2'\nseq = 8", "at line 3"),
    ("", "asks nothing"),
    ("axes = 3", "axes = 3; write [axes] and its keys under it"),
    ("[axes]\non = ['H100']", "names no model"),
    ("[axes]\nmodel = ['-x']", "[axes] model: '-x' cannot be a model"),
    (GPT_2 + "tp = [1, 'two']", "[axes] tp: 'two' is not a whole number"),
    (GPT_2 + "tp = [0]", "[axes] tp: 0 must be at least 1"),
    (GPT_2 + "tp = [true]", "[axes] tp: true is no value"),
    (GPT_2 + "sp = [3]", "[axes] sp: 3 is neither; write true or false"),
    (GPT_2 + "tp = [2, 2]", "[axes] tp: holds 2 twice"),
    (GPT_2 + "tp = []", "[axes] tp: has no values"),
    (GPT_2 + "seq = [[1]]", "[axes] seq: [1] is no text"),
    (GPT_2 + "schedule = ['1f1c']", "did you mean 1f1b?"),
    (GPT_2 + "json = [true]", "json only changes how one answer looks"),
    (GPT_2 + "p = [{ tp = 1 }, 2]", "[axes] p: holds values and tables"),
    ("[axes]\ntp = [{ tp = 1 }]", "[axes] tp: is a flag"),
    ("[axes]\np = [{ tp = 1 }]\ntp = [2]", "[axes]: p and tp both set tp"),
    ("[axes]\nmb = [1]\n[fixed]\nmicro_batch = 2", "stands in [axes] and in [fixed]"),
    ("[fixed]\nmodel = ['GPT-2']", "[fixed] model: a list; what varies belongs under [axes]"),
    ("[include]\nmodel = 'GPT-2'", "include must be written as [[include]]"),
    (GPT_2 + "[[exclude]]\nmodel = 'GPT-3'", "1: model is never 'GPT-3'; did you mean GPT-2?"),
    (GPT_2 + "[[exclude]]\nseq = 1", "[[exclude]] 1: seq does not vary"),
    (GPT_2 + "[[exclude]]", "[[exclude]] 1: is empty"),
    (GPT_2 + "[[exclude]]\nmodel = 'GPT-2'", "leaves no question"),
    (
        GPT_2 + "p = [{ tp = 2 }, { pp = 2 }]\n[[exclude]]\ntp = 2\npp = 2",
        "[[exclude]] 1: matches no question",
    ),
    (
        "[axes]\n" + "\n".join(f"{name} = {list(range(1, 200))}" for name in ("tp", "pp", "dp")),
        "7,880,599 questions",
    ),
]


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    file = tmp_path / "spec.toml"
    file.write_text(SPEC)
    return file


def asked_in(file: Path) -> Questions:
    return questions_of(read_spec(file, command.flags_of))


def swept(spec: Path, name: str, *flags: str) -> bytes:
    table = spec.with_name(name)
    assert main(["sweep", str(spec), "-o", str(table), *flags]) == 0
    assert not journal_of(table).exists()
    return table.read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The table of one process."""
    file = tmp_path_factory.mktemp("whole") / "spec.toml"
    file.write_text(SPEC)
    return swept(file, "whole.csv", "--jobs", "1")


class TestQuestions:
    def test_the_last_axis_varies_fastest_and_includes_come_last(self, spec: Path) -> None:
        asked = asked_in(spec)
        assert asked.columns == ("model", "on", "tp", "zero", "pp", "seq")
        assert len(asked.asked) == ROWS
        assert asked.excluded == 2
        assert asked.asked[0].typed == (
            "trueflops train Llama-3.1-8B --on 64xH100 --tokens 1T --global-batch 512 --tp 8 "
            "--zero 1 --seq 4096"
        )
        assert [question.cells[-1] for question in asked.asked[:4]] == [4096, 8192, 4096, 8192]
        assert asked.asked[-1].cells == ("Llama-3.1-405B", "8xH100", None, None, None, None)

    def test_every_kind_of_flag_is_typed_as_the_command_reads_it(self, tmp_path: Path) -> None:
        file = tmp_path / "spec.toml"
        file.write_text(
            GPT_2 + "tokens = [1e12]\nsp = [false]\nflash = [true]\nspot = [true]"
            "\nlora = [true]\noffload-optimizer = [0.5]\nprice = [-3]\nmb = [2]\npp = ['default']\n"
        )
        (question,) = asked_in(file).asked
        options = vars(parse(question.words))
        assert options["tokens"] == "1000000000000"
        assert [options[name] for name in ("sp", "flash", "spot")] == [False, True, True]
        assert options["lora"] == 0  # the flag alone: rank as usual
        assert options["offload_optimizer"] == 0.5
        assert (options["price"], options["micro_batch"], options["pp"]) == ("-3", 2, None)

    def test_an_include_wins_over_what_is_fixed(self, tmp_path: Path) -> None:
        file = tmp_path / "spec.toml"
        file.write_text(
            "command = 'infer'\n[fixed]\nmodel = 'GPT-2'\non = 'H100'\n[axes]\ninput = [64, 128]\n"
            "[[include]]\non = ['A100', 'H200']\n[[include]]\ninput = 64\n"
        )
        asked = asked_in(file)
        assert asked.columns == ("input", "on")
        cells = [question.cells for question in asked.asked]
        assert cells == [(64, "H100"), (128, "H100"), (None, "A100"), (None, "H200")]  # each once

    @pytest.mark.parametrize(("text", "said"), BAD)
    def test_a_bad_spec_is_one_sentence(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
    ) -> None:
        file = tmp_path / "spec.toml"
        file.write_text(text)
        with pytest.raises(BadInput) as error:
            asked_in(file)
        assert said in str(error.value)
        assert str(error.value).startswith(str(file))
        assert main(["sweep", str(file)]) == 2
        assert "[BAD_INPUT]" in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == [file]

    def test_a_dry_run_asks_nothing(
        self, spec: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(command, "answered", None)
        assert main(["sweep", str(spec), "--dry-run"]) == 0
        said = capsys.readouterr().out
        assert f"{ROWS} questions of train: model 2 × on 1 × plan 3 × seq 2, without 2" in said
        assert list(spec.parent.iterdir()) == [spec]

    def test_the_page_shows_the_example(self) -> None:
        example = ROOT / "examples" / "sweep.toml"
        shown = "\n".join(example.read_text().splitlines()[1:])
        assert shown in (ROOT / "docs" / "sweep.md").read_text()
        assert len(asked_in(example).asked) == 32


class TestAnswers:
    def rows(self, table: bytes) -> list[dict[str, str]]:
        return list(csv.DictReader(table.decode().splitlines()))

    def test_a_row_is_what_the_command_answers(
        self, spec: Path, whole: bytes, capsys: pytest.CaptureFixture[str]
    ) -> None:
        table = self.rows(whole)
        capsys.readouterr()
        for row, question in zip(table, asked_in(spec).asked, strict=True):
            code = main([*question.words, "--json"])
            out = capsys.readouterr()
            if row["status"] == "refused":
                assert code == 2
                assert row["why"].split() == out.err.split()[1:-1]
                continue
            answer = json.loads(out.out)
            assert (row["fits"] == "true") == answer["fits"] == (code == 0)
            if "plan_flags" not in answer:
                assert (row["status"], row["why"]) == ("does not fit", answer["why"])
                continue
            for name in ("step_seconds", "tokens_per_second", "mfu", "cost_usd", "energy_kwh"):
                for end in ("value", "low", "high"):
                    column = name if end == "value" else f"{name}_{end}"
                    assert float(row[column]) == pytest.approx(answer[name][end], rel=1e-9)
            days = answer["training_seconds"]["value"] / 86400
            assert float(row["training_days"]) == pytest.approx(days, rel=1e-9)
            assert float(row["memory_bytes"]) == pytest.approx(answer["memory"]["bytes"], rel=1e-9)
        assert {row["status"] for row in table} == {"ok", "does not fit", "refused"}

    def test_serving(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "spec.toml"
        file.write_text(
            "command = 'infer'\n[axes]\nmodel = ['Llama-3.1-8B']\non = ['8xH100', 'RTX3080']\n"
            "ttft = ['1 s', '1 ms']\nengine = ['default', 'vllm']\n"
        )
        table = self.rows(swept(file, "t.csv", "--jobs", "1"))
        assert list(table[0]) == ["model", "on", "ttft", "engine", *columns_of("infer")]
        statuses = [row["status"] for row in table]
        assert statuses == ["ok"] * 2 + ["not in time"] * 2 + ["does not fit"] * 4
        assert table[2]["why"] == "no cut of this cluster answers within the limits given"
        capsys.readouterr()
        main(["infer", "Llama-3.1-8B", "--on", "8xH100", "--engine", "vllm", "--json"])
        answer = json.loads(capsys.readouterr().out)
        for name in ("ttft_seconds", "tpot_seconds", "usd_per_million_tokens"):
            assert float(table[1][name]) == pytest.approx(answer[name]["value"], rel=1e-9)
        assert table[1]["engine"] == "vllm"

    def test_a_bug_is_a_row(self, spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("trueflops.cli.train.ask", lambda options: 1 / 0)
        row = command.answer(asked_in(spec).asked[0])
        assert row["status"] == "failed"
        assert row["why"] == "a bug of ours: ZeroDivisionError: division by zero"

    def test_where_nothing_is_ok_the_answer_is_no(self, tmp_path: Path) -> None:
        file = tmp_path / "spec.toml"
        file.write_text("[axes]\nmodel = ['no such model']\non = ['H100']\n")
        assert main(["sweep", str(file), "--jobs", "1"]) == 1
        (row,) = self.rows((tmp_path / "spec.csv").read_bytes())
        assert "no such model" in row["why"]

    @NEEDS_PARQUET
    def test_parquet_holds_the_same_with_types(self, spec: Path, whole: bytes) -> None:
        from pyarrow import parquet

        texts = self.rows(whole)
        swept(spec, "t.parquet", "--jobs", "1")
        table = parquet.read_table(spec.with_name("t.parquet"))
        assert table.column_names == list(texts[0])
        kinds = dict(zip(table.schema.names, map(str, table.schema.types), strict=True))
        assert (kinds["seq"], kinds["mfu"], kinds["fits"]) == ("int64", "double", "bool")
        for row, text in zip(table.to_pylist(), texts, strict=True):
            assert {
                name: "" if cell is None else text_of(cell) for name, cell in row.items()
            } == text

    @pytest.mark.parametrize(
        ("flags", "missing", "said"),
        [
            (["-o", "t.parquet"], "pyarrow", "pip install 'trueflops[parquet]'"),
            (["-o", "t.csv", "--ray", "local"], "ray", "pip install 'trueflops[ray]'"),
            (["-o", "t.json"], "", "a table ends in .csv or .parquet; write t.csv"),
            (["-o", "no/t.csv"], "", "no such folder"),
        ],
    )
    def test_what_cannot_be_written_is_said_first(
        self,
        spec: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        flags: list[str],
        missing: str,
        said: str,
    ) -> None:
        monkeypatch.chdir(spec.parent)
        monkeypatch.setitem(sys.modules, missing or "not a module", None)
        assert main(["sweep", str(spec), *flags]) == 2
        assert said in " ".join(capsys.readouterr().err.split())
        assert list(spec.parent.iterdir()) == [spec]


class TestOneTableWhoeverAnswers:
    def test_two_processes(self, spec: Path, whole: bytes) -> None:
        assert swept(spec, "2.csv", "--jobs", "2") == whole

    @NEEDS_RAY
    def test_ray(self, spec: Path, whole: bytes) -> None:
        assert swept(spec, "ray.csv", "--ray", "local", "--jobs", "2") == whole

    @NEEDS_RAY
    def test_where_no_ray_is(self, spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["sweep", str(spec), "--ray", "127.0.0.1:1"]) == 2
        assert "--ray 127.0.0.1:1: no Ray cluster lets us in" in capsys.readouterr().err
        assert list(spec.parent.iterdir()) == [spec]

    @pytest.mark.parametrize("answered", [PROCESSES, RAY])
    def test_a_worker_is_killed(
        self, spec: Path, tmp_path: Path, answered: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One once, whose question another answers; one always, which becomes a row."""
        monkeypatch.syspath_prepend(Path(__file__).parent)  # where workers find what kills them
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        asked = asked_in(spec).asked
        rows = dict(answered(asked, functools.partial(killed, tmp_path, asked[3], asked[6])))
        assert (tmp_path / "died").exists()
        assert sorted(rows) == list(range(ROWS))
        expected = {place: command.answer(question) for place, question in enumerate(asked)}
        why = f"its process died {TRIES} times, perhaps of too little memory"
        assert rows.pop(6) == {"status": "failed", "why": why}
        del expected[6]
        assert rows == expected


def killed(folder: Path, once: Question, always: Question, question: Question) -> Row:
    """Answer, but die of SIGKILL, which nothing can catch, at these questions."""
    first = question == once and not (folder / "died").exists()
    if first:
        (folder / "died").touch()
    if first or question == always:
        os.kill(os.getpid(), signal.SIGKILL)
    return command.answer(question)


# A sweep that is killed right after its third row is kept: nothing of it runs any more.
KILLED = """
import os, signal, sys
from trueflops.cli import main
from trueflops.sweep.journal import Journal
keep, kept = Journal.keep, []
def keep_and_die(journal, key, row):
    keep(journal, key, row)
    kept.append(key)
    if len(kept) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
Journal.keep = keep_and_die
if __name__ == "__main__":
    main(sys.argv[1:])
"""


class TestJournal:
    def test_a_killed_sweep_goes_on(
        self, spec: Path, whole: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        table, program = tmp_path / "t.csv", tmp_path / "killed.py"
        program.write_text(KILLED)
        words = ["sweep", str(spec), "-o", str(table), "--jobs", "2"]
        done = subprocess.run([sys.executable, str(program), *words], check=False, timeout=HUNG)
        assert done.returncode == -signal.SIGKILL
        assert not table.exists()
        journal = journal_of(table)
        assert len(journal.read_bytes().splitlines()) == 3
        with journal.open("ab") as stream:  # the line that was being written
            stream.write(b'{"key": "0123')
        capsys.readouterr()
        assert main([*words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["kept"] == 3
        assert table.read_bytes() == whole
        assert not journal.exists()

    def test_an_interrupted_sweep_says_how_to_go_on(
        self, spec: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keep = Journal.keep

        def interrupted(journal: Journal, key: str, row: Row) -> None:
            keep(journal, key, row)
            raise KeyboardInterrupt

        monkeypatch.setattr(Journal, "keep", interrupted)
        assert main(["sweep", str(spec), "--jobs", "1"]) == 130
        said = " ".join(capsys.readouterr().err.split())
        journal = journal_of(spec.with_suffix(".csv"))
        assert f"interrupted; 1 of {ROWS} rows are kept in {journal}" in said
        assert main(["sweep", str(spec), "--dry-run"]) == 0
        assert "1 row kept from before" in " ".join(capsys.readouterr().out.split())

    def test_a_row_belongs_to_its_question_and_to_the_files_it_names(self, tmp_path: Path) -> None:
        config = tmp_path / "config.json"
        config.write_text("{}")
        by_file, by_folder = (Question(("train", str(path)), ()) for path in (config, tmp_path))
        other = Question(("train", str(config), "--tp", "2"), ())
        before = keys_of([by_file, by_folder, other])
        assert len(set(before)) == 3
        assert keys_of([by_file, by_folder, other]) == before
        config.write_text("{ }")
        assert not set(before) & set(keys_of([by_file, by_folder, other]))

    def test_two_sweeps_of_one_table(self, spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with Journal(journal_of(spec.with_suffix(".csv"))):
            assert main(["sweep", str(spec)]) == 2
        assert "another sweep writes this table" in " ".join(capsys.readouterr().err.split())


def test_how_far_a_sweep_is() -> None:
    assert how_far(0, 1200, 0, 0.0) == "0 of 1,200"
    assert how_far(400, 1200, 100, 50.0) == "400 of 1,200 · 2/s · 6.67 min left"
