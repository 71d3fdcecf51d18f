"""AlterPartition to the controller: one request at a time, what waits goes together, and what fails goes again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from waiting import until

from kafkapy import errors
from kafkapy.clients.network_client import RequestOf
from kafkapy.errors import ErrorCode
from kafkapy.metadata.memory import MemoryStore
from kafkapy.metadata.store import StoreUnavailableError
from kafkapy.metadata.znodes import (
    ISR_CHANGES,
    PartitionState,
    decode_isr_change,
    decode_partition_state,
    encode_partition_state,
    partition_state_path,
)
from kafkapy.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from kafkapy.replica import alter_partition
from kafkapy.replica.alter_partition import AlterPartitionManager, IsrChange, StoreIsrWriter
from kafkapy.types import ZERO_UUID, TopicPartition

ID = UUID(int=77)
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def change(
    partition: TopicPartition = P0, *, topic_id: UUID = ID, isr: tuple[int, ...] = (1, 2), epoch: int = 3
) -> IsrChange:
    return IsrChange(partition, topic_id, 1, 5, epoch, isr, tuple(10 + each for each in isr), 9)


class Controller:
    """An InterBrokerSender that is the network and the controller: requests pass through the wire's bytes."""

    def __init__(self, version: int = 3) -> None:
        self.version = version
        self.received: list[tuple[int, AlterPartitionRequest]] = []
        self.answers: list[Any] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.disconnected: list[int] = []
        self.closed = False

    async def send(
        self, broker_id: int, request: Any, *, timeout_ms: int | None = None, version: int | None = None
    ) -> AlterPartitionResponse:
        chosen = self.version if version is None else version
        assert isinstance(request, RequestOf)
        asked = AlterPartitionRequest.decode(request.build(chosen).encode(chosen), chosen)
        self.received.append((broker_id, asked))
        await self.gate.wait()
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        response = self.granted(asked) if answer is None else answer(asked)
        return AlterPartitionResponse.decode(response.encode(chosen), chosen)

    def disconnect(self, broker_id: int) -> None:
        self.disconnected.append(broker_id)

    async def close(self) -> None:
        self.closed = True

    @staticmethod
    def granted(asked: AlterPartitionRequest, *, error: ErrorCode = ErrorCode.NONE, left_out: int = -1) -> Any:
        topics = []
        for topic in asked.topics:
            made = AlterPartitionResponse.Topic(topic_name=topic.topic_name, topic_id=topic.topic_id)
            for each in topic.partitions:
                if each.partition_index == left_out:
                    continue
                isr = [member.broker_id for member in each.new_isr_with_epochs] or list(each.new_isr)
                made.partitions.append(
                    AlterPartitionResponse.Topic.Partition(
                        partition_index=each.partition_index,
                        error_code=error,
                        leader_id=asked.broker_id,
                        leader_epoch=each.leader_epoch,
                        isr=isr,
                        partition_epoch=each.partition_epoch + 1,
                    )
                )
            topics.append(made)
        return AlterPartitionResponse(topics=topics)


def run(test: Callable[[Controller, AlterPartitionManager], Awaitable[None]], **fields: Any) -> None:
    async def body() -> None:
        controller = Controller(**fields)
        manager = AlterPartitionManager(1, controller, lambda: 8, lambda: 4711)
        try:
            await test(controller, manager)
        finally:
            await manager.close()
        assert controller.closed

    asyncio.run(body())


def test_a_controller_that_stands_still_is_not_waited_for_once_another_is_elected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(alter_partition, "LOOK_S", 0.001)

    async def body() -> None:
        controller = Controller()
        elected = [8]
        manager = AlterPartitionManager(1, controller, lambda: elected[0], lambda: 4711)
        controller.gate.clear()
        waiting = asyncio.create_task(manager.alter(change()))
        await until(lambda: controller.received, "the first controller has the request")
        # None is known: the request stays where it is.
        elected[0] = -1
        await asyncio.sleep(0.01)
        assert (controller.disconnected, len(controller.received)) == ([], 1)
        elected[0] = 9
        await until(lambda: len(controller.received) == 2, "the next controller has the request")
        controller.gate.set()
        assert (await waiting).isr == (1, 2)
        assert ([broker for broker, _ in controller.received], controller.disconnected) == ([8, 9], [8])
        await manager.close()

    asyncio.run(body())


