from kafkapy._speedups.log.partition_log import PartitionLog

class StateLease:
    def __init__(
        self,
        log: PartitionLog,
        log_epoch: int,
        key: bytes,
        snapshot_epoch: int,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete: int,
        updates: int,
    ) -> None: ...
    @property
    def busy(self) -> bool: ...
    def tell(self) -> tuple[int, int, int, int, list[tuple[int, int, int, int]]]: ...
    def end(self) -> tuple[int, int, int, int, list[tuple[int, int, int, int]]] | None: ...
    def abandon(self) -> bool: ...
