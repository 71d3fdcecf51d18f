from collections.abc import Sequence

from kafkapy._speedups.log.partition_log import PartitionLog

def append_group(log: PartitionLog, batches: Sequence[bytes]) -> list[tuple[bool, int, int]]: ...
