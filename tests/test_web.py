"""`trueflops web`: the page is told what the command line says, to the digit."""

from __future__ import annotations

import csv
import io
import json
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the web extra is not installed")
pytest.importorskip("httpx", reason="the test client of starlette needs httpx")

from starlette.testclient import TestClient

from trueflops.cli import main
from trueflops.cli.arguments import parser
from trueflops.cli.arguments.forms import body_of, form_of
from trueflops.cli.web import commands
from trueflops.report.encode import to_json
from trueflops.web.allowed import COMMANDS, NAMES, SWITCHES, TEXTS
from trueflops.web.app import application
from trueflops.web.asked import read_asked
from trueflops.web.safety import LOOPBACK
from trueflops.web.worker import Answered, failure

HERE = "http://localhost"
DATA = Path(__file__).parent / "data"
CONFIG = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 4,
    "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000,
    "max_position_embeddings": 4096, "_name_or_path": "someone/tiny-llama",
}  # fmt: skip
TRAIN = {"model": "Llama-3.1-8B", "on": "8xH100", "tp": 2, "seq": 4096}
QUESTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("train", TRAIN, "train Llama-3.1-8B --on 8xH100 --seq 4096 --tp 2"),
    (
        "train",
        {"model": "Llama-3.1-8B", "on": "8xH100", "dp": 8, "zero": 3, "sp": False, "spot": True},
        "train Llama-3.1-8B --on 8xH100 --spot --dp 8 --zero 3 --no-sp",
    ),
    ("infer", {"model": "Llama-3.1-8B", "on": "2xH100"}, "infer Llama-3.1-8B --on 2xH100"),
    ("compare", {"chips": ["H100", "MI300X"]}, "compare H100 MI300X"),
    ("catalog", {"name": "RTX 4090"}, "catalog 'RTX 4090'"),
    (
        "explain",
        {"what": "attention", "shape": "1x32x8x4096x128", "on": "H100", "causal": False},
        "explain attention 1x32x8x4096x128 --on H100 --no-causal",
    ),
    (
        "collective",
        {"kind": "all_reduce", "bytes": "1GB", "on": "8xH100", "steps": True},
        "collective all_reduce --bytes 1GB --on 8xH100 --steps",
    ),
    (
        "stragglers",
        {"on": "8xH100", "step": "500ms", "slow_rank": 1.5},
        "stragglers --on 8xH100 --step 500ms --slow-rank 1.5",
    ),
    (
        "stragglers",
        {"on": "4xH100", "step": "20ms", "bytes": "1MB", "jitter": 0.1, "timeline": True},
        "stragglers --on 4xH100 --step 20ms --bytes 1MB --jitter 0.1 --timeline",
    ),
]
WRONG: list[tuple[str, dict[str, Any]]] = [
    ("train", {"on": "8xH100"}),
    ("train", {"model": "Llama-3.1-8B"}),
    ("train", {"model": "Lama-3.1-8B", "on": "8xH100"}),
    ("train", {"model": "Llama-3.1-8B", "on": "8xH1OO", "tp": 2}),
    ("train", {"model": "Llama-3.1-8B", "on": "8xH100", "tp": "two"}),
    ("train", {"model": "Llama-3.1-8B", "on": "8xH100", "tp": 3}),
    ("train", {"model": "Llama-3.1-8B", "on": "8xH100", "zero": 7}),
    ("train", {"model": "Llama-3.1-8B", "on": "8xH100", "tp": 1, "seq": -4}),
    ("infer", {"model": "Llama-3.1-8B", "on": "8xH100", "ttft": "soon"}),
    ("explain", {"what": "matmul", "shape": "4096x4096", "on": "H100"}),
    ("collective", {"kind": "all_reduce", "on": "8xH100"}),
]


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(application(commands(), 1, LOOPBACK), HERE) as made:
        yield made


