"""The broker's current configuration: properties file and dynamic layers over it (KIP-226).

    /config/brokers/<default>          broker keys for the whole cluster
    /config/brokers/<id>               broker keys for one broker
    /config/topics/<topic>             a topic's own keys
    /config/groups/<group>             a group's own keys
    /config/client-metrics/<name>      a client-metrics subscription

`ConfigRepository` reads and writes these nodes and follows changes; this is what a change means for the running broker.
Source: kafka.server.DynamicBrokerConfig.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from kafkapy.broker.stored_passwords import StoredPasswords
from kafkapy.broker.thread_counts import check_thread_counts
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.client_metrics import ClientMetricsSubscription, parse_subscription
from kafkapy.config.dynamic_keys import check_limits, check_names, usable
from kafkapy.config.group import parse_group
from kafkapy.config.providers import resolve
from kafkapy.errors import ConfigError, ErrorCode, KafkaError, error_for
from kafkapy.log.cleaner import check_reconfiguration
from kafkapy.metadata.config_repository import ConfigEdit, ConfigRepository
from kafkapy.metadata.znodes import (
    CONFIG_BROKERS,
    CONFIG_CLIENT_METRICS,
    CONFIG_GROUPS,
    CONFIG_TOPICS,
    DEFAULT_ENTITY,
    desanitize,
    sanitize,
)

logger = logging.getLogger("kafka.server.DynamicBrokerConfig")

BrokerListener = Callable[[BrokerConfig], None]
BrokerApplier = Callable[[BrokerConfig], Awaitable[None]]
GroupListener = Callable[[str, Mapping[str, int]], None]
SubscriptionListener = Callable[[str, ClientMetricsSubscription | None], None]
"""Called with a client-metrics subscription's name and content; None when it was deleted."""


