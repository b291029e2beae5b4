"""The routes: what is asked is handed to the command line, what it says is handed back.

POST /api/{command}   a question as JSON      GET /api/search       the same, with its progress
POST /api/drop        a file to be recognised POST /api/export/{kind}  files of an answer
GET /api/options      what forms are made of  GET /api/words/{language}  the page's strings
GET /openapi.json     all of this as data     GET /, /static, /lib  the page and its libraries
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from trueflops.errors import BadInput
from trueflops.language import say
from trueflops.web.allowed import check_name, check_text
from trueflops.web.answers import Answers
from trueflops.web.asked import Asked, read_asked, read_body
from trueflops.web.dropped import LARGEST_DROP, ReadWords, recognise
from trueflops.web.exported import asked_for, packed
from trueflops.web.forms import Form
from trueflops.web.openapi import document
from trueflops.web.pool import Pool, Refused
from trueflops.web.safety import Guarded
from trueflops.web.searching import events
from trueflops.web.words import page_words
from trueflops.web.worker import Answered, Run

STATIC: Final = Path(__file__).parent / "static"
MOST_SECONDS: Final = 30.0  # of a question that is not a search
LARGEST_BODY: Final = 4 * 1024 * 1024 + 4096
_STATUS: Final = {"TOO_LONG": 503, "BUSY": 503, "TOO_LARGE": 503, "BUG": 500}
_CODES: Final = {404: "NOT_FOUND", 405: "WRONG_METHOD", 413: "TOO_LARGE"}
_LEFT: Final = 499  # nobody reads it


@dataclass(frozen=True)
class Commands:
    """What the page may ask, handed in by cli/web.py."""

    run: Run  # the command line's main()
    forms: Mapping[str, Form]
    names: Callable[[], Mapping[str, Any]]  # lists that forms choose from: models, accelerators …
    read_words: ReadWords


def application(commands: Commands, size: int, hosts: frozenset[str] | None) -> Guarded:
    """The whole server as an ASGI application."""
    pool = Pool(commands.run, size)
    doors = Doors(commands, Answers(pool))

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        pool.start()
        try:
            yield
        finally:
            pool.close()

    routes: list[BaseRoute] = [
        Route("/", page),
        Route("/lib/d3.js", d3),
        Route("/api/options", doors.options),
        Route("/api/words/{language}", words),
        Route("/openapi.json", doors.openapi),
        Route("/api/search", doors.search),
        Route("/api/drop", doors.drop, methods=["POST"]),
        Route("/api/export/{kind}", doors.export, methods=["POST"]),
        *(Route(f"/api/{name}", doors.answer, methods=["POST"]) for name in commands.forms),
    ]
    if STATIC.is_dir():  # links that lead out of it are not followed
        routes.append(Mount("/static", StaticFiles(directory=STATIC)))
    handlers: Mapping[Any, Any] = {
        BadInput: _refused, Refused: _refused, HTTPException: _no_such, ClientDisconnect: _left,
        Exception: _bug,
    }  # fmt: skip
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.state.pool = pool
    return Guarded(app, hosts)


class Doors:
    """The routes that ask."""

    def __init__(self, commands: Commands, answers: Answers) -> None:
        self.commands, self.answers = commands, answers
        self._options: bytes = b""

    async def options(self, _: Request) -> Response:
        """What forms are made of."""
        if not self._options:
            forms = {name: form.encode() for name, form in self.commands.forms.items()}
            whole = {"commands": forms, **self.commands.names()}
            self._options = json.dumps(whole).encode()
        return Response(self._options, media_type="application/json")

    async def openapi(self, _: Request) -> Response:
        """The API as data."""
        return JSONResponse(document(self.commands.forms))

    async def answer(self, request: Request) -> Response:
        """One question."""
        form = self.form(request.url.path.rpartition("/")[2])
        asked = read_asked(form, read_body(await body_of(request)))
        return reply(asked, await self._ask(request, asked))

    async def search(self, request: Request) -> Response:
        """One question, with its progress."""
        body = read_body(request.query_params.get("question", "").encode(errors="replace"))
        asked = self._any(body)
        return StreamingResponse(
            events(request, self.answers, asked),
            media_type="text/event-stream",
            headers={"cache-control": "no-store"},
        )

    async def drop(self, request: Request) -> Response:
        """A file: what it is, and what there is to say of it."""
        given = {name: request.query_params.get(name, "") for name in ("name", "on")}
        for name, text in given.items():
            check_text(name, text)
        if given["on"]:
            check_name("on", given["on"])
        raw = await body_of(request, LARGEST_DROP)
        found = await asyncio.to_thread(
            recognise, given["name"] or "the file", raw, given["on"], self.commands.read_words
        )
        shown = found.answer
        if found.asked is not None:
            # Kept by nobody: it is large, and rarely dropped twice.
            asking = self.answers.pool.ask(found.asked, MOST_SECONDS, lambda told: None)
            said = await while_there(request, asking)
            if said.error:
                return failed(said.error, said.code)
            shown = json.loads(said.answer)
        return JSONResponse({"kind": found.kind, "answer": shown, "question": found.question})

    async def export(self, request: Request) -> Response:
        """Files of an answer."""
        body = read_body(await body_of(request))
        tool = body.pop("tool", None)
        kind = request.path_params["kind"]
        asked = asked_for(kind, self._any(body), tool)
        found = await self._ask(request, asked)
        if found.error:
            return failed(found.error, found.code)
        name, media, content = await asyncio.to_thread(packed, kind, asked, found)
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type=media, headers=headers)

    async def _ask(self, request: Request, asked: Asked) -> Answered:
        found = self.answers.recall(asked)
        return found or await while_there(request, self.answers.ask(asked, MOST_SECONDS))

    def _any(self, body: dict[str, Any]) -> Asked:
        """A question that names its command itself."""
        command = body.pop("command", None)
        if not isinstance(command, str):
            raise BadInput(
                say(
                    "the question names no command; write {example}",
                    example='{"command": "train", …}',
                )
            )
        return read_asked(self.form(command), body)

    def form(self, command: str) -> Form:
        """Of a command that may be asked."""
        if command not in self.commands.forms:
            known = ", ".join(self.commands.forms)
            raise HTTPException(
                404,
                say(
                    "no command {command!r} is served here; ask {known}",
                    command=command[:40],
                    known=known,
                ),
            )
        return self.commands.forms[command]


async def body_of(request: Request, most: int = LARGEST_BODY) -> bytes:
    """The body, as long as it is not too long: what is too large is not even read."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise HTTPException(413, say("larger than {most} MiB", most=most // 1024 // 1024))
        parts.append(part)
    return b"".join(parts)


