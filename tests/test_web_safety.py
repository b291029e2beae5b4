"""What a stranger cannot do to the web server: read its files, keep it busy, fill its memory."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the web extra is not installed")
pytest.importorskip("uvicorn", reason="the web extra is not installed")
pytest.importorskip("httpx", reason="the test client of starlette needs httpx")

from starlette.testclient import TestClient

import web_runs
from trueflops.cli.arguments import parser
from trueflops.cli.arguments.forms import form_of
from trueflops.cli.web import commands
from trueflops.errors import BadInput
from trueflops.web import app as web_app
from trueflops.web import pool as web_pool
from trueflops.web.allowed import COMMANDS
from trueflops.web.answers import Answers
from trueflops.web.app import application
from trueflops.web.asked import Asked
from trueflops.web.pool import Pool, Refused
from trueflops.web.safety import HEADERS, LOOPBACK
from trueflops.web.serve import address_of, bind, hosts_of
from trueflops.web.worker import STOP, Answered

HERE = "http://localhost"
QUESTION = {"model": "Llama-3.1-8B", "on": "8xH100", "tp": 2}
PATHS = (
    "../../etc/passwd", "/etc/hostname", "/etc", "./config.json", "config.json", "a/config.json",
    "/tmp/config.json", "~/config.json", "file:///etc/passwd", "..", ".", "~", "/dev/stdin",
    "/proc/self/environ", "C:\\config.json", "\\\\host\\share", "mine.toml", "Mine.TOML",
    "Llama\x00.json", "Llama-3.1-8B\x00", "Llama\n", "-v", "--emit", "$(id)", "`id`", "a/../../b",
)  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(
        application(commands(), 1, LOOPBACK), HERE, raise_server_exceptions=False
    ) as made:
        yield made


@pytest.mark.parametrize("path", PATHS, ids=repr)
def test_no_path_is_a_name(client: TestClient, path: str) -> None:
    for name in ("model", "on", "profile"):
        reply = client.post("/api/train", json=QUESTION | {name: path})
        assert (reply.status_code, reply.json()["code"]) == (422, "BAD_INPUT"), reply.text
        assert "root:" not in reply.text
    for command, body in (
        ("infer", {"model": "Llama-3.1-8B", "on": "8xH100", "draft_model": path}),
        ("compare", {"chips": [path]}),
        ("compare", {"for": path}),
        ("catalog", {"name": path}),
        ("collective", {"kind": "all_reduce", "bytes": "1GB", "on": path}),
    ):
        assert client.post(f"/api/{command}", json=body).status_code == 422


def test_a_file_beside_the_server_is_no_name(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even one whose name is a name: the workers stand elsewhere."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text('{"model_type": "llama"}')
    reply = client.post("/api/train", json=QUESTION | {"model": "mine"})
    assert reply.json()["code"] == "UNKNOWN_NAME"


def test_no_flag_that_reads_or_writes_is_served(client: TestClient) -> None:
    for command in COMMANDS:
        served = {field.name for field in form_of(command).fields}
        for action in parser().command(command).arguments():
            metavar = (
                " ".join(action.metavar)
                if isinstance(action.metavar, tuple)
                else (action.metavar or "")
            )
            words = metavar.replace(".", " ").split()
            if {"FILE", "DIR", "PATH", "FOLDER"} & set(words):
                assert action.dest not in served
                reply = client.post(f"/api/{command}", json={action.dest: "x"})
                assert reply.status_code == 422
                assert "cannot be asked" in reply.json()["error"]
        assert not served & {
            "plot",
            "plot_front",
            "trace",
            "emit",
            "from_file",
            "force",
            "verbose",
            "json",
            "requests_from",
        }
    for command in ("run", "measure", "capture", "diagnose", "verify", "sweep", "web", "ops"):
        assert client.post(f"/api/{command}", json={}).status_code == 404


def test_what_is_static_leads_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    static, secret = tmp_path / "static", tmp_path / "secret.txt"
    static.mkdir()
    secret.write_text("secret")
    (static / "index.html").write_text("<!doctype html>")
    (static / "link.txt").symlink_to(secret)
    monkeypatch.setattr(web_app, "STATIC", static)
    client = TestClient(application(commands(), 1, LOOPBACK), HERE)  # no worker is needed
    assert client.get("/static/index.html").status_code == 200
    for path in (
        "link.txt", "../secret.txt", "%2e%2e/secret.txt", "..%2fsecret.txt", "%00", "/etc/hostname",
        "..\\secret.txt", "static/../../secret.txt",
    ):  # fmt: skip
        reply = client.get(f"/static/{path}")
        assert reply.status_code in (404, 405), path
        assert "secret" not in reply.text.replace("secret.txt", "")


def test_every_reply_carries_the_policy(client: TestClient) -> None:
    for reply in (
        client.get("/"), client.get("/api/options"), client.get("/nothing"),
        client.post("/api/train", content=b"{"), client.get("/api/train"),
        client.get("/", headers={"host": "evil.example"}),
    ):  # fmt: skip
        for name, value in HEADERS.items():
            assert reply.headers[name] == value
    assert "unsafe" not in HEADERS["content-security-policy"]


def test_others_names_and_others_pages_are_refused(client: TestClient) -> None:
    assert client.get("/api/options", headers={"host": "evil.example"}).status_code == 421
    assert client.get("/api/options", headers={"host": "localhost:8080"}).status_code == 200
    for origin in ("http://evil.example", "null", "http://localhost.evil.example"):
        asked = client.post("/api/train", json=QUESTION, headers={"origin": origin})
        assert asked.status_code == 403
    image = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert client.get("/api/search", headers=image).status_code == 403
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200
    own = client.post("/api/train", json=QUESTION, headers={"origin": "http://localhost"})
    assert own.status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"3", b"null", b'"text"', b"{", b"\xff\xfe", b'{"tp": NaN}',
        b'{"model": "Llama-3.1-8B", "on": "8xH100", "tp": 1e400}',
        b'{"model": "Llama-3.1-8B", "on": "8xH100", "tp": 1' + b"0" * 400 + b"}",
        b'{"model": "Llama-3.1-8B", "on": "8xH100", "seq": 1' + b"0" * 200 + b"}",
        b'{"model": "Llama-3.1-8B", "on": "8xH100", "tp": 1' + b"0" * 5000 + b"}",
        b'{"model": "Llama-3.1-8B", "on": "' + b"8" * 100 + b'xH100"}',
        b'{"model": "Llama-3.1-8B", "on": "8xH100", "tp": [1]}',
        b'{"model": "Llama-3.1-8B", "on": "8xH100", "tp": {"a": 1}}',
        b'{"model": "Llama-3.1-8B", "on": "8xH100", "mb": 1, "micro_batch": 2}',
        b'{"model": "Llama-3.1-8B", "on": "8xH100", "spot": "yes"}',
        b'{"model": "Llama-3.1-8B", "on": "8xH100", "seq": "\\ud800"}',
        b'{"model": true, "on": "8xH100"}',
        b"{" + b'"a":{' * 100_000, b"[" * 1_000_000,
        b'{"model": ' + b'{"a":' * 40 + b"1" + b"}" * 41,
    ],
    ids=lambda body: repr(body[:60]),
)  # fmt: skip
def test_what_is_malformed_is_one_sentence(client: TestClient, body: bytes) -> None:
    reply = client.post("/api/train", content=body)
    assert reply.status_code == 422, reply.text
    assert len(reply.json()["error"]) < 600
    assert "Traceback" not in reply.text


def test_what_is_too_large_is_not_read(client: TestClient) -> None:
    huge = b'{"model": "' + b"x" * (5 * 1024 * 1024) + b'"}'
    for path in ("train", "export/csv"):
        reply = client.post(f"/api/{path}", content=huge)
        assert (reply.status_code, reply.json()["code"]) == (413, "TOO_LARGE")


@pytest.mark.parametrize(
    "raw",
    [
        b"", b" \n", b"\x00\x01\x02", b"\x1f\x8b nonsense", b"{", b'{"a": 1}', b"[]", b"[[[[",
        b'{"traceEvents": 3}', b'{"traceEvents": []}', b"a,b\n1,2\n", b'{"schema_version": 1}',
        b'{"schema_version": 1, "question": {"command": "run", "arguments": []}}',
        b'{"schema_version": 1, "question": {"command": "train", "arguments": ["--emit"]}}',
        b'{"schema_version": 1, "question": {"command": "train", "arguments": [3]}}',
        b'{"schema_version": 2, "curves": {}}', b'{"measured": "x"}', b'{"curves": 3}',
        b'{"model_type": "llama"}', b'{"model_type": 3}', b'{"text_config": "x"}',
    ],
    ids=repr,
)  # fmt: skip
def test_a_dropped_file_that_is_none_is_one_sentence(client: TestClient, raw: bytes) -> None:
    reply = client.post("/api/drop", params={"name": "../../x.json"}, content=raw)
    assert reply.status_code == 422, reply.text
    assert "Traceback" not in reply.text
    assert len(reply.json()["error"]) < 2500


def in_pool(
    monkeypatch: pytest.MonkeyPatch, use: Callable[[Pool], Awaitable[Any]], size: int = 1
) -> Any:
    """With workers whose command line misbehaves."""
    folders: set[Path] = set()

    async def whole() -> Any:
        pool = Pool(web_runs.run, size)
        pool.start()
        try:
            return await use(pool)
        finally:
            folders.update(desk.folder for desk in pool.desks)
            pool.close()

    found = asyncio.run(whole())
    assert folders
    assert not any(folder.exists() for folder in folders)
    return found


async def ask(pool: Pool, *words: str, seconds: float = 60.0) -> Answered:
    return await pool.ask(Asked(words), seconds, lambda told: None)


def test_a_worker_is_walled_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Even if a command line could be made to name a file, a program or an address."""

    async def use(pool: Pool) -> None:
        for words in (
            ("read", "/etc/passwd"), ("read", "../../../../../../etc/passwd"),
            ("read", str(Path(__file__).parents[1] / "README.md")),
            ("write", str(tmp_path / "x")), ("write", str(Path(__file__).parent / "x.tmp")),
            ("start",), ("connect",),
        ):  # fmt: skip
            found = await ask(pool, *words)
            assert "web server" in found.error, (words, found)
        assert (await ask(pool, "write", "own.txt")).answer == b"{}\n"
        assert "FileNotFoundError" in (await ask(pool, "read", "own.txt")).error  # cleared away
        shutil.rmtree(pool.desks[0].folder)  # as those do who tidy /tmp
        assert (await ask(pool, "write", "own.txt")).answer == b"{}\n"
        assert "MemoryError" in (await ask(pool, "allocate")).error

    in_pool(monkeypatch, use)
    assert not list(tmp_path.iterdir())


