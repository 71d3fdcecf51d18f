"""Kafka clients, foreign ones and our own, behind one small interface, so that each test runs with every one of them.

A record is (key, value, headers, timestamp ms or None); what comes back is a Received with its partition and offset.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from typing import Any

import aiokafka
import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin

import kafkapy
import kafkapy.admin
import kafkapy.aio

MAX_REQUEST = 1_500_000
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Record:
    """What is produced."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp: int | None = None


@dataclass(frozen=True)
class Received:
    """What a consumer got."""

    offset: int
    record: Record = field(compare=True)


class Client:
    """One client against one broker; `capabilities` names what it can't do."""

    name = ""
    headers = True
    binary_safe = True
    idempotence = True
    creates_topics_with_config = True

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @classmethod
    def available(cls) -> bool:
        """Whether the client is installed; Python's clients always are."""
        return True

    def create_topic(self, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        raise NotImplementedError

    def produce(
        self,
        topic: str,
        records: list[Record],
        *,
        partition: int = 0,
        acks: str = "all",
        compression: str = "none",
        idempotent: bool = False,
    ) -> None:
        """Sends all and returns when each is acknowledged (with acks=0: handed to the socket)."""
        raise NotImplementedError

    def consume(
        self,
        topic: str,
        count: int,
        *,
        partition: int = 0,
        offset: int | str = "earliest",
        timestamp: int | None = None,
    ) -> list[Received]:
        """`count` records from an offset, from "earliest", or from the first record at or after a timestamp in ms."""
        raise NotImplementedError

    def end_offset(self, topic: str, partition: int = 0) -> int:
        """What the client sees as the end of the partition ("latest")."""
        raise NotImplementedError


class ConfluentClient(Client):
    """confluent-kafka (librdkafka)."""

    name = "confluent-kafka"

    def create_topic(self, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.bootstrap})
        new = confluent_kafka.admin.NewTopic(topic, partitions, 1, config=config or {})
        admin.create_topics([new])[topic].result(TIMEOUT_S)

    def produce(
        self,
        topic: str,
        records: list[Record],
        *,
        partition: int = 0,
        acks: str = "all",
        compression: str = "none",
        idempotent: bool = False,
    ) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": acks,
                "compression.type": compression,
                "enable.idempotence": idempotent,
                "message.max.bytes": MAX_REQUEST,
                "linger.ms": 5,
            }
        )
        failures: list[object] = []

        def delivered(error: object, _message: object) -> None:
            if error is not None:
                failures.append(error)

        for record in records:
            keywords: dict[str, Any] = {} if record.timestamp is None else {"timestamp": record.timestamp}
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                partition=partition,
                headers=list(record.headers),
                on_delivery=delivered,
                **keywords,
            )
        assert producer.flush(TIMEOUT_S) == 0
        assert not failures, failures[:3]

    def _consumer(self) -> Any:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "assigned-only",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.message.max.bytes": MAX_REQUEST,
                "fetch.wait.max.ms": 100,
            }
        )

    def consume(
        self,
        topic: str,
        count: int,
        *,
        partition: int = 0,
        offset: int | str = "earliest",
        timestamp: int | None = None,
    ) -> list[Received]:
        consumer = self._consumer()
        consumer.list_topics(topic, TIMEOUT_S)  # without a leader's name it asks for offsets after half a second only
        start = confluent_kafka.OFFSET_BEGINNING if offset == "earliest" else int(offset)
        if timestamp is not None:
            asked = confluent_kafka.TopicPartition(topic, partition, timestamp)
            start = consumer.offsets_for_times([asked], timeout=TIMEOUT_S)[0].offset
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, start)])
        got: list[Received] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(got) < count and time.monotonic() < deadline:
            for message in consumer.consume(count - len(got), timeout=0.5):
                assert message.error() is None, message.error()
                headers = tuple((name, bytes(value)) for name, value in message.headers() or [])
                got.append(
                    Received(message.offset(), Record(message.key(), message.value(), headers, message.timestamp()[1]))
                )
        consumer.close()
        return got

    def end_offset(self, topic: str, partition: int = 0) -> int:
        consumer = self._consumer()
        high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, partition), timeout=TIMEOUT_S)[1]
        consumer.close()
        return int(high)


