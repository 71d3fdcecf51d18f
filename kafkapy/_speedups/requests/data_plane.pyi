from collections.abc import Mapping
from typing import TypedDict, type_check_only

from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy._speedups.requests.fetch_session import FetchSessionCache
from kafkapy._speedups.requests.partition_table import PartitionTable

@type_check_only
class ApiCounters(TypedDict):
    requests: int
    errors: int
    request_bytes: int
    response_bytes: int
    queue_ns: int
    local_ns: int
    remote_ns: int
    total_ns: int
    total_histogram: list[int]

class DataPlane:
    def __init__(
        self,
        node_id: int,
        partitions: PartitionTable,
        sessions: FetchSessionCache,
        events: EventQueue,
        fetch_max_bytes: int = ...,
    ) -> None: ...
    @property
    def node_id(self) -> int: ...
    @property
    def partition_table(self) -> PartitionTable: ...
    @property
    def fetch_session_cache(self) -> FetchSessionCache: ...
    @property
    def event_queue(self) -> EventQueue: ...
    @property
    def authorizer_epoch(self) -> int: ...
    @authorizer_epoch.setter
    def authorizer_epoch(self, epoch: int) -> None: ...
    @property
    def fetch_max_bytes(self) -> int: ...
    @fetch_max_bytes.setter
    def fetch_max_bytes(self, limit: int) -> None: ...
    @property
    def request_log_level(self) -> int: ...
    @request_log_level.setter
    def request_log_level(self, level: int) -> None: ...
    @property
    def verify_transactions(self) -> bool: ...
    @verify_transactions.setter
    def verify_transactions(self, enabled: bool) -> None: ...
    @property
    def replica_selector(self) -> str: ...
    @replica_selector.setter
    def replica_selector(self, name: str) -> None: ...
    def set_endpoints(self, listener_index: int, nodes: Mapping[int, tuple[str, int, str | None]]) -> None: ...
    def counters(self) -> dict[int, ApiCounters]: ...
