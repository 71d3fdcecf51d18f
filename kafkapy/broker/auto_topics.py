"""Automatic creation of topics: one creation, however many clients ask.

Source: kafka.server.AutoTopicCreationManager. Unlike there, a client's first answer waits for the creation: with the
controller in the same process that takes less time than the client's own pause before it asks again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kafkapy.broker.dynamic_config import DynamicConfig
from kafkapy.config.broker import BrokerConfig
from kafkapy.controller.admin_requests import CreatedTopic, NewTopic
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.metadata.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from kafkapy.slices import in_slices

if TYPE_CHECKING:
    from kafkapy.controller.topic_admin import TopicAdmin

LOGGED_AT_MOST: Final = 100
"""Of the topics that one request fails to create."""

logger = logging.getLogger("kafka.server.DefaultAutoTopicCreationManager")


class AutoTopicCreation:
    """The topics that are being created.

    Owned by KafkaServer; called by handlers on the control loop.
    """

    def __init__(self, config: DynamicConfig, topic_admin: TopicAdmin) -> None:
        self._config = config
        self._topic_admin = topic_admin
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
        outcomes = await self._topic_admin.create_topics(topics, timeout_ms=config.get_int("request.timeout.ms"))
        errors: dict[str, ErrorCode] = {}
        shown = 0
        async for name, outcome in in_slices(outcomes.items()):
            errors[name] = _shown(outcome)
            if errors[name] is not ErrorCode.LEADER_NOT_AVAILABLE and shown < LOGGED_AT_MOST:
                shown += 1
                logger.warning("Topic %s cannot be created automatically: %s", name, outcome)
        return errors


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
