"""Do other clients' TLS handshakes move the produce latency of an established one? A B C A B C: none; 1,000 half-open
and 1,000 slow ones; new connections one after the other.

.venv/bin/python perf/handshake_bench.py [rounds]
"""

from __future__ import annotations

import multiprocessing
import resource
import socket
import ssl
import statistics
import sys
import tempfile
import time
from multiprocessing.synchronize import Event
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from certificates import localhost, shared_ca  # noqa: E402
from interop.clients import ConfluentClient  # noqa: E402
from isolation_bench import latencies_us  # noqa: E402
from system.raw_client import RawClient  # noqa: E402

from kafkapy.testing.broker_process import BrokerProcess  # noqa: E402

HALF_OPEN = SLOW = 1000
SLOW_S = 10.0
"""In which a slow one sends its first flight, STEP bytes at a time."""
STEP = 20


def first_flight() -> bytes:
    outgoing = ssl.MemoryBIO()
    peer = ssl.create_default_context(cadata=shared_ca().der).wrap_bio(
        ssl.MemoryBIO(), outgoing, server_hostname="localhost"
    )
    try:
        peer.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise RuntimeError("the handshake needs no server")


def half_open_and_slow(port: int, ready: Event, stop: Event) -> None:
    """Opened again when the broker has closed them."""
    flight = first_flight()
    peers: list[tuple[socket.socket, int]] = []
    position = 0
    while not stop.is_set():
        while len(peers) < HALF_OPEN + SLOW:
            peers.append((socket.create_connection(("127.0.0.1", port), 60), position))
        ready.set()
        for number, (peer, begun) in enumerate(peers[HALF_OPEN:], HALF_OPEN):
            at = position - begun
            try:
                if at < len(flight):
                    peer.send(flight[at : at + STEP])
                else:
                    raise ConnectionError
            except ConnectionError:
                peer.close()
                peers[number] = (socket.create_connection(("127.0.0.1", port), 60), position + STEP)
        position += STEP
        stop.wait(SLOW_S / len(flight) * STEP)


def storm(port: int, ready: Event, stop: Event) -> None:
    """Whole handshakes as fast as this process can."""
    context = ssl.create_default_context(cadata=shared_ca().der)
    while not stop.is_set():
        with socket.create_connection(("127.0.0.1", port), 60) as raw:
            context.wrap_socket(raw, server_hostname="localhost").close()
        ready.set()


def main(rounds: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    context = ssl.create_default_context(cadata=shared_ca().der)
    with tempfile.TemporaryDirectory() as folder:
        keystore = Path(folder) / "broker.pem"
        keystore.write_bytes(localhost().key_pem + localhost().chain_pem)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        keys = {
            "listeners": f"PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:{port}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keystore),
        }
        with BrokerProcess(Path(folder) / "broker", keys) as broker:
            ConfluentClient(broker.bootstrap).create_topic("t")
            client = RawClient(f"127.0.0.1:{port}", tls=context)
            latencies_us(client)
            kinds = {"quiet": None, "half-open and slow": half_open_and_slow, "storm": storm}
            results: dict[str, list[list[float]]] = {kind: [] for kind in kinds}
            for _ in range(rounds):
                for kind, others in kinds.items():
                    ready, stop = multiprocessing.Event(), multiprocessing.Event()
                    process = multiprocessing.Process(target=others, args=(port, ready, stop)) if others else None
                    if process is not None:
                        process.start()
                        ready.wait()
                    results[kind].append(latencies_us(client))
                    stop.set()
                    if process is not None:
                        process.join()
                    time.sleep(0.5)
            client.close()
    for kind, runs in results.items():
        p50 = [statistics.quantiles(run, n=100)[49] for run in runs]
        p99 = [statistics.quantiles(run, n=100)[98] for run in runs]
        print(f"{kind:18}: p50 {statistics.median(p50):8.0f} us   p99 {statistics.median(p99):8.0f} us   "
              f"p99 of each round: {', '.join(f'{v:.0f}' for v in p99)}")  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
