"""The hook implementations: what the entry point in pyproject.toml names."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from kafkapy.config.config_def import ConfigKey, Importance, at_least, non_empty
from kafkapy.plugins import hookimpl
from kafkapy.security.authorizer.base import Authorizer
from kafkapy.types import ConfigType
from kafkapy_template.assignor import WholeTopicsAssignor
from kafkapy_template.authorizer import PREFIX_KEY, DenyPrefixAuthorizer
from kafkapy_template.directory import NAME_KEY, URL_KEY, LdapBind
from kafkapy_template.policy import MOST_KEY, MostPartitions
from kafkapy_template.quotas import TEAM_RATE_KEY, TeamQuotas
from kafkapy_template.telemetry import CountingReceiver

if TYPE_CHECKING:
    from kafkapy.broker.quota_callback import ClientQuotaCallback
    from kafkapy.broker.server import KafkaServer
    from kafkapy.clients.consumer.membership.assignors.api import ConsumerPartitionAssignor
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.security.sasl.base import CallbackHandler

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
def register_sasl_callback_handlers() -> Mapping[str, Callable[[], CallbackHandler]]:
    """The check of passwords, under the name for sasl.server.callback.handler.class."""
    return {"ldap_bind": LdapBind}


@hookimpl
def register_client_telemetry_receivers() -> Mapping[str, Callable[[BrokerConfig], CountingReceiver]]:
    """The receiver of clients' metrics, under the name for kafkapy.client.telemetry.receivers."""
    return {"counting": CountingReceiver}


@hookimpl
def register_quota_managers() -> Mapping[str, Callable[[BrokerConfig], ClientQuotaCallback]]:
    """The policy of quotas, under the name for client.quota.callback.class."""
    return {"team_quotas": TeamQuotas}


@hookimpl
def register_create_topic_policies() -> Mapping[str, Callable[[BrokerConfig], MostPartitions]]:
    """The policy, under the name for create.topic.policy.class.name."""
    return {"most_partitions": lambda config: MostPartitions(config.get_int(MOST_KEY))}


@hookimpl
def register_config_keys() -> Iterable[ConfigKey]:
    """The plugin's keys, checked and documented like Kafka's own."""
    prefix = "Topics whose name begins with this are denied to everybody by the authorizer deny_prefix."
    url = "LDAP server that checks passwords for ldap_bind."
    name = "Distinguished name of a user for ldap_bind; the user name stands for {}."
    default = "uid={},ou=people,dc=example,dc=org"
    rate = "Bytes per second that the clients of one team may produce under team_quotas."
    most = "Largest number of partitions of a new topic, for the policy most_partitions."
    return [
        ConfigKey(PREFIX_KEY, ConfigType.STRING, "secret.", non_empty(), Importance.MEDIUM, prefix),
        ConfigKey(URL_KEY, ConfigType.STRING, "ldap://localhost", non_empty(), Importance.MEDIUM, url),
        ConfigKey(NAME_KEY, ConfigType.STRING, default, non_empty(), Importance.MEDIUM, name),
        ConfigKey(TEAM_RATE_KEY, ConfigType.INT, 10_000_000, at_least(1), Importance.MEDIUM, rate),
        ConfigKey(MOST_KEY, ConfigType.INT, 100, at_least(1), Importance.MEDIUM, most),
    ]


@hookimpl
def broker_started(broker: KafkaServer) -> None:
    """Called once the broker serves clients."""
    logger.info("The authorizer deny_prefix denies topics that begin with %r", broker.config.get_str(PREFIX_KEY))
