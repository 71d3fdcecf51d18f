from typing import Final, Self

from kafkapy._speedups.clients.consumer.fetched_partition import FetchedPartition

MORE: Final[int]
DONE: Final[int]
END: Final[int]
OLD: Final[int]
BAD: Final[int]

class SegmentBatches:
    def __new__(
        cls, topic: str, partition: int, end_offset: int, aborted: bytes = ..., check_crcs: bool = ...
    ) -> Self: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    def find(self, fd: int, position: int, offset: int) -> int: ...
    def read(
        self, fd: int, position: int, max_bytes: int, start_offset: int
    ) -> tuple[FetchedPartition | None, int, int]: ...
