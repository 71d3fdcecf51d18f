"""A record as pages, filters and downloads have it: decoded and masked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kafkapy.tools.output import time_text
from kafkapy_console.records.decoding import Decoded, Decoder
from kafkapy_console.records.masking import MASK, Masks

UNMASKING = ("auto", "json", "text", "registry")
"""Formats that show the fields of a value under their own names."""

__all__ = ["Formats", "RecordView", "Viewer"]

HEADER_MOST = 2000
"""Characters of a header's text."""


@dataclass(frozen=True)
class Formats:
    """The chosen formats of keys and values."""

    key: str = "auto"
    value: str = "auto"


@dataclass(frozen=True)
class RecordView:
    """One record."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: str
    key: Decoded
    value: Decoded
    headers: Sequence[tuple[str, str]]
    size: int

    @property
    def time(self) -> str:
        """The time in UTC, or "none"; a number that is no time as it is."""
        try:
            return time_text(self.timestamp) or "none"
        except (ValueError, OverflowError, OSError):
            return f"{self.timestamp} ms"

    @property
    def masked(self) -> bool:
        """Whether a part of it is hidden."""
        return self.key.masked or self.value.masked

    def names(self) -> dict[str, Any]:
        """The names of a filter."""
        return {
            "key": _simple(self.key),
            "value": _simple(self.value),
            "headers": dict(self.headers),
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": self.timestamp,
            "size": self.size,
        }


class Viewer:
    """Makes views of records: decodes, then masks. `views` may run on a thread after `prepare`."""

    def __init__(self, decoder: Decoder, masks: Masks, formats: Formats) -> None:
        self._decoder = decoder
        self._masks = masks
        self._formats = formats

    async def prepare(self, records: Sequence[Any]) -> None:
        """Loads the schemas of these records."""
        await self._decoder.prepare((each.key for each in records), self._formats.key)
        await self._decoder.prepare((each.value for each in records), self._formats.value)

    def views(self, records: Iterable[Any]) -> list[RecordView]:
        """The views of records."""
        return [self.view(each) for each in records]

    def view(self, record: Any) -> RecordView:
        """The view of one record."""
        topic = record.topic
        headers = [(name, self._header(topic, name, data)) for name, data in record.headers[:1000]]
        return RecordView(
            topic,
            record.partition,
            record.offset,
            record.timestamp,
            {0: "create time", 1: "append time"}.get(record.timestamp_type, "none"),
            self._masks.applied(topic, self._decoder.decode(record.key, self._form(topic, self._formats.key))),
            self._masks.applied(topic, self._decoder.decode(record.value, self._form(topic, self._formats.value))),
            headers,
            max(0, record.serialized_key_size) + max(0, record.serialized_value_size),
        )

    def _form(self, topic: str, form: str) -> str:
        """Nobody chooses how bytes of a masked topic are read: other formats show its fields under other names."""
        return form if form in UNMASKING or not self._masks.covers(topic) else "auto"

    def _header(self, topic: str, name: str, data: bytes | None) -> str:
        if data is not None and self._masks.covers(topic) and not _is_text(data):
            return MASK
        return self._masks.header(topic, name, _header(data))


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _header(data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.hex(" ")
    return text if len(text) <= HEADER_MOST else text[:HEADER_MOST] + "…"


def _simple(part: Decoded) -> Any:
    """The value for a filter: bytes that no decoder understood are their hex dump's text."""
    return part.text if isinstance(part.value, bytes) else part.value
