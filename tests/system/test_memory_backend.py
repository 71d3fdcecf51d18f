"""The memory storage backend under a whole broker: the same data plane, and no record on disk."""

from __future__ import annotations

from pathlib import Path

from interop.clients import ConfluentClient, Record

from kafkapy import KafkaAdminClient
from kafkapy.testing.broker_process import BrokerProcess


def test_a_client_produces_and_reads_back_with_nothing_on_disk(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, {"kafkapy.storage.backend": "memory"}) as broker:
        client = ConfluentClient(broker.bootstrap)
        client.create_topic("t", config={"segment.bytes": "1048576"})
        records = [Record(b"%d" % n, b"needle-%d " % n * 500) for n in range(600)]
        client.produce("t", records, idempotent=True)
        got = client.consume("t", len(records))
        assert [(r.offset, r.record.key, r.record.value) for r in got] == [
            (n, record.key, record.value) for n, record in enumerate(records)
        ]
        tail = client.consume("t", 100, offset=500)
        assert [r.record.key for r in tail] == [b"%d" % n for n in range(500, 600)]
        files = [path for path in (tmp_path / "logs").rglob("*") if path.is_file()]
        assert not [path for path in files if b"needle-" in path.read_bytes()]


def test_a_broker_that_keeps_nothing_writes_no_file(tmp_path: Path) -> None:
    keys = {"kafkapy.storage.backend": "memory", "kafkapy.metadata.store": "memory"}
    with BrokerProcess(tmp_path, keys) as broker:
        client = ConfluentClient(broker.bootstrap)
        client.create_topic("t", config={"cleanup.policy": "compact", "segment.bytes": "1048576"})
        records = [Record(b"%d" % (n % 10), b"x" * 5000) for n in range(500)]
        client.produce("t", records, idempotent=True)
        assert [each.record.value for each in client.consume("t", len(records))] == [each.value for each in records]
        # Its configuration and its log are the test's own.
        files = {"server.properties", "broker.log"}
        assert {path.name for path in tmp_path.iterdir()} == files
        broker.restart()
        with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
            assert admin.list_topics() == []
            (directory,) = admin.describe_log_dirs()
            assert "/logs" in str(directory)
    assert {path.name for path in tmp_path.iterdir()} == files
