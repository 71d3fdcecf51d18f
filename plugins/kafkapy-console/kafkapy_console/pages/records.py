"""Records of a topic: pages, one record whole, downloads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response, StreamingResponse

from kafkapy.types import TopicPartition
from kafkapy_console.console import number
from kafkapy_console.errors import BadInputError, NotFoundError
from kafkapy_console.pages.topics import topic_of
from kafkapy_console.records import export
from kafkapy_console.records.decoding import FORMATS, Decoder, hex_dump
from kafkapy_console.records.filters import EXAMPLES, Filter
from kafkapy_console.records.reader import (
    Start,
    newest,
    oldest_from,
    one_record,
    parse_positions,
    positions_text,
    scan,
)
from kafkapy_console.records.view import Formats, RecordView, Viewer
from kafkapy_console.services.topics import Topic
from kafkapy_console.times import parse_time
from kafkapy_console.web import Form, Visit, page

__all__ = ["ROUTES", "Query", "view_of"]

LIMITS = (20, 50, 100, 200)
MOST_ALL_PARTITIONS = 100
"""A page reads at most so many partitions at once; a topic with more needs a choice."""
MOST_DOWNLOADED = 1_000_000
STARTS = ("newest", "oldest", "offset", "time")
ISOLATIONS = ("read_committed", "read_uncommitted")


@dataclass
class Query:
    """The choice of records in an address."""

    partitions: list[TopicPartition]
    partition_text: str
    start: str
    at: str
    limit: int
    formats: Formats
    isolation: str
    filter_text: str
    until: str

    @classmethod
    def of(cls, form: Form, topic: Topic, schemas: Sequence[str] = ()) -> Query:
        """The query of an address. BadInputError."""
        text = form.text("partition")
        if text:
            partition = number(text, "Partition", 0, 2**31 - 1)
            if partition not in topic.numbers:
                raise BadInputError(f"{topic.name} has no partition {partition}.")
            partitions = [TopicPartition(topic.name, partition)]
            if partitions[0] not in topic.readable:
                raise BadInputError(f"Partition {partition} has no leader: no broker gives its records now.")
        else:
            partitions = topic.readable
        formats = [*FORMATS, *(f"local:{name}" for name in schemas)]
        start = form.choice("start", STARTS, "newest")
        at = form.text("at")
        if start == "offset":
            number(at, "Offset", 0, 2**63 - 1)
        if start == "time":
            parse_time(at)
        if until := form.text("until"):
            parse_time(until)
        return cls(
            partitions,
            text,
            start,
            at,
            number(form.text("limit"), "Limit", 1, 1000, 50),
            Formats(form.choice("key", formats, "auto"), form.choice("value", formats, "auto")),
            form.choice("isolation", ISOLATIONS, "read_committed"),
            form.raw("filter").strip(),
            until,
        )

    def place(self) -> Start:
        """The place where a read forwards begins."""
        if self.start == "offset":
            return Start("offset", number(self.at, "Offset", 0, 2**63 - 1))
        if self.start == "time":
            return Start("time", parse_time(self.at))
        return Start("beginning")

    def address(self, **changes: str) -> str:
        """The query as text, with changes."""
        fields = {
            "partition": self.partition_text,
            "start": self.start,
            "at": self.at,
            "until": self.until,
            "limit": str(self.limit),
            "key": self.formats.key,
            "value": self.formats.value,
            "isolation": self.isolation,
            "filter": self.filter_text,
        } | changes
        defaults = {"key": "auto", "value": "auto", "isolation": "read_committed", "limit": "50", "start": "newest"}
        return urlencode({name: text for name, text in fields.items() if text and defaults.get(name) != text})


def view_of(visit: Visit, formats: Formats) -> Viewer:
    """A viewer with the console's schemas and masks."""
    return Viewer(Decoder(visit.console.schemas), visit.console.masks, formats)


