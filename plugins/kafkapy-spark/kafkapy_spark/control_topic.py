"""The control topic: what each sink has decided last, so that every driver finds it.

A compacted topic, made when it is missing. A sink has two keys, both in the partition that its name hashes to:

    NAME        the last decision (see decisions), written in a transaction of the sink's driver, whose commit is the
                commit point
    \\0 NAME     [query, batch, producer id, epoch] of the last decision that was carried out to the end: what its
                transactions were is of no importance any more. Written plainly, as it only says what is so for ever.

A driver reads as far as the log went when it began, committed records only. Where transactions of other sinks are open
below that, it waits for them: what its own predecessor has decided may be behind them.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from kafkapy.admin import ConfigResource, ConfigResourceType
from kafkapy.clients.admin.routing import Deadline
from kafkapy.clients.network_client import request_header
from kafkapy.clients.producer.transactional_requests import PreparedTxnState
from kafkapy.connector import BytesFrame, FetchedPartition, FetchResponseFrame, encode_message, partition_for_key
from kafkapy.errors import (
    KafkaError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.types import ListOffsetsTimestamp, TopicPartition
from kafkapy_spark.decisions import Decision, SinkState
from kafkapy_spark.sink_errors import SinkError
from kafkapy_spark.transactions import OpenTransaction, TransactionClient

__all__ = ["CONTROL_TOPIC", "ControlTopic"]

logger = logging.getLogger("kafkapy.spark")

CONTROL_TOPIC: Final = "__kafkapy_spark_sinks"
PARTITIONS: Final = 16
REPLICAS: Final = 3
"""Or as many as there are brokers."""
CONFIGS: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(4 << 20),
    "max.message.bytes": str(8 << 20),
    "compression.type": "producer",
}
"""Small segments: what is read by a driver that has just started is what was not compacted yet."""

FETCH: Final = FetchRequest.API_KEY
FETCH_LOW: Final = 4
FETCH_HIGH: Final = 12
"""The first version with isolation levels, the last one that names its topics."""
FETCH_BYTES: Final = 8 << 20
AT_ONCE: Final = 10_000
STABLE_WAIT_S: Final = 0.02
DONE: Final = b"\0"


class _Partition:
    """How far a partition was read, and what there was."""

    def __init__(self) -> None:
        self.position = 0
        self.sinks: dict[bytes, SinkState] = {}

    def take(self, key: bytes | None, value: bytes | None) -> None:
        if not key:
            return
        if key.startswith(DONE):
            name = key[len(DONE) :]
            state = self.sinks.get(name, SinkState())
            self._put(name, replace(state, done=None if value is None else json.loads(value)))
        else:
            state = self.sinks.get(key, SinkState())
            self._put(key, replace(state, decision=None if value is None else Decision.from_json(value)))

    def _put(self, name: bytes, state: SinkState) -> None:
        if state == SinkState():
            self.sinks.pop(name, None)
        else:
            self.sinks[name] = state


class ControlTopic:
    """Remembers what it has read and goes on from there. Used on the client's loop."""

    def __init__(self, client: TransactionClient, topic: str = CONTROL_TOPIC) -> None:
        self.client = client
        self._topic = topic
        self._topic_id: Any = None
        self._count = 0
        self._read: dict[int, _Partition] = {}

    # --- the topic --------------------------------------------------------------------------------------------------

    async def ensure(self) -> None:
        """Makes the topic if it is missing. KafkaError."""
        try:
            await self.find()
        except UnknownTopicOrPartitionError:
            replicas = min(REPLICAS, len(await self.client.brokers()))
            configs = {**CONFIGS, "min.insync.replicas": "2"} if replicas == REPLICAS else CONFIGS
            wanted = {"num_partitions": PARTITIONS, "replication_factor": replicas, "configs": configs}
            try:
                await self.client.create_topics({self._topic: wanted}, wait_for_metadata=True)
            except TopicAlreadyExistsError:
                await self.client.wait_for_topics([self._topic])
            await self.find()

    async def find(self) -> None:
        """Looks at the topic. UnknownTopicOrPartitionError; KafkaError."""
        found = (await self.client.topic_metadata({self._topic}, self.client.deadline()))[self._topic]
        if found.error_code:
            raise error_for(found.error_code)
        if found.topic_id != self._topic_id:
            self._read.clear()
            await self._require_compaction()
            self._topic_id = found.topic_id
        self._count = len(found.partitions)

    async def _require_compaction(self) -> None:
        """SinkError for a topic whose records are deleted by time or size: batches that a sink had
        decided long ago would be written again."""
        resource = ConfigResource(ConfigResourceType.TOPIC, self._topic)
        try:
            described = await self.client.describe_configs([resource], config_filter="all")
        except KafkaError as error:
            if error.retriable:
                raise
            logger.warning("The cleanup.policy of %s cannot be checked, compact is needed: %s", self._topic, error)
            return
        policy = described["topic"][self._topic].get("cleanup.policy", {}).get("value")
        if policy != CONFIGS["cleanup.policy"]:
            raise SinkError(
                f"The topic {self._topic} has cleanup.policy={policy}, and has to have compact: decisions of sinks "
                f"would be deleted, and their batches written again. `kafkapy configs set topic {self._topic} "
                "cleanup.policy=compact` sets it"
            )

    def partition_of(self, sink: str) -> TopicPartition:
        """Where a sink's records are. After ensure() or find()."""
        return TopicPartition(self._topic, partition_for_key(sink.encode(), self._count))

    # --- reading ----------------------------------------------------------------------------------------------------

    async def read(self, sink: str) -> SinkState:
        """What is so now: everything that was committed before this call. KafkaError."""
        partition = self.partition_of(sink)
        await self._read_on([partition])
        return self._read[partition.partition].sinks.get(sink.encode(), SinkState())

    async def read_all(self) -> dict[str, SinkState]:
        """Of every sink that has decided anything. KafkaError."""
        partitions = [TopicPartition(self._topic, number) for number in range(self._count)]
        await self._read_on(partitions)
        found = [state for each in partitions for state in self._read[each.partition].sinks.items()]
        return {name.decode(): state for name, state in sorted(found) if state.decision is not None}

    async def _read_on(self, partitions: Iterable[TopicPartition]) -> None:
        # Not what a fetch says: a leader that is new may not know yet how far the log is committed (KIP-207).
        listed = await self.client.list_partition_offsets(dict.fromkeys(partitions, ListOffsetsTimestamp.LATEST))
        await asyncio.gather(*(self._read_to(partition, end.offset) for partition, end in listed.items()))

    async def _read_to(self, partition: TopicPartition, end: int) -> None:
        client = self.client
        deadline = client.deadline()
        known = self._read.setdefault(partition.partition, _Partition())
        while known.position < end:
            try:
                chunk = await self._fetch(partition, known.position, deadline)
            except OffsetOutOfRangeError:
                first = (await client.list_partition_offsets({partition: ListOffsetsTimestamp.EARLIEST}))[partition]
                known = self._read[partition.partition] = _Partition()
                known.position = first.offset
                continue
            before = known.position
            for record in chunk.take(AT_ONCE):
                known.take(record.key, record.value)
            known.position = max(chunk.next_offset, known.position)
            if known.position == before:
                if deadline.left_ms <= 0:
                    raise KafkaTimeoutError(
                        f"{partition} cannot be read from offset {before} to {end}: transactions are open there"
                    )
                await asyncio.sleep(STABLE_WAIT_S)

    async def _fetch(self, partition: TopicPartition, offset: int, deadline: Deadline) -> FetchedPartition:
        """Committed records from an offset on. Retriable errors are tried again. KafkaError."""
        while True:
            try:
                return await self._fetch_once(partition, offset, deadline)
            except KafkaError as error:
                if not error.retriable or isinstance(error, OffsetOutOfRangeError) or deadline.left_ms <= 0:
                    raise
            await asyncio.sleep(STABLE_WAIT_S)

    async def _fetch_once(self, partition: TopicPartition, offset: int, deadline: Deadline) -> FetchedPartition:
        client, network = self.client, self.client.network
        node = await client.leader(partition, deadline)
        version = await network.version(node, FETCH, FETCH_LOW, FETCH_HIGH)
        wanted = FetchRequest.Topic.Partition(
            partition=partition.partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=FETCH_BYTES,
            isolation_level=1,
            topics=[FetchRequest.Topic(topic=partition.topic, partitions=[wanted])],
        )
        frame = BytesFrame(encode_message(request, version, request_header(FETCH, version, network.client_id)))
        response = FetchResponseFrame(version)
        await network.submit(node, FETCH, version, frame, response, client.request_ms(deadline))
        network.throttled(node, FETCH, version, response.throttle_ms)
        if response.error_code:
            raise error_for(response.error_code)
        (chunk,) = response.partitions()
        if chunk.error_code:
            raise error_for(chunk.error_code)
        chunk.start(partition.topic, offset, True, None, None)
        return chunk

    # --- writing ----------------------------------------------------------------------------------------------------

    async def decide(
        self,
        sink: str,
        driver: OpenTransaction,
        decision: Decision,
        check: Callable[[], Awaitable[float]],
    ) -> PreparedTxnState | None:
        """Writes a decision in a transaction of the driver, and who the driver is from then on; None when it was not
        committed, or not by this call.

        check is called when the decision is written, just before its commit: it raises, or says how many seconds the
        commit may take. KafkaError: then nobody knows, until the driver's transaction was ended and the topic is read.
        """
        await self.client.append(self.partition_of(sink), {sink.encode(): decision.to_json()}, driver)
        left_s = await check()
        try:
            async with asyncio.timeout(left_s):
                return await self.client.end(driver, committed=True)
        except TimeoutError:
            raise KafkaTimeoutError(
                f"the decision on batch {decision.batch} of {decision.query} was not acknowledged in {left_s:.0f} s, "
                "and the transactions that it is on do not last much longer"
            ) from None

    async def done(self, sink: str, decision: Decision) -> None:
        """Writes that a decision was carried out. KafkaError."""
        value = json.dumps(decision.identity, separators=(",", ":")).encode()
        await self.client.append(self.partition_of(sink), {DONE + sink.encode(): value})

    async def forget(self, sinks: Iterable[str]) -> None:
        """Takes everything about sinks away that nobody is going to use again. KafkaError."""
        for sink in sinks:
            await self.client.append(self.partition_of(sink), {sink.encode(): None, DONE + sink.encode(): None})
