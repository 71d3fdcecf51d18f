"""Round trip of one small request: a Fetch that the data plane answers, a request that Python answers, and what the
loopback and a second thread cost without a broker (a blocking echo thread in the same process).

    python perf/ping_bench.py [seconds for each]
"""

from __future__ import annotations

import select
import socket
import statistics
import struct
import sys
import threading
import time
from collections.abc import Callable

from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy._speedups.requests.data_plane import DataPlane
from kafkapy._speedups.requests.fetch_session import FetchSessionCache
from kafkapy._speedups.requests.partition_table import PartitionTable
from kafkapy.network.socket_server import SocketServer, SocketServerConfig
from kafkapy.types import Endpoint

FETCH = struct.pack(">iiii", -1, 0, 0, 1 << 20) + b"\0" + struct.pack(">i", 0)
"""Body of a Fetch in version 4 that asks for no partition."""


def frame(api_key: int, version: int, body: bytes) -> bytes:
    """A request frame with its size."""
    header = struct.pack(">hhih", api_key, version, 1, -1)
    return struct.pack(">i", len(header) + len(body)) + header + body


def receive(connection: socket.socket) -> bytes:
    """One frame's payload; the frames here are small enough to come in one piece nearly always."""
    data = connection.recv(65536)
    while len(data) < 4 + struct.unpack(">i", data[:4])[0]:
        data += connection.recv(65536)
    return data[4:]


def measure(port: int, request: bytes, seconds: float) -> list[float]:
    """Round-trip times in us."""
    times = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            connection.sendall(request)
            receive(connection)
            times.append((time.perf_counter() - start) * 1e6)
    return times


def report(name: str, times: list[float]) -> None:
    """One line: median and 99th percentile."""
    times.sort()
    p99 = times[len(times) * 99 // 100]
    print(f"{name:34} {len(times):8} round trips  p50 {statistics.median(times):7.1f} us  p99 {p99:7.1f} us")


def echo_server() -> int:
    """A thread that sends back what it reads: what two threads and the loopback cost without a broker."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := connection.recv(65536):
            connection.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    port: int = listener.getsockname()[1]
    return port


def python_side(server: SocketServer) -> Callable[[], None]:
    """A thread that answers what comes to Python with the request's own body; returns what ends it."""
    stop = threading.Event()

    def serve() -> None:
        channel = server.request_channel
        while not stop.is_set():
            if select.select([channel.fileno()], [], [], 0.1)[0]:
                for request in channel.drain():
                    request.reply(request.body)

    thread = threading.Thread(target=serve)
    thread.start()

    def end() -> None:
        stop.set()
        thread.join()

    return end


def main() -> None:
    """Measures and prints."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    events = EventQueue()
    plane = DataPlane(1, PartitionTable(), FetchSessionCache(10), events)
    config = SocketServerConfig([Endpoint("PLAINTEXT", "127.0.0.1", 0)], num_network_threads=1)
    server = SocketServer(config, plane, events, {1: (4, 18, 12, True), 3: (0, 12, 9, False)})
    server.startup()
    server.enable_request_processing()
    end = python_side(server)
    port = server.bound_port("PLAINTEXT")
    report("limit: echo thread in Python", measure(echo_server(), frame(1, 4, FETCH), seconds))
    report("Fetch, answered by the data plane", measure(port, frame(1, 4, FETCH), seconds))
    report("Metadata, answered by Python", measure(port, frame(3, 5, b"x" * 20), seconds))
    server.shutdown(1)
    end()


if __name__ == "__main__":
    main()
