"""The policy of client quotas: who shares a quota, and how much it is.

The broker asks the policy once for each connection, client id and change, never for each request. The key
client.quota.callback.class names a registered one; the built-in one follows the quotas of the metadata store. Source:
org.apache.kafka.server.quota.ClientQuotaCallback and kafka.server.ClientQuotaManager.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final

from kafkapy.metadata.quota_entities import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    QuotaEntity,
    quota_entity,
)
from kafkapy.metadata.znodes import desanitize, sanitize

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.metadata.cache import MetadataSnapshot
    from kafkapy.security.principal import KafkaPrincipal

__all__ = ["ClientQuotaCallback", "DefaultQuotaCallback", "QuotaType"]

Tags = Mapping[str, str]
ONLY_CLIENT_ID: Final = frozenset({CLIENT_ID})


class QuotaType(Enum):
    """A kind of quota; the value is the key of its entities."""

    PRODUCE = PRODUCER_BYTE_RATE
    FETCH = CONSUMER_BYTE_RATE
    REQUEST = REQUEST_PERCENTAGE
    CONTROLLER_MUTATION = CONTROLLER_MUTATION_RATE


class ClientQuotaCallback(ABC):
    """A policy of quotas.

    One for the broker; called on the control loop, so it must be quick.
    """

    @abstractmethod
    def quota_metric_tags(self, quota_type: QuotaType, principal: KafkaPrincipal, client_id: str) -> Tags:
        """Tags of the quota that bounds this client; clients with equal tags share it.

        They are also the labels of the quota's metrics.
        """

    @abstractmethod
    def quota_limit(self, quota_type: QuotaType, metric_tags: Tags) -> float | None:
        """The quota of these tags; None: no quota.

        Bytes per second, percent of a thread, or partitions per second.
        """

    @abstractmethod
    def update_quota(self, quota_type: QuotaType, entity: Mapping[str, str | None], value: float) -> None:
        """The quota of an entity of the metadata store was set.

        The entity is {"user": name, "client-id": None for the default}.
        """

    @abstractmethod
    def remove_quota(self, quota_type: QuotaType, entity: Mapping[str, str | None]) -> None:
        """The quota of an entity was removed."""

    @abstractmethod
    def quota_reset_required(self, quota_type: QuotaType) -> bool:
        """Whether tags or limits may have changed since the last call.

        Changes by the other methods of this class do not count.

        Asked every half second.
        """

    @abstractmethod
    def update_cluster_metadata(self, cluster: MetadataSnapshot) -> bool:
        """The cluster's topics or brokers changed.

        True when quotas changed with them.
        """

    @abstractmethod
    def close(self) -> None:
        """Release what the policy holds."""


class DefaultQuotaCallback(ClientQuotaCallback):
    """The quotas of the metadata store, in Kafka's precedence."""

    def __init__(self, config: BrokerConfig) -> None:
        del config
        self._limits: dict[QuotaType, dict[QuotaEntity, float]] = {each: {} for each in QuotaType}
        self._levels: dict[QuotaType, Counter[frozenset[str]]] = {each: Counter() for each in QuotaType}
        """Number of entities by the kinds of names that they have."""

    def quota_metric_tags(self, quota_type: QuotaType, principal: KafkaPrincipal, client_id: str) -> Tags:
        """See ClientQuotaCallback: the names that the deciding entity has.

        A client without a quota has the names that all quotas have, or its client id.
        """
        limits, user, levels = self._limits[quota_type], principal.name, self._levels[quota_type]
        kinds = next(iter(levels)) if len(levels) == 1 else ONLY_CLIENT_ID
        for entity in _candidates(user, client_id) if limits else ():
            if entity in limits:
                kinds = _kinds(entity)
                break
        return _tags(sanitize(user) if USER in kinds else "", client_id if CLIENT_ID in kinds else "")

    def quota_limit(self, quota_type: QuotaType, metric_tags: Tags) -> float | None:
        """See ClientQuotaCallback."""
        limits = self._limits[quota_type]
        user, client_id = desanitize(metric_tags.get(USER, "")), metric_tags.get(CLIENT_ID, "")
        kinds = {kind for kind, name in ((USER, user), (CLIENT_ID, client_id)) if name}
        for entity in _candidates(user, client_id):
            if dict(entity).keys() == kinds and entity in limits:
                return limits[entity]
        return None

    def update_quota(self, quota_type: QuotaType, entity: Mapping[str, str | None], value: float) -> None:
        """See ClientQuotaCallback."""
        known, limits = quota_entity(entity), self._limits[quota_type]
        if known not in limits:
            self._levels[quota_type][_kinds(known)] += 1
        limits[known] = value

    def remove_quota(self, quota_type: QuotaType, entity: Mapping[str, str | None]) -> None:
        """See ClientQuotaCallback."""
        known, levels = quota_entity(entity), self._levels[quota_type]
        if self._limits[quota_type].pop(known, None) is not None:
            levels[_kinds(known)] -= 1
            self._levels[quota_type] = +levels

    def quota_reset_required(self, quota_type: QuotaType) -> bool:
        """See ClientQuotaCallback."""
        return False

    def update_cluster_metadata(self, cluster: MetadataSnapshot) -> bool:
        """See ClientQuotaCallback."""
        return False

    def close(self) -> None:
        """See ClientQuotaCallback."""


def _kinds(entity: QuotaEntity) -> frozenset[str]:
    return frozenset(kind for kind, _ in entity)


def _candidates(user: str, client_id: str) -> Iterator[QuotaEntity]:
    """The entities that may decide about a client, the most specific one first."""
    for name in (user, None):
        yield (USER, name), (CLIENT_ID, client_id)
        yield (USER, name), (CLIENT_ID, None)
        yield ((USER, name),)
    yield ((CLIENT_ID, client_id),)
    yield ((CLIENT_ID, None),)


def _tags(user: str, client_id: str) -> Tags:
    return {USER: user, CLIENT_ID: client_id}
