"""Each append of a coordinator, and each read of a load, goes wrong once, in each way: afterwards groups,
transactions and share-partitions move on, and nothing that was acknowledged is lost.

Everything runs on a virtual clock: the sweep is the same each time.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest
from coordinator.group.conftest import PARTITION, GroupBench
from coordinator.share.conftest import KEY, OTHER, TOPIC, ShareBench
from coordinator.share.conftest import PARTITION as SHARE_PARTITION
from coordinator.transaction.conftest import STATE, Bench
from faults.faulty_writer import KINDS, FaultyWriter

from kafkapy.coordinator.group.offset_requests import NO_OFFSET
from kafkapy.coordinator.result import ProducerStamp
from kafkapy.coordinator.share.state import ShareKey, StateBatch
from kafkapy.coordinator.transaction.metadata import ProducerIdAndEpoch
from kafkapy.coordinator.transaction.state import TransactionState
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.types import TopicPartition

MINUTE_MS = 60_000


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1)


# --- groups ---------------------------------------------------------------------------------------------------------


class GroupRun(GroupBench):
    """One run over groups, with what may be committed by (group, topic)."""

    def __init__(self) -> None:
        super().__init__()
        self.writer = self.faults = FaultyWriter()
        self.restart()
        self.possible: dict[tuple[str, str], set[int]] = {}

    def put(self, group: str, topic: str, value: int, **how: Any) -> bool:
        key = (group, topic)
        before = self.possible.get(key, {-1})
        self.possible[key] = before | {value}
        try:
            answer = self.commit({(topic, 0): value}, group=group, **how)
        except RuntimeError:  # no answer yet
            return False
        done = answer == {TopicPartition(topic, 0): ErrorCode.NONE}
        if done and "producer" not in how:
            self.possible[key] = {value}
        return done

    def end(self, producer_id: int) -> None:
        """The transaction's marker, until it is taken: as the transaction coordinator does."""
        for _ in range(200):
            later = self.coordinator.runtime.complete_transaction(0, producer_id, 0, 0, True)
            self.clock.run()
            if later.done and later.error is None:
                return
            self.clock.advance(500)
            self.faults.release()
        raise AssertionError("the marker was never taken")

    def members(self) -> None:
        """New members come until their group is stable, whatever their answers are."""
        for _ in range(20):
            try:
                members, generation = self.stable_group(2)
            except (AssertionError, RuntimeError, KafkaError):
                self.clock.advance(MINUTE_MS)
                self.faults.release()
                continue
            assert all(self.heartbeat(each, generation) is ErrorCode.NONE for each in members)
            return
        raise AssertionError("the group does not become stable")

    def scenario(self) -> None:
        self.put("simple", "topic", 1)
        self.put("simple", "other", 1)
        self.members()
        self.put("txn", "topic", 5)
        pending = self.put("txn", "topic", 7, producer=ProducerStamp(9, 0))
        self.end(9)
        if pending:
            self.possible["txn", "topic"] = {7}
        self.put("simple", "topic", 2)
        self.coordinator.runtime.on_leadership_change(PARTITION, self.epoch + 1, True)
        self.epoch += 1
        self.clock.run()
        self.put("simple", "topic", 3)
        self.gone = self.coordinator.topics_deleted(["other"], [0])
        self.clock.run()
        self.put("simple", "topic", 4)

    def check(self) -> None:
        assert self.gone.done
        for _ in range(2):
            for (group, topic), possible in self.possible.items():
                found = self.fetch((topic, 0), group=group, stable=True)[topic, 0]
                if topic == "other":
                    assert found == NO_OFFSET
                else:
                    assert found.error is ErrorCode.NONE
                    assert found.offset in possible, (group, topic, found, possible)
            self.members()
            assert self.put("simple", "topic", 6)
            self.restart()


