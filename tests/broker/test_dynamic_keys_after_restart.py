"""What was set at run time holds from the first moment of the broker's next life."""

from __future__ import annotations

from pathlib import Path

from broker.conftest import Client, config
from broker.dynamic_changes import change

from kafkapy.broker.server import KafkaServer
from kafkapy.types import TopicPartition

KEYS = {
    "background.threads": "6",
    "num.io.threads": "5",
    "num.network.threads": "2",
    "num.recovery.threads.per.data.dir": "3",
    "log.cleaner.threads": "2",
    "log.retention.ms": "54321",
    "producer.id.expiration.ms": "777777",
    "transaction.partition.verification.enable": "false",
}


def seen(server: KafkaServer, topic: str) -> dict[str, str]:
    """The keys as the broker's parts have them."""
    broker = server._broker
    log = broker.log_manager.get(TopicPartition(topic, 0))
    assert log is not None
    assert broker.log_manager.cleaner._settings is not None
    values = {
        "background.threads": broker.scheduler.threads,
        "num.io.threads": broker.asks.threads,
        "num.network.threads": len(broker.socket_server.counters()["processors"]),
        "num.recovery.threads.per.data.dir": broker.log_manager.config.get_int("num.recovery.threads.per.data.dir"),
        "log.cleaner.threads": broker.log_manager.cleaner._settings.threads,
        "log.retention.ms": log.config.retention_ms,
        "producer.id.expiration.ms": log.producer_id_expiration_ms,
        "transaction.partition.verification.enable": broker.plane.verify_transactions,
    }
    return {key: str(value).lower() for key, value in values.items()}


def test_each_part_has_the_dynamic_configuration_after_a_restart(tmp_path: Path) -> None:
    with KafkaServer(config(tmp_path)) as server:
        client = Client("127.0.0.1", server.endpoints[0].port)
        client.create_topic("t")
        before = seen(server, "t")
        assert all(before[key] != value for key, value in KEYS.items()), before
        change(client, KEYS, "")
        assert seen(server, "t") == KEYS
        client.close()
    with KafkaServer(config(tmp_path)) as server:
        assert seen(server, "t") == KEYS
