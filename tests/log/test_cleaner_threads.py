"""The cleaner threads of a log manager: what they pick, checkpoints, retention, logs that cannot be cleaned."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from waiting import WAIT_S

from kafkapy._speedups.log.offset_map import OffsetMap
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.topic import LogConfig
from kafkapy.errors import InvalidRequestError
from kafkapy.log.cleaner import Cleaner, LogCleaner, check_reconfiguration
from kafkapy.log.cleaner_checkpoint import CleanerCheckpoints
from kafkapy.log.cleaner_manager import LogCleanerManager, log_to_clean
from kafkapy.log.log_manager import LogManager
from kafkapy.records.batches import RecordBatchBuilder, iter_records
from kafkapy.types import TopicPartition


class NoScheduler:
    def schedule(self, name: str, fn: Callable[[], Any], delay_ms: int = 0, period_ms: int = -1) -> Any:
        return self

    def cancel(self) -> None:
        return None


@pytest.fixture
def manage(log_manager: Callable[..., LogManager]) -> Callable[..., LogManager]:
    return lambda **keys: log_manager(NoScheduler(), **{"log_cleaner_backoff_ms": "10", **keys})


def compacted(**overrides: str) -> LogConfig:
    keys = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "segment.bytes": "2000"}
    return LogConfig.create(overrides=keys | {name.replace("_", "."): value for name, value in overrides.items()})


def fill(log: Any, count: int = 100, *, timestamp: int = 1_600_000_000_000) -> None:
    log.become_leader(1, 0, (1,))
    for number in range(count):
        builder = RecordBatchBuilder()
        builder.append(timestamp, b"k%d" % (number % 3), b"%d" % number)
        log.append_as_leader(builder.build())
    log.roll()


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "gave up waiting"
        time.sleep(0.01)


def test_a_dirty_log_is_cleaned_and_its_checkpoint_survives(manage: Any, tmp_path: Path) -> None:
    tp = TopicPartition("orders", 0)
    manager = manage(log_cleaner_threads="2")
    log = manager.get_or_create(tp, config=compacted())
    plain = manager.get_or_create(TopicPartition("plain", 0), config=LogConfig.create())
    fill(log)
    fill(plain)
    manager.start()
    wait_for(lambda: manager.cleaner.manager.checkpoints.get(tmp_path / "logs", tp) == 100)
    records = list(iter_records(log.read(0, 1 << 20, isolation=2)[0]))
    assert [record.offset for record in records] == [97, 98, 99]
    assert plain.log_start_offset == 0 and plain.segments()[0][1] > 0
    assert manager.cleaner.dead_threads == 0
    manager.shutdown()
    assert (tmp_path / "logs" / "cleaner-offset-checkpoint").read_text() == "0\n1\norders 0 100\n"
    manager = manage(log_cleaner_enable="false")
    target = log_to_clean(tp, manager.get(tp), manager.cleaner.manager.checkpoints.get(tmp_path / "logs", tp), 0)
    assert (target.first_dirty_offset, target.cleanable_bytes, target.is_due) == (100, 0, False)
    manager.delete(tp, delay_ms=0)
    assert manager.cleaner.manager.checkpoints.get(tmp_path / "logs", tp) is None


def test_a_log_that_cannot_be_cleaned_is_marked_and_others_go_on(manage: Any, tmp_path: Path) -> None:
    manager = manage()
    bad, good = TopicPartition("bad", 0), TopicPartition("good", 0)
    for tp in (bad, good):
        fill(manager.get_or_create(tp, config=compacted()))
    path = next((tmp_path / "logs" / "bad-0").glob("00000000000000000000.log"))
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    manager.start()
    wait_for(lambda: manager.cleaner.manager.checkpoints.get(tmp_path / "logs", good) == 100)
    wait_for(lambda: manager.cleaner.manager.uncleanable)
    assert list(manager.cleaner.manager.uncleanable) == [bad]
    assert manager.cleaner.manager.uncleanable_bytes(0) > 0
    assert manager.offline_dirs == []


def test_compacted_and_deleted_logs_lose_old_segments(manage: Any) -> None:
    manager = manage()
    log = manager.get_or_create(
        TopicPartition("both", 0), config=compacted(cleanup_policy="compact,delete", retention_ms="1000")
    )
    fill(log)
    assert manager.tasks.apply_retention() == len(log.segments()) - 1 or log.log_start_offset == 100
    manager.start()
    wait_for(lambda: log.log_start_offset == 100)


def test_compaction_lags_and_the_ratio_decide(manage: Any) -> None:
    manager = manage()
    tp = TopicPartition("orders", 0)
    log = manager.get_or_create(tp, config=compacted())
    now = 1_600_000_000_000
    fill(log, timestamp=now)

    def target(checkpoint: int | None = None, **overrides: str) -> Any:
        log.update_config(compacted(**overrides))
        return log_to_clean(tp, log, checkpoint, now + 1000)

    assert target().first_uncleanable_offset == 100
    assert target().is_due
    assert target(min_compaction_lag_ms="1001").first_uncleanable_offset == 0
    assert not target(min_compaction_lag_ms="1001").is_due
    assert target(min_compaction_lag_ms="999").is_due
    last = log.segments()[-2][0]
    assert not target(last, min_cleanable_dirty_ratio="0.9").is_due
    assert target(last, min_cleanable_dirty_ratio="0.9", max_compaction_lag_ms="999").is_due
    assert not target(last, min_cleanable_dirty_ratio="0.9", max_compaction_lag_ms="1001").is_due
    assert target(1000).first_dirty_offset == 0  # a checkpoint above the log end is not to be trusted
    log.delete_records(50)
    assert target(3).first_dirty_offset == 50


def test_one_works_on_a_log_at_a_time(manage: Any) -> None:
    manager = manage()
    tp = TopicPartition("orders", 0)
    fill(manager.get_or_create(tp, config=compacted()))
    cleaner = manager.cleaner
    assert cleaner.manager.claim(tp)
    assert cleaner.manager.grab_filthiest(0) is None
    assert not cleaner.clean_filthiest(0, Cleaner(1 << 20))
    cleaner.manager.release(tp)
    with cleaner.manager.paused(tp):
        assert cleaner.manager.grab_filthiest(0) is None
    assert cleaner.clean_filthiest(0, Cleaner(1 << 20))
    assert not cleaner.clean_filthiest(0, Cleaner(1 << 20))
    cleaner.manager.truncated(tp, 10)
    assert cleaner.manager.grab_filthiest(0).first_dirty_offset == 10


def test_the_figures_tell_of_the_last_cleaning(manage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = manage()
    assert set(manager.cleaner.figures().values()) == {0}
    log = manager.get_or_create(TopicPartition("orders", 0), config=compacted(max_compaction_lag_ms="1000"))
    log.become_leader(1, 0, (1,))
    now = 1_600_000_000_000
    for number in range(100):
        builder = RecordBatchBuilder()
        builder.append(now, b"k%d" % number, b"v")
        log.append_as_leader(builder.build())
    log.roll()
    memory = 1 << 16
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: (now + 5000) * 1_000_000)
        started = time.monotonic()
        assert manager.cleaner.clean_filthiest(0, Cleaner(memory))
        lasted = time.monotonic() - started
        patch.setattr(time, "time_ns", lambda: (now + 5250) * 1_000_000)
        figures = manager.cleaner.figures()
    prefix = "kafka_log_logcleaner"
    assert 0 < figures.pop(f"{prefix}_maxcleantimesecs") <= lasted
    assert figures == {
        # No key came twice, so all that was read was written again.
        f"{prefix}_cleanerrecopypercent": 100,
        f"{prefix}_maxbufferutilizationpercent": pytest.approx(100 * 100 / OffsetMap(memory).max_entries),
        f"{prefix}_maxcompactiondelaysecs": 4,
        f"{prefix}_deadthreadcount": 0,
        f"{prefix}manager_timesincelastrunms": 250,
        f"{prefix}manager_maxdirtypercent": 100,
        f"{prefix}manager_uncleanablepartitionscount": 0,
        f"{prefix}manager_uncleanablebytes": 0,
    }


def cleaner_threads() -> int:
    return sum(thread.name.startswith("kafka-log-cleaner-thread-") for thread in threading.enumerate())


def test_a_running_broker_follows_a_change_of_the_cleaners_keys(manage: Any, tmp_path: Path) -> None:
    manager = manage(log_cleaner_threads="2", log_cleaner_backoff_ms="600000")
    before = cleaner_threads()
    manager.cleaner.reconfigure()
    assert cleaner_threads() == before  # it was not started yet
    manager.start()
    assert cleaner_threads() == before + 2

    def change(**keys: str) -> None:
        manager.config = manager.config.with_dynamic({name.replace("_", "."): value for name, value in keys.items()})
        manager.cleaner.reconfigure()

    change(log_cleaner_threads="4", log_cleaner_dedupe_buffer_size=str(16 << 20))
    assert cleaner_threads() == before + 4
    change(log_cleaner_threads="1", log_cleaner_backoff_ms="10")
    wait_for(lambda: cleaner_threads() == before + 1)
    assert manager.cleaner.dead_threads == 0
    # The remaining thread sleeps no longer, and works with the new settings.
    tp = TopicPartition("orders", 0)
    fill(manager.get_or_create(tp, config=compacted()))
    wait_for(lambda: manager.cleaner.manager.checkpoints.get(tmp_path / "logs", tp) == 100)
    figures = manager.cleaner.figures()
    assert figures["kafka_log_logcleaner_maxbufferutilizationpercent"] > 0
    assert figures["kafka_log_logcleanermanager_timesincelastrunms"] >= 0
    change(log_cleaner_threads="2", log_cleaner_backoff_ms="10")
    assert cleaner_threads() == before + 2


def test_the_longest_pause_ends_with_a_change(manage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No system call takes it as it is; the thread must not die of it."""
    manager = manage(log_cleaner_backoff_ms=str(2**63 - 1))
    changed = manager.cleaner._changed
    pause, pauses = changed.wait_for, []

    def paused(ended: Callable[[], bool], seconds: float) -> bool:
        pauses.append(seconds)
        return bool(pause(ended, seconds))

    monkeypatch.setattr(changed, "wait_for", paused)
    manager.start()
    threads = dict(manager.cleaner._threads)
    wait_for(lambda: pauses)
    tp = TopicPartition("orders", 0)
    fill(manager.get_or_create(tp, config=compacted()))
    manager.config = manager.config.with_dynamic({"log.cleaner.backoff.ms": "10"})
    manager.cleaner.reconfigure()
    wait_for(lambda: manager.cleaner.manager.checkpoints.get(tmp_path / "logs", tp) == 100)
    assert manager.cleaner._threads == threads


