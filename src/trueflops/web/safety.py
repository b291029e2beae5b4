"""What every reply says and every request may hold: headers, sizes, hosts.

The page loads nothing from elsewhere and nothing may frame it or send forms from it; the policy
makes the browser hold us to that. Another site's page can neither ask (no CORS, JSON only) nor
reach us under a name of its own (the Host must be one that was agreed on).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trueflops.language import say

POLICY: Final = "; ".join((
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data: blob:",
    "connect-src 'self'", "font-src 'self'", "form-action 'none'", "base-uri 'none'",
    "frame-ancestors 'none'",
))  # fmt: skip
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Guarded:
    """An application whose replies carry the headers, and which answers under its names only."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str] | None) -> None:
        self.app = app
        self.hosts = None if hosts is None else frozenset(hosts)  # None: any

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._refusal(Headers(scope=scope))
        app: ASGIApp = self.app if refusal is None else refusal
        await app(scope, receive, send_guarded)

    def _refusal(self, headers: Headers) -> JSONResponse | None:
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if self.hosts is not None and name.casefold() not in self.hosts:
            said = say(
                "this server answers on this machine alone; start it with --host to serve others"
            )
            return JSONResponse({"error": said, "code": "FOREIGN_HOST"}, 421)
        origin = headers.get("origin")
        # An image or a script of another site sends no origin, but browsers say where it is from
        # (Fetch Metadata, section 2.3); following a link to the page is another site's, too.
        from_elsewhere = headers.get("sec-fetch-site") == "cross-site"
        embedded = from_elsewhere and headers.get("sec-fetch-mode") != "navigate"
        if embedded or origin not in (None, f"http://{host}", f"https://{host}"):
            said = say("another site's page may not ask this server")
            return JSONResponse({"error": said, "code": "FOREIGN_ORIGIN"}, 403)
        return None
