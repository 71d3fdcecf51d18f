"""Automatic creation of topics: one creation, however many clients ask.

Source: kafka.server.AutoTopicCreationManager. Unlike there, a client's first answer waits for the creation, which takes
less time than the client's own pause before it asks again. Where another broker is the controller, this one sends it a
CreateTopics, and waits a moment for the new topics' metadata.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kafkapy.broker.dynamic_config import DynamicConfig
from kafkapy.config.broker import BrokerConfig
from kafkapy.controller.admin_requests import NO_VALUE, CreatedTopic, NewTopic
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.slices import in_slices

if TYPE_CHECKING:
    from kafkapy.broker.controller_client import ControllerClient
    from kafkapy.controller.topic_admin import TopicAdmin

LOGGED_AT_MOST: Final = 100
"""Of the topics that one request fails to create."""
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

    async def create(self, names: Iterable[str]) -> dict[str, ErrorCode]:
        """Create topics with valid names; the error code of each for the client.

        A topic that was created, here or by somebody else, is LEADER_NOT_AVAILABLE: the client asks again.
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
                errors = await self._create(mine)
        finally:
            for name in mine:
                self._creating.pop(name).set_result(errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        return {name: await wait async for name, wait in in_slices(waits.items())}

    async def _create(self, names: list[str]) -> dict[str, ErrorCode]:
        config = self._config.config
        topics = [automatic_topic(name, config) async for name in in_slices(names)]
        timeout_ms = config.get_int("request.timeout.ms")
        if not self._controller.is_here:
            return await self._create_there(topics, timeout_ms)
        outcomes = await self._topic_admin.create_topics(topics, timeout_ms=timeout_ms)
        errors: dict[str, ErrorCode] = {}
        shown = 0
        async for name, outcome in in_slices(outcomes.items()):
            errors[name] = _shown(outcome)
            if errors[name] is not ErrorCode.LEADER_NOT_AVAILABLE and shown < LOGGED_AT_MOST:
                shown += 1
                logger.warning("Topic %s cannot be created automatically: %s", name, outcome)
        return errors

    async def _create_there(self, topics: list[NewTopic], timeout_ms: int) -> dict[str, ErrorCode]:
        """Have another broker, the controller, create the topics."""
        config = self._config.config
        request = CreateTopicsRequest(
            topics=[_wire(topic, config) async for topic in in_slices(topics)], timeout_ms=timeout_ms
        )
        try:
            response = await self._controller.send(request, timeout_ms=timeout_ms)
        except KafkaError as error:
            # It may be created all the same, or at the client's next request.
            logger.info("The controller cannot be asked for automatic topics: %s", error)
            return {topic.name: ErrorCode.LEADER_NOT_AVAILABLE async for topic in in_slices(topics)}
        errors: dict[str, ErrorCode] = {}
        shown = 0
        async for each in in_slices(response.topics):
            code = ErrorCode.of(each.error_code)
            errors[each.name] = _shown_code(code)
            if errors[each.name] is not ErrorCode.LEADER_NOT_AVAILABLE and shown < LOGGED_AT_MOST:
                shown += 1
                logger.warning(
                    "Topic %s cannot be created automatically: %s", each.name, each.error_message or code.message
                )
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


def _shown_code(code: ErrorCode) -> ErrorCode:
    """The answer of another broker's controller, for a client."""
    if code in (
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ):
        return ErrorCode.LEADER_NOT_AVAILABLE
    if code in (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
        # This broker may not, which is not the client's fault: its own permission is checked already.
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return code


def _shown(outcome: CreatedTopic | KafkaError) -> ErrorCode:
    if isinstance(outcome, KafkaError) and outcome.code not in (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.REQUEST_TIMED_OUT,
    ):
        return outcome.code
    return ErrorCode.LEADER_NOT_AVAILABLE


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
    return NewTopic(topic)