def test_what_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(pool: Pool) -> None:
        with pytest.raises(Refused, match="longer than the") as refused:
            await ask(pool, "sleep", "600", seconds=0.2)
        assert refused.value.code == "TOO_LONG"
        with pytest.raises(Refused, match="died"):
            await ask(pool, "die")
        assert (await ask(pool, "quick")).exit_code == 0

    in_pool(monkeypatch, use)


@pytest.mark.parametrize("long", ["sleep", "deaf"])
def test_what_nobody_waits_for_is_ended(monkeypatch: pytest.MonkeyPatch, long: str) -> None:
    """Its worker stops and takes the next question; one that does not hear it is replaced."""
    monkeypatch.setattr(web_pool, "GRACE_SECONDS", 0.05 if long == "deaf" else 60)

    async def use(pool: Pool) -> None:
        before = json.loads((await ask(pool, "whoami")).answer)["pid"]
        left = asyncio.ensure_future(ask(pool, long, "600", seconds=600))
        waiting = asyncio.ensure_future(ask(pool, "sleep", "601", seconds=600))
        await asyncio.sleep(0.05)
        waiting.cancel()
        left.cancel()
        after = json.loads((await ask(pool, "whoami")).answer)["pid"]
        assert (after != before) == (long == "deaf")
        assert not pool.waiting

    in_pool(monkeypatch, use)


