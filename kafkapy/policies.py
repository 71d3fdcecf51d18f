"""Plugins that may refuse topics and changes of configurations (KIP-108, KIP-133).

`register_create_topic_policies` and `register_alter_config_policies` give them. A policy raises `PolicyViolationError`
with one sentence for the client. Source: org.apache.kafka.server.policy.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kafkapy.errors import ErrorCode, KafkaError, error_class, error_for
from kafkapy.types import ConfigResourceType

__all__ = [
    "AlterConfigPolicy",
    "AlteredConfigs",
    "CreateTopicPolicy",
    "PolicyViolationError",
    "RequestedTopic",
    "check_altered_configs",
    "check_topic",
]

logger = logging.getLogger("kafka.server.ZkAdminManager")

PolicyViolationError = error_class(ErrorCode.POLICY_VIOLATION)
"""What a policy raises; clients get its text with POLICY_VIOLATION."""


@dataclass(frozen=True, slots=True)
class RequestedTopic:
    """A topic that somebody wants to create. It has passed the broker's own checks.

    `partitions` and `replication_factor` are None for a topic with `assignments`, which has the replicas of each
    partition otherwise. `configs` are the keys that the topic sets itself.
    """

    name: str
    partitions: int | None
    replication_factor: int | None
    assignments: Mapping[int, Sequence[int]] | None
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AlteredConfigs:
    """Keys of a resource that somebody wants to change, with their new values.

    None goes back to the default.
    """

    resource_type: ConfigResourceType
    resource_name: str
    configs: Mapping[str, str | None]


class CreateTopicPolicy(Protocol):
    """Judges every new topic, also one that is only validated.

    The controller calls it on its control loop.
    """

    def validate(self, topic: RequestedTopic) -> None:
        """PolicyViolationError refuses the topic."""

    def close(self) -> None:
        """The broker stops."""


class AlterConfigPolicy(Protocol):
    """Judges every change of a configuration, also one that is only validated.

    The broker calls it on its control loop.
    """

    def validate(self, change: AlteredConfigs) -> None:
        """PolicyViolationError refuses the change."""

    def close(self) -> None:
        """The broker stops."""


def check_topic(policy: CreateTopicPolicy | None, topic: RequestedTopic) -> None:
    """POLICY_VIOLATION; UNKNOWN_SERVER_ERROR when the policy fails."""
    if policy is not None:
        try:
            policy.validate(topic)
        except KafkaError:
            raise
        except Exception as error:
            raise _failed(policy, error) from error


def check_altered_configs(policy: AlterConfigPolicy | None, change: AlteredConfigs) -> None:
    """POLICY_VIOLATION; UNKNOWN_SERVER_ERROR when the policy fails."""
    if policy is not None:
        try:
            policy.validate(change)
        except KafkaError:
            raise
        except Exception as error:
            raise _failed(policy, error) from error


def _failed(policy: object, error: Exception) -> KafkaError:
    logger.exception("The policy %s failed", type(policy).__name__)
    return error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"The policy {type(policy).__name__} failed: {error}")
