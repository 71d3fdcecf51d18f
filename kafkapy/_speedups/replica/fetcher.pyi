from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy._speedups.clients.io.client_io import ClientIo
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.replica.throttle import ReplicationThrottle

WANTS_CONNECTION: int
DIVERGED: int
OUT_OF_RANGE: int
FAILED: int
STRADDLES: int
EPOCHS: int
ERROR: int
OLDEST_VERSION: int
NEWEST_VERSION: int

class FollowedPartition:
    def __init__(self, log: PartitionLog, topic_id: bytes, leader_epoch: int, throttled: bool = ...) -> None: ...
    @property
    def log(self) -> PartitionLog: ...
    @property
    def handle(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def lag(self) -> int: ...

class ReplicaFetcher:
    def __init__(
        self,
        client_id: str,
        replica_id: int,
        events: EventQueue,
        throttle: ReplicationThrottle,
        *,
        name: str = ...,
    ) -> None: ...
    @property
    def handle(self) -> int: ...
    def configure(
        self,
        *,
        broker_epoch: int,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        partition_max_bytes: int,
        max_batch_bytes: int,
        backoff_ms: int,
        timeout_ms: int,
    ) -> None: ...
    def start(self) -> None: ...
    def add(self, partition: FollowedPartition) -> None: ...
    def remove(self, partition: FollowedPartition) -> None: ...
    def resume(self, partition: FollowedPartition, delay_ms: int = ...) -> None: ...
    def set_throttled(self, partition: FollowedPartition, throttled: bool) -> None: ...
    def connect(self, io: ClientIo, channel: int, version: int) -> None: ...
    def counters(self) -> tuple[int, int, int, bool]: ...
    def stop(self) -> None: ...
    def join(self) -> None: ...