def test_a_question_is_not_stopped_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader may leave in the moment in which the answer is on its way."""

    async def use(pool: Pool) -> None:
        await ask(pool, "quick")
        pid = pool.desks[0].worker.process.pid
        assert pid
        os.kill(pid, STOP)
        assert json.loads((await ask(pool, "whoami")).answer)["pid"] == pid

    in_pool(monkeypatch, use)


def test_a_reader_who_leaves_is_no_error_of_the_servers() -> None:
    """What an application raises, its server logs: a traceback for each slider that moves on."""
    said = [
        {"type": "http.request", "body": json.dumps(QUESTION).encode(), "more_body": False},
        {"type": "http.disconnect"},
    ]
    replied: list[Any] = []
    scope = {"type": "http", "method": "POST", "path": "/api/train", "query_string": b"",
             "root_path": "", "scheme": "http", "http_version": "1.1",
             "headers": [(b"host", b"localhost")]}  # fmt: skip

    async def receive() -> Any:
        return said.pop(0)

    async def send(message: Any) -> None:
        replied.append(message)

    app = application(commands(), 1, LOOPBACK)  # no worker is hired: the question waits
    asyncio.run(app(scope, receive, send))
    assert replied[0]["status"] == 499


def test_no_worker_remembers_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_pool, "MOST_ANSWERED", 3)

    async def use(pool: Pool) -> None:
        pids = [json.loads((await ask(pool, "whoami")).answer)["pid"] for _ in range(7)]
        assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 1]

    in_pool(monkeypatch, use)


def test_a_long_question_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_pool, "PATIENCE_SECONDS", 0.05)

    async def use(pool: Pool) -> None:
        long = [asyncio.ensure_future(ask(pool, "sleep", "600", seconds=600)) for _ in range(2)]
        await asyncio.sleep(0)
        assert (await ask(pool, "quick")).exit_code == 0
        assert sum(desk.aside for desk in pool.desks) == 2
        assert not any(each.done() for each in long)
        for each in long:
            each.cancel()

    in_pool(monkeypatch, use)


def test_an_equal_question_is_asked_once_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(pool: Pool) -> None:
        answers = Answers(pool, most_bytes=10_000)
        asked = Asked(("sleep", "0.1"))
        found = await asyncio.gather(*(answers.ask(asked, 60.0) for _ in range(5)))
        assert all(each is found[0] for each in found)
        assert answers.recall(asked) == found[0]
        for at in range(100):
            await answers.ask(Asked(("quick", str(at))), 60.0)
        assert answers.bytes <= 10_000
        assert answers.recall(asked) is None

    in_pool(monkeypatch, use)


def test_short_answers_are_counted_by_what_they_take() -> None:
    """Ten bytes of text are a kilobyte of objects: a megabyte keeps hundreds, not 30,000."""
    answers = Answers(Pool(web_runs.run, 1), most_bytes=1_000_000)
    first = Asked(("quick", "000000"))
    tracemalloc.start()
    try:
        for at in range(3000):
            asked = Asked(("quick", f"{at:06d}"))
            answers._keep(asked, Answered(2, error=f"no {at:06d}", code="BAD_INPUT"))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answers.recall(first) is None
    assert answers.recall(asked) is not None
    assert held < answers.most_bytes


def test_where_it_is_served_is_said_in_one_sentence() -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadInput, match=r"Address already in use.*write another --port"):
            bind("127.0.0.1", port)
    with pytest.raises(BadInput, match="write another --host"):
        bind("host.invalid", 0)
    assert address_of("0.0.0.0", 8080) == "http://127.0.0.1:8080/"
    assert address_of("::1", 80) == "http://[::1]:80/"
    assert hosts_of("127.0.0.1") == LOOPBACK
    assert hosts_of("0.0.0.0") is None
