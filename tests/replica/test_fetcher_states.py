"""What becomes of a followed partition, without threads and a leader: cut, fetched, failed, asked about."""

from __future__ import annotations

import asyncio
import errno
import inspect
import logging
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from replica.fetcher_parts import ID, T0, Fetcher, Log, Manager, Partition
from replica.isr_leader import settle

from kafkapy._speedups.replica import fetcher as kernel
from kafkapy.config.topic import LogConfig
from kafkapy.errors import ErrorCode, FencedLeaderEpochError, KafkaError, KafkaStorageError, error_for
from kafkapy.replica import fetcher_manager
from kafkapy.replica.fetcher_api import FetcherMetrics, FollowerVersions
from kafkapy.replica.fetcher_manager import ReplicaFetcherManager, _index
from kafkapy.replica.truncation import EpochEnd
from kafkapy.types import ListOffsetsTimestamp, TopicPartition
from tests.replica.scripted_leader import batch

T1, U0 = TopicPartition("t", 1), TopicPartition("u", 0)
BY_EPOCHS = FollowerVersions(truncates_on_fetch=False)
EARLIEST, LATEST = ListOffsetsTimestamp.EARLIEST, ListOffsetsTimestamp.LATEST


Test = Callable[[Manager], Awaitable[None]]


@pytest.fixture(autouse=True)
def without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    Fetcher.made, Fetcher.errors = [], []
    monkeypatch.setattr(fetcher_manager, "LeaderFetcher", Fetcher)
    monkeypatch.setattr(fetcher_manager, "FollowedPartition", Partition)


def run(test: Test, versions: FollowerVersions = FollowerVersions(), **keys: str) -> None:  # noqa: B008
    async def body() -> None:
        manager = Manager(versions, **keys)
        try:
            await test(manager)
        finally:
            await manager.fetchers.close()

    asyncio.run(body())


@pytest.mark.parametrize(
    ("log", "initial", "cut"),
    [
        (Log(0, 0, ()), -1, None),
        (Log(7, 7, ()), -1, None),
        (Log(7, 7), -1, None),
        (Log(9, 0), -1, None),
        (Log(9, 0, ()), -1, 5),
        (Log(9, 0, ()), 0, 0),
        (Log(9, 0, ()), 7, 7),
        (Log(9, 8, ()), -1, 5),
    ],
)
def test_a_log_is_cut_first_where_it_has_records_without_epochs(log: Log, initial: int, cut: int | None) -> None:
    log.log_end_offset = max(log.log_end_offset, log.log_start_offset)
    ends = log.log_end_offset

    async def test(manager: Manager) -> None:
        followed = manager.follow(log, initial=initial)
        assert (manager.fetched(), followed.ready) == (cut is None, cut is None)
        await manager.done()
        assert manager.logs.cuts == ([] if cut is None else [(T0, cut, 4)])
        assert manager.fetched() and followed.ready
        [fetcher] = Fetcher.made
        assert followed.partition.made == (log, ID.bytes, 4, False)
        assert (fetcher.key, fetcher.followed) == ((1, _index(T0, 1)), [followed.partition])
        assert fetcher.arguments[:2] == (manager.config, 2)

    run(test)
    log.log_end_offset = ends


def test_what_goes_on_is_left_alone_and_what_changes_begins_again() -> None:
    async def test(manager: Manager) -> None:
        log, fetchers = Log(0, 0, ()), manager.fetchers
        first = manager.follow(log)
        assert manager.follow(log, initial=8) is first, "the initial offset alone is no change"
        for how in ({"epoch": 5}, {"leader": 3}):
            again = manager.follow(log, **how)
            assert again is not first
            assert first.partition is None
            first = again
        assert manager.follow(Log(0, 0, ())) is not first
        first = fetchers._followed[T0]
        fetchers._fail(first, KafkaError("over"))
        assert not manager.fetched()
        start = first.start
        fetchers.add({T0: start})
        assert fetchers._followed[T0] is not first and manager.fetched()
        fetchers.remove([T0, T1])
        assert fetchers._followed == {} and fetchers._by_handle == {}
        await settle()
        assert fetchers._fetchers == {}
        await fetchers.close()
        fetchers.add({T0: start})
        assert fetchers._followed == {}

    run(test)


