"""The server: on loopback unless told otherwise, and the browser that looks at it."""

from __future__ import annotations

import socket
import threading
import webbrowser
from typing import Final

import uvicorn

from trueflops.errors import BadInput
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
        raise BadInput(
            f"--host {host} --port {port}: cannot be served on ({error.strerror}); write another "
            "--port, or 0 for any that is free"
        ) from None
    return taken


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
