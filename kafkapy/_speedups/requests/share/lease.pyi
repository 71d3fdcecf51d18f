from kafkapy._speedups.log.partition_log import PartitionLog

Told = tuple[int, int, int, int, list[tuple[int, int, int, int]]]

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
    def tell(self) -> Told: ...
    def end(self) -> Told | None: ...
    def abandon(self) -> bool: ...
