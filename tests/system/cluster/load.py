"""Load on a cluster over faults, and its checks: nothing acknowledged lost or doubled, order kept."""

from __future__ import annotations

import random
import threading
import time
import warnings
from typing import Any

import confluent_kafka
from system.cluster.processes import wait_until

from kafkapy import KafkaProducer
from kafkapy.errors import KafkaError

REQUEST_MS = 6000

QUICK = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 2000,
    # A broker that stands still keeps its connections: requests to it end only by this time.
    "socket.timeout.ms": REQUEST_MS,
    "log_level": 0,
}
FLUSH_S = 600
CLOSE_S = 120
PAUSE_S = 0.02
BURST = 12
"""At most so many records at a time, between pauses: the faults are the load."""


class ConfluentLoad:
    """An idempotent producer of librdkafka with acks=all, in a thread, over all faults.

    Partition p gets the numbers 0, 1, 2, ...; `acknowledged[p]` maps the confirmed ones to their offsets.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, seed: int = 0) -> None:
        self.topic = topic
        self.sent = [0] * partitions
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(partitions)]
        self.failures: list[str] = []
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": 1_800_000,
                **QUICK,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(f"{message.partition()}: {error}")
        else:
            # An acknowledgement that the client concludes from a later one carries no offset: None, or a negative one.
            offset = -1 if message.offset() is None else message.offset()
            self.acknowledged[message.partition()][int(message.value().split(b" ")[0])] = offset

    def _run(self) -> None:
        while not self._stop.is_set():
            for _ in range(self._random.randrange(1, BURST)):
                partition = self._random.randrange(len(self.sent))
                value = b"%d %s" % (self.sent[partition], b"x" * self._random.randrange(200))
                try:
                    self._producer.produce(self.topic, value, partition=partition, on_delivery=self._delivered)
                except BufferError:
                    break
                self.sent[partition] += 1
            self._producer.poll(0)
            time.sleep(PAUSE_S)

    @property
    def confirmed(self) -> int:
        """The number of acknowledged records."""
        return sum(map(len, self.acknowledged))

    def finish(self) -> None:
        """Stop sending; everything sent has to be acknowledged."""
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(FLUSH_S)
        assert left == 0, f"{left} records are not acknowledged, though all brokers live"
        assert not self.failures, self.failures[:5]
        assert [len(each) for each in self.acknowledged] == self.sent


class KafkapyLoad:
    """The same with our producer."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, seed: int = 0) -> None:
        self.topic = topic
        self.sent = [0] * partitions
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(partitions)]
        self.failures: list[str] = []
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            enable_idempotence=True,
            linger_ms=5,
            delivery_timeout_ms=1_800_000,
            request_timeout_ms=REQUEST_MS,
            retry_backoff_ms=20,
            retry_backoff_max_ms=200,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
            metadata_max_age_ms=2000,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for _ in range(self._random.randrange(1, BURST)):
                partition = self._random.randrange(len(self.sent))
                number = self.sent[partition]
                value = b"%d %s" % (number, b"x" * self._random.randrange(200))
                try:
                    future = self._producer.send(self.topic, value, partition=partition)
                except KafkaError as error:
                    self.failures.append(f"{partition}: {error}")
                    continue
                self.sent[partition] += 1
                future.add_callback(self._delivered, partition, number)
                future.add_errback(self._failed)
            time.sleep(PAUSE_S)

    def _delivered(self, partition: int, number: int, metadata: Any) -> None:
        self.acknowledged[partition][number] = metadata.offset

    def _failed(self, error: BaseException) -> None:
        self.failures.append(f"{type(error).__name__}: {error}")

    @property
    def confirmed(self) -> int:
        """The number of acknowledged records."""
        return sum(map(len, self.acknowledged))

    def finish(self) -> None:
        """Stop sending; everything sent has to be acknowledged."""
        self._stop.set()
        self._thread.join()
        self._producer.flush(FLUSH_S)
        self._producer.close()
        assert not self.failures, self.failures[:5]
        assert [len(each) for each in self.acknowledged] == self.sent


