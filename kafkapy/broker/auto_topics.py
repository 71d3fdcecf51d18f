"""Creation of topics that clients ask for before anybody has created them. Source:
kafka.server.AutoTopicCreationManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kafkapy.broker.dynamic_config import DynamicConfig
from kafkapy.controller.admin_requests import CreatedTopic, NewTopic
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.metadata.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from kafkapy.controller.controller import KafkaController

logger = logging.getLogger("kafka.server.DefaultAutoTopicCreationManager")

_INTERNAL_KEYS: Final = {
    GROUP_METADATA_TOPIC: ("offsets.topic.num.partitions", "offsets.topic.replication.factor"),
    TRANSACTION_STATE_TOPIC: ("transaction.state.log.num.partitions", "transaction.state.log.replication.factor"),
}


class AutoTopicCreation:
    """Makes one creation out of many requests for the same topic. Owned by KafkaServer; called on the control loop."""

    def __init__(self, config: DynamicConfig, controller: KafkaController) -> None:
        self._config = config
        self._controller = controller
        self._creating: dict[str, asyncio.Future[ErrorCode]] = {}

    async def create(self, names: Iterable[str]) -> dict[str, ErrorCode]:
        """Create topics with valid names; what a client is told about each that is not visible then.

        A topic that was created, here or by somebody else, is LEADER_NOT_AVAILABLE: the client asks again.
        """
        names = list(names)
        mine = [name for name in names if name not in self._creating]
        waits = {name: self._creating[name] for name in names if name in self._creating}
        if mine:
            for name in mine:
                self._creating[name] = asyncio.get_running_loop().create_future()
            errors: Mapping[str, ErrorCode] = {}
            try:
                errors = await self._create(mine)
            finally:
                for name in mine:
                    self._creating.pop(name).set_result(errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            errors = {}
        return {name: errors[name] if name in errors else await waits[name] for name in names}

    async def _create(self, names: list[str]) -> dict[str, ErrorCode]:
        timeout = self._config.config.get_int("request.timeout.ms")
        topics = [self._new_topic(name) for name in names]
        outcomes = await self._controller.create_topics(topics, validate_only=False, timeout_ms=timeout)
        errors: dict[str, ErrorCode] = {}
        for name in names:
            outcome = outcomes[name]
            if isinstance(outcome, CreatedTopic):
                errors[name] = ErrorCode.LEADER_NOT_AVAILABLE
                continue
            errors[name] = _shown(outcome)
            if errors[name] is not ErrorCode.LEADER_NOT_AVAILABLE:
                logger.warning("Topic %s cannot be created automatically: %s", name, outcome)
        return errors

    def _new_topic(self, name: str) -> NewTopic:
        config = self._config.config
        keys = _INTERNAL_KEYS.get(name)
        if keys is None:
            return NewTopic(name)
        configs: dict[str, str | None] = {"cleanup.policy": "compact", "compression.type": "producer"}
        if name == GROUP_METADATA_TOPIC:
            configs["segment.bytes"] = str(config.get_int("offsets.topic.segment.bytes"))
        else:
            configs["segment.bytes"] = str(config.get_int("transaction.state.log.segment.bytes"))
            configs["min.insync.replicas"] = str(config.get_int("transaction.state.log.min.isr"))
            configs["unclean.leader.election.enable"] = "false"
        return NewTopic(name, config.get_int(keys[0]), config.get_int(keys[1]), {}, configs)


def _shown(error: KafkaError) -> ErrorCode:
    code = code_of(error)
    if code in (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT):
        return ErrorCode.LEADER_NOT_AVAILABLE
    return code