def test_a_fetcher_without_partitions_ends_after_the_request() -> None:
    async def test(manager: Manager) -> None:
        fetchers = manager.fetchers
        manager.follow(Log(0, 0, ()))
        [fetcher] = Fetcher.made
        # Another partition takes its place in the same request.
        fetchers.remove([T0])
        manager.follow(Log(0, 0, ()), T1)
        await settle()
        assert fetcher.told == []
        fetchers.remove([T1])
        await asyncio.gather(*fetchers._ending)
        await settle()
        await asyncio.gather(*fetchers._ending)
        assert fetcher.told == [("stop",), ("join",)]
        assert fetchers._past == [10, 200, 3]
        assert fetchers.metrics().requests == 10

    run(test)


def test_the_brokers_epoch_reaches_all_fetchers() -> None:
    async def test(manager: Manager) -> None:
        fetchers = manager.fetchers
        assert fetchers.broker_epoch == -1
        manager.follow(Log(0, 0, ()))
        manager.follow(Log(0, 0, ()), T1, leader=3)
        fetchers.broker_epoch = 77
        assert fetchers.broker_epoch == 77
        assert [each.told for each in Fetcher.made] == [[("configure", manager.config, 77)]] * 2
        manager.follow(Log(0, 0, ()), U0, leader=5)
        assert Fetcher.made[2].arguments[-2] == 77

    run(test)


def test_fetchers_that_cannot_be_made_are_tried_again_for_all_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    monkeypatch.setattr(fetcher_manager, "close_idle", closed.append)

    async def test(manager: Manager) -> None:
        Fetcher.errors = [OSError(errno.EMFILE, "short")]
        fetchers, key = manager.fetchers, (1, 0)
        for tp in (T0, T1):
            manager.follow(Log(0, 0, ()), tp)
        gone = manager.follow(Log(0, 0, ()), U0)
        assert list(fetchers._short[key]) == [T0, T1, U0]
        assert Fetcher.made == [] and len(fetchers._tasks) == 1
        fetchers.remove([U0])
        await manager.done()
        assert (manager.fetched(T0), manager.fetched(T1), gone.partition) == (True, True, None)
        assert (fetchers._short, closed, manager.pauses) == ({}, [32], 1)

    run(test)


def test_a_partition_whose_answer_is_awaited_goes_on_with_its_fetcher() -> None:
    async def test(manager: Manager) -> None:
        followed = manager.follow(Log(0, 0, ()))
        [fetcher] = Fetcher.made
        manager.fetchers._fetch(followed)
        assert fetcher.told == [("resume", followed.partition)]
        assert fetcher.followed == [followed.partition]

    run(test)


# ---- events ----