class KafkaPythonClient(Client):
    """kafka-python, or whatever has its shape: nothing but the modules differs."""

    name = "kafka-python"
    library: Any = kafka
    administration: Any = kafka.admin

    def create_topic(self, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        admin = self.administration.KafkaAdminClient(bootstrap_servers=self.bootstrap)
        admin.create_topics(
            [
                self.administration.NewTopic(
                    name=topic, num_partitions=partitions, replication_factor=1, topic_configs=config or {}
                )
            ]
        )
        admin.close()

    def produce(
        self,
        topic: str,
        records: list[Record],
        *,
        partition: int = 0,
        acks: str = "all",
        compression: str = "none",
        idempotent: bool = False,
    ) -> None:
        producer = self.library.KafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks=acks if acks == "all" else int(acks),
            compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotent,
            max_request_size=MAX_REQUEST,
            linger_ms=5,
        )
        futures = [
            producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=partition,
                timestamp_ms=record.timestamp,
            )
            for record in records
        ]
        producer.flush(TIMEOUT_S)
        for future in futures:
            future.get(TIMEOUT_S)
        producer.close()

    def _consumer(self) -> Any:
        return self.library.KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=MAX_REQUEST,
            fetch_max_wait_ms=100,
        )

    def consume(
        self,
        topic: str,
        count: int,
        *,
        partition: int = 0,
        offset: int | str = "earliest",
        timestamp: int | None = None,
    ) -> list[Received]:
        consumer = self._consumer()
        where = self.library.TopicPartition(topic, partition)
        consumer.assign([where])
        if timestamp is not None:
            consumer.seek(where, consumer.offsets_for_times({where: timestamp})[where].offset)
        elif offset == "earliest":
            consumer.seek_to_beginning(where)
        else:
            consumer.seek(where, int(offset))
        got: list[Received] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(got) < count and time.monotonic() < deadline:
            for messages in consumer.poll(timeout_ms=500, max_records=count - len(got)).values():
                got.extend(
                    Received(m.offset, Record(m.key, m.value, tuple((n, bytes(v)) for n, v in m.headers), m.timestamp))
                    for m in messages
                )
        consumer.close()
        return got

    def end_offset(self, topic: str, partition: int = 0) -> int:
        consumer = self._consumer()
        where = self.library.TopicPartition(topic, partition)
        end = consumer.end_offsets([where])[where]
        consumer.close()
        return int(end)


class AioKafkaClient(Client):
    """aiokafka, or whatever has its shape: nothing but the module differs, and what its admin client returns."""

    name = "aiokafka"
    library: Any = aiokafka
    administration: Any = aiokafka.admin

    def create_topic(self, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        async def run() -> None:
            admin = self.administration.AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await admin.start()
            try:
                new = self.administration.NewTopic(topic, partitions, 1, topic_configs=config or {})
                answer = await admin.create_topics([new])
                if self.library is aiokafka:
                    assert all(error[1] == 0 for error in answer.topic_errors), answer
            finally:
                await admin.close()

        asyncio.run(run())

    def produce(
        self,
        topic: str,
        records: list[Record],
        *,
        partition: int = 0,
        acks: str = "all",
        compression: str = "none",
        idempotent: bool = False,
    ) -> None:
        async def run() -> None:
            producer = self.library.AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                acks=acks if acks == "all" else int(acks),
                compression_type=None if compression == "none" else compression,
                enable_idempotence=idempotent,
                max_request_size=MAX_REQUEST,
                linger_ms=5,
            )
            await producer.start()
            try:
                futures = [
                    await producer.send(
                        topic,
                        value=record.value,
                        key=record.key,
                        headers=list(record.headers),
                        partition=partition,
                        timestamp_ms=record.timestamp,
                    )
                    for record in records
                ]
                await producer.flush()
                await asyncio.wait_for(asyncio.gather(*futures), TIMEOUT_S)
            finally:
                await producer.stop()

        asyncio.run(run())

    async def _with_consumer(self, use: Any) -> Any:
        consumer = self.library.AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=MAX_REQUEST,
            fetch_max_wait_ms=100,
        )
        await consumer.start()
        try:
            return await use(consumer)
        finally:
            await consumer.stop()

    def consume(
        self,
        topic: str,
        count: int,
        *,
        partition: int = 0,
        offset: int | str = "earliest",
        timestamp: int | None = None,
    ) -> list[Received]:
        where = self.library.TopicPartition(topic, partition)

        async def use(consumer: Any) -> list[Received]:
            consumer.assign([where])
            if timestamp is not None:
                consumer.seek(where, (await consumer.offsets_for_times({where: timestamp}))[where].offset)
            elif offset == "earliest":
                await consumer.seek_to_beginning(where)
            else:
                consumer.seek(where, int(offset))
            got: list[Received] = []
            deadline = time.monotonic() + TIMEOUT_S
            while len(got) < count and time.monotonic() < deadline:
                batch = await consumer.getmany(timeout_ms=500, max_records=count - len(got))
                for messages in batch.values():
                    got.extend(
                        Received(
                            m.offset, Record(m.key, m.value, tuple((n, bytes(v)) for n, v in m.headers), m.timestamp)
                        )
                        for m in messages
                    )
            return got

        result: list[Received] = asyncio.run(self._with_consumer(use))
        return result

    def end_offset(self, topic: str, partition: int = 0) -> int:
        where = self.library.TopicPartition(topic, partition)

        async def use(consumer: Any) -> int:
            return int((await consumer.end_offsets([where]))[where])

        return int(asyncio.run(self._with_consumer(use)))


