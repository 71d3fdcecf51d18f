from typing import TypedDict, type_check_only

from kafkapy._speedups.network.request_channel import RequestChannel
from kafkapy._speedups.network.worker_pool import WorkerPool

@type_check_only
class ProcessorCounters(TypedDict):
    connections: int
    idle_ns: int
    running_ns: int
    delayed: dict[int, int]
    times: dict[int, dict[str, tuple[int, list[int]]]]

class Processor:
    channel: RequestChannel
    workers: WorkerPool
    def __init__(
        self,
        channel: RequestChannel,
        workers: WorkerPool,
        max_frame_bytes: int,
        max_idle_ms: int,
    ) -> None: ...
    def run(self) -> None: ...
    def begin_stop(self, timeout_ms: int) -> None: ...
    def close_connection(self, connection_id: int) -> None: ...
    def counters(self) -> ProcessorCounters: ...
