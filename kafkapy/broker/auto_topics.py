"""Automatic creation of topics: one creation, however many clients ask.

Source: kafka.server.AutoTopicCreationManager. Unlike there, a client's first answer waits for the creation, which takes
less time than the client's own pause before it asks again. Where another broker is the controller, this one sends it a
CreateTopics, and waits a moment for the new topics' metadata.

The partitions count in the quota of controller mutations of the client that asked first, as in Apache Kafka 4.4: a
topic that exceeds it is unknown for now, and the client asks again. The broker that was asked counts, also where
another one is the controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kafkapy.broker.dynamic_config import DynamicConfig
from kafkapy.broker.mutation_quotas import Unlimited
from kafkapy.config.broker import BrokerConfig
from kafkapy.controller.admin_requests import NO_VALUE, NewTopic
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.topic_names import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.slices import in_slices

if TYPE_CHECKING:
    from kafkapy.broker.controller_client import ControllerClient
    from kafkapy.broker.mutation_quotas import MutationQuota
    from kafkapy.controller.topic_admin import TopicAdmin

LOGGED_AT_MOST: Final = 100
"""Of the topics that one request fails to create."""
CREATED: Final = (
    ErrorCode.NONE,
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_CONTROLLER,
)
"""The controller's answers after which the client asks again: the topic is there, or soon will be."""
SHOWN_WITHIN_S: Final = 0.5
"""Seconds that a client waits for the metadata of topics that another broker created."""

logger = logging.getLogger("kafka.server.DefaultAutoTopicCreationManager")


