"""The server: on loopback unless told otherwise, and the browser that looks at it."""

from __future__ import annotations

import errno
import socket
import threading
import webbrowser
from typing import Final

import uvicorn

from trueflops.errors import BadInput, printable
from trueflops.language import say
from trueflops.web.safety import LOOPBACK, Guarded

BACKLOG: Final = 512


def bind(host: str, port: int) -> socket.socket:
    """Take the port before anything is started, so that a wrong one is one sentence."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_STREAM)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((host, port))
        taken.listen(BACKLOG)  # who comes before the workers are there waits, and is not refused
    except OSError as error:
        taken.close()
        instead = say("write another --host, as 127.0.0.1 for this machine alone")
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            instead = say("write another --port, or 0 for any that is free")
        where = f"--host {printable(host, 60)} --port {port}"
        raise BadInput(
            say(
                "{where}: cannot be served on ({why}); {instead}",
                where=where,
                why=error.strerror,
                instead=instead,
            )
        ) from None
    return taken


def address_of(host: str, port: int) -> str:
    """Where a browser of this machine finds it."""
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host, host)
    return f"http://{f'[{name}]' if ':' in name and name[0] != '[' else name}:{port}/"


def hosts_of(host: str) -> frozenset[str] | None:
    """Names under which a server on loopback may be called; None: any, as others are served."""
    return LOOPBACK if host in ("localhost", "::1") or host.startswith("127.") else None


def serve(app: Guarded, taken: socket.socket, address: str, *, browser: bool) -> None:
    """Serve until Ctrl-C."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, backlog=BACKLOG, server_header=False,
        timeout_graceful_shutdown=2, lifespan="on",
    )  # fmt: skip
    if browser:
        threading.Timer(1.0, webbrowser.open, (address,)).start()
    uvicorn.Server(config).run(sockets=[taken])
