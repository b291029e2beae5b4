"""A question whose answer takes long, over Server-Sent Events: progress, then the answer.

https://html.spec.whatwg.org/multipage/server-sent-events.html: `event: NAME`, `data: LINE` for each
line, an empty line. Whoever closes the connection ends the work.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from math import isfinite
from typing import Any, Final

from starlette.requests import Request

from trueflops.errors import TrueflopsError
from trueflops.web.answers import Answers
from trueflops.web.asked import Asked
from trueflops.web.pool import Refused
from trueflops.web.worker import Answered, Told

MOST_SECONDS: Final = 300.0
LOOK_SECONDS: Final = 0.5  # between looks at whether anyone still listens


async def events(request: Request, answers: Answers, asked: Asked) -> AsyncIterator[bytes]:
    """The events of one question."""
    told: asyncio.Queue[Told] = asyncio.Queue()
    asking = asyncio.ensure_future(answers.ask(asked, MOST_SECONDS, told.put_nowait))
    try:
        while not asking.done():
            hearing = asyncio.ensure_future(told.get())
            await asyncio.wait({asking, hearing}, timeout=LOOK_SECONDS,
                               return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
            if hearing.done():
                yield event("progress", encode_told(hearing.result()))
            else:
                hearing.cancel()
                if await request.is_disconnected():
                    return
                yield b": still at it\n\n"
        yield _last(asked, asking)
    finally:
        asking.cancel()


def encode_told(told: Told) -> dict[str, Any]:
    """How far it is; numbers where plans are searched, else null."""
    far = told.progress
    best = far.best_seconds if far and isfinite(far.best_seconds) else None
    return {
        "decided": int(far.decided) if far else None,
        "legal": int(far.legal) if far else None,
        "best_seconds": None if best is None else float(best),
        "text": told.text.removesuffix("; Ctrl-C shows the best so far"),
    }


def event(name: str, data: object) -> bytes:
    """One event of a JSON object, on one line."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def _last(asked: Asked, asking: asyncio.Future[Answered]) -> bytes:
    try:
        found = asking.result()
    except (Refused, TrueflopsError) as error:
        return event("error", {"error": str(error), "code": error.code})
    if found.error:
        return event("error", {"error": found.error, "code": found.code})
    whole = {"command": asked.typed, "exit_code": found.exit_code}
    return event("answer", whole | {"answer": json.loads(found.answer)})
