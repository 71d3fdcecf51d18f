"""A member of a group as a program, to be killed at any time: reads, writes down what it got, and only then commits it.

    python churn_member.py <kind> <events file> <bootstrap> <group> <topic> <protocol>

`protocol` is an assignment strategy of the classic protocol, or "consumer" for KIP-848. SIGTERM ends it in peace: it
commits and leaves. Events are JSON objects, one a line, with the time `t` of CLOCK_MONOTONIC in seconds: `assigned`,
`revoked` and `lost` with partitions `p`, of member `m` in generation `g`; `read` with runs `r` of partition, first and
last offset; `refused` with what a commit was answered; `started` once it can be told to end, and `ended`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import struct
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

POLL_S = 0.1
KAFKA_PYTHON_POLL_S = 2
"""As in members.py."""
SESSION_MS = 3_000
HEARTBEAT_MS = 300
GROUP_METADATA = struct.Struct("=7si")
"""How librdkafka writes the metadata of a group: a magic number, then the generation in the machine's order."""


class Journal:
    """Owns the events file. A line is with the kernel when a call returns, so that a kill cannot take it back."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.stopping = False
        self.partitions: set[int] = set()
        self.pending: dict[int, int] = {}
        """Next offset of each partition that is owned, was read, and is not committed."""
        signal.signal(signal.SIGTERM, self._stop)
        self.write("started")

    def _stop(self, *_: object) -> None:
        self.stopping = True

    def write(self, event: str, **fields: object) -> None:
        os.write(self._file, json.dumps({"e": event, "t": time.monotonic()} | fields).encode() + b"\n")

    def owned(self, event: str, partitions: Iterable[int], generation: int, member: str) -> None:
        """What was given to this member, or taken from it."""
        found = sorted(partitions)
        for partition in found:
            self.pending.pop(partition, None)
        self.partitions = self.partitions | {*found} if event == "assigned" else self.partitions - {*found}
        self.write(event, p=found, g=generation, m=member)

    def read(self, offsets: Mapping[int, list[int]]) -> None:
        """Offsets of each partition, in the order read."""
        runs: list[tuple[int, int, int]] = []
        for partition, found in offsets.items():
            for offset in found:
                if runs and runs[-1][0] == partition and runs[-1][2] == offset - 1:
                    runs[-1] = (partition, runs[-1][1], offset)
                else:
                    runs.append((partition, offset, offset))
        if runs:
            self.write("read", r=runs)
        for partition, _, last in runs:
            if partition in self.partitions:
                self.pending[partition] = last + 1


def confluent(journal: Journal, bootstrap: str, group: str, topic: str, protocol: str) -> None:
    """confluent-kafka."""
    import confluent_kafka

    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 100,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }
    if protocol == "consumer":
        config["group.protocol"] = "consumer"
    else:
        config |= {
            "partition.assignment.strategy": protocol,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
        }
    consumer = confluent_kafka.Consumer(config)

    def listener(event: str) -> Any:
        def called(_: object, partitions: list[Any]) -> None:
            _, generation = GROUP_METADATA.unpack_from(bytes(consumer.consumer_group_metadata()))
            journal.owned(event, (each.partition for each in partitions), generation, consumer.memberid() or "")

        return called

    consumer.subscribe([topic], on_assign=listener("assigned"), on_revoke=listener("revoked"), on_lost=listener("lost"))

    def commit() -> None:
        offsets = [confluent_kafka.TopicPartition(topic, *each) for each in journal.pending.items()]
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
            journal.pending.clear()
        except confluent_kafka.KafkaException as refused:
            journal.write("refused", why=refused.args[0].name())

    while not journal.stopping:
        found: dict[int, list[int]] = {}
        for message in consumer.consume(500, POLL_S):
            if message.error() is None:
                found.setdefault(message.partition(), []).append(message.offset())
        journal.read(found)
        if journal.pending:
            commit()
    consumer.close()


def python_config(bootstrap: str, group: str) -> dict[str, Any]:
    """What kafka-python and aiokafka are both told, by the same names."""
    return {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "fetch_max_wait_ms": 100,
    }


def kafka_python(journal: Journal, bootstrap: str, group: str, topic: str, protocol: str) -> None:
    """kafka-python."""
    import kafka
    import kafka.errors
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    known = [CooperativeStickyAssignor, RangePartitionAssignor, StickyPartitionAssignor]
    strategy = [each for each in known if each.name == protocol]
    config = python_config(bootstrap, group) | {"partition_assignment_strategy": strategy}
    while True:
        try:
            consumer = kafka.KafkaConsumer(**config)
            break
        except kafka.errors.KafkaTimeoutError:
            continue  # the broker is just away
    # poll() and close() fail when the broker goes away while they look for the coordinator.
    away = (kafka.errors.KafkaConnectionError,)
    read_as_kafka_python(kafka, kafka.errors, consumer, journal, topic, KAFKA_PYTHON_POLL_S, away)


def our_own(journal: Journal, bootstrap: str, group: str, topic: str, protocol: str) -> None:
    """kafkapy."""
    import kafkapy
    import kafkapy.errors

    config = python_config(bootstrap, group)
    if protocol == "consumer":
        del config["session_timeout_ms"], config["heartbeat_interval_ms"]
        config["group_protocol"] = "consumer"
    else:
        config["partition_assignment_strategy"] = protocol
    while True:
        try:
            consumer = kafkapy.KafkaConsumer(**config)
            break
        except kafkapy.errors.NoBrokersAvailableError:
            continue  # the broker is just away
    read_as_kafka_python(kafkapy, kafkapy.errors, consumer, journal, topic, POLL_S)


def read_as_kafka_python(
    kafka: Any,
    errors: Any,
    consumer: Any,
    journal: Journal,
    topic: str,
    poll_s: float,
    away: tuple[type[Exception], ...] = (),
) -> None:
    """Reads until it is told to stop, with the methods that kafka-python's consumer and ours have.

    Errors of `away` are tried again.
    """

    def told(event: str, partitions: Iterable[Any]) -> None:
        metadata = consumer.group_metadata()
        journal.owned(event, (each.partition for each in partitions), metadata.generation_id, metadata.member_id)

    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            told("assigned", assigned)

        def on_partitions_revoked(self, revoked: Any) -> None:
            told("revoked", revoked)

        def on_partitions_lost(self, lost: Any) -> None:
            told("lost", lost)

    consumer.subscribe([topic], listener=Listener())
    while not journal.stopping:
        found: dict[int, list[int]] = {}
        with contextlib.suppress(*away):
            for partition, messages in consumer.poll(timeout_ms=int(poll_s * 1000)).items():
                found[partition.partition] = [message.offset for message in messages]
        journal.read(found)
        if journal.pending:
            offsets = {
                kafka.TopicPartition(topic, number): kafka.OffsetAndMetadata(offset, "", -1)
                for number, offset in journal.pending.items()
            }
            try:
                consumer.commit(offsets, timeout_ms=5_000)
                journal.pending.clear()
            except errors.KafkaError as refused:
                journal.write("refused", why=type(refused).__name__)
    with contextlib.suppress(*away):
        consumer.close()


def aio_kafka(journal: Journal, bootstrap: str, group: str, topic: str, protocol: str) -> None:
    """aiokafka."""
    asyncio.run(_aio_kafka(journal, bootstrap, group, topic, protocol))


async def _aio_kafka(journal: Journal, bootstrap: str, group: str, topic: str, protocol: str) -> None:
    import aiokafka
    import aiokafka.errors
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    known = (RangePartitionAssignor, StickyPartitionAssignor)
    strategy = tuple(each for each in known if each.name == protocol)
    config = python_config(bootstrap, group) | {
        "metadata_max_age_ms": 5_000,
        "partition_assignment_strategy": strategy,
    }
    consumer = aiokafka.AIOKafkaConsumer(**config)

    def told(event: str, partitions: Iterable[Any]) -> None:
        coordinator = consumer._coordinator
        journal.owned(event, (each.partition for each in partitions), coordinator.generation, coordinator.member_id)

    class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            told("assigned", assigned)

        def on_partitions_revoked(self, revoked: Any) -> None:
            told("revoked", revoked)

    while True:
        consumer.subscribe([topic], listener=Listener())
        try:
            await consumer.start()
            break
        except aiokafka.errors.KafkaConnectionError:
            # The broker is just away.
            await consumer.stop()
            consumer = aiokafka.AIOKafkaConsumer(**config)
    while not journal.stopping:
        found: dict[int, list[int]] = {}
        for partition, messages in (await consumer.getmany(timeout_ms=int(POLL_S * 1000))).items():
            found[partition.partition] = [message.offset for message in messages]
        journal.read(found)
        if journal.pending:
            offsets = {aiokafka.TopicPartition(topic, number): end for number, end in journal.pending.items()}
            try:
                await consumer.commit(offsets)
                journal.pending.clear()
            except (aiokafka.errors.KafkaError, ValueError) as refused:
                journal.write("refused", why=type(refused).__name__)
    await consumer.stop()


KINDS = {"kafkapy": our_own, "confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": aio_kafka}


if __name__ == "__main__":
    kind, events, *arguments = sys.argv[1:]
    journal = Journal(events)
    KINDS[kind](journal, *arguments)
    journal.write("ended")
