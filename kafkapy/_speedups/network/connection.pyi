from typing import Any

from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy._speedups.network.connection_quotas import ConnectionQuotas

LOGGER_NAMES: dict[int, str]

class ConnectionRegistry:
    quotas: ConnectionQuotas
    events: EventQueue
    def __init__(self, quotas: ConnectionQuotas, events: EventQueue) -> None: ...
    def connections(self) -> list[dict[str, Any]]: ...
    def counters(self) -> dict[str, int]: ...
