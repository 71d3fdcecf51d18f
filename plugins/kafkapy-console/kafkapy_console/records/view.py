"""A record as pages, filters and downloads have it: decoded and masked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kafkapy.tools.output import time_text
from kafkapy_console.records.decoding import Decoded, Decoder
from kafkapy_console.records.masking import Masks

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
        """The time in UTC, or "none"."""
        return time_text(self.timestamp) or "none"

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
        headers = [(name, self._masks.header(topic, name, _header(data))) for name, data in record.headers[:1000]]
        return RecordView(
            topic,
            record.partition,
            record.offset,
            record.timestamp,
            {0: "create time", 1: "append time"}.get(record.timestamp_type, "none"),
            self._masks.applied(topic, self._decoder.decode(record.key, self._formats.key)),
            self._masks.applied(topic, self._decoder.decode(record.value, self._formats.value)),
            headers,
            max(0, record.serialized_key_size) + max(0, record.serialized_value_size),
        )


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