class DynamicConfig:
    """Owns the broker's current `BrokerConfig`.

    Made by KafkaServer once the broker id is known; lives on the control loop.

    Broker listeners are called on the loop with the new BrokerConfig, after a change of the dynamic layers.
    """

    def __init__(self, config: BrokerConfig, node_id: int, repository: ConfigRepository) -> None:
        self.config = config
        self.repository = repository
        self.broker_listeners: list[BrokerListener] = []
        self.broker_checks: list[BrokerListener] = []
        """Called with a configuration that a request wants. ConfigError refuses it."""
        self.broker_appliers: list[BrokerApplier] = []
        """Awaited with a changed configuration, after the listeners."""
        self.broker_touched: list[BrokerListener] = []
        """Called after every change of the broker's own keys, also to equal values: a file may have changed."""
        self.group_keys_read: Callable[[str, Mapping[str, str]], None] | None = None
        """Called with all own keys of a group, whenever they are read."""
        self._node_id = node_id
        self._passwords = StoredPasswords(config)

    async def start(self) -> None:
        """Take over what the store says and follow changes. The repository has been started."""
        await self._renew_passwords()
        self._take_over()
        self.repository.listen(CONFIG_BROKERS, self._on_broker_change)

    def topic_keys(self, topic: str) -> Mapping[str, str]:
        """The keys that the topic sets itself; empty for a topic without any."""
        return self.repository.topic(topic)

    async def loaded_topic_keys(self, topic: str) -> Mapping[str, str]:
        """The same, for a topic that this broker may not host."""
        await self.repository.load_topics([topic])
        return self.repository.topic(topic)

    async def change_topic(self, topic: str, edit: ConfigEdit) -> None:
        """Replace a topic's own keys. Returns when this broker's logs have them. See ConfigRepository.change."""
        await self.repository.load_topics([topic])
        await self.repository.change(CONFIG_TOPICS, topic, edit)

    # --- groups -------------------------------------------------------------------------------------------------------

    def follow_groups(self, listener: GroupListener) -> None:
        """Tell the listener each group's own keys, now and after each change."""

        def take(group: str, keys: Mapping[str, str]) -> None:
            if self.group_keys_read is not None:
                self.group_keys_read(group, keys)
            try:
                listener(group, parse_group(keys))
            except ConfigError as error:
                logger.error(
                    "The configuration of group %s is invalid; the previous one stays in force: %s", group, error
                )

        async def changed(node: str, keys: Mapping[str, str]) -> None:
            take(desanitize(node), keys)

        for group, keys in self.groups().items():
            take(group, keys)
        self.repository.listen(CONFIG_GROUPS, changed)

    def groups(self) -> dict[str, Mapping[str, str]]:
        """The own keys of every group that has some, by name."""
        return self._named(CONFIG_GROUPS)

    def group_keys(self, group: str) -> Mapping[str, str]:
        """The keys that the group was given itself."""
        return self.repository.entity(CONFIG_GROUPS, sanitize(group))

    async def change_group(self, group: str, edit: ConfigEdit) -> None:
        """Replace a group's own keys. See ConfigRepository.change."""
        await self.repository.change(CONFIG_GROUPS, sanitize(group), edit)

    # --- client metrics -----------------------------------------------------------------------------------------------

    def follow_client_metrics(self, listener: SubscriptionListener) -> None:
        """Tell the listener every client-metrics subscription, now and after each change."""

        def take(name: str, keys: Mapping[str, str]) -> None:
            try:
                listener(name, parse_subscription(keys) if keys else None)
            except KafkaError as error:
                logger.error(
                    "The client-metrics subscription %s is invalid; the previous one stays in force: %s", name, error
                )

        async def changed(node: str, keys: Mapping[str, str]) -> None:
            take(desanitize(node), keys)

        for name, keys in self.client_metrics().items():
            take(name, keys)
        self.repository.listen(CONFIG_CLIENT_METRICS, changed)

    def client_metrics(self) -> dict[str, Mapping[str, str]]:
        """The keys of every client-metrics subscription, by name."""
        return self._named(CONFIG_CLIENT_METRICS)

    def client_metrics_keys(self, name: str) -> Mapping[str, str]:
        """The keys of one subscription; empty for an unknown one."""
        return self.repository.entity(CONFIG_CLIENT_METRICS, sanitize(name))

    async def change_client_metrics(self, name: str, edit: ConfigEdit) -> None:
        """Replace a subscription's keys; without keys there is no subscription. See ConfigRepository.change."""
        await self.repository.change(CONFIG_CLIENT_METRICS, sanitize(name), edit)

    def _named(self, entity_type: str) -> dict[str, Mapping[str, str]]:
        return {desanitize(node): keys for node, keys in self.repository.entities(entity_type).items() if keys}

    # --- brokers ------------------------------------------------------------------------------------------------------

    async def broker_keys(self, broker_id: int | None) -> dict[str, str]:
        """The dynamic keys of a broker, or of the cluster (None)."""
        return self._passwords.decoded(await self.repository.fetch(CONFIG_BROKERS, _entity(broker_id)))

    def check_broker(self, broker_id: int | None, keys: Mapping[str, str]) -> None:
        """KafkaError when this broker could not run with these dynamic keys.

        They are the broker's keys, or the cluster's (None).
        """
        per_broker = broker_id is not None
        check_names(self.config, keys, per_broker)
        self._passwords.check(keys, per_broker)
        try:
            resolved = resolve(keys)
            changed = self.config.with_dynamic(resolved if per_broker else None, None if per_broker else resolved)
        except ConfigError as error:
            # Kafka has INVALID_CONFIG for the keys of other resources only.
            raise error_for(ErrorCode.INVALID_REQUEST, str(error)) from error
        check_limits(self.config, changed)
        check_reconfiguration(self.config, changed)
        check_thread_counts(self.config, changed)
        for check in self.broker_checks:
            try:
                check(changed)
            except ConfigError as error:
                raise error_for(ErrorCode.INVALID_REQUEST, str(error)) from error

    async def change_broker(self, broker_id: int | None, edit: ConfigEdit) -> None:
        """Replace the dynamic keys of a broker, or of the cluster (None). See ConfigRepository.change."""

        def edit_stored(stored: dict[str, str]) -> Mapping[str, str]:
            return self._passwords.encoded(edit(self._passwords.decoded(stored)), stored)

        await self.repository.change(CONFIG_BROKERS, _entity(broker_id), edit_stored)

    async def _renew_passwords(self) -> None:
        """Encrypt passwords under the current secret that were encrypted under password.encoder.old.secret."""
        stored = self.repository.broker(self._node_id)
        if self._passwords.renewed(stored) != stored:
            await self.repository.change(CONFIG_BROKERS, str(self._node_id), self._passwords.renewed)

    async def _on_broker_change(self, name: str, keys: Mapping[str, str]) -> None:
        del keys
        if name in (DEFAULT_ENTITY, str(self._node_id)):
            before = self.config
            self._take_over()
            if self.config is not before:
                for applier in self.broker_appliers:
                    await applier(self.config)
            for listener in self.broker_touched:
                listener(self.config)

    def _take_over(self) -> None:
        default = self._usable(self.repository.broker_defaults(), False)
        own = self._usable(self._passwords.decoded(self.repository.broker(self._node_id)), True)
        if (dict(self.config.dynamic_default), dict(self.config.dynamic)) == (default, own):
            return
        try:
            self.config = self.config.with_dynamic(own, default)
        except ConfigError as error:
            # As Kafka: a value that another version wrote must not keep this broker from running with what it has.
            logger.error("The dynamic broker configuration is invalid; the previous one stays in force: %s", error)
            return
        for listener in self.broker_listeners:
            listener(self.config)

    def _usable(self, keys: Mapping[str, str], per_broker: bool) -> dict[str, str]:
        try:
            keys = resolve(keys)
        except ConfigError as error:
            logger.error("Variables in the dynamic broker configuration have no values: %s", error)
        kept, ignored = usable(self.config, keys, per_broker)
        for sentence in ignored:
            logger.error("The broker ignores a part of its dynamic configuration: %s", sentence)
        return kept


def _entity(broker_id: int | None) -> str:
    return DEFAULT_ENTITY if broker_id is None else str(broker_id)
