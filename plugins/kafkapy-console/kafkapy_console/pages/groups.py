"""Groups: the list with lag, one group with its members, partitions, reasons and history."""

from __future__ import annotations

import csv
import io
from typing import Any

from starlette.responses import JSONResponse, Response

from kafkapy_console.pages.brokers import alter, config_rows, edit_page
from kafkapy_console.pages.topics import pages_of
from kafkapy_console.records.export import safe_cell
from kafkapy_console.services.groups import Group, Groups
from kafkapy_console.services.history import series
from kafkapy_console.services.reasons import explained
from kafkapy_console.services.topics import described
from kafkapy_console.settings import Level
from kafkapy_console.text import url_part
from kafkapy_console.web import Form, Visit, action, page

__all__ = ["ROUTES", "group_of"]

KINDS = ("", "classic", "consumer", "share", "streams")
SORTS = ("lag", "partition", "committed")
MOST_PARTITIONS = 1000


async def group_of(visit: Visit, level: Level = Level.VIEWER) -> Group:
    """The group of an address, if the session may see it."""
    name = visit.path("group")
    visit.require(level, name)
    return await Groups(visit.clients).one(name)


async def groups(visit: Visit) -> Response:
    """A page of the list; members, offsets and lag are asked for its rows only."""
    service = Groups(visit.clients)
    found = await service.all()
    search, kind, state = visit.query.text("q"), visit.query.choice("kind", KINDS, ""), visit.query.text("state")
    listed = [found[name] for name in visit.access.visible(found)]
    states = sorted({str(each.get("group_state") or "") for each in listed} - {""})
    chosen = [
        each
        for each in listed
        if search.lower() in str(each["group_id"]).lower()
        and (not kind or str(each.get("group_type") or "").lower() == kind)
        and (not state or each.get("group_state") == state)
    ]
    bounds = pages_of(visit, len(chosen))
    rows = await service.described(chosen[bounds["start"] : bounds["end"]], with_begin=False)
    for group in rows:
        visit.console.history.saw(group)
    return visit.render(
        "fragments/groups.html" if visit.is_fragment else "groups.html",
        groups=rows,
        q=search,
        kind=kind,
        kinds=KINDS,
        state=state,
        states=states,
        **bounds,
    )


async def group(visit: Visit) -> Response:
    """One group."""
    found = await group_of(visit)
    history = visit.console.history.saw(found)
    sort = visit.query.choice("sort", SORTS, "lag")
    reasons = explained(found, history.moved_at)
    lags = list(found.lags)
    if sort == "lag":
        lags.sort(key=lambda each: (-(each.lag if each.lag is not None else -1), each.partition))
    elif sort == "committed":
        lags.sort(key=lambda each: (each.committed if each.committed is not None else -1, each.partition))
    context: dict[str, Any] = {
        "group": found,
        "reasons": reasons,
        "lags": lags[:MOST_PARTITIONS],
        "left_out": max(0, len(lags) - MOST_PARTITIONS),
        "events": list(history.events)[:30],
        "moved_at": history.moved_at,
        "sort": sort,
        "watched": len(history.points),
    }
    return visit.render("fragments/group.html" if visit.is_fragment else "group.html", **context)


async def configs(visit: Visit) -> Response:
    """The keys of a group: of consumer, share and streams groups (Kafka 4.0)."""
    found = await group_of(visit)
    rows = await described(visit.clients, "group", found.id)
    search, only_set = visit.query.text("q"), "set" in visit.query
    return visit.render(
        "fragments/configs.html" if visit.is_fragment else "group_configs.html",
        group=found,
        rows=config_rows(rows, search, only_set),
        total=len(rows),
        q=search,
        only_set=only_set,
        base=f"{visit.place.root}/groups/{url_part(found.id)}/configs",
        editable=visit.can(Level.EDITOR, found.id),
    )


async def edit_config(visit: Visit) -> Response:
    """The form for one key of a group."""
    name = visit.path("group")
    visit.require(Level.EDITOR, name)
    return await edit_page(visit, "group", name, visit.path("key"), f"/groups/{url_part(name)}", f"group {name}")


async def save_config(visit: Visit, form: Form) -> Response:
    """Set or reset one key of a group."""
    name = visit.path("group")
    visit.require(Level.EDITOR, name)
    await alter(visit, form, "group", name, visit.path("key"))
    return visit.redirect(f"/groups/{url_part(name)}/configs")


async def table(visit: Visit) -> Response:
    """The partitions of a group as CSV."""
    found = await group_of(visit)
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(("group", "topic", "partition", "committed", "first", "next", "lag", "client", "host"))
    for each in found.lags:
        clients = safe_cell(" ".join(member.client_id for member in each.readers))
        hosts = " ".join(member.host for member in each.readers)
        numbers = (each.committed, each.begin, each.end, each.lag)
        rows.writerow((safe_cell(found.id), *each.partition, *numbers, clients, hosts))
    headers = {"Content-Disposition": 'attachment; filename="lag.csv"'}
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


async def lag(visit: Visit) -> Response:
    """The lag over time, for the chart."""
    name = visit.path("group")
    visit.require(Level.VIEWER, name)
    found = await visit.clients.cache.get(("lag", name), 3, lambda: Groups(visit.clients).one(name))
    return JSONResponse(series(visit.console.history.saw(found).points))


ROUTES = [
    page("/groups", groups),
    page("/groups/{group}", group),
    page("/groups/{group}/lag.json", lag),
    page("/groups/{group}/lag.csv", table),
    page("/groups/{group}/configs", configs),
    page("/groups/{group}/configs/{key}", edit_config, Level.EDITOR),
    action("/groups/{group}/configs/{key}", save_config, form_page=edit_config),
]