@pytest.mark.parametrize("version", range(4))
def test_the_request_says_what_the_leader_wants_in_every_version(version: int) -> None:
    async def test(controller: Controller, manager: AlterPartitionManager) -> None:
        state = await manager.alter(change())
        assert state == PartitionState(1, 5, (1, 2), 9, False, 4)
        [(broker, asked)] = controller.received
        assert (broker, asked.broker_id, asked.broker_epoch) == (8, 1, 4711)
        [topic] = asked.topics
        assert (topic.topic_name, topic.topic_id) == (("t", ZERO_UUID) if version < 2 else ("", ID))
        [partition] = topic.partitions
        assert (partition.partition_index, partition.leader_epoch, partition.partition_epoch) == (0, 5, 3)
        members = [(each.broker_id, each.broker_epoch) for each in partition.new_isr_with_epochs]
        assert (partition.new_isr, members) == (([1, 2], []) if version < 3 else ([], [(1, 11), (2, 12)]))

    run(test, version=version)


def test_a_topic_without_an_id_brings_the_request_down_to_names(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(controller: Controller, manager: AlterPartitionManager) -> None:
        other = change(TopicPartition("old", 2), topic_id=ZERO_UUID)
        states = await asyncio.gather(manager.alter(change()), manager.alter(other))
        assert [state.version for state in states] == [4, 4]
        assert [topic.topic_name for topic in controller.received[0][1].topics] == ["t", "old"]

    run(test)


def test_changes_wait_for_the_request_in_flight_and_go_together() -> None:
    async def test(controller: Controller, manager: AlterPartitionManager) -> None:
        controller.gate.clear()
        first = asyncio.ensure_future(manager.alter(change()))
        await until(lambda: controller.received, "a request")
        others = [asyncio.ensure_future(manager.alter(change(TopicPartition("t", number)))) for number in (1, 2, 3)]
        with pytest.raises(errors.KafkaError) as caught:
            await manager.alter(change())
        assert caught.value.code is ErrorCode.OPERATION_NOT_ATTEMPTED
        assert len(controller.received) == 1
        controller.gate.set()
        await asyncio.gather(first, *others)
        assert [[each.partition_index for each in asked.topics[0].partitions] for _, asked in controller.received] == [
            [0],
            [1, 2, 3],
        ]
        # A partition whose change has been answered may change again.
        assert (await manager.alter(change(epoch=4))).version == 5

    run(test)


def test_what_fails_as_a_whole_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alter_partition, "RETRY_S", 0.0)

    async def test(controller: Controller, manager: AlterPartitionManager) -> None:
        controller.answers = [
            errors.KafkaConnectionError("gone"),
            errors.RequestTimedOutError("late"),
            *(
                lambda _, code=code: AlterPartitionResponse(error_code=code)
                for code in (
                    ErrorCode.NOT_CONTROLLER,
                    ErrorCode.STALE_BROKER_EPOCH,
                    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    32_000,
                )
            ),
            lambda asked: Controller.granted(asked, left_out=1),
        ]
        zero, one = await asyncio.gather(manager.alter(change()), manager.alter(change(P1)))
        assert (zero.version, one.version) == (4, 4)
        indexes = [[each.partition_index for each in asked.topics[0].partitions] for _, asked in controller.received]
        assert indexes == [[0, 1]] * 8 + [[1]]

    run(test)


def test_a_partitions_error_is_its_own() -> None:
    async def test(controller: Controller, manager: AlterPartitionManager) -> None:
        def one_fails(asked: AlterPartitionRequest) -> AlterPartitionResponse:
            response: AlterPartitionResponse = Controller.granted(asked)
            response.topics[0].partitions[1].error_code = ErrorCode.INELIGIBLE_REPLICA
            return response

        controller.answers = [one_fails]
        good, bad = await asyncio.gather(manager.alter(change()), manager.alter(change(P1)), return_exceptions=True)
        assert isinstance(good, PartitionState)
        assert isinstance(bad, errors.KafkaError) and bad.code is ErrorCode.INELIGIBLE_REPLICA

    run(test)


def test_partitions_that_were_not_asked_for_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alter_partition, "RETRY_S", 0.0)

    async def test(controller: Controller, manager: AlterPartitionManager) -> None:
        def others(asked: AlterPartitionRequest) -> AlterPartitionResponse:
            response: AlterPartitionResponse = Controller.granted(asked)
            response.topics[0].topic_id = UUID(int=1)
            return response

        def twice(asked: AlterPartitionRequest) -> AlterPartitionResponse:
            response: AlterPartitionResponse = Controller.granted(asked)
            response.topics[0].partitions *= 2
            return response

        controller.answers = [others, twice]
        assert (await manager.alter(change())).version == 4
        assert len(controller.received) == 2

    run(test)


