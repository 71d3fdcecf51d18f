import socket

from kafkapy._speedups.network.connection import ConnectionRegistry
from kafkapy._speedups.network.processor import Processor

class Acceptor:
    registry: ConnectionRegistry
    def __init__(
        self,
        registry: ConnectionRegistry,
        listen_socket: socket.socket,
        processors: list[Processor],
        listener_index: int,
        privileged: bool = ...,
        send_buffer_bytes: int = ...,
        same_host_send_buffer_bytes: int = ...,
    ) -> None: ...
    def set_processors(self, processors: list[Processor]) -> None: ...
    def run(self) -> None: ...
    def stop(self) -> None: ...
