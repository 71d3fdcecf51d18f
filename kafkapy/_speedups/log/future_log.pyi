from typing import Any

from typing_extensions import disjoint_base

from kafkapy._speedups.log.cleaner_throttle import CleanerThrottle
from kafkapy._speedups.log.partition_log import PartitionLog

CAUGHT_UP: int
MORE: int
NEEDS_SEGMENT: int
OUT_OF_RANGE: int
MISALIGNED: int
ENDED: int
CORRUPT: int
FAILED: int
HOLE: int

@disjoint_base
class FutureLogCopy:
    def __init__(self, log: PartitionLog, future: PartitionLog, pace: CleanerThrottle) -> None: ...
    @property
    def log(self) -> PartitionLog: ...
    @property
    def future(self) -> PartitionLog: ...
    def stop(self) -> None: ...
    def copy(self, max_bytes: int) -> tuple[int, int, int]: ...
    def skip_hole(self, offset: int) -> None: ...
    def begin_swap(self) -> bool: ...
    def end_swap(self, storage: Any) -> None: ...
    def cancel_swap(self, storage: Any) -> None: ...