async def records(visit: Visit) -> Response:
    """A page of records, or the frame of a search whose hits come by a stream."""
    topic = await topic_of(visit)
    local = list(visit.console.schemas.local)
    query = Query.of(visit.query, topic, local)
    if query.filter_text:
        Filter(query.filter_text)
    common: dict[str, Any] = {
        "tab": "records",
        "topic": topic,
        "query": query,
        "limits": LIMITS,
        "formats": [*FORMATS, *(f"local:{name}" for name in local)],
        "examples": EXAMPLES,
        "masked": visit.console.masks.covers(topic.name),
        "starts": STARTS,
        "isolations": ISOLATIONS,
    }
    if query.filter_text or query.until or visit.query.text("live"):
        return visit.render(
            "records.html", views=None, page=None, live=bool(visit.query.text("live")), too_many=False, **common
        )
    if len(query.partitions) > MOST_ALL_PARTITIONS and not query.partition_text:
        return visit.render("records.html", views=[], page=None, live=False, too_many=True, **common)
    below = _positions(visit.query.text("below", 20_000))
    after = _positions(visit.query.text("after", 20_000))
    clients = visit.clients
    if after:
        found = await oldest_from(
            clients, query.partitions, query.limit, Start("positions", positions=after), query.isolation
        )
    elif query.start == "newest":
        found = await newest(clients, query.partitions, query.limit, below, query.isolation)
    else:
        found = await oldest_from(clients, query.partitions, query.limit, query.place(), query.isolation)
    viewer = view_of(visit, query.formats)
    await viewer.prepare(found.records)
    views = viewer.views(found.records)
    visit.audit("read records", topic.name, records=len(views), partition=query.partition_text or "all")
    older = newer = ""
    if found.older is not None:
        older = query.address(start="newest", at="", below=positions_text(found.older))
    if found.newer is not None:
        newer = query.address(after=positions_text(found.newer))
    return visit.render(
        "fragments/records.html" if visit.is_fragment else "records.html",
        views=views,
        page=found,
        older=older,
        newer=newer,
        live=False,
        too_many=False,
        **common,
    )


def _positions(text: str) -> dict[int, int]:
    try:
        return parse_positions(text)
    except ValueError:
        raise BadInputError("The place of the page is not valid.") from None


async def record(visit: Visit) -> Response:
    """One record in full: decoded, its bytes, its headers."""
    topic = await topic_of(visit)
    partition = TopicPartition(topic.name, number(visit.path("partition"), "Partition", 0, 2**31 - 1))
    offset = number(visit.path("offset"), "Offset", 0, 2**63 - 1)
    if partition.partition not in topic.numbers:
        raise NotFoundError(f"{topic.name} has no partition {partition.partition}.")
    found = await one_record(visit.clients, partition, offset)
    if found is None:
        raise NotFoundError(
            f"{partition} has no record at offset {offset}: it was deleted, compacted away, is a transaction marker, "
            "or does not exist yet."
        )
    local = list(visit.console.schemas.local)
    formats = Query.of(visit.query, topic, local).formats
    viewer = view_of(visit, formats)
    await viewer.prepare([found])
    masked = visit.console.masks.covers(topic.name)
    visit.audit("read record", str(partition), offset=offset)
    return visit.render(
        "record.html",
        tab="records",
        topic=topic,
        view=viewer.view(found),
        raw_key=None if masked or found.key is None else hex_dump(found.key),
        raw_value=None if masked or found.value is None else hex_dump(found.value),
        masked=masked,
        formats=[*FORMATS, *(f"local:{name}" for name in local)],
        chosen=formats,
        leader_epoch=found.leader_epoch,
    )


async def download(visit: Visit) -> Response:
    """Records as a file: those of the query up to its limit, decoded, masked and filtered as on the page."""
    topic = await topic_of(visit)
    form = visit.query.choice("format", list(export.FORMATS))
    query = Query.of(visit.query, topic, list(visit.console.schemas.local))
    most = number(visit.query.text("most"), "Records", 1, MOST_DOWNLOADED, 10_000)
    chosen = Filter(query.filter_text) if query.filter_text else None
    if form == "parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise BadInputError("Parquet needs pyarrow: pip install 'kafkapy-console[parquet]'.") from None
    visit.audit("download records", topic.name, format=form, most=most)
    batches = _views(visit, query, chosen, most)
    writer = {"jsonl": export.json_lines, "csv": export.csv_rows, "parquet": export.parquet}[form]
    name = f"{topic.name}.{form}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(writer(batches), media_type=export.FORMATS[form], headers=headers)


def passing(viewer: Viewer, chosen: Filter | None, records: Sequence[Any]) -> list[RecordView]:
    """The views of the records that pass a filter. For a thread: other pages are served meanwhile."""
    views = viewer.views(records)
    return views if chosen is None else [view for view in views if chosen.matches(view.names())]


async def _views(visit: Visit, query: Query, chosen: Filter | None, most: int) -> AsyncIterator[Sequence[RecordView]]:
    viewer = view_of(visit, query.formats)
    start = query.place()
    if query.start == "newest" and chosen is None and not query.until:
        start = Start("end", most)  # a search begins where the one on the page begins
    until = parse_time(query.until) if query.until else None
    left = most
    with visit.console.people.stream(visit.session):
        async with aclosing(scan(visit.clients, query.partitions, start, query.isolation, until)) as found:
            async for batch in found:
                await viewer.prepare(batch.records)
                views = await asyncio.to_thread(passing, viewer, chosen, batch.records)
                yield views[:left]
                left -= len(views[:left])
                if left <= 0:
                    break


ROUTES = [
    page("/topics/{topic}/records", records),
    page("/topics/{topic}/download", download),
    page("/topics/{topic}/records/{partition}/{offset}", record),
]
