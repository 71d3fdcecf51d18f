"""Topics that are made because a client asked for them. Source: kafka.server.AutoTopicCreationManager.

Kafka's own topics get their own numbers and settings, all others the broker's defaults.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkapy.controller.admin_requests import CreatedTopic, NewTopic
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.metadata.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, invalid_reason

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.controller.controller import KafkaController


class AutoTopicCreationManager:
    """Creates topics on demand, each once however many ask. Owned by KafkaController; used on the control loop."""

    def __init__(self, controller: KafkaController) -> None:
        self._controller = controller
        self._in_flight: set[str] = set()

    async def create(self, topics: Iterable[str]) -> dict[str, ErrorCode]:
        """Create the topics; what a Metadata response says about each.

        LEADER_NOT_AVAILABLE for a topic that is there now, so that the client asks again; UNKNOWN_TOPIC_OR_PARTITION
        for one that another request is creating; INVALID_TOPIC_EXCEPTION, INVALID_REPLICATION_FACTOR and the like for
        one that cannot be. NOT_CONTROLLER is raised for the whole.
        """
        results: dict[str, ErrorCode] = {}
        creating: list[str] = []
        for topic in dict.fromkeys(topics):
            if invalid_reason(topic) is not None:
                results[topic] = ErrorCode.INVALID_TOPIC_EXCEPTION
            elif topic in self._in_flight:
                results[topic] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                creating.append(topic)
        if not creating:
            return results
        self._in_flight.update(creating)
        try:
            new = [automatic_topic(topic, self._controller.config) for topic in creating]
            created = await self._controller.create_topics(new, timeout_ms=0)
        finally:
            self._in_flight.difference_update(creating)
        for topic, outcome in created.items():
            results[topic] = _metadata_error(outcome)
        return results


def _metadata_error(outcome: CreatedTopic | KafkaError) -> ErrorCode:
    # With no timeout REQUEST_TIMED_OUT is how success looks: the topic exists, its leader is not seen yet.
    if isinstance(outcome, KafkaError) and outcome.code not in (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.REQUEST_TIMED_OUT,
    ):
        return outcome.code
    return ErrorCode.LEADER_NOT_AVAILABLE


def automatic_topic(topic: str, config: BrokerConfig) -> NewTopic:
    """How a topic is created that nobody has created by hand."""
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
    return NewTopic(topic, config.get_int("num.partitions"), config.get_int("default.replication.factor"))
