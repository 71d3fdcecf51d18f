"""Topics: the list, a topic's partitions, configuration, groups, producers, statistics, live numbers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from starlette.responses import JSONResponse, Response

from kafkapy.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePatternFilter,
    ResourceType,
)
from kafkapy.errors import KafkaError
from kafkapy.types import TopicPartition
from kafkapy_console.console import number
from kafkapy_console.pages.brokers import config_rows, edit_page
from kafkapy_console.records.decoding import Decoder
from kafkapy_console.records.view import Formats, Viewer
from kafkapy_console.services.groups import Groups
from kafkapy_console.services.topic_statistics import sampled
from kafkapy_console.services.topics import MOST_COUNTED, Topic, Topics
from kafkapy_console.settings import Level
from kafkapy_console.text import url_part
from kafkapy_console.web import Visit, page

__all__ = ["PER_PAGE", "ROUTES", "pages_of", "topic_of"]

PER_PAGE = 50
SORTS = ("name", "partitions", "size", "replication", "problems")
MOST_GROUPS = 500
MOST_SHOWN_PARTITIONS = 1000
MOST_ACTIVE = 100


def pages_of(visit: Visit, count: int, per_page: int = PER_PAGE) -> dict[str, int]:
    """The wanted page of a list, within the list."""
    last = max(1, (count + per_page - 1) // per_page)
    wanted = min(number(visit.query.text("page"), "Page", 1, 10**9, 1), last)
    return {"page": wanted, "last": last, "start": (wanted - 1) * per_page, "end": wanted * per_page, "count": count}


async def topic_of(visit: Visit, level: Level = Level.VIEWER) -> Topic:
    """The topic of an address, if the session may see it."""
    name = visit.path("topic")
    visit.require(level, name)
    return await Topics(visit.clients).one(name)


async def topics(visit: Visit) -> Response:
    """A page of the list; offsets are asked for its rows only."""
    service = Topics(visit.clients)
    found, sizes = await asyncio.gather(service.all(), service.sizes())
    search = visit.query.text("q")
    with_internal = "internal" in visit.query
    sort = visit.query.choice("sort", SORTS, "name")
    names = visit.access.visible(found)
    hidden = 0
    rows: list[Topic] = []
    for name in names:
        topic = found[name]
        if search.lower() not in name.lower():
            continue
        if not with_internal and (topic.internal or name.startswith("__")):
            hidden += 1
            continue
        rows.append(topic)
    descending = visit.query.text("dir") == "desc"
    rows.sort(key=lambda topic: _order(topic, sort, sizes), reverse=descending)
    bounds = pages_of(visit, len(rows))
    shown = rows[bounds["start"] : bounds["end"]]
    note = ""
    counts: dict[str, int | None] = {}
    try:
        counted = [topic for topic in shown if len(topic.partitions) <= MOST_COUNTED]
        offsets = await service.offsets(counted)
        counts = {topic.name: offsets.count(topic.keys) for topic in counted}
    except KafkaError as error:
        note = f"Records cannot be counted: {error}"
    return visit.render(
        "fragments/topics.html" if visit.is_fragment else "topics.html",
        topics=shown,
        counts=counts,
        sizes=sizes,
        q=search,
        sort=sort,
        descending=descending,
        with_internal=with_internal,
        hidden=hidden,
        note=note,
        **bounds,
    )


def _order(topic: Topic, sort: str, sizes: dict[str, int]) -> tuple[Any, ...]:
    values = {
        "name": topic.name,
        "partitions": len(topic.partitions),
        "size": sizes.get(topic.name, 0),
        "replication": topic.replication,
        "problems": topic.under_replicated + topic.offline,
    }
    return values[sort], topic.name


async def topic(visit: Visit) -> Response:
    """The partitions of a topic. With more than MOST_COUNTED, offsets are asked for the page's rows only."""
    found = await topic_of(visit)
    service = Topics(visit.clients)
    bounds = pages_of(visit, len(found.partitions), MOST_SHOWN_PARTITIONS)
    shown = replace(found, partitions=found.partitions[bounds["start"] : bounds["end"]])
    is_counted = len(found.partitions) <= MOST_COUNTED
    offsets, sizes, configs = await asyncio.gather(
        service.offsets([found if is_counted else shown]),
        service.sizes(),
        service.configs(found.name),
        return_exceptions=True,
    )
    if isinstance(offsets, BaseException):
        raise offsets
    names = ("cleanup.policy", "retention.ms", "retention.bytes", "max.message.bytes", "min.insync.replicas")
    keys = {} if isinstance(configs, BaseException) else {n: configs[n] for n in names if n in configs}
    return visit.render(
        "topic.html",
        tab="partitions",
        topic=found,
        rows=shown.partitions,
        offsets=offsets,
        most_counted=None if is_counted else MOST_COUNTED,
        count=offsets.count(found.keys) if is_counted else None,
        size=None if isinstance(sizes, BaseException) else sizes.get(found.name),
        keys=keys,
        masked=visit.console.masks.covers(found.name),
        tp=TopicPartition,
        bounds=bounds,
    )


