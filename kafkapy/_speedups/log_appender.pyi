from collections.abc import Callable

from typing_extensions import disjoint_base

from kafkapy._speedups.event_queue import EventQueue
from kafkapy._speedups.partition_log import PartitionLog
from kafkapy.errors import KafkaError

@disjoint_base
class LogAppender:
    def __init__(self, events: EventQueue) -> None: ...
    @property
    def events(self) -> EventQueue: ...
    def append(
        self, log: PartitionLog, batches: bytes, leader_epoch: int, done: Callable[[int | KafkaError], None]
    ) -> bool: ...
    def take(self) -> list[Exception]: ...