class AutoTopicCreation:
    """The topics that are being created.

    Owned by KafkaServer; called by handlers on the control loop. `topic_admin` creates them where this broker is the
    controller.
    """

    def __init__(
        self, config: DynamicConfig, topic_admin: TopicAdmin, controller: ControllerClient, cache: MetadataCache
    ) -> None:
        self._config = config
        self._topic_admin = topic_admin
        self._controller = controller
        self._cache = cache
        self._creating: dict[str, asyncio.Future[ErrorCode]] = {}

    async def create(self, names: Iterable[str], quota: MutationQuota) -> dict[str, ErrorCode]:
        """Create topics with valid names; the error code of each for the client.

        A topic that was created, here or by somebody else, is LEADER_NOT_AVAILABLE: the client asks again. A topic that
        exceeds the quota is UNKNOWN_TOPIC_OR_PARTITION.
        """
        waits: dict[str, asyncio.Future[ErrorCode]] = {}
        mine: list[str] = []
        errors: dict[str, ErrorCode] = {}
        try:
            async for name in in_slices(names):
                if name not in self._creating:
                    self._creating[name] = asyncio.get_running_loop().create_future()
                    mine.append(name)
                waits[name] = self._creating[name]
            if mine:
                errors = await self._create(mine, quota)
        finally:
            for name in mine:
                self._creating.pop(name).set_result(errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        return {name: await wait async for name, wait in in_slices(waits.items())}

    async def create_one(self, name: str, configs: Mapping[str, str | None]) -> ErrorCode:
        """Create a topic of the broker with the default numbers.

        LEADER_NOT_AVAILABLE: it is there, or soon will be."""
        return (await self._create_all([NewTopic(name, configs=configs)], Unlimited()))[name]

    async def _create(self, names: list[str], quota: MutationQuota) -> dict[str, ErrorCode]:
        config = self._config.config
        return await self._create_all([automatic_topic(name, config) async for name in in_slices(names)], quota)

    async def _create_all(self, topics: list[NewTopic], quota: MutationQuota) -> dict[str, ErrorCode]:
        timeout_ms = self._config.config.get_int("request.timeout.ms")
        if not self._controller.is_here:
            return await self._create_there(topics, timeout_ms, quota)
        outcomes = await self._topic_admin.create_topics(topics, timeout_ms=timeout_ms, record=quota.record)
        codes = (
            (name, outcome.code, str(outcome)) if isinstance(outcome, KafkaError) else (name, ErrorCode.NONE, "")
            for name, outcome in outcomes.items()
        )
        return await _shown(codes)

    async def _create_there(
        self, topics: list[NewTopic], timeout_ms: int, quota: MutationQuota
    ) -> dict[str, ErrorCode]:
        """Have another broker, the controller, create the topics."""
        config = self._config.config
        errors: dict[str, ErrorCode] = {}
        wanted: list[CreateTopicsRequest.Topic] = []
        async for topic in in_slices(topics):
            wire = _wire(topic, config)
            try:
                quota.record(wire.num_partitions)
            except KafkaError:
                errors[topic.name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            wanted.append(wire)
        if not wanted:
            return errors
        try:
            response = await self._controller.send(
                CreateTopicsRequest(topics=wanted, timeout_ms=timeout_ms), timeout_ms=timeout_ms
            )
        except KafkaError as error:
            # It may be created all the same, or at the client's next request.
            logger.info("The controller cannot be asked for automatic topics: %s", error)
            return errors | {wire.name: ErrorCode.LEADER_NOT_AVAILABLE async for wire in in_slices(wanted)}
        codes = ((each.name, ErrorCode.of(each.error_code), each.error_message) for each in response.topics)
        errors |= await _shown(codes)
        created = [name for name, code in errors.items() if code is ErrorCode.LEADER_NOT_AVAILABLE]
        with suppress(TimeoutError):
            await asyncio.wait_for(self._appear(created), SHOWN_WITHIN_S)
        return errors

    async def _appear(self, names: list[str]) -> None:
        while not all(self._cache.contains(name) for name in names):
            await self._cache.wait_for_change()


def _wire(topic: NewTopic, config: BrokerConfig) -> CreateTopicsRequest.Topic:
    """The topic for another broker, with this one's defaults."""
    partitions, replicas = topic.num_partitions, topic.replication_factor
    return CreateTopicsRequest.Topic(
        name=topic.name,
        num_partitions=config.get_int("num.partitions") if partitions == NO_VALUE else partitions,
        replication_factor=config.get_int("default.replication.factor") if replicas == NO_VALUE else replicas,
        assignments=[],
        configs=[CreateTopicsRequest.Topic.Config(name=name, value=value) for name, value in topic.configs.items()],
    )


async def _shown(codes: Iterable[tuple[str, ErrorCode, str | None]]) -> dict[str, ErrorCode]:
    """The error code of each topic for the client, from name, code and text of the controller."""
    errors: dict[str, ErrorCode] = {}
    logged = 0
    async for name, code, text in in_slices(codes):
        if code in CREATED:
            errors[name] = ErrorCode.LEADER_NOT_AVAILABLE
        elif code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            errors[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            # A broker that may not is not the client's fault: the client's own permission is checked already.
            denied = code in (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            errors[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if denied else code
            if logged < LOGGED_AT_MOST:
                logged += 1
                logger.warning("Topic %s cannot be created automatically: %s", name, text or code.message)
    return errors


def automatic_topic(topic: str, config: BrokerConfig) -> NewTopic:
    """The settings of an automatic topic.

    Kafka's internal topics have separate partition counts and keys.
    """
    if topic == GROUP_METADATA_TOPIC:
        return NewTopic(
            topic,
            config.get_int("offsets.topic.num.partitions"),
            config.get_int("offsets.topic.replication.factor"),
            configs={
                "cleanup.policy": "compact",
                "segment.bytes": str(config.get_int("offsets.topic.segment.bytes")),
                "compression.type": "producer",
            },
        )
    if topic == TRANSACTION_STATE_TOPIC:
        return NewTopic(
            topic,
            config.get_int("transaction.state.log.num.partitions"),
            config.get_int("transaction.state.log.replication.factor"),
            configs={
                "unclean.leader.election.enable": "false",
                "compression.type": "uncompressed",
                "cleanup.policy": "compact",
                "min.insync.replicas": str(config.get_int("transaction.state.log.min.isr")),
                "segment.bytes": str(config.get_int("transaction.state.log.segment.bytes")),
            },
        )
    if topic == SHARE_GROUP_STATE_TOPIC:
        return NewTopic(
            topic,
            config.get_int("share.coordinator.state.topic.num.partitions"),
            config.get_int("share.coordinator.state.topic.replication.factor"),
            configs={
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": str(config.get_int("share.coordinator.state.topic.min.isr")),
                "retention.ms": "-1",
                "segment.bytes": str(config.get_int("share.coordinator.state.topic.segment.bytes")),
            },
        )
    return NewTopic(topic)
