"""The hook implementations: what the entry point in pyproject.toml names."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from kafkapy.config.config_def import ConfigKey, Importance, non_empty
from kafkapy.plugins import hookimpl
from kafkapy.security.authorizer.base import Authorizer
from kafkapy.types import ConfigType
from kafkapy_template.assignor import WholeTopicsAssignor
from kafkapy_template.authorizer import PREFIX_KEY, DenyPrefixAuthorizer

if TYPE_CHECKING:
    from kafkapy.broker.server import KafkaServer
    from kafkapy.clients.consumer.membership.assignors.api import ConsumerPartitionAssignor

logger = logging.getLogger(__name__)


@hookimpl
def register_authorizers() -> Mapping[str, Callable[[], Authorizer]]:
    """The authorizer, under the name for authorizer.class.name."""
    return {"deny_prefix": DenyPrefixAuthorizer}


@hookimpl
def register_partition_assignors() -> Mapping[str, Callable[[], ConsumerPartitionAssignor]]:
    """The assignor, under the name for a consumer's partition.assignment.strategy."""
    return {WholeTopicsAssignor.name: WholeTopicsAssignor}


@hookimpl
def register_config_keys() -> Iterable[ConfigKey]:
    """The plugin's key, checked and documented like Kafka's own."""
    doc = "Topics whose name begins with this are denied to everybody by the authorizer deny_prefix."
    return [ConfigKey(PREFIX_KEY, ConfigType.STRING, "secret.", non_empty(), Importance.MEDIUM, doc)]


@hookimpl
def broker_started(broker: KafkaServer) -> None:
    """Called once the broker serves clients."""
    logger.info("The authorizer deny_prefix denies topics that begin with %r", broker.config.get_str(PREFIX_KEY))
