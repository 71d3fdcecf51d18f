"""Logs of every kind, written to a broker by a client, and all that a client can see of them.

`write_corpus(bootstrap)` makes the topics; `observe(bootstrap)` reads everything back, so that two brokers that serve
one data directory, one after the other, can be compared record by record.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GROUP = "corpus-group"
TRANSACTIONAL_ID = "corpus-transactions"
OPEN_TRANSACTIONAL_ID = "corpus-left-open"
NOW = 1_700_000_000_000
TIMEOUT_S = 60.0
SEGMENT = "1048576"
"""Bytes; the least that Apache Kafka 4 allows."""

TOPICS: dict[str, dict[str, str]] = {
    **{f"corpus-{codec}": {"retention.ms": "-1"} for codec in CODECS},
    "corpus-append-time": {"message.timestamp.type": "LogAppendTime"},
    "corpus-segments": {"segment.bytes": SEGMENT, "retention.ms": "-1"},
    "corpus-deleted": {"segment.bytes": SEGMENT, "retention.ms": "-1", "file.delete.delay.ms": "100"},
    "corpus-transactions": {"segment.bytes": SEGMENT, "retention.ms": "-1"},
    "corpus-open": {"retention.ms": "-1"},
    "corpus-compacted": {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.bytes": SEGMENT,
        "index.interval.bytes": "1024",
    },
}
PARTITIONS = 2
QUIET = 0
"""The broker comes and goes while clients are there: librdkafka need not say so."""
COORDINATOR_ERRORS = (
    confluent_kafka.KafkaError.NOT_COORDINATOR,
    confluent_kafka.KafkaError.COORDINATOR_NOT_AVAILABLE,
    confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


@dataclass(frozen=True)
class Seen:
    """A record as a consumer gets it. `timestamp`: (kind, ms)."""

    offset: int
    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int | None


@dataclass(frozen=True)
class Observed:
    """All that clients see of the corpus."""

    watermarks: dict[tuple[str, int], tuple[int, int]]
    records: dict[tuple[str, int], list[Seen]]
    committed_records: dict[tuple[str, int], list[Seen]]
    group_offsets: dict[tuple[str, int], tuple[int, str | None]]


def _delivered(error: Any, _message: Any) -> None:
    assert error is None, error


def _producer(bootstrap: str, **config: Any) -> confluent_kafka.Producer:
    keys: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "linger.ms": 20,
        "enable.idempotence": True,
        "log_level": QUIET,
        "on_delivery": _delivered,
    }
    return confluent_kafka.Producer(keys | {name.replace("_", "."): value for name, value in config.items()})


def _flush(producer: confluent_kafka.Producer) -> None:
    assert producer.flush(TIMEOUT_S) == 0


def create_topics(bootstrap: str) -> None:
    """The corpus' topics, empty."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(name, PARTITIONS, 1, config=config) for name, config in TOPICS.items()]
    for future in admin.create_topics(new).values():
        future.result(TIMEOUT_S)


def write_corpus(bootstrap: str) -> None:
    """Topics, records, transactions (one stays open), deleted records, and a group's offsets."""
    create_topics(bootstrap)
    for codec in CODECS:
        _write_records(bootstrap, f"corpus-{codec}", codec)
    _write_records(bootstrap, "corpus-append-time", "none")
    _write_segments(bootstrap, "corpus-segments", "lz4")
    _write_segments(bootstrap, "corpus-deleted", "none")
    _delete_records(bootstrap, "corpus-deleted")
    _write_transactions(bootstrap, "corpus-transactions")
    _write_compacted(bootstrap, "corpus-compacted")
    _leave_a_transaction_open(bootstrap, "corpus-open")
    _commit_offsets(bootstrap)


def use_coordinators(bootstrap: str) -> None:
    """Makes the broker create the topics of its coordinators."""
    consumer = _consumer(bootstrap, "read_uncommitted")
    _committed(consumer, [confluent_kafka.TopicPartition("corpus-none", 0)])
    consumer.close()
    _producer(bootstrap, transactional_id="corpus-first").init_transactions(TIMEOUT_S)


def _write_records(bootstrap: str, topic: str, codec: str) -> None:
    """Keys and values that are null, empty, text and bytes; headers; timestamps out of order."""
    rng = random.Random(topic)
    producer = _producer(bootstrap, compression_type=codec)
    for number in range(300):
        headers = [("h", b"v%d" % number), ("h", None), ("ü", rng.randbytes(5))][: number % 4]
        producer.produce(
            topic,
            key=(None, b"", b"key-%d" % number)[number % 3],
            value=(b"value %d " % number * (number % 50), None, b"", rng.randbytes(30))[number % 4],
            headers=headers,
            partition=number % PARTITIONS,
            timestamp=NOW + rng.randrange(100_000),
        )
        if number % 40 == 0:
            _flush(producer)
    _flush(producer)