class TransactionalLoad:
    """Transactions of librdkafka over all faults, in a thread: some are aborted on purpose.

    A record's value is "transaction number/index". `committed` and `aborted` hold the transactions whose end the
    producer knows, `unknown` those whose commit failed.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, seed: int = 0) -> None:
        self.topic = topic
        self.partitions = partitions
        self.committed: dict[int, int] = {}
        """Transaction to its number of records."""
        self.aborted: set[int] = set()
        self.unknown: dict[int, int] = {}
        self.problems: list[str] = []
        self._bootstrap = bootstrap
        self._id = f"load-{topic}-{seed}"
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def confirmed(self) -> int:
        """The number of acknowledged commits."""
        return len(self.committed)

    def finish(self) -> None:
        """End after the present transaction."""
        self._stop.set()
        self._thread.join(FLUSH_S)
        assert not self._thread.is_alive(), "a transaction does not end, though all brokers live"

    def _producer(self) -> Any:
        while True:
            producer = confluent_kafka.Producer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "transactional.id": self._id,
                    "transaction.timeout.ms": 60_000,
                    "linger.ms": 5,
                    **QUICK,
                }
            )
            try:
                producer.init_transactions(30)
            except confluent_kafka.KafkaException as error:
                self.problems.append(f"init: {error}")
                if self._stop.is_set():
                    return None
                continue
            return producer

    def _run(self) -> None:
        producer = self._producer()
        number = 0
        while producer is not None and not self._stop.is_set():
            number += 1
            if not self._one(producer, number):
                producer = self._producer()

    def _one(self, producer: Any, number: int) -> bool:
        """One transaction. False when the producer cannot go on."""
        count = self._random.randrange(1, 10)
        wanted = self._random.random() < 0.8
        committing = False
        try:
            producer.begin_transaction()
            for index in range(count):
                partition = self._random.randrange(self.partitions)
                producer.produce(self.topic, b"%d/%d" % (number, index), partition=partition)
            if not wanted:
                producer.abort_transaction(60)
                self.aborted.add(number)
                return True
            committing = True
            producer.commit_transaction(60)
            self.committed[number] = count
            return True
        except confluent_kafka.KafkaException as failure:
            error = failure.args[0]
            self.problems.append(f"transaction {number}: {error}")
            if error.txn_requires_abort():
                try:
                    producer.abort_transaction(60)
                    self.aborted.add(number)
                    return True
                except confluent_kafka.KafkaException as second:
                    self.problems.append(f"abort of {number}: {second.args[0]}")
            self.unknown[number] = count if committing else 0
            return False


class GroupMember:
    """A member of a consumer group in librdkafka, in a thread; it commits what it has noted."""

    def __init__(self, bootstrap: str, topic: str, group: str, isolation: str = "read_committed") -> None:
        self.seen: dict[int, list[int]] = {}
        """Offsets by partition, in the order of their arrival."""
        self.problems: list[str] = []
        self._stop = threading.Event()
        self._closing = threading.Event()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 500,
                "fetch.wait.max.ms": 100,
                **QUICK,
            }
        )
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            messages = self._consumer.consume(500, timeout=0.2)
            for message in messages:
                if message.error() is not None:
                    self.problems.append(str(message.error()))
                    continue
                self.seen.setdefault(message.partition(), []).append(message.offset())
            if messages:
                try:
                    self._consumer.commit(asynchronous=False)
                except confluent_kafka.KafkaException as error:
                    self.problems.append(str(error))
        self._closing.set()
        self._consumer.close()

    def finish(self) -> None:
        """Leave the group, or be left to the end of the session.

        A close of librdkafka has hung for ten minutes after the coordinator had moved a moment before. All its
        requests end with socket.timeout.ms, so no broker holds it; its records are checked all the same.
        """
        self._stop.set()
        assert self._closing.wait(FLUSH_S), "the consumer does not end"
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            warnings.warn("a consumer's close hangs", stacklevel=2)


def read_partition(bootstrap: str, topic: str, partition: int, isolation: str = "read_committed") -> list[Any]:
    """(offset, value) of all visible records of a partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            **QUICK,
        }
    )
    got: list[Any] = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
        deadline = time.monotonic() + FLUSH_S
        while time.monotonic() < deadline:
            for message in consumer.consume(10_000, timeout=0.5):
                error = message.error()
                if error is None:
                    got.append((message.offset(), message.value()))
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    return got
                else:
                    assert error.retriable(), error
        raise AssertionError(f"the end of {topic}-{partition} was not reached after {len(got)} records")
    finally:
        consumer.close()


def check_numbers(bootstrap: str, load: ConfluentLoad | KafkapyLoad) -> None:
    """Each partition holds the sent numbers, each once and in order, at the offsets that were acknowledged."""
    for partition, acknowledged in enumerate(load.acknowledged):
        got = read_partition(bootstrap, load.topic, partition)
        numbers = [int(value.split(b" ")[0]) for _, value in got]
        assert numbers == list(range(load.sent[partition])), _first_difference(partition, numbers)
        offsets = [offset for offset, _ in got]
        assert offsets == sorted(set(offsets))
        # An acknowledgement that the client concluded from a later one, or a duplicate's, carries no offset.
        wrong = [
            (number, offset, acknowledged[number])
            for number, offset in zip(numbers, offsets, strict=True)
            if acknowledged[number] >= 0 and acknowledged[number] != offset
        ]
        assert not wrong, f"partition {partition}: (record, offset, acknowledged offset) {wrong[:5]}"


def _first_difference(partition: int, numbers: list[int]) -> str:
    for at, number in enumerate(numbers):
        if number != at:
            return f"partition {partition}: record {at} is lost or out of order, {numbers[max(0, at - 3) : at + 4]}"
    return f"partition {partition} ends after record {len(numbers) - 1}"


def check_transactions(bootstrap: str, load: TransactionalLoad) -> None:
    """Committed transactions are whole, aborted ones absent, unknown ones one or the other, all in order."""
    found: dict[int, list[int]] = {}
    for partition in range(load.partitions):
        last = (0, -1)
        for _, value in read_partition(bootstrap, load.topic, partition):
            number, index = map(int, value.split(b"/"))
            assert (number, index) > last, f"{value} after {last}"
            last = (number, index)
            found.setdefault(number, []).append(index)
    for number, count in load.committed.items():
        assert sorted(found.get(number, [])) == list(range(count)), f"committed transaction {number} is not whole"
    assert not load.aborted & found.keys(), f"aborted transactions are visible: {sorted(load.aborted & found.keys())}"
    for number, count in load.unknown.items():
        assert sorted(found.get(number, [])) in ([], list(range(count))), f"transaction {number} is torn"
    assert found.keys() <= load.committed.keys() | load.unknown.keys()


def check_group(bootstrap: str, topic: str, partitions: int, members: list[GroupMember]) -> None:
    """The members together see each record at least once, in the end, and nothing else."""
    for partition in range(partitions):
        wanted = {offset for offset, _ in read_partition(bootstrap, topic, partition)}

        def missing(partition: int = partition, wanted: set[int] = wanted) -> set[int]:
            return wanted - {offset for member in members for offset in list(member.seen.get(partition, ()))}

        wait_until(lambda: not missing(), lambda: f"{len(missing())} more records of {topic} reach the group")
        others = {offset for member in members for offset in list(member.seen.get(partition, ()))} - wanted
        assert not others, f"members saw records of {topic}-{partition} that are not there: {sorted(others)[:5]}"