def test_each_event_goes_to_its_partition_or_fetcher(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(manager: Manager) -> None:
        fetchers = manager.fetchers
        followed = manager.follow(Log(0, 0, ()))
        manager.follow(Log(0, 0, ()), T1, leader=3)
        one, other = Fetcher.made
        fetchers._on_event((kernel.WANTS_CONNECTION, one.handle, 104, b"reset\xff"))
        assert (one.told, other.told) == ([("connection_wanted", 104, "reset\N{REPLACEMENT CHARACTER}")], [])
        seen: list[Any] = []

        def noted(name: str) -> Callable[..., Awaitable[None]]:
            async def note(*what: Any) -> None:
                seen.append((name, *what))

            return note

        for name in ("_diverged", "_out_of_range", "_straddles", "_write_epochs"):
            monkeypatch.setattr(fetchers, name, noted(name))
        handle = followed.partition.handle
        for event in (
            (kernel.DIVERGED, handle, 12, b"3"),
            (kernel.OUT_OF_RANGE, handle, 0, b""),
            (kernel.STRADDLES, handle, 44, b"records"),
            (kernel.EPOCHS, handle, 0, b""),
            (kernel.OUT_OF_RANGE, handle + 99, 0, b""),
        ):
            before = len(one.told)
            fetchers._on_event(event)
            await manager.done()
            # What only writes a file holds nothing up.
            resumed = event[1] == handle and event[0] != kernel.EPOCHS
            assert one.told[before:] == [("resume", followed.partition)] * resumed
        assert seen == [
            ("_diverged", followed, EpochEnd(3, 12)),
            ("_out_of_range", followed),
            ("_straddles", followed, 44, b"records"),
            ("_write_epochs", followed),
        ]
        fetchers._on_event((kernel.FAILED, handle, ErrorCode.CORRUPT_MESSAGE, b""))
        [(tp, epoch, error)] = manager.failed
        assert (tp, epoch, error.code) == (T0, 4, ErrorCode.CORRUPT_MESSAGE)
        assert str(error)
        assert not one.followed

    run(test)


@pytest.mark.parametrize("current", [True, False])
@pytest.mark.parametrize("error", [error_for(ErrorCode.KAFKA_STORAGE_ERROR), ValueError("odd")])
def test_work_that_fails_fails_the_partition_of_that_epoch(error: Exception, current: bool) -> None:
    """In another epoch the next request adds or removes the partition."""

    async def test(manager: Manager) -> None:
        log = Log(9, 0, ())
        manager.logs.errors = [error]
        if not current:
            log.leader_epoch = 5
        followed = manager.follow(log)
        await manager.done()
        gone = current or isinstance(error, ValueError)
        assert followed.failed == gone
        assert len(manager.failed) == gone
        assert not manager.fetched()

    run(test)


def test_a_partition_that_is_removed_amid_its_work_is_not_fetched() -> None:
    async def test(manager: Manager) -> None:
        followed = manager.follow(Log(9, 0, ()))
        await asyncio.sleep(0)
        manager.fetchers.remove([T0])
        assert followed.task is not None
        await manager.done()
        assert followed.task.cancelled()
        assert Fetcher.made == []
        # One that has another epoch meanwhile, and whose task was too far to be cancelled.
        old = manager.follow(Log(9, 0, ()))
        new = manager.follow(Log(0, 0, ()), epoch=5)
        await manager.fetchers._settle(old, settle())
        assert old.partition is None and new.partition is not None

    run(test)


@pytest.mark.parametrize(
    ("errors", "raised", "pauses"),
    [
        ([], None, 0),
        ([OSError(errno.EMFILE, "short"), OSError(errno.ENOMEM, "short")], None, 2),
        ([OSError(errno.EMFILE, "short"), KeyError(T0)], FencedLeaderEpochError, 1),
        ([OSError(errno.EIO, "broken")], KafkaStorageError, 0),
        ([FencedLeaderEpochError("other")], FencedLeaderEpochError, 0),
    ],
)
def test_a_log_that_is_gone_is_fenced_and_a_broken_one_is_a_storage_error(
    errors: list[Exception], raised: type[KafkaError] | None, pauses: int
) -> None:
    async def test(manager: Manager) -> None:
        left = list(errors)

        def work() -> None:
            if left:
                raise left.pop(0)

        if raised is None:
            await manager.fetchers._on_worker(work)
        else:
            with pytest.raises(raised):
                await manager.fetchers._on_worker(work)
        assert manager.pauses == pauses

    run(test)


# ---- truncation ----


@pytest.mark.parametrize(
    ("answers", "cuts", "pauses"),
    [
        ([8], [(T0, 8, 4)], 0),
        ([0], [(T0, 0, 4)], 0),
        ([9, 9], [], 1),
        ([12, 9], [], 1),
        ([12, 10], [(T0, "empty", 10, 4)], 0),
        ([KafkaError("later"), KafkaError("later"), 8], [(T0, 8, 4)], 2),
        ([12, KafkaError("later"), 10], [(T0, "empty", 10, 4)], 1),
    ],
)
def test_a_log_outside_its_leaders_is_cut_or_emptied(answers: list[Any], cuts: list[Any], pauses: int) -> None:
    async def test(manager: Manager) -> None:
        followed = manager.follow(Log(9))
        manager.connections.answers = list(answers)
        await manager.fetchers._out_of_range(followed)
        assert (manager.logs.cuts, manager.pauses, manager.connections.answers) == (cuts, pauses, [])
        kinds = [each[3] for each in manager.connections.asked]
        assert manager.connections.asked[0] == (1, T0, 4, LATEST)
        assert set(kinds) == ({LATEST, EARLIEST} if answers[0] in (9, 12) else {LATEST})

    run(test)


def test_a_fenced_follower_asks_for_no_offset_again() -> None:
    async def test(manager: Manager) -> None:
        followed = manager.follow(Log(9))
        manager.connections.answers = [FencedLeaderEpochError()]
        with pytest.raises(FencedLeaderEpochError):
            await manager.fetchers._out_of_range(followed)
        assert manager.pauses == 0

    run(test)


@pytest.mark.parametrize(("answer", "cut", "pauses"), [((1, 6), 6, 0), ((1, 9), 9, 1), ((-1, -1), 5, 0)])
def test_a_divergence_that_cuts_nothing_is_not_asked_at_once_again(
    answer: tuple[int, int], cut: int, pauses: int
) -> None:
    async def test(manager: Manager) -> None:
        followed = manager.follow(Log(9))
        await manager.fetchers._diverged(followed, EpochEnd(*answer))
        assert (manager.logs.cuts, manager.pauses) == ([(T0, cut, 4)], pauses)

    run(test)


def test_a_cut_below_the_high_watermark_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka.server.ReplicaFetcherManager")

    async def test(manager: Manager) -> None:
        for offset in (4, 5, 9):
            await manager.fetchers._cut(manager.follow(Log(9), epoch=offset), offset)

    run(test)
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("WARNING", "Partition t-0 is cut to offset 4, below its high watermark 5"),
        ("INFO", "Partition t-0 was cut from offset 9 to 4"),
        ("INFO", "Partition t-0 was cut from offset 9 to 5"),
    ]


