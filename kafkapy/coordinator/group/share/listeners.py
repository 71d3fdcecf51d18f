"""Events of share groups, for the leaders of share-partitions on this broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol
from uuid import UUID

logger = logging.getLogger("kafka.coordinator.group.GroupCoordinator")


class ShareGroupListener(Protocol):
    """Hears of share groups of this broker, on the control loop; it returns soon."""

    def group_deleted(self, group_id: str) -> None:
        """The group was deleted."""

    def state_changed(self, group_id: str, topic_id: UUID, partitions: frozenset[int]) -> None:
        """The state of share-partitions was deleted, or has another start offset: read it again."""

    def member_gone(self, group_id: str, member_id: str) -> None:
        """The member left, or its session expired."""


class ShareGroupListeners:
    """The registered listeners. Owned by the GroupCoordinator; used on the control loop's thread."""

    def __init__(self) -> None:
        self._listeners: list[ShareGroupListener] = []

    def add(self, listener: ShareGroupListener) -> None:
        """Tell a listener of everything from now on."""
        self._listeners.append(listener)

    def group_deleted(self, group_id: str) -> None:
        """See ShareGroupListener."""
        self._tell(lambda each: each.group_deleted(group_id))

    def state_changed(self, group_id: str, topic_id: UUID, partitions: Iterable[int]) -> None:
        """See ShareGroupListener."""
        numbers = frozenset(partitions)
        self._tell(lambda each: each.state_changed(group_id, topic_id, numbers))

    def member_gone(self, group_id: str, member_id: str) -> None:
        """See ShareGroupListener."""
        self._tell(lambda each: each.member_gone(group_id, member_id))

    def _tell(self, event: Callable[[ShareGroupListener], None]) -> None:
        for listener in self._listeners:
            try:
                event(listener)
            except Exception:
                # A defect of a listener must not keep the coordinator from applying its log.
                logger.exception("A listener of share groups failed")
