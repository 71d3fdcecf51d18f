"""Dynamic changes under load lose no request: foreign clients produce and consume meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from kafkapy.testing.broker_process import BrokerProcess

ROUNDS = 4
TIMEOUT_S = 60


def change(admin: AdminClient, keys: dict[str, str | None]) -> None:
    entries = [
        ConfigEntry(
            key,
            value or "",
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for key, value in keys.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(TIMEOUT_S)


class Load:
    """An idempotent producer and a consumer on threads; what was acknowledged, and what was read."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[int] = []
        self.read: list[int] = []
        self.errors: list[object] = []
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._produce), threading.Thread(target=self._consume)]
        for thread in self._threads:
            thread.start()

    def _produce(self) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 1}
        )

        def delivered(error: object, message: Any) -> None:
            if error is None:
                self.acknowledged.append(int(message.value()))
            else:
                self.errors.append(error)

        number = 0
        while not self._stop.is_set():
            producer.produce("load", str(number).encode(), on_delivery=delivered)
            number += 1
            producer.poll(0.001)
        producer.flush(TIMEOUT_S)

    def _consume(self) -> None:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "load", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["load"])
        while self._threads[0].is_alive() or len(self.read) < len(self.acknowledged):
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.read.append(int(message.value()))
        consumer.close()

    def progress(self, more: int) -> None:
        """Wait until so many more records were read."""
        wanted = len(self.read) + more
        while len(self.read) < wanted:
            assert all(thread.is_alive() for thread in self._threads)
            self._threads[0].join(0.01)

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * TIMEOUT_S)
            assert not thread.is_alive()


def test_threads_and_listeners_change_and_no_record_is_lost(tmp_path: Path) -> None:
    keys = {"num.network.threads": "2", "num.io.threads": "4", "advertised.listeners": "PLAINTEXT://127.0.0.1:0"}
    broker = BrokerProcess(tmp_path, keys)
    try:
        bootstrap = broker.start().bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("load", 2, 1)])["load"].result(TIMEOUT_S)
        port = bootstrap.rpartition(":")[2]
        load = Load(bootstrap)
        present = f"PLAINTEXT://127.0.0.1:{port}"
        (own,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
        present = own.result(TIMEOUT_S)["listeners"].value
        extra = {
            "listeners": f"{present},EXTRA://127.0.0.1:0",
            "advertised.listeners": "PLAINTEXT://127.0.0.1:0,EXTRA://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT",
        }
        for _ in range(ROUNDS):
            for threads in ("4", "2", "1", "2"):
                change(admin, {"num.network.threads": threads, "num.io.threads": str(2 * int(threads))})
                load.progress(100)
            change(admin, extra)
            load.progress(100)
            change(admin, dict.fromkeys(extra))
            load.progress(100)
        load.end()
        assert load.errors == []
        assert len(load.acknowledged) > ROUNDS * 600
        assert sorted(load.read) == sorted(load.acknowledged) == list(range(len(load.acknowledged)))
    finally:
        broker.remove()