def test_an_empty_log_begins_with_the_batch_around_the_leaders_start() -> None:
    async def test(manager: Manager) -> None:
        log, data = Log(0, 0, ()), batch(3)
        followed = manager.follow(log)
        await manager.fetchers._straddles(followed, 40, data[:-1])
        assert (manager.pauses, manager.logs.cuts, log.appended) == (1, [], [])
        await manager.fetchers._straddles(followed, 40, data + b"more")
        assert (manager.pauses, manager.logs.cuts, log.appended) == (1, [(T0, "empty", 40, 4)], [(data, 4)])

    run(test)


def test_a_file_of_epochs_that_cannot_be_written_fails_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def test(manager: Manager) -> None:
        followed = manager.follow(Log())
        await manager.fetchers._write_epochs(followed)
        assert manager.fetched() and manager.failed == []

    run(test)
    assert caplog.messages == ["Leader epochs of t-0 cannot be written: [Errno 5] broken"]


# ---- OffsetForLeaderEpoch ----


def test_the_epochs_of_all_waiting_partitions_are_asked_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher_manager, "ASKED_AT_ONCE", 2)

    async def test(manager: Manager) -> None:
        manager.connections.answers = [
            lambda asked: dict.fromkeys(asked, EpochEnd(7, 6)),
            lambda asked: dict.fromkeys(asked, EpochEnd(7, 3)),
        ]
        for tp in (T0, T1, U0):
            manager.follow(Log(9, 0, ((1, 0), (7, 2))), tp)
        assert list(manager.fetchers._waiting[1]) == [T0, T1, U0]
        await manager.done()
        assert manager.connections.asked == [(1, {T0: (4, 7), T1: (4, 7)}), (1, {U0: (4, 7)})]
        assert sorted(manager.logs.cuts) == [(T0, 6, 4), (T1, 6, 4), (U0, 3, 4)]
        assert [manager.fetched(tp) for tp in (T0, T1, U0)] == [True] * 3
        assert (manager.fetchers._waiting, manager.fetchers._asking, manager.pauses) == ({}, {}, 0)

    run(test, BY_EPOCHS)


def test_answers_that_a_retry_may_heal_are_asked_for_again() -> None:
    async def test(manager: Manager) -> None:
        later, fenced = error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER), FencedLeaderEpochError()
        manager.connections.answers = [
            KafkaError("no connection"),
            {T0: later, T1: fenced, U0: EpochEnd(1, 7)},
            {T0: EpochEnd(1, 8)},
        ]
        for tp in (T0, T1, U0):
            manager.follow(Log(9), tp)
        await manager.done()
        assert [list(asked) for _, asked in manager.connections.asked] == [[T0, T1, U0], [T0, T1, U0], [T0]]
        assert (manager.pauses, sorted(manager.logs.cuts)) == (2, [(T0, 8, 4), (U0, 7, 4)])
        assert manager.failed == [(T1, 4, fenced)]
        assert [manager.fetched(tp) for tp in (T0, T1, U0)] == [True, False, True]

    run(test, BY_EPOCHS)


