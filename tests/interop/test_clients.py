"""Clients, foreign ones and our own, create topics, produce and fetch; every record is compared with what was sent."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
import pytest
from interop.clients import ALL, Client, KcatClient, Received, Record, text
from interop.conftest import make_broker

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def mixed_records(client: Client, seed: int, count: int = 40) -> list[Record]:
    """Null and empty keys and values, headers, and sizes from 1 byte up."""
    source = random.Random(seed)
    records = []
    for number in range(count):
        key: bytes | None = [None, b"", b"key-%d" % number, source.randbytes(20)][number % 4]
        long_value = source.randbytes(source.randrange(2000))
        value: bytes | None = [b"v", None, long_value, b"%d" % number * 40][number // 2 % 4]
        headers = ((f"h{number % 3}", source.randbytes(9)), ("empty", b"")) if number % 10 > 6 else ()
        if not client.binary_safe:
            # Its empty key or value is a null (-Z), and its headers are text with a value.
            key = text(key) if key else None
            value = text(value) if value else None
            headers = tuple((name, text(value) or b"-") for name, value in headers)
        records.append(Record(key, value, headers))
    return records


def without_timestamps(received: list[Received]) -> list[Record]:
    return [Record(r.record.key, r.record.value, r.record.headers) for r in received]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_record_comes_back_as_sent(client: Client, topic: str, acks: str, codec: str) -> None:
    records = mixed_records(client, seed=CODECS.index(codec))
    client.create_topic(topic)
    before = time.time() * 1000
    client.produce(topic, records, acks=acks, compression=codec)
    received = client.consume(topic, len(records))
    assert without_timestamps(received) == records
    assert [r.offset for r in received] == list(range(len(records)))
    assert all(before - 1000 <= (r.record.timestamp or 0) <= time.time() * 1000 + 1000 for r in received)
    assert client.end_offset(topic) == len(records)


@pytest.mark.parametrize("size", [1, 1_000, 65_536, 1_000_000])
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_record_sizes_from_one_byte_to_a_megabyte(client: Client, topic: str, size: int, codec: str) -> None:
    value = random.Random(size).randbytes(size)
    if not client.binary_safe:
        value = text(value)[:size]
    client.create_topic(topic)
    client.produce(topic, [Record(b"k", value), Record(b"after", b"x")], compression=codec)
    assert without_timestamps(client.consume(topic, 2)) == [Record(b"k", value), Record(b"after", b"x")]


def test_idempotent_producer(client: Client, topic: str) -> None:
    if not client.idempotence:
        pytest.skip(f"{client.name} has no idempotent producer")
    records = [Record(b"k%d" % n, b"v%d" % n) for n in range(500)]
    client.create_topic(topic)
    client.produce(topic, records, idempotent=True)
    received = client.consume(topic, len(records))
    assert without_timestamps(received) == records
    assert client.end_offset(topic) == len(records)


def test_fetch_from_the_middle_and_across_segment_rolls(broker: Any, client: Client, topic: str) -> None:
    creator = ALL[0](broker.bootstrap)
    creator.create_topic(topic, config={"segment.bytes": "1048576"})
    records = [Record(b"%06d" % n, text(random.Random(n).randbytes(6_000))) for n in range(600)]
    client.produce(topic, records)
    segments = sorted((Path(broker.data_dir) / "logs" / f"{topic}-0").glob("*.log"))
    assert len(segments) >= 4
    received = client.consume(topic, len(records))
    assert without_timestamps(received) == records
    boundary = int(segments[2].stem)
    for start in (boundary - 1, boundary, boundary + 1, len(records) - 1):
        tail = client.consume(topic, len(records) - start, offset=start)
        assert without_timestamps(tail) == records[start:]
        assert tail[0].offset == start


def test_fetch_from_a_timestamp(broker: Any, client: Client, topic: str) -> None:
    ALL[0](broker.bootstrap).create_topic(topic)
    start = int(time.time() * 1000) - 1_000_000
    writer = client if not isinstance(client, KcatClient) else ALL[0](broker.bootstrap)
    records = [Record(b"k", b"%d" % n, (), start + 1000 * n) for n in range(100)]
    for at in range(0, 100, 10):
        writer.produce(topic, records[at : at + 10])
    received = client.consume(topic, 63, timestamp=start + 36_500)
    assert [r.record for r in received] == records[37:]
    assert received[0].offset == 37


def test_many_partitions_are_kept_apart(broker: Any, client: Client, topic: str) -> None:
    ALL[0](broker.bootstrap).create_topic(topic, partitions=5)
    for partition in range(5):
        client.produce(topic, [Record(b"p", b"%d" % partition)] * (partition + 1), partition=partition)
    for partition in range(5):
        received = client.consume(topic, partition + 1, partition=partition)
        assert without_timestamps(received) == [Record(b"p", b"%d" % partition)] * (partition + 1)
        assert client.end_offset(topic, partition) == partition + 1


def test_each_client_reads_what_the_others_wrote(broker: Any, topic: str) -> None:
    everyone = [kind(broker.bootstrap) for kind in ALL if kind.available()]
    everyone[0].create_topic(topic)
    expected: list[Record] = []
    for number, writer in enumerate(everyone):
        for codec in CODECS:
            records = [Record(b"%s-%d" % (codec.encode(), n), text(random.Random(n).randbytes(50))) for n in range(20)]
            writer.produce(topic, records, compression=codec, idempotent=bool(number % 2))
            expected += records
    for reader in everyone:
        received = reader.consume(topic, len(expected))
        assert without_timestamps(received) == expected, reader.name
        assert [r.offset for r in received] == list(range(len(expected)))


def test_records_outlive_restarts_of_the_broker(tmp_path: Path) -> None:
    """Of every client; one broker for all, as a restart takes longer than what they do."""
    kinds = [kind for kind in ALL if kind.available()]
    with make_broker(tmp_path) as running:
        records: dict[str, list[Record]] = {kind.name: [] for kind in kinds}
        for kept in records:
            ALL[0](running.bootstrap).create_topic(kept, config={"segment.bytes": "1048576"})
        for round_number in range(3):
            for kind in kinds:
                values = [text(random.Random(n).randbytes(3_000)) for n in range(300)]
                new = [Record(b"%d-%d" % (round_number, n), value) for n, value in enumerate(values)]
                kind(running.bootstrap).produce(kind.name, new, compression=CODECS[round_number], idempotent=True)
                records[kind.name] += new
            running.restart()
            for kind in kinds:
                received = kind(running.bootstrap).consume(kind.name, len(records[kind.name]))
                assert without_timestamps(received) == records[kind.name], kind.name
                assert [r.offset for r in received] == list(range(len(records[kind.name]))), kind.name


def test_confluent_admin_lists_and_describes(broker: Any) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    ALL[0](broker.bootstrap).create_topic("listed", partitions=3, config={"retention.ms": "4321"})
    listed = admin.list_topics(timeout=20)
    assert len(listed.topics["listed"].partitions) == 3
    assert len(listed.brokers) == 1
    resource = confluent_kafka.admin.ConfigResource(confluent_kafka.admin.ConfigResource.Type.TOPIC, "listed")
    assert admin.describe_configs([resource])[resource].result(20)["retention.ms"].value == "4321"
    assert admin.describe_cluster().result(20).controller is not None
    admin.create_partitions([confluent_kafka.admin.NewPartitions("listed", 4)])["listed"].result(20)
    assert len(admin.list_topics("listed", timeout=20).topics["listed"].partitions) == 4
    ALL[0](broker.bootstrap).produce("listed", [Record(b"k", b"v")] * 10)
    where = confluent_kafka.TopicPartition("listed", 0, 4)
    assert admin.delete_records([where])[where].result(20).low_watermark == 4
    admin.delete_topics(["listed"], operation_timeout=20)["listed"].result(20)
    assert "listed" not in admin.list_topics(timeout=20).topics


def test_aiokafka_and_kafka_python_admins(broker: Any) -> None:
    ALL[1](broker.bootstrap).create_topic("admin-py", partitions=2, config={"cleanup.policy": "compact"})
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    assert "admin-py" in [t["name"] for t in admin.describe_topics(["admin-py"])]
    resource = kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, "admin-py")
    assert "compact" in str(admin.describe_configs([resource]))
    admin.delete_topics(["admin-py"])
    admin.close()
