"""CPU and wall-clock microseconds per request of the clients' network layers: ours, aiokafka's, kafka-python's.

    .venv/bin/python perf/client_requests_bench.py [--count 3000] [--rounds 5]

Each asks the same broker (a kafkapy one) for its metadata without topics, one request after the other; ours and
aiokafka's also with eight at a time. The clients take turns, and the median of the rounds is shown. CPU is user and
system time of the client's process, all its threads.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

warnings.simplefilter("ignore", DeprecationWarning)

import uvloop  # noqa: E402
from aiokafka.client import AIOKafkaClient  # noqa: E402
from aiokafka.protocol.metadata import MetadataRequest as AioMetadataRequest  # noqa: E402
from kafka.net.compat import KafkaNetClient  # noqa: E402
from kafka.protocol.metadata import MetadataRequest as KafkaPythonMetadataRequest  # noqa: E402

from kafkapy.clients.background import BackgroundLoop  # noqa: E402
from kafkapy.clients.network_client import NetworkClient  # noqa: E402
from kafkapy.config.clients import COMMON, ClientConfig  # noqa: E402
from kafkapy.protocol.messages.metadata import MetadataRequest  # noqa: E402
from kafkapy.testing.broker_process import BrokerProcess  # noqa: E402

AT_ONCE = 8
NODE = 1
Run = Callable[[int], None]


def measured(run: Run, count: int) -> tuple[float, float]:
    """(CPU us, wall-clock us) per request."""
    cpu, wall = time.process_time(), time.perf_counter()
    run(count)
    return (time.process_time() - cpu) / count * 1e6, (time.perf_counter() - wall) / count * 1e6


async def one_by_one(send: Callable[[], Any], count: int) -> None:
    for _ in range(count):
        await send()


async def several(send: Callable[[], Any], count: int) -> None:
    await asyncio.gather(*(one_by_one(send, count // AT_ONCE) for _ in range(AT_ONCE)))


class Clients:
    """One of each, connected."""

    def __init__(self, bootstrap: str) -> None:
        self.loop = uvloop.new_event_loop()
        self.ours = NetworkClient(ClientConfig(COMMON, bootstrap_servers=bootstrap), client_id="bench")
        self.loop.run_until_complete(self.ours.start())
        self.background = BackgroundLoop()
        self.behind = NetworkClient(ClientConfig(COMMON, bootstrap_servers=bootstrap), client_id="bench")
        self.background.run(self.behind.start())
        self.aio_loop = asyncio.new_event_loop()
        self.aio = self.aio_loop.run_until_complete(self._aiokafka(bootstrap))
        self.kafka_python = KafkaNetClient(bootstrap_servers=bootstrap, client_id="bench")
        self.kafka_python._manager.bootstrap(10_000)

    @staticmethod
    async def _aiokafka(bootstrap: str) -> AIOKafkaClient:
        client = AIOKafkaClient(bootstrap_servers=bootstrap, client_id="bench")
        await client.bootstrap()
        await client.ready(NODE)
        return client

    def runs(self) -> dict[str, Run]:
        def ours() -> Any:
            return self.ours.send(NODE, MetadataRequest(topics=[]))

        def aiokafka() -> Any:
            return self.aio.send(NODE, AioMetadataRequest([]))

        def sync(count: int) -> None:
            for _ in range(count):
                self.background.run(self.behind.send(NODE, MetadataRequest(topics=[])))

        def kafka_python(count: int) -> None:
            for _ in range(count):
                self.kafka_python.send_and_receive(NODE, KafkaPythonMetadataRequest(topics=[]))

        return {
            "kafkapy, asyncio": lambda count: self.loop.run_until_complete(one_by_one(ours, count)),
            "kafkapy, from another thread": sync,
            "aiokafka": lambda count: self.aio_loop.run_until_complete(one_by_one(aiokafka, count)),
            "kafka-python": kafka_python,
            f"kafkapy, asyncio, {AT_ONCE} at a time": lambda count: self.loop.run_until_complete(several(ours, count)),
            f"aiokafka, {AT_ONCE} at a time": lambda count: self.aio_loop.run_until_complete(several(aiokafka, count)),
        }

    def close(self) -> None:
        self.loop.run_until_complete(self.ours.close())
        self.background.run(self.behind.close())
        self.background.stop()
        self.aio_loop.run_until_complete(self.aio.close())
        self.kafka_python.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=3000, help="requests per round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with BrokerProcess() as broker:
        clients = Clients(broker.bootstrap)
        runs = clients.runs()
        for run in runs.values():
            run(options.count // 10)
        rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
        for _ in range(options.rounds):
            for name, run in runs.items():
                rounds[name].append(measured(run, options.count))
        clients.close()
    print(f"{'':<34}{'CPU us/request':>16}{'wall us/request':>18}")
    for name, results in rounds.items():
        cpu, wall = (statistics.median(each) for each in zip(*results, strict=True))
        print(f"{name:<34}{cpu:>16.1f}{wall:>18.1f}")


if __name__ == "__main__":
    main()
