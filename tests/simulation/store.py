"""The metadata store of the simulated brokers: sessions on one tree, with latency, over a connection that can be cut.

As with ZooKeeper, what one session gets keeps its order: an event about a change comes before any later answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

from controller.sessions import Ensemble, Session
from simulation.clock import LIFE, NOBODY

from kafkapy.metadata.store import Operation, Stat, StoreUnavailableError, WatchCallback, WatchEvent

if TYPE_CHECKING:
    from simulation.network import Network


class SimulatedEnsemble(Ensemble):
    """The tree, and the sessions' timeout. A session whose connection is cut for longer expires."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        self.session_timeout_s = 2.0
        self.delay_s = 0.002

    def session(self) -> SimulatedSession:
        return SimulatedSession(self)


class SimulatedSession(Session):
    """A broker's session, made in the context of the broker's life."""

    ensemble: SimulatedEnsemble

    def __init__(self, ensemble: SimulatedEnsemble) -> None:
        super().__init__(ensemble)
        self.context: Context = copy_context()
        self._life = self.context.get(LIFE, NOBODY)
        self._arrived_s = 0.0
        self._cuts = 0

    @property
    def session_timeout_s(self) -> float:
        """Far away: the brokers compare it with the real clock, and sessions end by the virtual one."""
        return 600.0

    # --- latency ------------------------------------------------------------------------------------------------------

    def _arrival(self) -> float:
        """When the next message from the ensemble arrives."""
        network = self.ensemble.network
        due = network.loop.time() + self.ensemble.delay_s * network.dice.random()
        self._arrived_s = max(self._arrived_s + 1e-9, due)
        return self._arrived_s

    async def _sent(self) -> None:
        network = self.ensemble.network
        await asyncio.sleep(self.ensemble.delay_s * network.dice.random())

    async def _answered(self) -> None:
        arrived = self._arrival()
        await asyncio.sleep(max(arrived - self.ensemble.network.loop.time(), 0))
        if self.cut:
            raise StoreUnavailableError("/", "the connection is gone")

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        await self._sent()
        found = await super().get_many(paths)
        await self._answered()
        return found

    async def children(self, path: str) -> list[str]:
        await self._sent()
        found = await super().children(path)
        await self._answered()
        return found

    async def commit(self, operations: Sequence[Operation]) -> list[str | Stat | None]:
        await self._sent()
        results = await super().commit(operations)
        await self._answered()
        return results

    def _told(self, callback: WatchCallback, event: WatchEvent) -> None:
        if self.cut or self._id == 0 or not self._life.alive:
            super()._told(callback, event)
            return
        self.ensemble.network.loop.call_at(self._arrival(), self._hear, callback, event, context=self.context)

    def _hear(self, callback: WatchCallback, event: WatchEvent) -> None:
        super()._told(callback, event)

    # --- faults -------------------------------------------------------------------------------------------------------

    def lose_connection(self) -> None:
        """Cut the connection; the session expires after its timeout, unless `restore_connection` comes before."""
        self.cut = True
        self._cuts += 1
        loop = self.ensemble.network.loop
        loop.call_later(self.ensemble.session_timeout_s, self._expire_later, self._cuts, context=loop.world)

    def _expire_later(self, cut: int) -> None:
        if self.cut and self._cuts == cut and self._id:
            loop = self.ensemble.network.loop
            loop.create_task(self.expire(), context=loop.world)

    def restore_connection(self) -> asyncio.Task[Any]:
        """The connection is back; the broker hears what it has missed."""
        self._cuts += 1
        return self.ensemble.network.loop.create_task(self.reconnect(), context=self.context)
