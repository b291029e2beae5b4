"""Questions answered by a Ray cluster: the same rows, on many machines.

In: questions, the function that answers one. Out: rows in the order in which they are ready, each
with the place of its question. This package travels to the workers, which need Ray, numpy and rich;
files that questions name must lie at the same path there. A worker that dies is replaced by Ray.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any, Final

from trueflops.errors import BadInput, printable, shorten
from trueflops.language import say
from trueflops.sweep.journal import PACKAGE
from trueflops.sweep.local import TRIES, Answer
from trueflops.sweep.questions import Question
from trueflops.sweep.rows import Row, failed

LOCAL: Final = "local"
AUTO: Final = "auto"  # the cluster that this machine is part of
PATIENCE_SECONDS: Final = 10.0
AHEAD: Final = 2  # questions for each core, so that none waits for us


def answer_on_ray(
    questions: Sequence[Question], answer: Answer, address: str, jobs: int | None
) -> Iterator[tuple[int, Row]]:
    """Rows as they come. `jobs`: so many at a time; None: as many as the cluster has cores."""
    ray = _connected(address, jobs)
    try:
        ask = ray.remote(num_cpus=1, max_retries=TRIES - 1)(_answer_in)
        folder, function = os.getcwd(), ray.put(answer)
        most = jobs or AHEAD * max(int(ray.cluster_resources().get("CPU", 1)), 1)
        waiting = iter(enumerate(questions))
        asked: dict[Any, int] = {}
        while True:
            while len(asked) < most and (item := next(waiting, None)) is not None:
                place, question = item
                asked[ask.remote(folder, function, question)] = place
            if not asked:
                return
            for ready in ray.wait(list(asked), num_returns=1)[0]:
                place = asked.pop(ready)
                yield place, _row(ray, ready)
    finally:
        ray.shutdown()


def _answer_in(folder: str, answer: Answer, question: Question) -> Row:
    """On a worker: where the user stands, so that paths mean the same."""
    with contextlib.suppress(OSError):
        os.chdir(folder)
    return answer(question)


def _row(ray: Any, ready: Any) -> Row:
    try:
        row: Row = ray.get(ready)
    except (
        ray.exceptions.WorkerCrashedError,
        ray.exceptions.OutOfMemoryError,
        ray.exceptions.NodeDiedError,
    ):
        return failed(f"its process died {TRIES} times, perhaps of too little memory")
    except ray.exceptions.RayError as error:  # the worker lacks a package: so do they all
        last = str(error).strip().splitlines()[-1]
        raise BadInput(
            say(
                "Ray's workers cannot answer ({last}); they need the Python of this machine, "
                "Ray, numpy and rich",
                last=shorten(printable(last), 200),
            )
        ) from None
    return row


def _knock(address: str) -> None:
    """Raise OSError where nobody listens: Ray itself would wait there for many minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isascii() and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE_SECONDS).close()
    elif address != AUTO:
        raise OSError("no port")


def _connected(address: str, jobs: int | None) -> Any:
    try:
        import ray
    except ImportError:
        raise BadInput(say("--ray needs Ray; pip install 'trueflops[ray]'")) from None
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address == LOCAL:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # we call nobody
            ray.init(address=LOCAL, num_cpus=jobs, include_dashboard=False, **quiet)
        else:
            _knock(address)
            ray.init(address=address, runtime_env={"py_modules": [str(PACKAGE)]}, **quiet)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        said = shorten(printable(str(error)), 160)
        raise BadInput(
            say(
                "--ray {address}: no Ray cluster lets us in there ({said}); write local, "
                "auto or HOST:6379, and set RAY_AUTH_TOKEN where it asks for a token",
                address=printable(address),
                said=said,
            )
        ) from None
    return ray
