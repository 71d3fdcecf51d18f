"""The list of several clusters, which is the first page of a console that has them."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from starlette.responses import Response

from kafkapy_console.console import Console
from kafkapy_console.place import Home
from kafkapy_console.security.roles import Access
from kafkapy_console.services.looks import Look
from kafkapy_console.settings import Level
from kafkapy_console.web import Visit, page

__all__ = ["ROUTES"]

OLD_S = 15.0
"""The list renews itself every 5 s: a look of this age is an old one."""


@dataclass(frozen=True)
class Row:
    """A cluster as a person sees it. Numbers are None while nothing is known."""

    console: Console
    state: str
    """up, degraded, away, failed, no answer yet."""
    text: str = ""
    brokers: int | None = None
    topics: int | None = None
    under: int | None = None
    offline: int | None = None
    age_s: float | None = None
    """Seconds since the look, when it is old."""


async def clusters(visit: Visit) -> Response:
    """Each cluster in which the session has a role: state, brokers, topics, partitions with a problem."""
    home = visit.place
    assert isinstance(home, Home)
    shown = visit.clusters
    looks = await home.looks.at({each.cluster: each.clients(visit.session) for each in shown})
    rows = [_row(each, looks[each.cluster], visit.session.access_in(each.cluster)) for each in shown]
    return visit.render("fragments/clusters.html" if visit.is_fragment else "clusters.html", rows=rows)


def _row(console: Console, look: Look | None, access: Access) -> Row:
    row = _state(console, look, access)
    age_s = 0.0 if look is None else time.monotonic() - look.ended
    return replace(row, age_s=age_s) if age_s > OLD_S else row


def _state(console: Console, look: Look | None, access: Access) -> Row:
    if look is None:
        return Row(console, "no answer yet")
    if look.error is not None:
        return Row(console, "away" if look.away else "failed", look.error)
    topics = [look.topics[name] for name in look.topics if access.may(Level.VIEWER, name)]
    under, offline = sum(each.under_replicated for each in topics), sum(each.offline for each in topics)
    return Row(console, "degraded" if under or offline else "up", "", look.brokers, len(topics), under, offline)


ROUTES = [page("/", clusters)]
