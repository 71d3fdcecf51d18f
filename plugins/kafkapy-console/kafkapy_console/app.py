"""The ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from kafkapy_console.console import Console
from kafkapy_console.pages import (
    brokers,
    cluster,
    connect,
    group_actions,
    groups,
    login,
    produce,
    reassignments,
    records,
    schemas,
    security,
    streams,
    topic_actions,
    topics,
    transactions,
)
from kafkapy_console.security.headers import AllowedHosts, RawPath, SecurityHeaders
from kafkapy_console.settings import Settings
from kafkapy_console.web import not_found

__all__ = ["create_app"]

PAGES = (
    login,
    cluster,
    brokers,
    topics,
    topic_actions,
    records,
    streams,
    produce,
    reassignments,
    groups,
    group_actions,
    transactions,
    security,
    schemas,
    connect,
)
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


def create_app(settings: Settings) -> Starlette:
    """A console with these settings. It starts and stops with the server's lifespan."""
    console = Console(settings)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await console.start()
        try:
            yield
        finally:
            await console.close()

    app = Starlette(
        routes=[
            Mount("/static", StaticFiles(packages=[("kafkapy_console", "static")]), name="static"),
            *(route for module in PAGES for route in module.ROUTES),
        ],
        middleware=[
            Middleware(RawPath),
            Middleware(SecurityHeaders),
            Middleware(AllowedHosts, hosts=(*LOCAL_HOSTS, *settings.hosts)),
            Middleware(GZipMiddleware, minimum_size=1000),
        ],
        exception_handlers={404: not_found, 405: not_found},
        lifespan=lifespan,
    )
    app.state.console = console
    return app
