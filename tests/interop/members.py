"""Members of a consumer group, one for each foreign client and for our own: each reads on a thread of its own until it
is stopped.

What they got is kept as values, so that a test can tell whether every record was delivered.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import aiokafka
import confluent_kafka
import kafka

import kafkapy

SESSION_MS = 6_000
DOOMED_SESSION_MS = 2_000
HEARTBEAT_MS = 500
POLL_S = 0.2
KAFKA_PYTHON_POLL_S = 2
"""Above what a rebalance takes: where poll() of kafka-python 3.0.12 gives up while it joins, about one of ten members
never returns from the polls after that (its I/O thread loses the one that waits), and no time limit ends them."""
CLOSE_S = 20
"""Without a broker kafka-python's and aiokafka's consumers would try to commit for longer than a test waits."""


class Member:
    """One member. `values` grows while it reads; `stop` commits and leaves the group."""

    name = ""
    running: ClassVar[set[Member]] = set()
    """All that were started and have not ended."""

    def __init__(self, bootstrap: str, group: str, topic: str, **options: Any) -> None:
        self.bootstrap = bootstrap
        self.group = group
        self.topic = topic
        self.options = options
        self.values: list[bytes] = []
        self.partitions: set[int] = set()
        """What it owns now."""
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=f"{self.name}-member", daemon=True)

    def start(self) -> Member:
        """Join the group."""
        self.running.add(self)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Commit what was read, leave the group, and raise what went wrong."""
        self._stop.set()
        self.join()
        if self.failure is not None:
            raise self.failure

    def abandon(self) -> None:
        """Tell it to end, whatever it is doing and whether the broker still is there."""
        self._stop.set()

    def join(self) -> None:
        """Wait until it has ended."""
        self._thread.join(60)
        assert not self._thread.is_alive(), f"{self.name} does not end"

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self.failure = error
        finally:
            self.partitions = set()
            self.running.discard(self)

    def run(self) -> None:
        """Read until `_stop` is set."""
        raise NotImplementedError


class KafkapyMember(Member):
    """kafkapy; options are its keywords."""

    name = "kafkapy"

    def config(self) -> dict[str, Any]:
        """What options are put over."""
        return {
            "auto_commit_interval_ms": 500,
            "auto_offset_reset": "earliest",
            "bootstrap_servers": self.bootstrap,
            "fetch_max_wait_ms": 100,
            "group_id": self.group,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "metadata_max_age_ms": 1000,
            "partition_assignment_strategy": "range",
            "session_timeout_ms": SESSION_MS,
        }

    def run(self) -> None:
        consumer = kafkapy.KafkaConsumer(self.topic, **(self.config() | self.options))
        try:
            while not self._stop.is_set():
                for messages in consumer.poll(timeout_ms=int(POLL_S * 1000)).values():
                    self.values.extend(message.value for message in messages)
                self.partitions = {each.partition for each in consumer.assignment()}
        finally:
            consumer.close(timeout_ms=CLOSE_S * 1000)


class KafkapyProtocolMember(KafkapyMember):
    """kafkapy with the new protocol (KIP-848)."""

    name = "kafkapy-consumer-protocol"

    def config(self) -> dict[str, Any]:
        mine = super().config() | {"group_protocol": "consumer"}
        for classic in ("session_timeout_ms", "heartbeat_interval_ms", "partition_assignment_strategy"):
            del mine[classic]
        return mine


class ConfluentMember(Member):
    """confluent-kafka; options are librdkafka's."""

    name = "confluent-kafka"

    def config(self) -> dict[str, Any]:
        """What options are put over."""
        return {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "partition.assignment.strategy": "range",
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }

    def run(self) -> None:
        consumer = confluent_kafka.Consumer(self.config() | self.options)
        consumer.subscribe([self.topic])
        try:
            while not self._stop.is_set():
                for message in consumer.consume(500, POLL_S):
                    if message.error() is None:
                        self.values.append(message.value())
                self.partitions = {each.partition for each in consumer.assignment()}
        finally:
            consumer.close()


class DoomedMember(ConfluentMember):
    """confluent-kafka, to be killed: the others need not wait for long until its session is over."""

    def config(self) -> dict[str, Any]:
        return super().config() | {"session.timeout.ms": DOOMED_SESSION_MS}


class ConsumerProtocolMember(ConfluentMember):
    """confluent-kafka with the new protocol (KIP-848): assignor and timeouts are the broker's."""

    name = "consumer-protocol"

    def config(self) -> dict[str, Any]:
        mine = super().config() | {"group.protocol": "consumer", "topic.metadata.refresh.interval.ms": 1000}
        for classic in ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"):
            del mine[classic]
        return mine


class KafkaPythonMember(Member):
    """kafka-python."""

    name = "kafka-python"

    def run(self) -> None:
        consumer = kafka.KafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            auto_commit_interval_ms=500,
            fetch_max_wait_ms=100,
            **{"partition_assignment_strategy": _range_of_kafka_python(), **self.options},
        )
        try:
            while not self._stop.is_set():
                for messages in consumer.poll(timeout_ms=KAFKA_PYTHON_POLL_S * 1000).values():
                    self.values.extend(message.value for message in messages)
                self.partitions = {each.partition for each in consumer.assignment()}
        finally:
            consumer.close(timeout_ms=CLOSE_S * 1000)


class AioKafkaMember(Member):
    """aiokafka."""

    name = "aiokafka"

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor

        consumer = aiokafka.AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            auto_commit_interval_ms=500,
            fetch_max_wait_ms=100,
            metadata_max_age_ms=5_000,
            **{"partition_assignment_strategy": (RangePartitionAssignor,), **self.options},
        )
        await consumer.start()
        try:
            while not self._stop.is_set():
                for messages in (await consumer.getmany(timeout_ms=int(POLL_S * 1000))).values():
                    self.values.extend(message.value for message in messages)
                self.partitions = {each.partition for each in consumer.assignment()}
        finally:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(consumer.stop(), CLOSE_S)


def _range_of_kafka_python() -> list[Any]:
    from kafka.coordinator.assignors.range import RangePartitionAssignor

    return [RangePartitionAssignor]


ALL: list[type[Member]] = [KafkapyMember, ConfluentMember, KafkaPythonMember, AioKafkaMember]


PROGRAM = """
import sys, time
from interop import members

member = getattr(members, sys.argv[1])(*sys.argv[2:]).start()
while not member.partitions and member.failure is None:
    time.sleep(0.02)
print("reading" if member.failure is None else member.failure, flush=True)
member._thread.join()
"""


@contextmanager
def in_a_process(kind: type[Member], bootstrap: str, group: str, topic: str) -> Iterator[subprocess.Popen[bytes]]:
    """A member in a process of its own, which has partitions; it is killed at the latest when the block ends."""
    path = os.pathsep.join(str(Path(__file__).parents[up]) for up in (1, 2))
    command = [sys.executable, "-c", PROGRAM, kind.__name__, bootstrap, group, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": path}) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"reading\n"
            yield process
        finally:
            process.kill()