def test_a_cleaning_under_way_follows_the_throttle(manage: Any, tmp_path: Path) -> None:
    manager = manage(log_cleaner_io_max_bytes_per_second="1")
    tp = TopicPartition("orders", 0)
    fill(manager.get_or_create(tp, config=compacted()))
    manager.start()
    wait_for(lambda: not manager.cleaner.manager.claim(tp) or manager.cleaner.manager.release(tp))
    assert manager.cleaner.cleanings == 0
    manager.config = manager.config.with_dynamic({"log.cleaner.io.max.bytes.per.second": "1e12"})
    manager.cleaner.reconfigure()
    wait_for(lambda: manager.cleaner.manager.checkpoints.get(tmp_path / "logs", tp) == 100)


def test_a_stop_ends_pauses_and_a_cleaning_under_way(manage: Any, tmp_path: Path) -> None:
    """At this pace the cleaning would take hours; it ends without an effect."""
    manager = manage(
        log_cleaner_io_max_bytes_per_second="1", log_cleaner_threads="2", log_cleaner_backoff_ms="600000000"
    )
    before = cleaner_threads()
    tp = TopicPartition("orders", 0)
    log = manager.get_or_create(tp, config=compacted())
    fill(log)
    data = log.read(0, 1 << 20, isolation=2)[0]
    manager.start()
    wait_for(lambda: not manager.cleaner.manager.claim(tp) or manager.cleaner.manager.release(tp))
    manager.shutdown()
    assert cleaner_threads() == before
    assert (manager.cleaner.cleanings, manager.cleaner.dead_threads) == (0, 0)
    assert not list((tmp_path / "logs").rglob("*.cleaned"))
    manager = manage(log_cleaner_enable="false")
    assert manager.cleaner.manager.checkpoints.get(tmp_path / "logs", tp) is None
    assert manager.get(tp).read(0, 1 << 20, isolation=2)[0] == data