def test_changes_wait_until_a_controller_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alter_partition, "RETRY_S", 0.0)

    async def body() -> None:
        known = [-1]
        controller = Controller()
        manager = AlterPartitionManager(1, controller, lambda: known[0], lambda: 4711)
        waiting = asyncio.ensure_future(manager.alter(change()))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not controller.received and not waiting.done()
        known[0] = 6
        assert (await waiting).version == 4
        assert controller.received[0][0] == 6
        # The end cancels what waits.
        known[0] = -1
        waiting = asyncio.ensure_future(manager.alter(change()))
        await asyncio.sleep(0)
        await manager.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(body())


# --- below IBP 2.7-IV2 ------------------------------------------------------------------------------------------------


class LosesAnswers(MemoryStore):
    """A store whose next writes succeed, but say that they did not."""

    lost = 0

    async def set(self, path: str, value: bytes, version: int = -1) -> Any:
        stat = await super().set(path, value, version)
        if self.lost:
            self.lost -= 1
            raise StoreUnavailableError(path, "the answer is lost")
        return stat


def test_below_2_7_the_leader_writes_the_state_and_leaves_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alter_partition, "RETRY_S", 0.0)
    monkeypatch.setattr(alter_partition, "CHECK_S", 0.0)

    async def body() -> None:
        store = LosesAnswers()
        await store.start()
        before = PartitionState(1, 5, (1,), 9)
        for partition in (P0, P1):
            await store.create(partition_state_path(partition), encode_partition_state(before), make_parents=True)
        await store.ensure_path(ISR_CHANGES)
        now = [100.0]
        writer = StoreIsrWriter(store, clock=lambda: now[0])
        try:
            state = await writer.alter(change(epoch=0))
            assert state == PartitionState(1, 5, (1, 2), 9, False, 1)
            value, stat = await store.get(partition_state_path(P0))
            assert decode_partition_state(P0, value, stat.version) == state
            # Another writer was there: not a retry of the own write.
            with pytest.raises(errors.KafkaError) as caught:
                await writer.alter(change(epoch=0, isr=(1, 3)))
            assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION
            with pytest.raises(errors.KafkaError) as caught:
                await writer.alter(change(TopicPartition("gone", 0)))
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            store.lost = 1
            assert (await writer.alter(change(P1, epoch=0))).version == 1
            for _ in range(20):
                await asyncio.sleep(0)
            assert await store.children(ISR_CHANGES) == []  # changes may follow
            now[0] += alter_partition.LINGER_S
            await until(lambda: store.children(ISR_CHANGES), "a notification")
            [name] = await store.children(ISR_CHANGES)
            value, _ = await store.get(f"{ISR_CHANGES}/{name}")
            assert decode_isr_change(value) == [P0, P1]
        finally:
            await writer.close()

    asyncio.run(body())


def test_a_request_takes_a_thousand_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert alter_partition.AT_ONCE == 1000
    monkeypatch.setattr(alter_partition, "AT_ONCE", 2)

    async def test(controller: Controller, manager: AlterPartitionManager) -> None:
        changes = [change(TopicPartition("t", number)) for number in range(5)]
        await asyncio.gather(*map(manager.alter, changes))
        sizes = [sum(len(topic.partitions) for topic in asked.topics) for _, asked in controller.received]
        assert sizes == [2, 2, 1]
        assert manager._sending is None

    run(test)


def test_topics_of_one_name_and_two_ids_are_two_topics() -> None:
    async def test(controller: Controller, manager: AlterPartitionManager) -> None:
        other = UUID(int=78)
        await asyncio.gather(manager.alter(change()), manager.alter(change(P1, topic_id=other)))
        [(_, asked)] = controller.received
        assert [(each.topic_id, len(each.partitions)) for each in asked.topics] == [(ID, 1), (other, 1)]

    run(test)


def test_a_manager_that_is_closed_takes_no_change_and_cancels_those_that_wait() -> None:
    async def test(controller: Controller, manager: AlterPartitionManager) -> None:
        controller.gate.clear()
        waiting = [asyncio.ensure_future(manager.alter(change(each))) for each in (P0, P1)]
        await until(lambda: controller.received, "a request")
        await manager.close()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in outcomes] == [asyncio.CancelledError] * 2
        assert manager._waiting == {}
        with pytest.raises(errors.KafkaError) as caught:
            await manager.alter(change())
        assert caught.value.code is ErrorCode.OPERATION_NOT_ATTEMPTED

    run(test)


