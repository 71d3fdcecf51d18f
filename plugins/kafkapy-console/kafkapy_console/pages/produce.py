"""Produce records: new ones, edited ones, tombstones, with or without a schema."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final

from starlette.responses import Response

from kafkapy.types import TopicPartition
from kafkapy_console.console import number
from kafkapy_console.errors import BadInputError, ConsoleError, ForbiddenError, NotFoundError
from kafkapy_console.pages.topics import topic_of
from kafkapy_console.records.reader import one_record
from kafkapy_console.records.schemas import framed
from kafkapy_console.settings import Level
from kafkapy_console.text import url_part
from kafkapy_console.web import Form, Visit, action, page

__all__ = ["ROUTES"]

ENCODINGS: Final = ("text", "json", "base64", "hex", "registry", "null")
MOST_COPIES = 10_000


async def form_page(visit: Visit) -> Response:
    """An empty form, or one with the parts of a record that is to be sent again."""
    topic = await topic_of(visit, Level.EDITOR)
    values: dict[str, Any] = {
        "partition": "", "key": "", "key_encoding": "text", "value": "", "value_encoding": "text", "headers": "",
        "key_subject": f"{topic.name}-key", "value_subject": f"{topic.name}-value", "again": "", "timestamp": "",
    }  # fmt: skip
    again = visit.query.text("again")
    if again:
        values |= await _again(visit, topic.name, again)
    return _page(visit, topic, values)


async def _again(visit: Visit, topic: str, place: str) -> dict[str, Any]:
    if visit.console.masks.covers(topic):
        raise ForbiddenError("Records of this topic are masked, so a copy of one would have the masks in it.")
    partition_text, _, offset_text = place.partition(":")
    partition = TopicPartition(topic, number(partition_text, "Partition", 0, 2**31 - 1))
    offset = number(offset_text, "Offset", 0, 2**63 - 1)
    found = await one_record(visit.clients, partition, offset)
    if found is None:
        raise NotFoundError(f"{partition} has no record at offset {offset}.")
    visit.audit("read record", str(partition), offset=offset)
    key, key_encoding = _editable(found.key)
    value, value_encoding = _editable(found.value)
    headers = "\n".join(f"{name}: {_header(data)}" for name, data in found.headers)
    return {
        "partition": str(partition.partition),
        "key": key,
        "key_encoding": key_encoding,
        "value": value,
        "value_encoding": value_encoding,
        "headers": headers,
        "again": place,
    }


def _editable(data: bytes | None) -> tuple[str, str]:
    """Bytes as a text that gives the same bytes again, and its encoding."""
    if data is None:
        return "", "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"
    # Browsers send line ends as CR LF, and drop other control characters.
    if any(character < " " and character not in "\t\n" for character in text):
        return base64.b64encode(data).decode(), "base64"
    return text, "text"


def _header(data: bytes | None) -> str:
    if data is None:
        return ""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(data).decode()


def _page(visit: Visit, topic: Any, values: dict[str, Any], text: str = "", status: int = 200) -> Response:
    return visit.render("produce.html", status, tab="", topic=topic, values=values, encodings=ENCODINGS, text=text)


async def produce(visit: Visit, form: Form) -> Response:
    """Send one record, or several copies of it."""
    topic = await topic_of(visit, Level.EDITOR)
    try:
        partition = form.text("partition")
        chosen = None if not partition else number(partition, "Partition", 0, max(topic.numbers))
        copies = number(form.text("copies"), "Copies", 1, MOST_COPIES, 1)
        key = await _encoded(visit, form, "key")
        value = await _encoded(visit, form, "value")
        headers = _headers(form.raw("headers"))
        at = form.text("timestamp")
        timestamp = number(at, "Timestamp", 0, 2**53) if at else None
    except ConsoleError as error:
        names = (
            "partition", "key", "key_encoding", "value", "value_encoding", "headers", "key_subject", "value_subject",
            "again", "timestamp",
        )  # fmt: skip
        return _page(visit, topic, {name: form.raw(name) for name in names}, str(error), 400)
    producer = await visit.clients.producer()
    futures = [await producer.send(topic.name, value, key, chosen, timestamp, headers) for _ in range(copies)]
    for future in futures:
        placed = await future
    visit.audit(
        "produce", topic.name, records=copies, partition=placed.partition, offset=placed.offset,
        tombstone=value is None, again=form.text("again"),
    )  # fmt: skip
    path = f"/topics/{url_part(topic.name)}/records/{placed.partition}/{placed.offset}"
    what = "The tombstone is" if value is None else "The record is" if copies == 1 else f"{copies:,} records are"
    visit.flash(f"{what} written; the last one to partition {placed.partition} at offset {placed.offset:,}.")
    return visit.redirect(path)


async def _encoded(visit: Visit, form: Form, part: str) -> bytes | None:
    encoding = form.choice(f"{part}_encoding", ENCODINGS, "text")
    # A browser sends each line end as CR LF.
    text = form.raw(part).replace("\r\n", "\n")
    if encoding == "null":
        if text.strip():
            raise BadInputError(f"The {part} is to be null, but has a text.")
        return None
    if encoding == "text":
        return text.encode() if text or part == "value" else None
    if encoding in ("json", "registry"):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadInputError(f"The {part} is no JSON: {error}") from None
        if encoding == "json":
            return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        return framed(await visit.console.schemas.newest(form.needed(f"{part}_subject")), value)
    try:
        if encoding == "hex":
            return bytes.fromhex(text)
        return base64.b64decode("".join(text.split()), validate=True)
    except (ValueError, binascii.Error) as error:
        raise BadInputError(f"The {part} is no {encoding}: {error}") from None


def _headers(text: str) -> list[tuple[str, bytes]]:
    headers = []
    for line in filter(None, (each.strip() for each in text.splitlines())):
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise BadInputError(f"{line[:80]!r} is no header: write name: value.")
        value = value.strip()
        if value.startswith("base64:"):
            try:
                headers.append((name.strip(), base64.b64decode(value[7:], validate=True)))
            except binascii.Error:
                raise BadInputError(f"The header {name.strip()} is no base64.") from None
        else:
            headers.append((name.strip(), value.encode()))
    return headers


ROUTES = [
    page("/topics/{topic}/produce", form_page, Level.EDITOR),
    action("/topics/{topic}/produce", produce),
]