def test_a_dead_thread_is_counted_and_replaced(manage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = manage(log_cleaner_threads="2")
    monkeypatch.setattr(threading, "excepthook", lambda details: None)

    def die(self: LogCleaner, number: int) -> None:
        raise SystemError(f"thread {number} dies")

    with monkeypatch.context() as patched:
        patched.setattr(LogCleaner, "_run", die)
        manager.start()
        wait_for(lambda: manager.cleaner.dead_threads == 2)
    assert manager.cleaner.figures()["kafka_log_logcleaner_deadthreadcount"] == 2
    manager.cleaner.reconfigure()
    assert manager.cleaner.dead_threads == 0


@pytest.mark.parametrize(
    ("current", "wanted", "refused"),
    [
        (1, 2, None),
        (3, 6, None),
        (5, 2, None),
        (4, 2, None),
        (2, 1, None),
        (3, 1, None),
        (3, 3, None),
        (1, 3, "cannot be increased to more than double the current value 1"),
        (4, 1, "cannot be reduced to less than half the current value 4"),
        (1, 0, "should be at least 1"),
        (4, 0, "should be at least 1"),
        (3, 7, "cannot be increased to more than double the current value 3"),
    ],
)
def test_the_number_of_threads_changes_in_steps(current: int, wanted: int, refused: str | None) -> None:
    old = BrokerConfig({"log.dirs": "/x", "log.cleaner.threads": str(current)})
    new = old.with_dynamic({"log.cleaner.threads": str(wanted)})
    if refused is None:
        check_reconfiguration(old, new)
    else:
        with pytest.raises(InvalidRequestError, match=f"Log cleaner threads {refused}"):
            check_reconfiguration(old, new)


@pytest.mark.parametrize("known", ["at the claim", "later"])
def test_a_pause_ends_the_cleaning_and_waits_for_its_end(known: str) -> None:
    """A cleaning of a large log takes long, and a move or a truncation must not wait for all of it."""
    tp = TopicPartition("t", 0)
    manager = LogCleanerManager(dict, lambda _: None, CleanerCheckpoints())
    stopped, events = threading.Event(), []
    assert manager.claim(tp, stopped.set if known == "at the claim" else None)
    assert not manager.claim(tp)
    if known == "later":
        manager.on_stop(tp, stopped.set)

    def clean() -> None:
        events.append("stopped" if stopped.wait(WAIT_S) else "never stopped")
        manager.release(tp)

    cleaner = threading.Thread(target=clean)
    cleaner.start()
    manager.pause(tp)
    events.append("paused")
    cleaner.join()
    assert events == ["stopped", "paused"]
    manager.pause(tp)
    assert not manager.claim(tp)
    manager.resume(tp)
    assert not manager.claim(tp), "paused twice"
    manager.resume(tp)
    assert manager.claim(tp)


def test_a_log_is_left_alone_until_the_last_pause_is_taken_back() -> None:
    tp = TopicPartition("t", 0)
    manager = LogCleanerManager(dict, lambda _: None, CleanerCheckpoints())
    for _ in range(3):
        manager.pause(tp)
    for left in (2, 1, 0):
        assert not manager.claim(tp)
        manager.resume(tp)
        assert manager._paused == ({tp: left} if left else {})
    assert manager.claim(tp)
    manager.release(tp)
    manager.resume(tp)  # one too many is none that comes later
    assert manager._paused == {}
    with manager.paused(tp), manager.paused(tp):
        assert not manager.claim(tp)
    assert manager.claim(tp)


def test_checkpoints_follow_the_partition(tmp_path: Path) -> None:
    one, two, tp = tmp_path / "one", tmp_path / "two", TopicPartition("t", 0)
    for each in (one, two):
        each.mkdir()
    places: list[Path | None] = [one]
    manager = LogCleanerManager(dict, lambda _: places[-1], CleanerCheckpoints())
    known = manager.checkpoints
    manager.truncated(tp, 5)
    assert known.get(one, tp) is None
    manager.done(tp, 100)
    for cut, left in ((101, 100), (100, 100), (99, 99), (5, 5), (6, 5)):
        manager.truncated(tp, cut)
        assert known.get(one, tp) == left
    manager.copy_checkpoint(tp, one, two)
    assert known.get(two, tp) == 5
    manager.mark_uncleanable(tp, "damaged")
    assert manager.uncleanable == {tp: "damaged"}
    manager.forget(one, tp)
    assert (known.get(one, tp), known.get(two, tp), manager.uncleanable) == (None, 5, {})
    # What is copied may be that it was never cleaned.
    manager.copy_checkpoint(tp, one, two)
    assert known.get(two, tp) is None
    places.append(None)
    manager.done(tp, 7)
    manager.truncated(tp, 3)
    assert known.get(one, tp) is known.get(two, tp) is None
    assert (one / "cleaner-offset-checkpoint").read_text() == "0\n0\n"


def test_what_is_uncleanable_is_counted_and_said(manage: Any, caplog: pytest.LogCaptureFixture) -> None:
    manager = manage()
    tp, other = TopicPartition("orders", 0), TopicPartition("later", 0)
    log = manager.get_or_create(tp, config=compacted())
    fill(log)
    cleaner = manager.cleaner.manager
    dirty = sum(size for _, size, *_ in log.segments()[:-1])
    for each in (tp, other):
        cleaner.mark_uncleanable(each, "damaged")
    assert "Partition orders-0 is uncleanable until a restart: damaged" in caplog.messages
    figures = manager.cleaner.figures()
    assert figures["kafka_log_logcleanermanager_uncleanablepartitionscount"] == 2
    assert figures["kafka_log_logcleanermanager_uncleanablebytes"] == dirty > 0
    assert cleaner.to_clean(0) == []
    assert (cleaner.dirtiest_ratio, cleaner.max_compaction_delay_ms) == (0.0, 0)
    manager.delete(tp, delay_ms=0)
    assert list(cleaner.uncleanable) == [other]
    assert cleaner.uncleanable_bytes(0) == 0