async def live(visit: Visit) -> Response:
    """The sum of the ends of the topic's logs, for the chart."""
    clients = visit.clients
    name = visit.path("topic")
    visit.require(Level.VIEWER, name)

    async def read() -> dict[str, Any]:
        service = Topics(clients)
        found = await service.one(name)
        if len(found.partitions) > MOST_COUNTED:
            return {"time": time.time(), "values": {}, "away": 0}
        offsets = await service.offsets([found])
        return {"time": time.time(), "values": {"messages in": sum(offsets.end.values())}, "away": 0}

    return JSONResponse(await clients.cache.get(("live", name), 1.5, read))


async def configs(visit: Visit) -> Response:
    """The keys of a topic: value, source, documentation."""
    found = await topic_of(visit)
    rows = await Topics(visit.clients).configs(found.name)
    search, only_set = visit.query.text("q"), "set" in visit.query
    return visit.render(
        "fragments/configs.html" if visit.is_fragment else "topic_configs.html",
        tab="configs",
        topic=found,
        rows=config_rows(rows, search, only_set),
        total=len(rows),
        q=search,
        only_set=only_set,
        base=f"{visit.place.root}/topics/{url_part(found.name)}/configs",
        editable=visit.can(Level.EDITOR, found.name),
    )


async def edit_config(visit: Visit) -> Response:
    """The form for one key."""
    name = visit.path("topic")
    visit.require(Level.EDITOR, name)
    return await edit_page(visit, "topic", name, visit.path("key"), f"/topics/{url_part(name)}", f"topic {name}")


async def groups(visit: Visit) -> Response:
    """The groups that read the topic or have offsets of it, with their lag in it."""
    found = await topic_of(visit)
    service = Groups(visit.clients)
    listed = [each for name, each in (await service.all()).items() if visit.access.may(Level.VIEWER, name)]
    described = await service.described(listed[:MOST_GROUPS], with_begin=False)
    rows = []
    for group in described:
        lags = [each for each in group.lags if each.partition.topic == found.name]
        if lags or any(found.name in member.topics for member in group.members):
            known = [each.lag for each in lags if each.lag is not None]
            readers = {member.id for each in lags for member in each.readers}
            rows.append({"group": group, "lag": sum(known) if known else None, "readers": len(readers)})
    return visit.render(
        "topic_groups.html", tab="groups", topic=found, rows=rows, left_out=max(0, len(listed) - MOST_GROUPS)
    )


async def producers(visit: Visit) -> Response:
    """Producers whose state the leaders keep: idempotent and transactional ones."""
    found = await topic_of(visit)
    admin = await visit.clients.admin()
    rows: list[tuple[TopicPartition, Any]] = []
    states = await admin.describe_producers(found.readable)
    for partition, state in sorted(states.items()):
        rows += [(partition, producer) for producer in state.active_producers]
    rows.sort(key=lambda row: -row[1].last_timestamp)
    return visit.render("topic_producers.html", tab="producers", topic=found, rows=rows[:MOST_ACTIVE], count=len(rows))


async def acls(visit: Visit) -> Response:
    """The rules that cover the topic: by its name, by a prefix, or for all topics."""
    found = await topic_of(visit)
    visit.require(Level.VIEWER)
    note = ""
    rules: Sequence[ACL] = []
    try:
        wanted = ResourcePatternFilter(ResourceType.TOPIC, found.name, ACLResourcePatternType.MATCH)
        every = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, wanted)
        rules, _ = await (await visit.clients.admin()).describe_acls(every)
    except KafkaError as error:
        note = str(error)
    return visit.render("topic_acls.html", tab="acls", topic=found, rules=rules, note=note)


async def statistics(visit: Visit) -> Response:
    """Sizes, keys, formats and rates by a sample of records."""
    found = await topic_of(visit)
    viewer = Viewer(Decoder(visit.console.schemas), visit.console.masks, Formats())
    with visit.console.people.stream(visit.session):
        result = await sampled(visit.clients, found.readable, viewer)
    visit.audit("sample records", found.name, records=result.sampled)
    return visit.render("topic_statistics.html", tab="statistics", topic=found, found=result)


ROUTES = [
    page("/topics", topics),
    page("/topics/{topic}", topic),
    page("/topics/{topic}/live.json", live),
    page("/topics/{topic}/configs", configs),
    page("/topics/{topic}/configs/{key}", edit_config, Level.EDITOR),
    page("/topics/{topic}/groups", groups),
    page("/topics/{topic}/producers", producers),
    page("/topics/{topic}/acls", acls),
    page("/topics/{topic}/statistics", statistics),
]
