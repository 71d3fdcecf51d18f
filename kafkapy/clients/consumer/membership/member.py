"""The common parts of the members of groups: identity, poll watch, tasks."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from kafkapy.clients.consumer.membership.heartbeat import PollTimer

if TYPE_CHECKING:
    from kafkapy.clients.cluster import ClusterMetadata
    from kafkapy.clients.consumer.membership.api import GroupCore
    from kafkapy.clients.consumer.membership.group_coordinator import GroupCoordinator
    from kafkapy.clients.network_client import NetworkClient
    from kafkapy.config.clients import ClientConfig

__all__ = ["GroupMember", "PolledMember"]


class PolledMember(ABC):
    """A member of a group whose user must poll. On the loop's thread.

    A member has tasks from its start to `leave` or `stop`.
    """

    def __init__(self, config: ClientConfig, network: NetworkClient, coordinator: GroupCoordinator) -> None:
        self._network = network
        self._coordinator = coordinator
        self._group_id: str = config["group.id"]
        self._rack: str | None = config["client.rack"] or None
        self._rebalance_timeout_ms: int = config["max.poll.interval.ms"]
        self._request_timeout_ms: int = config["request.timeout.ms"]
        self._polls = PollTimer(self._rebalance_timeout_ms / 1000)
        self._polled = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.error: Exception | None = None

    def poll_called(self) -> None:
        """See Membership."""
        self._polls.called()
        self._polled.set()

    async def stop(self) -> None:
        """See Membership."""
        if not self._tasks:
            return
        self._network.cluster.remove_listener(self._metadata_changed)
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, loops: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Starts these coroutines as the member's tasks."""
        self._polls.called()
        self._network.cluster.add_listener(self._metadata_changed)
        self._tasks = [asyncio.ensure_future(each) for each in loops]

    @abstractmethod
    def _metadata_changed(self, cluster: ClusterMetadata) -> None:
        """Handles newer metadata."""


class GroupMember(PolledMember):
    """Base of the memberships of consumers, which commit offsets."""

    def __init__(self, core: GroupCore) -> None:
        assert core.committer is not None
        super().__init__(core.config, core.network, core.committer.coordinator)
        self._core = core
        self._committer = core.committer
        self._instance_id: str | None = core.config["group.instance.id"]