async def while_there(request: Request, work: Awaitable[Answered]) -> Answered:
    """The answer, unless whoever asked leaves first: then the work is cancelled."""
    asking = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(request.receive())  # the body is read: only a goodbye is left
    try:
        await asyncio.wait({asking, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            raise ClientDisconnect
        return asking.result()
    finally:
        asking.cancel()
        leaving.cancel()


def reply(asked: Asked, found: Answered) -> Response:
    """The envelope around what the command printed, whose bytes stay as they are."""
    if found.error:
        return failed(found.error, found.code)
    head = f'{{"command": {json.dumps(asked.typed)}, "exit_code": {found.exit_code}, "answer": '
    return Response(head.encode() + found.answer + b"}", media_type="application/json")


def failed(error: str, code: str) -> JSONResponse:
    """Why there is no answer."""
    return JSONResponse({"error": error, "code": code}, _STATUS.get(code, 422))


async def words(request: Request) -> Response:
    """The page's strings."""
    return JSONResponse(dict(page_words(request.path_params["language"])))


async def page(_: Request) -> Response:
    """The page."""
    if not (STATIC / "index.html").is_file():
        raise HTTPException(404, say("this build has no page; the API is at /api"))
    return FileResponse(STATIC / "index.html")


async def d3(_: Request) -> Response:
    """d3 as the wheel of mpld3 carries it; mpld3 itself is not imported."""
    found = importlib.util.find_spec("mpld3")
    if found is None or not found.submodule_search_locations:
        raise HTTPException(
            404, say("d3 comes with the package mpld3: pip install 'trueflops[web]'")
        )
    return FileResponse(
        Path(found.submodule_search_locations[0]) / "js" / "d3.v5.min.js",
        media_type="text/javascript",
        headers={"cache-control": "max-age=86400"},
    )


async def _refused(_: Request, error: BadInput | Refused) -> Response:
    return failed(str(error), error.code)


async def _no_such(_: Request, error: HTTPException) -> Response:
    code, said = _CODES.get(error.status_code, "BAD_INPUT"), error.detail
    if said == HTTPStatus(error.status_code).phrase:
        said = say("{said}; GET /openapi.json says what there is", said=said.lower())
    headers = dict(error.headers or {})
    return JSONResponse({"error": said, "code": code}, error.status_code, headers)


async def _left(_: Request, error: ClientDisconnect) -> Response:
    """Named by itself: what only `Exception` catches, Starlette raises again into the log."""
    return Response(status_code=_LEFT)


async def _bug(_: Request, error: Exception) -> Response:
    return failed(say("a bug of ours: {kind}", kind=type(error).__name__), "BUG")
