from collections.abc import Iterable
from typing import Any, Final, Self, final

from kafkapy._speedups.clients.consumer.fetched_partition import FetchedPartition
from kafkapy._speedups.clients.consumer.record_iterator import RecordColumns

COLUMN_NAMES: Final[dict[str, int]]

@final
class ColumnBuffer: ...

class ArrowColumns(RecordColumns):
    def __new__(cls, columns: Iterable[str], chunk_bytes: int = ..., spark: bool = ...) -> Self: ...
    @property
    def rows(self) -> int: ...
    @property
    def topics(self) -> list[str]: ...
    def append(
        self,
        partition: FetchedPartition,
        max_records: int,
        release_gil: bool = False,
        end_offset: int = ...,
        max_bytes: int = ...,
    ) -> int: ...
    def finish(self) -> list[tuple[int, dict[str, Any]]]: ...
