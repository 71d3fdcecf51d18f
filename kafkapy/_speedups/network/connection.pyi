from collections.abc import Sequence
from typing import Any

from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy._speedups.base.scram import ScramTable
from kafkapy._speedups.base.tls import TlsContext
from kafkapy._speedups.network.connection_quotas import ConnectionQuotas

LOGGER_NAMES: dict[int, str]

class ConnectionRegistry:
    quotas: ConnectionQuotas
    events: EventQueue
    def __init__(self, quotas: ConnectionQuotas, events: EventQueue) -> None: ...
    def secure_listener(
        self,
        listener_index: int,
        tls: TlsContext | None = ...,
        sasl: bool = ...,
        raw_tokens: bool = ...,
        max_receive_bytes: int = ...,
        setup_timeout_ms: int = ...,
        failed_delay_ms: int = ...,
        ask_principal: bool = ...,
    ) -> None: ...
    def replace_tls(self, listener_index: int, tls: TlsContext) -> None: ...
    def serve_scram(self, listener_index: int, tables: Sequence[ScramTable], mechanisms: Sequence[str]) -> None: ...
    def authentication_counters(self, listener_index: int) -> dict[str, int] | None: ...
    def connections(self) -> list[dict[str, Any]]: ...
    def counters(self) -> dict[str, int]: ...