class KafkapyClient(KafkaPythonClient):
    """Ours, used as kafka-python is."""

    name = "kafkapy"
    library = kafkapy
    administration = kafkapy.admin


class KafkapyAioClient(AioKafkaClient):
    """Ours on asyncio, used as aiokafka is."""

    name = "kafkapy-aio"
    library = kafkapy.aio
    administration = kafkapy.aio


class KcatClient(Client):
    """kcat on the command line: text records only, one header set and one key-or-null rule for each run; topics by
    auto-creation.
    """

    name = "kcat"
    binary_safe = False
    creates_topics_with_config = False

    @classmethod
    def available(cls) -> bool:
        return shutil.which("kcat") is not None

    def _run(self, *arguments: str, data: bytes | None = None) -> bytes:
        done = subprocess.run(
            ["kcat", "-b", self.bootstrap, "-m", "10", *arguments],
            input=data,
            capture_output=True,
            timeout=TIMEOUT_S + 30,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout

    def create_topic(self, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        assert partitions == 1, "auto-creation gives num.partitions"
        assert not config, "auto-creation takes the broker's defaults"
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            seen = json.loads(self._run("-L", "-J", "-t", topic, "-X", "allow.auto.create.topics=true"))
            if any(t["topic"] == topic and t["partitions"] for t in seen["topics"]):
                return
            time.sleep(0.1)
        raise AssertionError(f"{topic} was not auto-created")

    def produce(
        self,
        topic: str,
        records: list[Record],
        *,
        partition: int = 0,
        acks: str = "all",
        compression: str = "none",
        idempotent: bool = False,
    ) -> None:
        runs: list[tuple[tuple[tuple[str, bytes], ...], list[Record]]] = []
        for record in records:
            assert record.timestamp is None, "kcat has no timestamp option"
            if not runs or runs[-1][0] != record.headers:
                runs.append((record.headers, []))
            runs[-1][1].append(record)
        for headers, group in runs:
            lines = b"".join((r.key or b"") + b"\x01" + (r.value or b"") + b"\x02" for r in group)
            options = ["-P", "-t", topic, "-p", str(partition), "-K", "\x01", "-D", "\x02", "-Z", "-z", compression]
            options += ["-X", f"acks={acks}", "-X", f"message.max.bytes={MAX_REQUEST}", "-X", "linger.ms=5"]
            options += ["-X", f"enable.idempotence={'true' if idempotent else 'false'}"]
            for name, value in headers:
                options += ["-H", f"{name}={value.decode()}"]
            self._run(*options, data=lines)

    def consume(
        self,
        topic: str,
        count: int,
        *,
        partition: int = 0,
        offset: int | str = "earliest",
        timestamp: int | None = None,
    ) -> list[Received]:
        start = {"earliest": "beginning"}.get(str(offset), str(offset))
        if timestamp is not None:
            start = f"s@{timestamp}"
        options = ["-C", "-t", topic, "-p", str(partition), "-o", start, "-c", str(count), "-J", "-q"]
        out = self._run(*options, "-X", f"fetch.message.max.bytes={MAX_REQUEST}", "-X", "fetch.wait.max.ms=100")
        got = []
        for line in out.splitlines():
            message = json.loads(line)
            flat = message.get("headers", [])
            headers = tuple((flat[i], flat[i + 1].encode()) for i in range(0, len(flat), 2))
            key, value = (None if message.get(n) is None else message[n].encode() for n in ("key", "payload"))
            got.append(Received(message["offset"], Record(key, value, headers, message["ts"])))
        return got

    def end_offset(self, topic: str, partition: int = 0) -> int:
        out = self._run("-Q", "-t", f"{topic}:{partition}:-1").decode()
        return int(out.rpartition("offset ")[2])


OURS = (KafkapyClient, KafkapyAioClient)
ALL = (ConfluentClient, KafkaPythonClient, AioKafkaClient, KcatClient, *OURS)


def text(data: bytes) -> bytes:
    """Bytes that survive a text-only client: base64 without padding."""
    return base64.b64encode(data).rstrip(b"=")