def group_run(at: int, kind: str) -> int:
    run = GroupRun()
    run.faults.arm(at, kind)
    run.scenario()
    count = run.faults.count
    try:
        run.faults.release()
        run.clock.advance(MINUTE_MS)
        run.check()
    except Exception as error:
        raise AssertionError(f"{kind}, {run.faults.spoiled}: {error!r}") from error
    return count


@pytest.mark.parametrize("kind", KINDS)
def test_groups_move_on_and_keep_what_was_acknowledged(kind: str) -> None:
    count = group_run(-1, kind)
    assert count >= 10
    for at in range(count):
        group_run(at, kind)


# --- transactions ---------------------------------------------------------------------------------------------------

UNANSWERED = object()
PARTITIONS = [TopicPartition("data", number) for number in range(2)]


class TransactionRun(Bench):
    """One run over transactions of some ids."""

    def __init__(self, before: Any = None, **how: Any) -> None:
        super().__init__(before, **how)
        self.writer = self.faults = FaultyWriter()
        self.coordinator.runtime._writer = self.writer
        self.writer.on_committed(self.coordinator.runtime._committed)
        self.committed: set[str] = set()
        """Records of transactions whose commit was acknowledged."""
        self.records = 0

    def answered(self, request: Any) -> Any:
        """The reply or the error's code; UNANSWERED when there is none yet."""
        task = self.begin(request)
        self.settle()
        if not task.done():
            return UNANSWERED
        error = task.exception()
        if isinstance(error, KafkaError):
            return error.code
        assert error is None, error
        return task.result()

    def reload(self) -> None:
        self.epoch += 1
        self.coordinator.on_leadership_change(STATE, self.epoch, True)
        self.settle()

    def transaction(self, name: str, commit: bool) -> None:
        """One whole transaction; a producer that gets an error gives up here."""
        made = self.answered(self.coordinator.init_producer_id(name, MINUTE_MS, None))
        if not hasattr(made, "producer_id"):
            return
        producer = ProducerIdAndEpoch(made.producer_id, made.producer_epoch)
        added = self.answered(self.coordinator.add_partitions(name, producer, PARTITIONS, 0))
        if added is UNANSWERED or isinstance(added, ErrorCode):
            return
        self.records += 1
        record = f"{name}-{self.records}"
        for partition in PARTITIONS:
            self.partitions.produce(partition, producer, record)
        ended = self.answered(self.coordinator.end_transaction(name, producer, commit, 0))
        if commit and ended is not UNANSWERED and not isinstance(ended, ErrorCode):
            self.committed.add(record)

    def scenario(self) -> None:
        self.transaction("a", True)
        self.transaction("b", False)
        self.reload()
        self.transaction("c", True)
        self.transaction("a2", True)

    def check(self) -> None:
        shard = self.coordinator.runtime.shards()[0]
        unfinished = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
        for name, metadata in shard.transactions.items():
            assert metadata.state not in unfinished, (name, metadata.state)
        assert not self.partitions.open, "records of no outcome"
        for record in self.committed:
            for partition in PARTITIONS:
                assert self.partitions.outcomes[partition, record], f"{record} was committed"
        # Every id goes on.
        for name in ("a", "b", "c", "a2"):
            self.transaction(name, True)
            assert shard.transactions[name].state is TransactionState.COMPLETE_COMMIT