def _write_segments(bootstrap: str, topic: str, codec: str) -> None:
    """A few segments in each partition."""
    rng = random.Random(topic)
    producer = _producer(bootstrap, compression_type=codec, batch_size=20_000)
    for number in range(800):
        producer.produce(
            topic,
            key=b"%d" % number,
            value=rng.randbytes(8_000),
            partition=number % PARTITIONS,
            timestamp=NOW + number,
        )
        if number % 50 == 0:
            _flush(producer)
    _flush(producer)


def _delete_records(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    upto = [confluent_kafka.TopicPartition(topic, number, 333 - number) for number in range(PARTITIONS)]
    for future in admin.delete_records(upto).values():
        future.result(TIMEOUT_S)


def _write_transactions(bootstrap: str, topic: str) -> None:
    """Committed and aborted transactions of two producers, interleaved with records outside of any, over segments."""
    rng = random.Random(topic)
    transactions = [_producer(bootstrap, transactional_id=f"{TRANSACTIONAL_ID}-{n}") for n in range(2)]
    plain = _producer(bootstrap)
    for producer in transactions:
        producer.init_transactions(TIMEOUT_S)
    for round_ in range(12):
        for producer in transactions:
            producer.begin_transaction()
        for number in range(40):
            for at, producer in enumerate((*transactions, plain)):
                producer.produce(
                    topic,
                    key=b"%d-%d-%d" % (round_, number, at),
                    value=rng.randbytes(2_500),
                    partition=number % PARTITIONS,
                    timestamp=NOW + round_ * 1000 + number,
                )
            if number % 10 == 9:
                for producer in (*transactions, plain):
                    _flush(producer)
        for at, producer in enumerate(transactions):
            if (round_ + at) % 3 == 0:
                producer.abort_transaction(TIMEOUT_S)
            else:
                producer.commit_transaction(TIMEOUT_S)


def _write_compacted(bootstrap: str, topic: str) -> None:
    """Several values for most keys, tombstones, and a transaction; closed segments, so that the cleaner has work."""
    rng = random.Random(topic)
    producer = _producer(bootstrap, transactional_id=f"{TRANSACTIONAL_ID}-compacted", compression_type="zstd")
    producer.init_transactions(TIMEOUT_S)
    for round_ in range(16):
        producer.begin_transaction()
        for number in range(60):
            key = rng.randrange(90)
            producer.produce(
                topic,
                key=b"key-%d" % key,
                value=None if rng.random() < 0.1 else rng.randbytes(6_000),
                headers=[("round", b"%d" % round_)],
                partition=key % PARTITIONS,
                timestamp=NOW + round_ * 1000 + number,
            )
        if round_ % 5 == 1:
            _flush(producer)
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)


def _leave_a_transaction_open(bootstrap: str, topic: str) -> None:
    producer = _producer(bootstrap, transactional_id=OPEN_TRANSACTIONAL_ID, transaction_timeout_ms=900_000)
    producer.init_transactions(TIMEOUT_S)
    for committed in (True, False):
        producer.begin_transaction()
        for number in range(20):
            producer.produce(topic, key=b"%d" % number, value=b"committed" if committed else b"open", partition=0)
        _flush(producer)
        if committed:
            producer.commit_transaction(TIMEOUT_S)


def _commit_offsets(bootstrap: str) -> None:
    consumer = _consumer(bootstrap, "read_uncommitted")
    _committed(consumer, [confluent_kafka.TopicPartition("corpus-none", 0)])
    for round_ in range(3):
        offsets = [
            confluent_kafka.TopicPartition(topic, number, 10 * round_ + number, metadata=f"note {round_} of {topic}")
            for topic in TOPICS
            for number in range(PARTITIONS)
        ]
        consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def _consumer(bootstrap: str, isolation: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": QUIET,
            "group.id": GROUP,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
        }
    )