def typed(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main([*words, "--json"])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize(("command", "body", "words"), QUESTIONS, ids=lambda x: str(x)[:30])
def test_the_answer_is_the_command_lines(
    client: TestClient,
    command: str,
    body: dict[str, Any],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    reply = client.post(f"/api/{command}", json=body)
    assert reply.status_code == 200, reply.text
    asked = read_asked(form_of(command), body)
    code, out, _ = typed(list(asked.words), capsys)
    assert reply.json() == {
        "command": f"trueflops {words}",
        "exit_code": code,
        "answer": json.loads(out),
    }
    assert out.strip() in reply.text  # every digit of it


@pytest.mark.parametrize(("command", "body"), WRONG, ids=str)
def test_an_error_is_the_command_lines(
    client: TestClient, command: str, body: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    reply = client.post(f"/api/{command}", json=body)
    assert reply.status_code == 422
    code, _, err = typed(list(read_asked(form_of(command), body).words), capsys)
    assert code == 2
    said = reply.json()
    assert " ".join(err.split()).startswith(f"trueflops: {said['error']} [{said['code']}]")


def test_a_sentence_is_on_one_line_again() -> None:
    lines = ("trueflops: one two", "three, 没有这样的", "名字", "[BAD_INPUT] see: x\n")
    said = ("\n" + " " * 11).join(lines)
    assert failure(2, said) == Answered(2, error="one two three, 没有这样的名字", code="BAD_INPUT")
    assert failure(101, "").code == "BUG"


def test_an_answer_of_no_is_an_answer(client: TestClient) -> None:
    reply = client.post("/api/train", json={"model": "Llama-3.1-70B", "on": "1xH100", "tp": 1})
    assert (reply.status_code, reply.json()["exit_code"]) == (200, 1)
    assert reply.json()["answer"]["fits"] is False


def test_a_model_may_be_a_config(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "tiny-llama.json").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)
    reply = client.post("/api/train", json={"model": CONFIG, "on": "8xH100", "tp": 1}).json()
    assert reply["command"] == "trueflops train tiny-llama.json --on 8xH100 --tp 1"
    _, out, _ = typed(["train", "tiny-llama.json", "--on", "8xH100", "--tp", "1"], capsys)
    assert reply["answer"] == json.loads(out)
    other = CONFIG | {"num_hidden_layers": 8}
    deeper = client.post("/api/train", json={"model": other, "on": "8xH100", "tp": 1}).json()
    assert deeper["answer"]["model"]["parameters"] > reply["answer"]["model"]["parameters"]


def test_a_hostile_config_gets_the_command_lines_sentence(client: TestClient) -> None:
    for fields, said in (
        ({"model_type": "llama", "hidden_size": -4}, "tiny.json: 'hidden_size' must be between"),
        ({"model_type": "lama"}, "did you mean"),
        ({"model_type": "llama", "num_hidden_layers": 10**9, "hidden_size": 64}, "between 1 and"),
    ):
        config = {"_name_or_path": "../tiny", **fields}
        reply = client.post("/api/train", json={"model": config, "on": "8xH100"})
        assert (reply.status_code, reply.json()["code"]) == (422, "BAD_CONFIG")
        assert said in reply.json()["error"]


def test_equal_questions_are_equal_however_they_are_written() -> None:
    form = form_of("train")
    asked = read_asked(form, TRAIN)
    assert asked == read_asked(form, dict(reversed(TRAIN.items())) | {"pp": None, "cp": "default"})
    assert asked == read_asked(form, {key.replace("_", "-"): v for key, v in TRAIN.items()})


def test_options_say_what_forms_are_made_of(client: TestClient) -> None:
    said = client.get("/api/options").json()
    assert set(said["commands"]) == set(COMMANDS)
    flags = {flag["name"]: flag for flag in said["commands"]["train"]["flags"]}
    assert flags["model"]["required"]
    assert flags["minimise"]["choices"]
    assert flags["zero"]["number"]
    assert flags["tp"]["number"]
    assert flags["sp"]["bare"]
    assert not flags["sp"]["valued"]
    assert flags["lora"]["bare"]
    assert flags["lora"]["valued"]
    assert "Llama-3.1-8B" in said["models"]
    assert "H100-SXM5-80GB" in said["accelerators"]
    assert {"megatron"} <= set(said["frameworks"])
    assert {"vllm"} <= set(said["engines"])
    helps = [flag["help"] for form in said["commands"].values() for flag in form["flags"]]
    assert not any("%" + "(" in text for text in helps)


def test_an_answer_is_written_as_json_writes_it() -> None:
    values = {
        "texts": ["", 'a "quote"', "µ×\n\t\\", "中文"], "numbers": [0, -1, 1.5, 1e300, 1e-7, -0.0],
        "none": [None, True, False, [], {}, (), [[]], {"a": {}}], "nested": {"a": [{"b": (1, 2)}]},
        "numpy": [np.float64(0.1), np.int64(3), np.bool_(True), np.array(2.5)], "1": 1,
    }  # fmt: skip
    plain = {"schema_version": 1, **values, "numpy": [0.1, 3, True, 2.5]}
    assert to_json(values) == json.dumps(plain, indent=2, ensure_ascii=False)
    assert json.loads(to_json({"x": [math.inf, -math.inf, math.nan]}))["x"] == [None] * 3
    assert to_json({"x": "\u202e"}).endswith('"\\u202e"\n}')
    with pytest.raises(TypeError, match="set has no place"):
        to_json({"x": {1}})


def test_the_catalog_s_overview_tells_no_path_of_the_server(
    client: TestClient, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = client.post("/api/catalog", json={}).json()["answer"]
    assert main(["catalog", "--json"]) == 0
    assert answer == json.loads(capsys.readouterr().out)
    assert [name for names in answer["kinds"].values() for name in names] == answer["names"]
    assert set(answer["profiles"].values()) <= {"shipped", "yours"}
    assert "/" not in "".join(answer["profiles"])


def test_what_may_be_asked_exists() -> None:
    there = {a.dest for command in COMMANDS for a in parser().command(command).arguments()}
    assert there >= NAMES | TEXTS | SWITCHES


def test_a_question_can_be_read_back_from_its_words() -> None:
    for command, body, _ in QUESTIONS:
        asked = read_asked(form_of(command), body)
        again = body_of(command, asked.words[1:])
        assert read_asked(form_of(command), again) == asked


def test_progress_and_then_the_answer(client: TestClient) -> None:
    question = {
        "command": "train",
        "model": "Llama-3.1-8B",
        "on": "8xH100",
        "tp": 2,
        "search": True,
    }
    reply = client.get("/api/search", params={"question": json.dumps(question)})
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = [part.split("\n") for part in reply.text.split("\n\n") if part.startswith("event")]
    seen = [(name.removeprefix("event: "), json.loads(data[6:])) for name, data in events]
    *before, (last, answered) = seen
    assert last == "answer"
    assert answered["answer"]["fits"]
    assert before
    for name, said in before:
        assert name == "progress"
        assert 0 <= said["decided"] <= said["legal"]
    body = {key: value for key, value in question.items() if key != "command"}
    assert client.post("/api/train", json=body).json() == answered


def test_a_search_that_is_wrong_ends_with_an_error(client: TestClient) -> None:
    question = {"command": "train", "model": "Llama-3.1-8B", "on": "7xH1OO"}
    reply = client.get("/api/search", params={"question": json.dumps(question)})
    assert "event: error\ndata: " in reply.text
    assert "UNKNOWN_NAME" in reply.text
    for wrong in ("", "{", "[]", "{}", '{"command": 3}'):
        assert client.get("/api/search", params={"question": wrong}).status_code == 422
    assert client.get("/api/search", params={"question": '{"command": "run"}'}).status_code == 404


def drop(client: TestClient, name: str, raw: bytes) -> dict[str, Any]:
    reply = client.post("/api/drop", params={"name": name}, content=raw)
    assert reply.status_code == 200, reply.text
    said: dict[str, Any] = reply.json()
    return said


def test_a_dropped_file_is_known_by_its_content(client: TestClient) -> None:
    trace = drop(client, "what.bin", (DATA / "llama_160m_step.json.gz").read_bytes())
    assert trace["kind"] == "trace"
    assert trace["answer"]["device"] == "NVIDIA H200"
    config = drop(client, "x", json.dumps(CONFIG).encode())
    assert (config["kind"], config["question"]) == ("config", {"model": CONFIG})
    assert config["answer"]["parameters"] > 0
    measured = Path(commands.__code__.co_filename).parents[1] / "profile" / "data" / "measured"
    profile = drop(client, "p.json", next(measured.glob("*.json")).read_bytes())
    assert profile["kind"] == "profile"
    rows = "m,n,k,dtype,latency_us,accelerator\n4096,4096,4096,bf16,250,H100\n"
    refused = client.post("/api/drop", params={"name": "a.csv"}, content=rows.encode())
    assert refused.json()["error"].startswith("a.csv: the header 'm, n, k, dtype, latency_us")


def test_a_dropped_table_is_verified(client: TestClient, capsys: Any, tmp_path: Path) -> None:
    table = (
        "model,accelerator,n_devices,seq_len,global_batch,framework,tp,pp,dp,mfu\n"
        "Llama-3.1-8B,H100,8,8192,512,torchtitan,1,1,8,0.4\n"
    )
    (tmp_path / "runs.csv").write_text(table)
    _, out, err = typed(["verify", str(tmp_path / "runs.csv")], capsys)
    assert out, err
    found = drop(client, "runs.csv", table.encode())
    assert found["kind"] == "csv"
    assert found["answer"]["schema_version"] == json.loads(out)["schema_version"]
    assert found["answer"].keys() == json.loads(out).keys()


def test_a_dropped_answer_gives_its_question_back(client: TestClient) -> None:
    body = {"model": "Llama-3.1-8B", "on": "8xH100", "tp": 2, "sp": False, "lora": True}
    answer = client.post("/api/train", json=body).json()["answer"]
    found = drop(client, "answer.json", json.dumps(answer).encode())
    assert (found["kind"], found["answer"]) == ("answer", answer)
    assert found["question"] == {"command": "train", **body}


def test_exports_are_what_the_command_writes(client: TestClient) -> None:
    body = {
        "command": "train",
        "model": "Llama-3.1-8B",
        "on": "8xH100",
        "tp": 2,
        "pp": 2,
        "zero": 1,
    }
    trace = client.post("/api/export/trace", json=body)
    assert trace.headers["content-disposition"] == 'attachment; filename="trace.json"'
    assert trace.json()["traceEvents"]
    files = client.post("/api/export/emit", json=body | {"tool": "megatron"})
    with zipfile.ZipFile(io.BytesIO(files.content)) as archive:
        assert "launch/run.sh" in archive.namelist()
    rows = list(csv.DictReader(io.StringIO(client.post("/api/export/csv", json=body).text)))
    answer = client.post("/api/train", json={k: v for k, v in body.items() if k != "command"})
    step = next(row for row in rows if row["name"] == "step_seconds")
    assert float(step["value"]) == answer.json()["answer"]["step_seconds"]["value"]
    chips = client.post("/api/export/csv", json={"command": "compare", "chips": ["H100", "A100"]})
    assert [r["vendor"] for r in csv.DictReader(io.StringIO(chips.text))] == ["NVIDIA", "NVIDIA"]
    for kind, wrong in (("trace", "compare"), ("picture", "train")):
        refused = client.post(f"/api/export/{kind}", json=body | {"command": wrong})
        assert refused.status_code == 422
    tool = client.post("/api/export/emit", json=body | {"tool": "../x"})
    assert tool.status_code == 422


def test_the_library_for_drawing_comes_out_of_a_wheel(client: TestClient) -> None:
    pytest.importorskip("mpld3", reason="the web extra is not installed")
    reply = client.get("/lib/d3.js")
    assert reply.status_code == 200
    assert "d3js.org" in reply.text[:100]


def test_the_page_can_be_asked_for_its_words(client: TestClient) -> None:
    assert client.get("/api/words/en").json() == {}
    assert all(isinstance(v, str) for v in client.get("/api/words/zh").json().values())
    assert client.get("/api/words/xx").status_code == 422
