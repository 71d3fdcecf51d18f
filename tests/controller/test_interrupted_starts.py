"""A store that does not answer once, at any moment of a broker's start: the start goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from controller.sessions import Ensemble, Session
from controller.several import SeveralBrokers
from waiting import until

from kafkapy.controller import controller as controller_module
from kafkapy.controller import register
from kafkapy.controller.admin_requests import NewTopic
from kafkapy.controller.controller import KafkaController
from kafkapy.metadata.metadata_version import LATEST
from kafkapy.metadata.store import Operation, SessionCallback, StoreUnavailableError
from kafkapy.metadata.znodes import broker_path
from kafkapy.types import TopicPartition

MOST_CALLS = 200


class StumblingSession(Session):
    """Fails one of the calls that the controller makes, or loses the reply to one of its writes."""

    def __init__(self, ensemble: Ensemble, call: int, write: int) -> None:
        super().__init__(ensemble)
        self.calls = self.writes = 0
        self._failing = call
        self._losing = write
        self._armed = False
        self.lose_reply = self._loses

    @property
    def session_timeout_s(self) -> float:
        return 60.0

    def listen_session(self, callback: SessionCallback) -> None:
        super().listen_session(callback)
        self._armed = self._armed or isinstance(getattr(callback, "__self__", None), KafkaController)

    def _check(self, path: str) -> None:
        super()._check(path)
        self.calls += self._armed
        if self._armed and self.calls == self._failing:
            raise StoreUnavailableError(path, "the store does not answer")

    def _loses(self, operations: Sequence[Operation]) -> bool:
        del operations
        self.writes += self._armed
        return self._armed and self.writes == self._losing


async def start_of_a_controller(call: int = 0, write: int = 0) -> StumblingSession:
    """Two brokers die; one of them starts, takes over, and leads what it led."""
    ensemble = Ensemble()
    await ensemble.start()
    made: list[StumblingSession] = []
    cluster = SeveralBrokers(ensemble.session, {}, LATEST)
    for broker_id in range(2):
        await cluster.add(broker_id)
    await cluster.active.admin.create_topics([NewTopic("t", assignments={0: [0, 1], 1: [1, 0]})])
    await cluster.settled()
    for member in cluster.members.values():
        await member.die()

    def stumbling() -> Session:
        made.append(StumblingSession(ensemble, call, write))
        return made[-1]

    cluster.new_store = stumbling
    member = cluster[1]
    member.host.restart()
    await member.start()
    await until(lambda: member.controller.is_active, "the broker controls")

    def leads() -> bool:
        member.host.epoch = member.controller.broker_epoch
        return member.host.leads(TopicPartition("t", 1))

    await until(leads, "the broker leads the partition whose ISR had it last")
    value = await ensemble.tree.exists(broker_path(1))
    assert value is not None
    assert value.created_transaction == member.controller.broker_epoch
    await member.stop()
    return made[0]


def test_any_call_of_the_start_may_fail_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_module, "RETRY_MS", 1)
    monkeypatch.setattr(register, "LOOK_S", 0.001)
    whole = asyncio.run(start_of_a_controller())
    assert 10 < whole.calls < MOST_CALLS
    assert whole.writes > 3
    for call in range(1, whole.calls + 1):
        asyncio.run(start_of_a_controller(call=call))
    for write in range(1, whole.writes + 1):
        asyncio.run(start_of_a_controller(write=write))
