"""What groups did while the console watched: lag over time, members that came and went, commits that moved.

Brokers tell only how a group is now. The console looks every few seconds and keeps the last hour.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafkapy.errors import KafkaError
from kafkapy.types import TopicPartition
from kafkapy_console.services.clients import Clients
from kafkapy_console.services.groups import Group, Groups

__all__ = ["Event", "GroupHistory", "History"]

EVERY_S = 15.0
POINTS = 240
EVENTS = 100
MOST_GROUPS = 500
"""The groups that are watched all the time; others only while somebody looks at them."""
MOST_KEPT = 2000

logger = logging.getLogger("kafkapy.console")


@dataclass(frozen=True)
class Event:
    """A change that the console saw."""

    time: float
    text: str


@dataclass
class GroupHistory:
    """The last hour of one group."""

    points: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=POINTS))
    """(time in s, lag)."""
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=EVENTS))
    moved_at: dict[TopicPartition, float] = field(default_factory=dict)
    _committed: dict[TopicPartition, int] = field(default_factory=dict)
    _members: dict[str, str] | None = None
    _state: str = ""
    _epoch: int | None = None

    def add(self, group: Group, now: float) -> None:
        """One look at the group."""
        lag = group.total_lag
        if lag is not None and (not self.points or now - self.points[-1][0] >= 1):
            self.points.append((now, lag))
        members = {each.id: each.client_id or each.id for each in group.members}
        if self._members is not None:
            for name in members.keys() - self._members.keys():
                self.events.appendleft(Event(now, f"Member {members[name]} joined."))
            for name in self._members.keys() - members.keys():
                self.events.appendleft(Event(now, f"Member {self._members[name]} left."))
            if group.state != self._state:
                self.events.appendleft(Event(now, f"State {self._state} became {group.state}."))
            if group.epoch != self._epoch and group.epoch is not None:
                self.events.appendleft(Event(now, f"Epoch {self._epoch} became {group.epoch}."))
        self._members, self._state, self._epoch = members, group.state, group.epoch
        for each in group.lags:
            if each.committed is None:
                continue
            before = self._committed.get(each.partition)
            if before != each.committed:
                if before is not None and each.committed < before:
                    text = f"Offset of {each.partition} went back from {before:,} to {each.committed:,}."
                    self.events.appendleft(Event(now, text))
                self.moved_at[each.partition] = now
                self._committed[each.partition] = each.committed


class History:
    """The histories of all groups, and the task that looks."""

    def __init__(self, clients: Clients | None) -> None:
        self._clients = clients
        self._groups: dict[str, GroupHistory] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to look, where the console has a principal of its own."""
        if self._clients is not None and self._task is None:
            self._task = asyncio.ensure_future(self._watch(self._clients))

    async def close(self) -> None:
        """Ends the task."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def of(self, group_id: str) -> GroupHistory:
        """The history of a group."""
        found = self._groups.setdefault(group_id, GroupHistory())
        while len(self._groups) > MOST_KEPT:
            self._groups.pop(next(iter(self._groups)))
        return found

    def saw(self, group: Group) -> GroupHistory:
        """Adds a look of a page."""
        found = self.of(group.id)
        found.add(group, time.time())
        return found

    async def _watch(self, clients: Clients) -> None:
        away = False
        while True:
            try:
                groups = Groups(clients)
                listed = list((await groups.all()).values())[:MOST_GROUPS]
                for group in await groups.described(listed, with_begin=False):
                    self.saw(group)
                away = False
            except KafkaError as error:
                if not away:
                    logger.warning("Groups cannot be watched: %s", error)
                away = True
            except Exception:
                logger.exception("Groups cannot be watched")
            await asyncio.sleep(EVERY_S)


def series(points: deque[tuple[float, int]]) -> Mapping[str, list[float]]:
    """Points for a chart: seconds and values."""
    return {"times": [round(at, 1) for at, _ in points], "values": [float(lag) for _, lag in points]}