def _committed(consumer: confluent_kafka.Consumer, partitions: list[Any]) -> list[Any]:
    """The group's offsets, once the coordinator has loaded its partition."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return list(consumer.committed(partitions, timeout=TIMEOUT_S))
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() not in COORDINATOR_ERRORS or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def _all_partitions() -> list[tuple[str, int]]:
    return [(topic, number) for topic in TOPICS for number in range(PARTITIONS)]


def _read(bootstrap: str, isolation: str, starts: dict[tuple[str, int], int]) -> dict[tuple[str, int], list[Seen]]:
    consumer = _consumer(bootstrap, isolation)
    consumer.assign([confluent_kafka.TopicPartition(*where, start) for where, start in starts.items()])
    found: dict[tuple[str, int], list[Seen]] = {where: [] for where in starts}
    waiting = set(starts)
    deadline = time.monotonic() + TIMEOUT_S
    while waiting:
        assert time.monotonic() < deadline, f"no end of {sorted(waiting)}"
        for message in consumer.consume(500, timeout=0.5):
            where = (message.topic(), message.partition())
            if message.error() is not None:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
                waiting.discard(where)
                continue
            found[where].append(
                Seen(
                    message.offset(),
                    message.timestamp(),
                    message.key(),
                    message.value(),
                    tuple(message.headers() or ()),
                    message.leader_epoch(),
                )
            )
    consumer.close()
    return found


def wait_until_led(bootstrap: str) -> None:
    """Until the broker, perhaps just started, leads all partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        topics = admin.list_topics(timeout=TIMEOUT_S).topics
        led = [topic for topic in TOPICS if topic in topics and len(topics[topic].partitions) == PARTITIONS]
        if len(led) == len(TOPICS) and all(p.leader >= 0 for topic in led for p in topics[topic].partitions.values()):
            break
        assert time.monotonic() < deadline, f"of {sorted(TOPICS)} only {led} are led"
        time.sleep(0.1)
    # What the metadata say comes first, and what the broker does follows.
    consumer = _consumer(bootstrap, "read_uncommitted")
    for where in _all_partitions():
        while True:
            try:
                consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*where), timeout=TIMEOUT_S)
                break
            except confluent_kafka.KafkaException as error:
                assert time.monotonic() < deadline, (where, error)
                time.sleep(0.1)
    consumer.close()


def observe(bootstrap: str) -> Observed:
    """Reads everything, and asks for the group's offsets."""
    wait_until_led(bootstrap)
    consumer = _consumer(bootstrap, "read_uncommitted")
    partitions = [confluent_kafka.TopicPartition(*where) for where in _all_partitions()]
    watermarks = {(p.topic, p.partition): consumer.get_watermark_offsets(p, timeout=TIMEOUT_S) for p in partitions}
    offsets = _committed(consumer, partitions)
    consumer.close()
    starts = {where: low for where, (low, _) in watermarks.items()}
    return Observed(
        watermarks,
        _read(bootstrap, "read_uncommitted", starts),
        _read(bootstrap, "read_committed", starts),
        {(p.topic, p.partition): (p.offset, p.metadata) for p in offsets},
    )


def wait_until_compacted(bootstrap: str) -> None:
    """Until the cleaner has done what there is to do: the compacted topic's records do not become fewer any more."""
    before, stable = -1, 0
    deadline = time.monotonic() + TIMEOUT_S
    starts = {("corpus-compacted", number): 0 for number in range(PARTITIONS)}
    while stable < 4:
        assert time.monotonic() < deadline, f"the cleaner has left {before} records"
        count = sum(map(len, _read(bootstrap, "read_uncommitted", starts).values()))
        stable = stable + 1 if count == before and count < 900 else 0
        before = count
        time.sleep(0.5)


def append_more(bootstrap: str) -> None:
    """Ten new committed records behind the old ones of each partition; the transaction left open is aborted before.

    Returns once consumers of committed records get them.
    """
    producer = _producer(bootstrap, transactional_id=OPEN_TRANSACTIONAL_ID, transaction_timeout_ms=900_000)
    wait_until_led(bootstrap)
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for number in range(10):
        for where in _all_partitions():
            producer.produce(where[0], key=b"more-%d" % number, value=b"after the move", partition=where[1])
    _flush(producer)
    consumer = _consumer(bootstrap, "read_uncommitted")
    starts = {
        where: consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*where), timeout=TIMEOUT_S)[1] - 10
        for where in _all_partitions()
    }
    consumer.close()
    producer.commit_transaction(TIMEOUT_S)
    # The markers are written after the commit is acknowledged.
    deadline = time.monotonic() + TIMEOUT_S
    while any(len(records) != 10 for records in _read(bootstrap, "read_committed", starts).values()):
        assert time.monotonic() < deadline, "the committed records are not seen"
