"""The ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import BaseRoute, Mount
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
from kafkapy_console.pages import home as home_page
from kafkapy_console.place import Home, Place
from kafkapy_console.security.audit import Audit
from kafkapy_console.security.headers import AllowedHosts, RawPath, SecurityHeaders
from kafkapy_console.security.people import People
from kafkapy_console.settings import Settings
from kafkapy_console.web import OnlyWithRole, not_found

__all__ = ["create_app"]

PAGES = (
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
    """A console with these settings. It starts and stops with the server's lifespan.

    With several clusters, an application for each is mounted at the cluster's name.
    """
    audit = Audit(settings.audit_file)
    people = People(settings, audit)
    home: Home | None = None
    if settings.clusters:
        home = Home(settings, people, audit)
        consoles = [Console(each, people, audit.of(each.name), each.name) for each in settings.clusters]
        for place in (home, *consoles):
            place.all_clusters = consoles
        mounts = [Mount(each.root, OnlyWithRole(_application(each, _routes(PAGES)), each)) for each in consoles]
        routes: list[BaseRoute] = [*_routes((login, home_page)), *mounts]
    else:
        consoles = [Console(settings, people, audit.of(""))]
        routes = _routes((login, *PAGES))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        for console in consoles:
            await console.start()
        try:
            yield
        finally:
            if home is not None:
                await home.looks.close()
            for console in consoles:
                await console.close()
            await people.close()
            audit.close()

    app = _application(
        home or consoles[0],
        [Mount("/static", StaticFiles(packages=[("kafkapy_console", "static")]), name="static"), *routes],
        middleware=[
            Middleware(RawPath),
            Middleware(SecurityHeaders),
            Middleware(AllowedHosts, hosts=(*LOCAL_HOSTS, *settings.hosts)),
            Middleware(GZipMiddleware, minimum_size=1000),
        ],
        lifespan=lifespan,
    )
    # A redirect of /name to /name/ would tell anybody that there is a cluster of the name.
    app.router.redirect_slashes = home is None
    return app


def _routes(modules: Iterable[ModuleType]) -> list[BaseRoute]:
    return [route for module in modules for route in module.ROUTES]


def _application(place: Place, routes: Sequence[BaseRoute], **more: Any) -> Starlette:
    app = Starlette(routes=routes, exception_handlers={404: not_found, 405: not_found}, **more)
    app.state.place = place
    return app