def transaction_run(at: int, kind: str) -> int:
    run = TransactionRun()
    try:
        run.faults.arm(at, kind)
        run.scenario()
        count = run.faults.count
        run.faults.release()
        for _ in range(20):
            run.advance(MINUTE_MS // 2)
        run.check()
        return count
    except AssertionError as error:
        raise AssertionError(f"{kind}, {run.faults.spoiled}: {error}") from error
    finally:
        run.loop.close()


@pytest.mark.parametrize("kind", KINDS)
def test_transactions_move_on_and_keep_what_was_acknowledged(kind: str) -> None:
    count = transaction_run(-1, kind)
    assert count >= 12
    for at in range(count):
        transaction_run(at, kind)


# --- share-partitions -----------------------------------------------------------------------------------------------

SHARE_KEYS = [ShareKey("group", TOPIC, 0), ShareKey("group", OTHER, 1), ShareKey("other", TOPIC, 2)]


class ShareRun(ShareBench):
    """One run over share-partitions, with what was acknowledged by each, and what only may have been stored."""

    def __init__(self) -> None:
        self.faults = FaultyWriter()
        super().__init__(self.faults, updates_per_snapshot=2, prune_interval_ms=MINUTE_MS)
        self.stored: dict[ShareKey, set[int]] = {}
        """Offsets whose write was acknowledged since the share-partition began, by share-partition."""
        self.tried: dict[ShareKey, set[int]] = {}
        self.unsure: set[ShareKey] = set()
        """Share-partitions whose begin or end had no answer, or an error."""

    def answered(self, later: Any) -> bool:
        self.clock.run()
        return bool(later.done and later.error is None)

    def begin(self, key: ShareKey) -> None:
        if self.answered(self.coordinator.initialize(key, 1, 0)):
            self.stored.setdefault(key, set())
        else:
            self.unsure.add(key)

    def accept(self, key: ShareKey, offset: int) -> None:
        self.tried.setdefault(key, set()).add(offset)
        batches = [StateBatch(offset, offset, 2, 1)]
        if self.answered(self.coordinator.write(key, 1, 3, 0, offset, batches)):
            self.stored.setdefault(key, set()).add(offset)

    def end(self, key: ShareKey) -> None:
        if self.answered(self.coordinator.delete(key)):
            self.stored.pop(key, None)
        else:
            self.unsure.add(key)

    def scenario(self) -> None:
        for key in SHARE_KEYS:
            self.begin(key)
            self.answered(self.coordinator.read(key, 3))
        for offset in range(4):
            self.accept(KEY, offset)
            self.accept(SHARE_KEYS[1], 2 * offset)
        self.end(SHARE_KEYS[2])
        self.clock.advance(MINUTE_MS)
        self.epoch += 1
        self.coordinator.on_leadership_change(SHARE_PARTITION, self.epoch, True)
        for offset in range(4, 8):
            self.accept(KEY, offset)
        self.clock.advance(MINUTE_MS)

    def check(self) -> None:
        for _ in range(2):
            for key in SHARE_KEYS:
                state = self.shard.states.get(key)
                if state is None:
                    assert key in self.unsure or key not in self.stored, f"{key} is lost"
                    continue
                assert key in self.unsure or key in self.stored, f"{key} was removed"
                found = {offset for each in state.batches for offset in range(each.first, each.last + 1)}
                assert self.stored.get(key, set()) <= found <= self.tried.get(key, set())
            self.restart()
        for key in SHARE_KEYS:
            assert self.initialize(key, state_epoch=2, start_offset=0) is None
            assert self.read(key, leader_epoch=4).state_epoch == 2
            assert self.write((9, 9, 2, 1), key=key, state_epoch=2, leader_epoch=4) is None
        self.clock.advance(MINUTE_MS)
        self.restart()
        assert all(self.batches(key) == [(9, 9, 2, 1)] for key in SHARE_KEYS)


def share_run(at: int, kind: str) -> int:
    run = ShareRun()
    run.faults.arm(at, kind)
    run.scenario()
    count = run.faults.count
    try:
        run.faults.release()
        run.clock.advance(MINUTE_MS)
        run.check()
    except Exception as error:
        raise AssertionError(f"{kind}, {run.faults.spoiled}: {error!r}") from error
    return count


@pytest.mark.parametrize("kind", KINDS)
def test_share_partitions_move_on_and_keep_what_was_acknowledged(kind: str) -> None:
    count = share_run(-1, kind)
    assert count >= 15
    for at in range(count):
        share_run(at, kind)
