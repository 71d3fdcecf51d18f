from typing import Any

from kafkapy._speedups.network.connection import ConnectionRegistry
from kafkapy._speedups.network.memory_pool import MemoryPool
from kafkapy._speedups.network.network_request import NetworkRequest as NetworkRequest
from kafkapy._speedups.requests.data_plane import DataPlane
from kafkapy._speedups.requests.request_header import ApiTable

class RequestChannel:
    plane: DataPlane
    registry: ConnectionRegistry
    pool: MemoryPool
    apis: ApiTable
    listeners: list[tuple[str, Any]]
    connection_data: dict[int, Any]
    def __init__(
        self,
        plane: DataPlane,
        registry: ConnectionRegistry,
        pool: MemoryPool,
        apis: ApiTable,
        listeners: list[tuple[str, Any]],
        queued_max_requests: int = ...,
    ) -> None: ...
    def fileno(self) -> int: ...
    def __len__(self) -> int: ...
    def drain(self) -> list[NetworkRequest]: ...
    def hold_replies(self) -> None: ...
    def let_go_of_replies(self) -> None: ...
    def connection_closed(self, connection_id: int) -> Any: ...
    def counters(self) -> dict[str, int]: ...