def test_failures_are_warned_of_when_they_last(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "kafka.server.AlterPartitionManager")
    now = [100.0]
    monkeypatch.setattr(alter_partition, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def test(controller: Controller, manager: AlterPartitionManager) -> None:
        for seconds in (100.0, 109.9, 110.0, 119.9, 120.1):
            now[0] = seconds
            manager._tell_failure(8, "why")
        levels = [each.levelname for each in caplog.records]
        assert levels == ["INFO", "DEBUG", "WARNING", "DEBUG", "WARNING"]
        told = "AlterPartition has failed for %d s, the last time at controller 8; the broker retries: why"
        assert [caplog.messages[number] for number in (0, 2, 4)] == [told % seconds for seconds in (0, 10, 20)]
        # A success ends that.
        await manager.alter(change())
        assert manager._failing_since is None
        caplog.clear()
        controller.answers = [lambda _: AlterPartitionResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
        monkeypatch.setattr(alter_partition, "RETRY_S", 0.0)
        await manager.alter(change(epoch=4))
        assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
            ("ERROR", "This broker is not authorized to send AlterPartition to controller 8")
        ]

    run(test)


@pytest.mark.parametrize(("number", "recovering"), [(0, False), (1, True)])
def test_the_state_is_that_of_the_answer(number: int, recovering: bool) -> None:
    each: Any = SimpleNamespace(
        leader_id=3, leader_epoch=6, isr=[3, 1], leader_recovery_state=number, partition_epoch=9
    )
    assert alter_partition._state(change(), each) == PartitionState(3, 6, (3, 1), 9, recovering, 9)
    assert alter_partition._code(107) is ErrorCode.INELIGIBLE_REPLICA
    assert alter_partition._code(32_000) is ErrorCode.UNKNOWN_SERVER_ERROR


class Store:
    """A store whose writes and notes fail as the test says."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.written: list[tuple[str, bytes, int]] = []
        self.notes: list[tuple[str, list[TopicPartition], bool, bool]] = []

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)

    async def set(self, path: str, value: bytes, version: int) -> Any:
        self._fail()
        self.written.append((path, value, version))
        return SimpleNamespace(version=version + 1)

    async def create(self, path: str, value: bytes, *, sequential: bool, make_parents: bool) -> None:
        self._fail()
        self.notes.append((path, decode_isr_change(value), sequential, make_parents))


def test_a_write_that_the_store_does_not_take_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alter_partition, "RETRY_S", 0.0)

    async def body() -> None:
        store: Any = Store()
        writer = StoreIsrWriter(store)
        path = partition_state_path(P0)
        store.failures = [StoreUnavailableError(path, "away") for _ in range(2)]
        assert await writer.alter(change()) == PartitionState(1, 5, (1, 2), 9, False, 4)
        assert store.written == [(path, encode_partition_state(PartitionState(1, 5, (1, 2), 9)), 3)]
        await writer.close()
        # After the end no note is begun.
        ended = StoreIsrWriter(store)
        await ended.close()
        await ended.alter(change())
        assert ended._telling is None

    asyncio.run(body())


def test_the_controller_hears_when_changes_linger_or_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (alter_partition.CHECK_S, alter_partition.LINGER_S, alter_partition.MAX_DELAY_S) == (2.5, 5.0, 60.0)
    looks: list[float] = []
    now = [100.0]
    times: list[float] = []

    async def sleep(seconds: float) -> None:
        looks.append(seconds)
        now[0] = times.pop(0)

    async def body() -> None:
        store: Any = Store()
        writer = StoreIsrWriter(store, clock=lambda: now[0])
        monkeypatch.setattr(alter_partition.asyncio, "sleep", sleep)
        for known, at, told in (
            ([104.9, 105.0], 100.0, 105.0),
            # The last change is young, but the last note is old: 60 s behind it.
            ([164.9, 165.0], 163.0, 165.0),
        ):
            times[:] = known
            writer._changed, writer._changed_s = {P1, P0}, at
            await writer._tell()
            assert writer._told_s == told
        assert [each[1:] for each in store.notes] == [([P0, P1], True, True)] * 2
        assert looks == [2.5] * 4
        # A note that fails is made again, with what came meanwhile.
        times[:] = [300.0, 301.0]
        store.failures = [StoreUnavailableError("/x", "away")]
        writer._changed = {P0}
        await writer._tell()
        assert (store.notes[2][1], writer._told_s, writer._changed) == ([P0], 301.0, set())

    asyncio.run(body())


def test_what_fails_goes_again_after_a_pause(pauses: list[float]) -> None:
    async def test(controller: Controller, manager: AlterPartitionManager) -> None:
        controller.answers = [errors.KafkaConnectionError("gone"), errors.RequestTimedOutError("late")]
        assert (await manager.alter(change())).version == 4
        assert pauses == [0.05, 0.05]

    async def below_2_7() -> None:
        store: Any = Store()
        writer = StoreIsrWriter(store)
        store.failures = [StoreUnavailableError("/x", "away") for _ in range(3)]
        writer._closed = True
        await writer.alter(change())
        assert pauses[2:] == [0.05] * 3

    run(test)
    asyncio.run(below_2_7())
