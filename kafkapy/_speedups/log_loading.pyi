from kafkapy._speedups.partition_log import PartitionLog

def load(
    log: PartitionLog,
    segments: list[tuple[int, int, int]],
    *,
    recovery_point: int,
    log_start_offset: int,
    clean: bool,
    epochs: list[tuple[int, int]],
) -> tuple[list[int], int, int, int]: ...
def load_aborted(log: PartitionLog, data: bytes) -> int: ...
def rebuild_producers(log: PartitionLog, snapshots: list[tuple[int, bytes]], now_ms: int, truncating: bool = ...) -> int: ...
def has_producers_to_replay(log: PartitionLog) -> bool: ...
