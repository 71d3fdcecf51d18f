"""A ConsumerCore whose parts keep their calls; no cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.clients.consumer.core import ConsumerCore
from kafkapy.clients.consumer.subscription import (
    LeaderAndEpoch,
)
from kafkapy.config.clients import ClientConfig
from kafkapy.config.consumer import CONSUMER
from kafkapy.types import OffsetAndMetadata, TopicPartition

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


class Member:
    """The membership."""

    def __init__(self, calls: list[Any]) -> None:
        self.calls = calls
        self.error: Exception | None = None

    async def start(self) -> None:
        self.calls.append("join")

    async def leave(self, reason: str) -> None:
        self.calls.append(("leave", reason))

    async def stop(self) -> None:
        self.calls.append("stop member")

    def poll_called(self) -> None:
        self.calls.append("poll called")

    def subscription_changed(self) -> None:
        self.calls.append("subscription changed")


class Listener:
    """Keeps its calls; `then` runs after one."""

    def __init__(self, calls: list[Any]) -> None:
        self.calls = calls
        self.then: Callable[[], Any] = lambda: None

    def on_partitions_revoked(self, revoked: Any) -> Any:
        self.calls.append(("revoked", set(revoked)))

    def on_partitions_assigned(self, assigned: Any) -> Any:
        self.calls.append(("assigned", set(assigned)))
        return self.then()


class Bench:
    """A core whose parts keep their calls in `calls`."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, group: bool = True, attended: bool = True, **given: Any
    ) -> None:
        self.calls: list[Any] = []
        self.leader = LeaderAndEpoch(1, 4)
        self.found: dict[TopicPartition, OffsetAndMetadata] = {}
        self.commit_error: Exception | None = None
        self.wanted: set[TopicPartition] = set()
        self.matches = False
        config = ClientConfig(
            CONSUMER, {"bootstrap.servers": "127.0.0.1:1"}, **({"group_id": "g"} if group else {}), **given
        )
        core = ConsumerCore(config, post=lambda call: None, ring=lambda: None, attended=attended)
        self.core: Any = core
        self.member = Member(self.calls)
        if group:
            self.core.membership = self.member  # type: ignore[assignment]
            self.core.committer = SimpleNamespace(committed=self._committed, commit=self._commit)  # type: ignore[assignment]
        for part, names in (
            (core.offsets, ("wake", "resume", "close")),
            (core.fetcher, ("wake", "resume")),
            (core.topics, ("want",)),
        ):
            for name in names:
                monkeypatch.setattr(part, name, self.noting(f"{type(part).__name__.lower()}.{name}"))
        monkeypatch.setattr(core.offsets, "leader_of", lambda partition: self.leader)
        monkeypatch.setattr(core.topics, "all_partitions", lambda: set(self.wanted))
        monkeypatch.setattr(core.topics, "errors", list)
        monkeypatch.setattr(core.topics, "match_pattern", self._match)
        monkeypatch.setattr(core.fetcher, "close", self.awaiting("fetcher.close"))
        monkeypatch.setattr(core.network, "close", self.awaiting("network.close"))
        monkeypatch.setattr(core.telemetry, "close", self.awaiting("telemetry.close"))

    def noting(self, name: str) -> Callable[..., None]:
        return lambda *given: self.calls.append((name, *given) if given else name)

    def awaiting(self, name: str) -> Callable[..., Any]:
        async def call(*given: Any) -> None:
            for _ in range(3):
                await asyncio.sleep(0)
            self.noting(name)(*given)

        return call

    def _match(self) -> bool:
        self.calls.append("match pattern")
        return self.matches

    async def _committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        self.calls.append(("committed", list(partitions)))
        await asyncio.sleep(0)
        if self.commit_error is not None:
            raise self.commit_error
        return self.found

    async def _commit(self, offsets: Any, timeout_ms: int) -> None:
        self.calls.append(("commit", dict(offsets), timeout_ms))
        if self.commit_error is not None:
            raise self.commit_error

    def taken(self) -> list[Any]:
        """The calls since the last time."""
        taken = list(self.calls)
        self.calls.clear()
        return taken

    def asks(self) -> bool:
        """Whether the user's thread was made to poll since the last time."""
        asked, self.core.buffer.attention = self.core.buffer.attention, False
        return bool(asked)

    def state(self, partition: TopicPartition = T0) -> Any:
        return self.core.subscription.state_of(partition)

    async def settle(self) -> None:
        """All tasks of the core have ended."""
        while self.core._tasks:
            await asyncio.wait(set(self.core._tasks))
            await asyncio.sleep(0)
