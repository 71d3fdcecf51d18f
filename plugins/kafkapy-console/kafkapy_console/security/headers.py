"""Headers of every response, and the host names that the console answers to.

The content security policy allows scripts, styles, pictures and connections of the console only, and nothing inline:
the contents of a record that reach a page unescaped could still run nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["POLICY", "AllowedHosts", "RawPath", "SecurityHeaders"]

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


class SecurityHeaders:
    """Adds the headers; pages are not stored by browsers, files of the package are."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if "Cache-Control" not in headers:
                    static = scope["path"].startswith("/static/") and message["status"] in (200, 304)
                    headers["Cache-Control"] = "public, max-age=86400" if static else "no-store"
                if scope.get("scheme") == "https":
                    headers["Strict-Transport-Security"] = "max-age=31536000"
            await send(message)

        await self._app(scope, receive, send_with_headers)


class RawPath:
    """Routes see the path as the browser sent it: a name with a slash is one part, encoded."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "http" and scope.get("raw_path"):
            scope = {**scope, "path": scope["raw_path"].decode("ascii", "replace").partition("?")[0]}
        await self._app(scope, receive, send)


class AllowedHosts:
    """Refuses requests under a host name of others: a page of an attacker whose name leads to this machine."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "http" and "*" not in self._hosts:
            host = Headers(scope=scope).get("host", "").lower()
            name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() and ":" in host else host
            if name.strip("[]") not in self._hosts:
                text = "This host name is not allowed. The setting hosts (or --host-name) allows it.\n"
                await PlainTextResponse(text, 421)(scope, receive, send)
                return
        await self._app(scope, receive, send)