def test_a_partition_that_is_removed_meanwhile_is_not_cut() -> None:
    async def test(manager: Manager) -> None:
        def answers(asked: Any) -> Any:
            manager.fetchers.remove([T0])
            manager.follow(Log(0, 0, ()), T1, epoch=5)
            return dict.fromkeys(asked, EpochEnd(1, 7))

        manager.connections.answers = [answers]
        for tp in (T0, T1):
            manager.follow(Log(9), tp)
        await manager.done()
        assert (manager.logs.cuts, manager.fetched(T1), manager.connections.answers) == ([], True, [])

    run(test, BY_EPOCHS)


def test_a_cut_that_is_not_complete_is_asked_about_again() -> None:
    async def test(manager: Manager) -> None:
        log = Log(9, 0, ((1, 0), (3, 5)))
        later, fenced = error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER), FencedLeaderEpochError()
        manager.connections.answers = [KafkaError("no connection"), {T0: later}, {T0: EpochEnd(3, 6)}]
        manager.fetchers._ask_later = lambda followed: None  # type: ignore[method-assign]
        followed = manager.follow(log)
        await manager.fetchers._cut_and_ask(followed, 8, False)
        assert manager.connections.asked == [(1, {T0: (4, 3)})] * 3
        assert (manager.logs.cuts, manager.pauses) == ([(T0, 8, 4), (T0, 6, 4)], 2)
        # A complete cut asks nothing, nor does one of a log that has no epochs left.
        await manager.fetchers._cut_and_ask(followed, 5, True)
        log.epochs = []
        await manager.fetchers._cut_and_ask(followed, 4, False)
        assert len(manager.connections.asked) == 3
        log.epochs = [(1, 0)]
        manager.connections.answers = [{T0: fenced}]
        with pytest.raises(FencedLeaderEpochError):
            await manager.fetchers._cut_and_ask(followed, 3, False)
        manager.fetchers.remove([T0])
        await manager.fetchers._cut_and_ask(followed, 2, False)
        assert len(manager.connections.asked) == 4

    run(test, BY_EPOCHS)


# ---- configuration and numbers ----


def test_a_changed_configuration_reaches_throttle_fetchers_and_their_number() -> None:
    async def test(manager: Manager) -> None:
        fetchers = manager.fetchers
        assert fetchers._throttle.bytes_per_second == 500
        manager.follow(Log(0, 0, ()))
        sizes: list[int] = []
        fetchers.resize = sizes.append  # type: ignore[method-assign]
        config = manager.config.with_dynamic(
            {"follower.replication.throttled.rate": "700", "num.replica.fetchers": "3"}
        )
        fetchers.update_config(config)
        assert (fetchers._throttle.bytes_per_second, sizes, fetchers._config) == (700, [3], config)
        assert Fetcher.made[0].told == [("configure", config, -1)]

    run(test, follower_replication_throttled_rate="500")


def test_the_throttle_has_the_windows_of_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, ...]] = []

    def throttle(*how: int) -> Any:
        made.append(how)
        return SimpleNamespace()

    monkeypatch.setattr(fetcher_manager, "ReplicationThrottle", throttle)

    async def test(manager: Manager) -> None:
        assert made == [(5, 7000)]
        assert (manager.fetchers._workers._max_workers, manager.fetchers._count) == (4, 3)

    run(test, replication_quota_window_num="5", replication_quota_window_size_seconds="7", num_replica_fetchers="3")


def test_a_new_number_of_fetchers_spreads_the_partitions_once() -> None:
    async def test(manager: Manager) -> None:
        fetchers = manager.fetchers
        followed = [manager.follow(Log(0, 0, ()), TopicPartition("t", number)) for number in range(6)]
        [old] = Fetcher.made
        fetchers.resize(1)
        assert fetchers._resizing is None
        fetchers.resize(2)
        fetchers.resize(3)
        assert fetchers._resizing is not None
        # Meanwhile one comes, one goes, and one has failed.
        await asyncio.sleep(0)
        late = manager.follow(Log(0, 0, ()), U0)
        assert late.partition is None and late.ready
        fetchers.remove([followed[0].topic_partition])
        fetchers._fail(followed[1], KafkaError("over"))
        await manager.done()
        assert ("stop",) in old.told and not old.followed
        assert {fetcher.key for fetcher in Fetcher.made[1:]} == {(1, number) for number in range(3)}
        assert [each.partition is not None for each in [*followed, late]] == [False, False, *[True] * 5]
        for each in [*followed[2:], late]:
            assert each.fetcher.key == (1, _index(each.topic_partition, 3))
        assert fetchers._resizing is None
        await fetchers.close()
        fetchers.resize(5)
        assert fetchers._resizing is None

    run(test)


