"""The API as its document describes it: what schemathesis makes up is answered as is written there.

Questions that fit the schema may still be refused (422): a name that no catalog has is well formed.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

pytest.importorskip("starlette", reason="the web extra is not installed")
pytest.importorskip("uvicorn", reason="the web extra is not installed")
pytest.importorskip("schemathesis", reason="schemathesis is not installed")

import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, settings

from patience import HUNG
from trueflops.cli.web import commands
from trueflops.web.app import application
from trueflops.web.openapi import document
from trueflops.web.pool import Pool
from trueflops.web.safety import LOOPBACK
from trueflops.web.serve import bind

EXAMPLES: Final = 8  # of each operation and way to be wrong


class Running:
    """The server in a thread, under the port that it was given."""

    def __init__(self) -> None:
        self.taken = bind("127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{self.taken.getsockname()[1]}"
        app = application(commands(), 1, LOOPBACK)
        self.pool: Pool = app.app.state.pool
        self.server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
        self.thread = threading.Thread(
            target=self.server.run, kwargs={"sockets": [self.taken]}, daemon=True
        )


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    made = Running()
    made.thread.start()
    yield made
    made.server.should_exit = True
    made.thread.join(HUNG)


api = schemathesis.openapi.from_dict(document(commands().forms))


@api.parametrize()  # type: ignore[untyped-decorator]
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_replies_are_as_documented(case: Any, running: Running) -> None:
    refused = schemathesis.checks.CHECKS.get_one("positive_data_acceptance")
    case.call_and_validate(base_url=running.address, excluded_checks=[refused], timeout=HUNG)


def test_a_long_answer_arrives_whole(running: Running) -> None:
    """Whichever event loop reads the pipe of a worker: it holds less than such an answer."""
    asked = Request(f"{running.address}/api/compare", b'{"all": true}')
    with urlopen(asked, timeout=HUNG) as reply:
        raw = reply.read()
    assert len(raw) > 2**16
    assert json.loads(raw)["exit_code"] == 0


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + HUNG
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("door", ["search", "answer"])
def test_the_work_ends_when_the_client_leaves(running: Running, door: str) -> None:
    """A search of some ten seconds, over a real connection that is closed in its midst."""
    body = json.dumps({"model": "Llama-3.1-405B", "on": "2048xH100", "offload": "any"})
    asked = json.dumps({"command": "train"} | json.loads(body))
    head = f"GET /api/search?question={quote(asked)} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    if door == "answer":
        head = "POST /api/train HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n{body}"
    with socket.create_connection(running.taken.getsockname()) as line:
        line.sendall(head.encode())
        wait_until(lambda: any(desk.job for desk in running.pool.desks))
        job = next(desk.job for desk in running.pool.desks if desk.job)
    wait_until(lambda: not any(desk.job for desk in running.pool.desks))
    assert job.done.cancelled()
    wait_until(lambda: sum(desk.ready for desk in running.pool.desks) == running.pool.size)


def test_the_document_names_every_flag() -> None:
    said = document(commands().forms)
    for command, form in commands().forms.items():
        shape = said["components"]["schemas"][f"{command.capitalize()}Question"]
        assert list(shape["properties"]) == [field.name for field in form.fields]
