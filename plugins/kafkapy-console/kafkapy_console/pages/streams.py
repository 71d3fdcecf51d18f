"""Streams of server-sent events: the hits of a search as they come, and records as they arrive.

event: progress   data: {"done", "total", "read", "hits", "rate", "seconds", "failed", "failure"}
event: record     data: a row of the table, as HTML with all contents escaped
event: end        data: a sentence
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from starlette.responses import Response, StreamingResponse

from kafkapy.errors import KafkaError
from kafkapy_console.errors import UNEXPECTED, ConsoleError, TooBusyError, sentence
from kafkapy_console.pages.records import Query, passing, view_of
from kafkapy_console.pages.topics import topic_of
from kafkapy_console.records.filters import Filter
from kafkapy_console.records.reader import Start, scan, tail
from kafkapy_console.records.view import RecordView
from kafkapy_console.services.topics import Topic
from kafkapy_console.settings import Level
from kafkapy_console.times import parse_time
from kafkapy_console.web import Visit, page, templates

logger = logging.getLogger("kafkapy.console")

__all__ = ["ROUTES"]

MOST_HITS = 1000
PROGRESS_S = 0.25
MOST_TAIL_S = 3600
MOST_TAIL_ROWS = 100
"""Rows of one round of a live tail; the newest are shown, and the others are counted."""
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "Content-Encoding": "identity"}


def event(name: str, data: str) -> bytes:
    """One event; each line of the data has its own field."""
    text = data.replace("\r\n", "\n").replace("\r", "\n")
    lines = "".join(f"data: {line}\n" for line in text.split("\n"))
    return f"event: {name}\n{lines}\n".encode()


async def search(visit: Visit) -> Response:
    """All records of the query that pass its filter."""
    topic = await topic_of(visit)
    query = Query.of(visit.query, topic, list(visit.console.schemas.local))
    chosen = Filter(query.filter_text) if query.filter_text else None
    visit.audit("search records", topic.name, partition=query.partition_text or "all")
    return _stream(visit, _search(visit, topic, query, chosen))


async def _search(visit: Visit, topic: Topic, query: Query, chosen: Filter | None) -> AsyncGenerator[bytes]:
    viewer = view_of(visit, query.formats)
    began = told = time.monotonic()
    read = hits = 0
    start = Start("beginning") if query.start == "newest" else query.place()
    until = parse_time(query.until) if query.until else None

    def progress(done: int, total: int) -> bytes:
        seconds = time.monotonic() - began
        return event(
            "progress",
            json.dumps(
                {
                    "done": done,
                    "total": total,
                    "read": read,
                    "hits": hits,
                    "rate": round(read / seconds) if seconds > 0.05 else 0,
                    "seconds": round(seconds, 1),
                    "failed": chosen.failed if chosen else 0,
                    "failure": chosen.failure if chosen else "",
                }
            ),
        )

    async with aclosing(scan(visit.clients, query.partitions, start, query.isolation, until)) as batches:
        async for batch in batches:
            await viewer.prepare(batch.records)
            # On a thread: other pages are served while this batch is decoded.
            found = await asyncio.to_thread(passing, viewer, chosen, batch.records)
            read += len(batch.records)
            for view in found[: MOST_HITS - hits]:
                yield event("record", row(visit, topic, view))
            hits += len(found)
            if batch.finished or hits >= MOST_HITS or time.monotonic() - told >= PROGRESS_S:
                told = time.monotonic()
                yield progress(batch.done, batch.total)
            if hits >= MOST_HITS:
                text = "A narrower filter or a later start finds others."
                yield event("end", f"The search stopped at {MOST_HITS} hits. {text}")
                return
    yield event("end", f"The search is complete: {hits:,} hits in {read:,} records.")


async def live(visit: Visit) -> Response:
    """Records that arrive from now on."""
    topic = await topic_of(visit)
    query = Query.of(visit.query, topic, list(visit.console.schemas.local))
    chosen = Filter(query.filter_text) if query.filter_text else None
    visit.audit("tail records", topic.name, partition=query.partition_text or "all")
    return _stream(visit, _live(visit, topic, query, chosen))


async def _live(visit: Visit, topic: Topic, query: Query, chosen: Filter | None) -> AsyncGenerator[bytes]:
    viewer = view_of(visit, query.formats)
    began = time.monotonic()
    read = hits = left_out = 0
    yield event("begin", "Waiting for records.")
    async with aclosing(tail(visit.clients, query.partitions, query.isolation)) as rounds:
        async for records in rounds:
            await viewer.prepare(records)
            found = await asyncio.to_thread(passing, viewer, chosen, records)
            read += len(records)
            hits += len(found)
            left_out += max(0, len(found) - MOST_TAIL_ROWS)
            for view in found[-MOST_TAIL_ROWS:]:
                yield event("record", row(visit, topic, view))
            seconds = time.monotonic() - began
            told = {"read": read, "hits": hits, "seconds": round(seconds), "left_out": left_out}
            yield event("progress", json.dumps(told))
            if seconds > MOST_TAIL_S:
                yield event("end", "The live view ended after an hour. Start it again.")
                return


def _stream(visit: Visit, events: AsyncGenerator[bytes]) -> Response:
    people, session = visit.console.people, visit.session

    async def guarded() -> AsyncIterator[bytes]:
        try:
            with people.stream(session):
                async with aclosing(events):
                    async for each in events:
                        # Without a login, a session is no right that could end.
                        if people.needs_login and not people.sessions.has(session):
                            yield event("end", "Your session has ended. Log in again.")
                            return
                        yield each
        except (ConsoleError, KafkaError, TooBusyError) as error:
            yield event("failure", sentence(error))
        except Exception:
            logger.exception("Stream failed")
            yield event("failure", UNEXPECTED)

    return StreamingResponse(guarded(), media_type="text/event-stream", headers=HEADERS)


def row(visit: Visit, topic: Topic, view: RecordView) -> str:
    """A row of the table of records."""
    return templates.get_template("fragments/record_row.html").render(
        root=visit.place.root, view=view, topic=topic, can_produce=visit.can(Level.EDITOR, topic.name)
    )


ROUTES = [
    page("/topics/{topic}/search", search),
    page("/topics/{topic}/tail", live),
]
