from collections.abc import Iterable, Sequence

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.requests.data_plane import DataPlane

MOST_PARTITIONS: int

_Told = tuple[list[tuple[str, int, int, int, str, int]], list[tuple[str, int]]]

class CommitTable:
    def __init__(self, plane: DataPlane) -> None: ...
    def __len__(self) -> int: ...
    @property
    def committed(self) -> int: ...
    @staticmethod
    def takes(log: PartitionLog) -> bool: ...
    def lend(
        self,
        group: str,
        log: PartitionLog,
        log_epoch: int,
        members: Iterable[tuple[str, str | None, int]],
        topics: Iterable[tuple[str, bytes | None, Sequence[int]]],
        *,
        without_member: bool,
        checks_instance: bool,
        oldest_version: int,
        most_metadata: int,
    ) -> CommitLease: ...

class CommitLease:
    @property
    def busy(self) -> bool: ...
    @property
    def used(self) -> bool: ...
    def newest(self) -> list[tuple[str, int, int, int, str, int]]: ...
    def tell(self) -> _Told | None: ...
    def end(self) -> _Told | None: ...
    def abandon(self) -> bool: ...