@pytest.mark.parametrize(
    ("listed", "throttled"),
    [("", False), ("*", True), ("0:2", True), ("0:1", False), ("1:2", False), ("1:2,0:2", True)],
)
def test_a_replica_is_throttled_where_the_topic_lists_it(listed: str, throttled: bool) -> None:
    async def test(manager: Manager) -> None:
        log = Log(0, 0, ())
        log.config = LogConfig.create(overrides={"follower.replication.throttled.replicas": listed})
        followed = manager.follow(log)
        manager.follow(Log(0, 0, ()), U0)
        assert followed.partition.made[3] is throttled
        [fetcher] = Fetcher.made
        log.config = LogConfig.create(overrides={"follower.replication.throttled.replicas": "*"})
        manager.fetchers.update_topics(["other"])
        assert fetcher.told == []
        manager.fetchers.update_topics(["t"])
        assert fetcher.told == [("set_throttled", followed.partition, True)]
        manager.fetchers._fail(followed, KafkaError("over"))
        manager.fetchers.update_topics(["t"])
        assert len(fetcher.told) == 1

    run(test)


def test_the_numbers_are_of_all_fetchers_and_of_those_that_ended() -> None:
    async def test(manager: Manager) -> None:
        fetchers = manager.fetchers
        assert fetchers.metrics() == FetcherMetrics(0, 0, 0, 0, 0, 0, 0, 0, 0.0)
        first = manager.follow(Log(0, 0, ()))
        second = manager.follow(Log(0, 0, ()), T1, leader=3)
        third = manager.follow(Log(0, 0, ()), U0, leader=3)
        one, other = Fetcher.made
        other.numbers, other.fetch_rate = (5, 60, 7, False), 0.5
        second.partition.lag, third.partition.lag = 8, 4
        fetchers._past = [100, 1000, 10000]
        fetchers._fail(first, KafkaError("over"))
        assert fetchers.metrics() == FetcherMetrics(
            fetchers=2,
            partitions=3,
            failed_partitions=1,
            dead_threads=1,
            max_lag=8,
            bytes_in=1260,
            requests=115,
            throttled=10010,
            min_fetch_rate=0.5,
        )
        assert fetchers.lags() == {T0: -1, T1: 8, U0: 4}
        assert one.partitions == 0

    run(test)


def test_the_end_cancels_what_is_under_way_and_ends_the_fetchers() -> None:
    async def test(manager: Manager) -> None:
        fetchers = manager.fetchers
        manager.may_pause = False
        manager.follow(Log(0, 0, ()))
        manager.connections.answers = [KafkaError("later")]
        waiting = manager.follow(Log(9), T1)
        fetchers._spawn(waiting, fetchers._out_of_range(waiting))
        await settle()
        assert not waiting.task.done()
        task = waiting.task
        await fetchers.close()
        assert task.cancelled()
        assert all(each.told[-2:] == [("stop",), ("join",)] for each in Fetcher.made)
        assert (fetchers._followed, fetchers._by_handle, fetchers._fetchers) == ({}, {}, {})
        assert (manager.connections.closed, fetchers.closed) == (1, True)
        await fetchers.close()
        assert manager.connections.closed == 1
        with pytest.raises(RuntimeError):
            fetchers._workers.submit(print)

    run(test)


def test_work_that_never_began_is_closed() -> None:
    """Else Python warns of a coroutine that was never awaited."""

    async def test(manager: Manager) -> None:
        followed = manager.follow(Log(0, 0, ()))
        for early in (True, False):
            work = asyncio.sleep(3600)
            manager.fetchers._spawn(followed, work)
            if not early:
                await settle()
            followed.task.cancel()
            await manager.done()
            assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED

    run(test)


def test_a_pause_is_as_long_as_configured(pauses: list[float]) -> None:
    async def test(manager: Manager) -> None:
        await ReplicaFetcherManager._back_off(manager.fetchers)
        manager.fetchers.update_config(manager.config.with_dynamic({"num.replica.fetchers": "1"}))
        assert pauses == [1.5]

    run(test, replica_fetch_backoff_ms="1500")
