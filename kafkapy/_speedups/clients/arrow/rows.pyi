from typing import Self

from kafkapy._speedups.clients.producer.record_sender import RecordSender
from kafkapy._speedups.clients.producer.record_spans import RecordSpans

_BytesParts = tuple[int, int, int, int, bool]
_NumberParts = tuple[int, int, int]

class ArrowRows:
    def __new__(
        cls,
        rows: int,
        owner: object,
        *,
        key: _BytesParts | None = None,
        value: _BytesParts | None = None,
        headers: tuple[_BytesParts, _BytesParts, _BytesParts] | None = None,
        topic: _NumberParts | None = None,
        topics: list[str] | None = None,
        partition: _NumberParts | None = None,
        timestamp: _NumberParts | None = None,
    ) -> Self: ...
    @property
    def rows(self) -> int: ...
    def checksum(self) -> int: ...
    def send(self, sender: RecordSender, topic: str | None, now_ms: int, spans: RecordSpans | None = None) -> None: ...
