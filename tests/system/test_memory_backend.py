"""The memory storage backend under a whole broker: the same data plane, and no record on disk."""

from __future__ import annotations

from pathlib import Path

from interop.clients import ConfluentClient, Record

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
