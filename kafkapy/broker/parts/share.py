"""The share partitions that a broker leads (KIP-932)."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkapy._speedups.requests.share.table import ShareTable
from kafkapy.broker.dead_letter_mail import ClusterMail
from kafkapy.broker.dead_letters import DeadLetters
from kafkapy.broker.inter_broker import InterBrokerClient, endpoints_of
from kafkapy.broker.parts.part import Broker, Part
from kafkapy.broker.share_manager import ShareManager
from kafkapy.config.durations import BY_DURATION, duration_ms
from kafkapy.types import IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from kafkapy.coordinator.group.coordinator import GroupCoordinator
    from kafkapy.coordinator.group.share.config import ShareGroupConfigs
    from kafkapy.replica.replica_manager import ReplicaManager

__all__ = ["SharePartitions"]

EARLIEST: Final = -2
LATEST: Final = -1
DEAD_LETTER_LEVEL: Final = 2
"""The level of share.version from which on there are dead letters."""


class SharePartitions(Part):
    """Makes the table of share partitions, and the manager of their state."""

    name = "share partitions"

    def __init__(self) -> None:
        self._manager: ShareManager | None = None
        self._mail: ClusterMail | None = None
        self._heard: GroupCoordinator | None = None
        """The group coordinator that tells the manager of its groups."""

    async def start(self, broker: Broker) -> None:
        """Make both, and follow the level of share.version."""
        config = broker.config
        table = ShareTable(
            broker.plane,
            config.get_int("group.share.max.share.sessions"),
            config.get_int("kafkapy.fetch.session.max.partitions"),
        )
        table.lock_ms = config.get_int("group.share.record.lock.duration.ms")
        self._manager = ShareManager(
            table,
            lambda: broker.context.coordinators.persister,
            partial(self._configs, broker),
            partial(start_offset, broker.replica_manager),
            session_idle_ms=config.get_int("connections.max.idle.ms"),
            allows_dead_letters=lambda: broker.features.share_version >= DEAD_LETTER_LEVEL,
        )

        mail = ClusterMail(
            lambda: broker.dynamic.config,
            broker.log_config,
            broker.metadata_cache,
            broker.replica_manager,
            broker.context.auto_topics,
            partial(_connect, broker),
        )
        self._mail = mail
        self._manager.dead_letters = DeadLetters(mail, partial(self._configs, broker), self._manager.dead_lettered)

        def allow() -> None:
            table.enabled = broker.features.share_version >= 1

        broker.features.listeners.append(allow)
        allow()
        self._manager.start()

    async def stop(self, broker: Broker) -> None:
        """End all share sessions."""
        if self._manager is not None:
            await self._manager.stop()
        if self._mail is not None:
            await self._mail.close()

    def _configs(self, broker: Broker, group_id: str) -> ShareGroupConfigs:
        """The group's keys; the group coordinator is made with the first group here."""
        group = broker.context.coordinators.group
        if self._heard is not group and self._manager is not None:
            self._heard = group
            group.share_listeners.add(self._manager)
        return group.share_group_configs(group_id)


def _connect(broker: Broker) -> InterBrokerClient:
    """The client that sends dead letters to the leaders of their partitions."""
    config = broker.config
    return InterBrokerClient(
        config,
        broker.node_id,
        "dead-letters",
        endpoints_of(broker.metadata_cache, config.inter_broker_listener_name),
        timeout_ms=config.get_int("request.timeout.ms"),
    )


async def start_offset(replicas: ReplicaManager, partition: TopicPartition, leader_epoch: int, reset: str) -> int:
    """The offset that share.auto.offset.reset names.

    It is the latest one when no record is as young as a duration says."""
    look_up = partial(
        replicas.list_offset, partition, isolation=IsolationLevel.READ_UNCOMMITTED, current_leader_epoch=leader_epoch
    )
    found = None
    if reset == "earliest":
        found = await look_up(EARLIEST)
    elif reset.startswith(BY_DURATION):
        found = await look_up(max(time.time_ns() // 1_000_000 - duration_ms(reset.removeprefix(BY_DURATION)), 0))
    if found is None or found.offset < 0:
        found = await look_up(LATEST)
    assert found is not None  # every log has an end
    return found.offset
