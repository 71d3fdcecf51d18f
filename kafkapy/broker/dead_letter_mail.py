"""How dead letters reach their topic: metadata, records, Produce to the leader."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkapy.broker.dead_letters import DeadLetterError, DeadLetterTopic, Found
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.records.batches import decode_records, iter_batches
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy._speedups.log.partition_log import PartitionLog
    from kafkapy._speedups.records.memory_records import Record
    from kafkapy.broker.auto_topics import AutoTopicCreation
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.config.topic import LogConfig
    from kafkapy.metadata.cache import MetadataCache
    from kafkapy.metadata.inter_broker_sender import InterBrokerSender
    from kafkapy.replica.replica_manager import ReplicaManager

READ_BYTES: Final = 1 << 20
"""Bytes of a log that are read for one batch of dead letters."""
PRODUCE_VERSION: Final = 9
ALLOWED: Final = "errors.deadletterqueue.group.enable"


class ClusterMail:
    """The cluster as dead letters need it (dead_letters.Mail). On the control loop.

    `config` returns the broker's present configuration, `topic_config` the effective one of a topic. `connect` makes
    the client that sends dead letters, to this broker too.
    """

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        topic_config: Callable[[str], LogConfig],
        cache: MetadataCache,
        replicas: ReplicaManager,
        topics: AutoTopicCreation,
        connect: Callable[[], InterBrokerSender],
    ) -> None:
        self._config = config
        self._topic_config = topic_config
        self._cache = cache
        self._replicas = replicas
        self._topics = topics
        self._connect = connect
        self._sender: InterBrokerSender | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._sender is not None:
            await self._sender.close()

    async def topic(self, name: str) -> DeadLetterTopic:
        """See Mail."""
        config = self._config()
        prefix = config.get_str("errors.deadletterqueue.topic.name.prefix")
        if name.startswith("__"):
            raise DeadLetterError(f"the name of topic {name} begins with __")
        if not name.startswith(prefix):
            raise DeadLetterError(f"the name of topic {name} does not begin with {prefix}")
        found = self._cache.topic(name)
        if found is None:
            if not config.get_bool("errors.deadletterqueue.auto.create.topics.enable"):
                raise DeadLetterError(f"there is no topic {name}")
            await self._topics.create_one(name, {ALLOWED: "true"})
            raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"Topic {name} is being created")
        effective = self._topic_config(name)
        if not effective.errors_deadletterqueue_group_enable:
            raise DeadLetterError(f"{ALLOWED} of topic {name} is false")
        return DeadLetterTopic(name, found.partition_count, effective.max_message_bytes)

    async def records(self, partition: TopicPartition, first: int, last: int, max_bytes: int) -> Found:
        """See Mail."""
        return await self._replicas.read_log(partition, read_records, first, last, max_bytes)

    async def produce(self, partition: TopicPartition, batch: bytes) -> None:
        """See Mail."""
        if self._sender is None:
            self._sender = self._connect()
        known = self._cache.snapshot.partition(*partition)
        if known is None or known.leader < 0:
            raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")
        request = ProduceRequest(
            acks=-1,
            timeout_ms=self._config().get_int("request.timeout.ms"),
            topic_data=[
                ProduceRequest.Topic(
                    name=partition.topic,
                    partition_data=[ProduceRequest.Topic.Partition(index=partition.partition, records=batch)],
                )
            ],
        )
        response = await self._sender.send(known.leader, request, version=PRODUCE_VERSION)
        (answer,) = response.responses[0].partition_responses
        if answer.error_code != ErrorCode.NONE:
            raise error_for(answer.error_code, answer.error_message)


def read_records(log: PartitionLog, first: int, last: int, max_bytes: int) -> Found:
    """Records from an offset on, as many as READ_BYTES of the log hold.

        It may block.

    Records of a batch that does not unpack to at most max_bytes are left out.
    """
    data, *_ = log.read(max(first, log.log_start_offset), READ_BYTES)
    records: dict[int, Record] = {}
    end = first
    for batch in iter_batches(data):
        if batch.base_offset > last:
            end = last
            break
        end = batch.last_offset
        if batch.is_control:
            continue
        try:
            found = decode_records(batch, max_bytes=max(max_bytes, READ_BYTES))
        except KafkaError:
            continue
        records.update((record.offset, record) for record in found if first <= record.offset <= last)
    return Found(records, min(max(end, first), last))
