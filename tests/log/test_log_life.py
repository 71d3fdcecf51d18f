"""A log from its making to its end: topic ids, backends, deletion, setting aside, changes, and errors of each step."""

from __future__ import annotations

import errno
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.topic import LogConfig
from kafkapy.errors import InconsistentTopicIdError, KafkaStorageError
from kafkapy.log import dir_loader, log_manager
from kafkapy.log import log_dir as log_dir_module
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.backends.memory import MemoryBackend
from kafkapy.log.dir_scan import future_name, swapped_name
from kafkapy.log.log_dir import LogDir, LogDirError, MemoryLogDir
from kafkapy.log.log_manager import LogManager
from kafkapy.log.retention import apply_retention
from kafkapy.types import ZERO_UUID, TopicPartition

TP, OTHER = TopicPartition("t", 0), TopicPartition("u", 0)
ID, OTHER_ID = uuid.UUID(int=77), uuid.UUID(int=78)
EIO = OSError(errno.EIO, "broken")


class Later:
    """A scheduler that notes what is to be done later, and does nothing of it."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, int]] = []

    def schedule(self, name: str, fn: Callable[[], Any], delay_ms: int = 0, period_ms: int = -1) -> Any:
        self.waiting.append((name, delay_ms))
        return SimpleNamespace(cancel=lambda: None)


def settings(tmp_path: Path, **keys: str) -> BrokerConfig:
    names = {"broker.id": "1", "log.dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}"}
    return BrokerConfig(names | {name.replace("_", "."): value for name, value in keys.items()})


@pytest.fixture
def manage(tmp_path: Path) -> Any:
    made: list[LogManager] = []

    def make(*, load: bool = True, keys: dict[str, str] | None = None, **how: Any) -> LogManager:
        if made:
            made[-1].shutdown()
        made.append(LogManager(settings(tmp_path, **(keys or {})), **how))
        if load:
            made[-1].acquire()
            made[-1].load()
        return made[-1]

    yield make
    for each in made:
        each.shutdown()


def offline(manager: LogManager) -> list[str]:
    return [each.path.name for each in manager.offline_dirs]


def failing(error: OSError) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("known", "asked", "becomes"),
    [(ID, ID, ID), (ID, ZERO_UUID, ID), (ZERO_UUID, ZERO_UUID, ZERO_UUID), (ZERO_UUID, ID, ID), (ID, OTHER_ID, None)],
)
def test_a_log_has_one_topic_id(manage: Any, known: uuid.UUID, asked: uuid.UUID, becomes: uuid.UUID | None) -> None:
    manager = manage()
    log = manager.get_or_create(TP, known)
    path = manager.dir_of(TP) / "t-0" / "partition.metadata"
    assert (log.topic_id, path.exists()) == (known.bytes, known != ZERO_UUID)
    if becomes is None:
        with pytest.raises(InconsistentTopicIdError, match=r"The log of t-0 has topic id .*, not .*"):
            manager.get_or_create(TP, asked)
        becomes = known
    else:
        assert manager.get_or_create(TP, asked) is log
    assert (log.topic_id, path.exists()) == (becomes.bytes, becomes != ZERO_UUID)
    assert manage().get(TP).topic_id == becomes.bytes


def test_a_new_log_has_the_given_configuration_or_its_topics(manage: Any) -> None:
    asked: list[str] = []

    def of(topic: str) -> LogConfig:
        asked.append(topic)
        return LogConfig.create(overrides={"segment.bytes": "12345"})

    manager = manage(topic_config=of)
    assert manager.get_or_create(TP).config.segment_bytes == 12345
    assert asked == ["t"]
    given = LogConfig.create(overrides={"segment.bytes": "54321"})
    assert manager.get_or_create(OTHER, config=given).config is given
    assert asked == ["t"]
    changed = LogConfig.create(overrides={"segment.bytes": "22222"})
    manager.update_config("u", changed)
    assert [manager.get(tp).config.segment_bytes for tp in (TP, OTHER)] == [12345, 22222]


def test_a_log_is_made_where_a_backend_and_a_directory_are(manage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = manage(backends={"local": LocalBackend(), "memory": MemoryBackend()})
    assert [each.persistent for each in manager.persistent_backends] == [True]
    unknown = LogConfig.create(overrides={"kafkapy.storage.backend": "local"})
    manager._backends.pop("local")
    with pytest.raises(KafkaStorageError, match=r"No storage backend is named 'local'; known are memory"):
        manager.get_or_create(TP, config=unknown)
    manager._backends["local"] = backend = LocalBackend()
    open_log = backend.open_log

    def fail_in_one(log_dir: Path, name: str, *, create: bool) -> Any:
        if log_dir.name == "one":
            raise EIO
        return open_log(log_dir, name, create=create)

    monkeypatch.setattr(backend, "open_log", fail_in_one)
    log = manager.get_or_create(TP)
    assert (offline(manager), manager.dir_of(TP).name, log.offline_errno) == (["one"], "two", 0)
    monkeypatch.setattr(backend, "open_log", failing(EIO))
    with pytest.raises(KafkaStorageError, match="u-0 cannot be created: no log directory works"):
        manager.get_or_create(OTHER)
    assert offline(manager) == ["one", "two"]


def test_a_log_that_cannot_be_made_for_want_of_descriptors_fails_no_directory(
    manage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = manage()
    monkeypatch.setattr("kafkapy.log.shortage.PAUSES_S", (0.0,))
    with monkeypatch.context() as patch:
        patch.setattr(LocalBackend, "open_log", failing(OSError(errno.EMFILE, "Too many open files")))
        with pytest.raises(OSError, match="Too many open files"):
            manager.get_or_create(TP)
    assert (offline(manager), manager.get(TP)) == ([], None)
    assert manager.get_or_create(TP) is manager.get(TP)


@pytest.mark.parametrize(("delay_ms", "expected"), [(None, 4321), (0, 0), (5, 5)])
def test_a_deleted_log_waits_for_the_delay(manage: Any, delay_ms: int | None, expected: int) -> None:
    later = Later()
    manager = manage(scheduler=later)
    manager.get_or_create(TP, config=LogConfig.create(overrides={"file.delete.delay.ms": "4321"}))
    manager.cleaner.manager.checkpoints.update(manager.dir_of(TP), TP, 3)
    directory = manager.dir_of(TP)
    assert manager.delete(TP, delay_ms=delay_ms)
    assert later.waiting == [("kafka-delete-logs", expected)]
    assert manager.cleaner.manager.checkpoints.get(directory, TP) is None
    assert [path.name.rpartition(".")[0] for path in directory.glob("t-0*")] == ["t-0"]
    assert not manager.delete(TP)
    assert manager.cleaner.manager.claim(TP)


def test_a_log_on_a_failed_directory_is_only_forgotten(manage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    later = Later()
    manager = manage(scheduler=later)
    log = manager.get_or_create(TP)
    with monkeypatch.context() as patch:
        patch.setattr(LocalBackend, "rename_log", failing(EIO))
        assert manager.delete(TP)
    assert (offline(manager), later.waiting, manager.get(TP)) == (["one"], [], None)
    assert (manager.dir_of(TP), log.offline_errno) == (None, 0)


def test_what_cannot_be_forgotten_is_of_a_failed_directory(manage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = manage()
    manager.get_or_create(TP)
    monkeypatch.setattr(manager.cleaner.manager, "forget", failing(EIO))
    assert manager.delete(TP)
    assert offline(manager) == ["one"]


def test_a_log_of_an_earlier_topic_is_set_aside(manage: Any, batch: Any, caplog: pytest.LogCaptureFixture) -> None:
    manager = manage()
    log = manager.get_or_create(TP, ID)
    log.become_leader(1, 0, [1])
    log.append_as_leader(batch(2), api_version=9)
    home = manager.dir_of(TP)
    data = (home / "t-0" / f"{0:020d}.log").read_bytes()
    manager.cleaner.manager.checkpoints.update(home, TP, 1)
    assert manager.futures.create(TP, next(each.path for each in manager.dirs if each.path != home))
    assert manager.set_aside(TP)
    [aside] = home.glob("t-0*")
    assert aside.name.endswith("-stray")
    assert f"Partition t-0 of an earlier topic is set aside as {aside}" in caplog.messages
    kept = (aside / f"{0:020d}.log").read_bytes()
    assert kept.rstrip(b"\0") == data.rstrip(b"\0")
    assert (manager.get(TP), manager.futures.get(TP), manager.cleaner.manager.checkpoints.get(home, TP)) == (
        None, None, None,
    )  # fmt: skip
    assert not manager.set_aside(TP)
    assert manager.cleaner.manager.claim(TP)
    manager.cleaner.manager.release(TP)
    assert manager.get_or_create(TP, OTHER_ID).log_end_offset == 0


def test_the_space_ahead_of_appends_is_given_back_in_two_looks(manage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look only notes how large the log is."""
    manager = manage()
    log = manager.get_or_create(TP)
    looks: list[Any] = []
    monkeypatch.setattr(manager._work, "guarded", lambda which, work: looks.append((which, work.__name__)))
    manager._release_space(OTHER)
    assert looks == []
    manager._release_space(TP)
    assert looks == [(log, "release_idle_space")] * 2


def test_a_changed_configuration_reaches_all_parts(manage: Any, tmp_path: Path) -> None:
    manager = manage()
    told: list[int] = []
    manager.cleaner.reconfigure = lambda: told.append(1)
    log = manager.get_or_create(TP)
    log.producer_id_expiration_ms = 5
    config = settings(tmp_path, cordoned_log_dirs=str(tmp_path / "one"))
    manager.update_broker_config(config)
    assert (told, manager.table.cordoned, log.producer_id_expiration_ms) == ([1], {tmp_path / "one"}, 5)
    assert manager.get_or_create(OTHER) and manager.dir_of(OTHER) == tmp_path / "two"


def test_a_broker_that_keeps_nothing_has_no_files(tmp_path: Path) -> None:
    keys = {"kafkapy_metadata_store": "memory", "kafkapy_storage_backend": "memory"}
    config = settings(tmp_path, **keys)
    for _ in range(2):
        manager = LogManager(config, backends={"local": LocalBackend(), "memory": MemoryBackend()})
        assert all(isinstance(each, MemoryLogDir) for each in manager.dirs)
        assert (list(manager._backends), manager.persistent_backends) == (["memory"], [])
        manager.acquire()
        assert manager.load() == 0
        manager.get_or_create(TP)
        manager.cleaner.manager.checkpoints.update(manager.dirs[0].path, TP, 3)
        manager.shutdown(5)
    assert list(tmp_path.iterdir()) == []
    assert not any(isinstance(each, MemoryLogDir) for each in LogManager(settings(tmp_path)).dirs)


def test_a_manager_is_made_as_the_broker_is_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserved: list[int] = []
    monkeypatch.setattr(log_manager, "set_reservation", reserved.append)
    backend, other = LocalBackend(), LocalBackend(lambda function, delay_ms: None)
    own = other.later
    config = settings(tmp_path, kafkapy_log_reserve_bytes="1048576", cordoned_log_dirs=str(tmp_path / "one"))
    manager = LogManager(config, backends={"local": backend}, scheduler=Later())
    assert (reserved, manager.table.cordoned) == ([1048576], {tmp_path / "one"})
    assert backend.later == manager._work.later
    assert (manager._workers, manager._runs_cleaner) == ({}, True)
    manager = LogManager(config, backends={"local": other}, scheduler=Later(), events=EventQueue())
    assert (other.later, list(manager._workers)) == (own, [each.path for each in manager.dirs])
    for workers in manager._workers.values():
        workers.stop()
    backend = LocalBackend()
    manager = LogManager(config, backends={"local": backend})
    assert (backend.later, manager._runs_cleaner) == (None, False)
    assert [type(each) for each in LogManager(config)._backends.values()] == [LocalBackend]


def test_without_a_directory_nothing_can_be_used(tmp_path: Path) -> None:
    manager = LogManager(settings(tmp_path))
    manager.table.dirs.clear()
    with pytest.raises(LogDirError, match=r"No log directory can be used \(\): none is configured\."):
        manager.acquire()


def test_a_directory_is_made_with_those_above_it(tmp_path: Path) -> None:
    log_dir = LogDir(tmp_path / "a" / "b")
    log_dir.acquire()
    log_dir.release()
    assert (tmp_path / "a" / "b" / ".lock").exists()
    LogDir(tmp_path / "a" / "b").acquire()


def test_the_mark_of_a_clean_stop_is_taken_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(log_dir_module, "sync_directory", synced.append)
    log_dir = LogDir(tmp_path)
    assert not log_dir.take_clean_shutdown_marker()
    assert synced == []
    log_dir.write_clean_shutdown_marker(-1)
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":-1}'
    assert log_dir.take_clean_shutdown_marker()
    assert synced == [tmp_path], "else a power failure could bring it back"
    assert not log_dir.take_clean_shutdown_marker()


# ---- the stop ----


def test_a_stop_ends_all_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = LogManager(settings(tmp_path), events=EventQueue())
    manager.acquire()
    manager.load()
    assert not [each.name for each in threading.enumerate() if each.name.startswith("kafka-recovery-")]
    ended: list[str] = []

    def noting(name: str, part: Any, method: str) -> None:
        known = getattr(part, method)
        monkeypatch.setattr(part, method, lambda: (ended.append(name), known()))

    noting("tasks", manager.tasks, "stop")
    noting("cleaner", manager.cleaner, "shutdown")
    noting("events", manager.events, "stop")
    for workers in manager._workers.values():
        noting("workers", workers, "stop")
    manager.shutdown()
    assert ended == ["tasks", "cleaner", "events", "workers", "workers"]
    assert (manager.table.closed, manager._queue) == (True, None)
    with pytest.raises(KafkaStorageError, match="t-0 cannot be created"):
        manager.get_or_create(TP)


@pytest.mark.parametrize("threads", ["1", "3"])
def test_each_directory_is_loaded_with_its_threads(manage: Any, monkeypatch: pytest.MonkeyPatch, threads: str) -> None:
    made: list[dict[str, Any]] = []
    pool = dir_loader.ThreadPoolExecutor

    def noted(**how: Any) -> Any:
        made.append(how)
        return pool(**how)

    monkeypatch.setattr(dir_loader, "ThreadPoolExecutor", noted)
    manage(keys={"num_recovery_threads_per_data_dir": threads})
    expected = [
        {"max_workers": int(threads), "thread_name_prefix": f"kafka-recovery-{name}"} for name in ("one", "two")
    ]
    assert made == expected


def test_a_stop_marks_the_directories_that_were_closed(
    manage: Any, batch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = [tmp_path / name / ".kafka_cleanshutdown" for name in ("one", "two")]
    for broken in ("nothing", "log", "checkpoint", "marker"):
        manager = manage()
        for tp in (TP, OTHER):
            log = manager.get_or_create(tp)
            log.become_leader(1, 1, [1])
            log.append_as_leader(batch(), api_version=9)
        one = manager.dirs[0]
        assert manager.dir_of(TP) == one.path
        with monkeypatch.context() as patch:
            if broken == "log":
                manager.get(TP).go_offline(errno.EIO)
            elif broken == "checkpoint":
                patch.setattr(one, "_write", failing(EIO))
            elif broken == "marker":
                patch.setattr(one, "write_clean_shutdown_marker", failing(EIO))
            manager.shutdown(3)
        assert [mark.exists() for mark in marks] == [broken == "nothing", True], broken
        assert offline(manager) == ([] if broken == "nothing" else ["one"])
        assert (manager.logs(), one._lock_fd) == ({}, -1)
        manager.shutdown(4)
        assert marks[1].read_text() == '{"version":0,"brokerEpoch":3}'


def test_the_end_of_a_log_is_clean_or_says_its_error() -> None:
    done: list[str] = []
    log: Any = SimpleNamespace(topic="t", partition=3, offline_errno=0)
    for name in ("close", "flush", "take_producer_snapshot"):
        setattr(log, name, lambda name=name: done.append(name))
    assert log_manager._close_log(log) is None
    assert done == ["close", "flush", "take_producer_snapshot"]
    log.flush = failing(EIO)
    assert log_manager._close_log(log) is EIO
    log.offline_errno = errno.EROFS
    error = log_manager._close_log(log)
    assert error is not None and (error.errno, error.strerror) == (errno.EROFS, "t-3 is offline")
    assert len(done) == 4


# ---- the start ----


@pytest.mark.parametrize("bad", [("one",), ("one", "two")])
def test_a_directory_that_cannot_be_listed_is_offline(
    manage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: tuple[str, ...]
) -> None:
    manager = manage()
    for tp in (TP, OTHER):
        manager.get_or_create(tp)
    scan = dir_loader.scan_directory

    def sometimes(log_dir: LogDir, backends: Any) -> Any:
        if log_dir.path.name in bad:
            raise EIO
        return scan(log_dir, backends)

    monkeypatch.setattr(dir_loader, "scan_directory", sometimes)
    if len(bad) == 1:
        manager = manage()
        assert (offline(manager), list(manager.logs())) == (["one"], [OTHER])
    else:
        manager = manage(load=False)
        manager.acquire()
        reasons = "; ".join(f"{tmp_path / name}: {EIO}" for name in bad)
        with pytest.raises(LogDirError) as raised:
            manager.load()
        assert str(raised.value) == f"No log directory can be used ({reasons})."


@pytest.mark.parametrize("name", ["swap", "unused"])
def test_a_start_that_cannot_rename_a_log_takes_its_directory_offline(
    manage: Any, batch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    manager = manage()
    log = manager.get_or_create(TP)
    log.become_leader(1, 0, [1])
    log.append_as_leader(batch(), api_version=9)
    manager.shutdown()
    one, two = tmp_path / "one", tmp_path / "two"
    if name == "swap":
        future = future_name(TP)
        (one / "t-0").rename(two / future)
        (one / swapped_name(future)).mkdir()
    else:
        (two / "t-0").mkdir()
        (two / "t-0" / f"{0:020d}.log").touch()
    with monkeypatch.context() as patch:
        patch.setattr(LocalBackend, "rename_log", failing(EIO))
        if name == "unused":
            # Which of the two is the right one is not to be guessed.
            manager = manage(load=False)
            manager.acquire()
            with pytest.raises(LogDirError, match="Partition t-0 has a log in"):
                manager.load()
        else:
            manager = manage()
    assert offline(manager) == ["two"]
    assert manager.get(TP) is None
    manager = manage()
    assert (manager.get(TP).log_end_offset, offline(manager)) == (1, [])


def test_a_topic_id_that_cannot_be_read_is_of_a_failed_directory(manage: Any, tmp_path: Path) -> None:
    manager = manage()
    for tp in (TP, OTHER):
        manager.get_or_create(tp, ID)
    assert manager.dir_of(TP) == tmp_path / "one"
    manager.shutdown()
    (tmp_path / "one" / "t-0" / "partition.metadata").write_text("version: 1\n")
    manager = manage()
    assert (offline(manager), list(manager.logs())) == (["one"], [OTHER])
    failure = manager.dirs[0].failure
    assert (failure.errno, failure.strerror) == (errno.EIO, "t-0: partition.metadata is malformed")


def test_a_piece_of_work_goes_on_behind_a_failure() -> None:
    assert dir_loader._run_all([lambda: 2, failing(EIO), lambda: 3]) == (5, [EIO])
    assert dir_loader._run_all([]) == (0, [])


@pytest.mark.parametrize("count", [1, 15, 16, 17, 33])
def test_logs_are_loaded_in_pieces_of_sixteen(manage: Any, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    sizes: list[int] = []
    run = dir_loader._run_all
    monkeypatch.setattr(dir_loader, "_run_all", lambda jobs: (sizes.append(len(jobs)), run(jobs))[1])
    monkeypatch.setattr(dir_loader.DirLoader, "_load_log", lambda self, scan, found: 1)
    manager = manage()
    for number in range(count):
        (manager.dirs[0].path / f"t-{number}").mkdir()
    manage()
    assert sorted(sizes, reverse=True) == [16] * (count // 16) + [count % 16] * (count % 16 > 0)


def test_the_offsets_of_the_checkpoints_go_to_their_logs(manage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so does how long producers are known; only logs, not future logs, tell the data plane's events."""
    manager = manage()
    one = manager.dirs[0]
    for tp in (TP, OTHER):
        manager.get_or_create(tp)
    future = future_name(OTHER)
    (one.path / future).mkdir()
    manager.shutdown()
    one.write_recovery_points({TP: 3})
    one.write_log_starts({TP: 1})
    one.write_high_watermarks({TP: 2})
    (one.path / ".kafka_cleanshutdown").unlink()
    seen: dict[str, Any] = {}
    load = dir_loader.load_log

    def noted(storage: Any, tp: TopicPartition, config: Any, **how: Any) -> Any:
        seen[Path(storage.directory).name] = how
        return load(storage, tp, config)

    monkeypatch.setattr(dir_loader, "load_log", noted)
    events: Any = object()
    manager = LogManager(settings(one.path.parent, producer_id_expiration_ms="4567"))
    manager._queue = events
    manager.acquire()
    manager.load()
    common = {"topic_id": ZERO_UUID, "producer_id_expiration_ms": 4567}
    none = {"recovery_point": 0, "log_start_offset": 0, "high_watermark": 0}
    assert seen == {
        "t-0": common | {"events": events, "clean": False, "recovery_point": 3, "log_start_offset": 1,
                         "high_watermark": 2},
        "u-0": common | none | {"events": events, "clean": True},
        future: common | none | {"events": None, "clean": False},
    }  # fmt: skip
    assert manager.table.not_closed == {TP}
    manager.shutdown()


# ---- retention ----


class Segments:
    """A log by its segments, for retention: (base, size, newest timestamp, age of the file, sealed)."""

    def __init__(self, *segments: tuple[int, int, int], end: int, high_watermark: int, **keys: str) -> None:
        self.topic, self.partition = "t", 0
        self.log_end_offset, self.high_watermark, self.log_start_offset = end, high_watermark, 0
        self.size = sum(size for _, size, _ in segments)
        self.config = LogConfig.create(overrides={name.replace("_", "."): value for name, value in keys.items()})
        self._segments = [(*each, 0, True) for each in segments]
        self.calls: list[Any] = []

    def segments(self) -> list[Any]:
        return self._segments

    def roll(self) -> None:
        self.calls.append("roll")

    def delete_segments_below(self, offset: int) -> list[int]:
        self.calls.append(offset)
        return [base for base, *_ in self._segments if base < offset]


OLD, NEW = 1000, 2000


@pytest.mark.parametrize(
    ("segments", "end", "high_watermark", "calls"),
    [
        ([(0, 5, OLD), (10, 5, OLD), (20, 5, NEW)], 30, 30, [20]),
        ([(0, 5, OLD), (10, 5, OLD), (20, 5, NEW)], 30, 20, [20]),
        ([(0, 5, OLD), (10, 5, OLD), (20, 5, NEW)], 30, 19, [10]),
        ([(0, 5, OLD), (10, 5, OLD), (20, 5, NEW)], 30, 9, []),
        ([(0, 5, OLD), (10, 5, NEW), (20, 5, OLD)], 30, 30, [10]),
        ([(0, 5, NEW), (10, 5, OLD), (20, 5, OLD)], 30, 30, []),
        ([(0, 5, OLD), (10, 5, OLD)], 20, 20, ["roll", 20]),
        ([(0, 5, OLD), (10, 5, OLD)], 20, 19, [10]),
        ([(0, 5, OLD), (10, 0, OLD)], 10, 10, [10]),
        ([(0, 0, OLD)], 0, 0, []),
        ([(0, 0, OLD), (10, 5, OLD)], 20, 20, ["roll", 20]),
        ([(0, 1, OLD)], 1, 1, ["roll", 1]),
    ],
)
@pytest.mark.parametrize(("retention_ms", "on"), [("999", True), ("0", True), ("-1", False)])
def test_old_segments_go_from_the_oldest_on(
    segments: list[Any], end: int, high_watermark: int, calls: list[Any], retention_ms: str, on: bool
) -> None:
    log: Any = Segments(*segments, end=end, high_watermark=high_watermark, retention_ms=retention_ms)
    deleted = apply_retention(log, NEW)
    expected = calls if on else []
    assert log.calls == [*expected, 0]
    assert deleted == sum(base < (expected or [0])[-1] for base, *_ in segments)


@pytest.mark.parametrize(
    ("retention_bytes", "calls"),
    [("-1", []), ("0", ["roll", 40]), ("1", [20]), ("20", [20]), ("30", [20]), ("31", [10]), ("45", [10]), ("46", []),
     ("50", []), ("51", [])],
)  # fmt: skip
def test_a_log_keeps_at_least_its_retention_bytes(retention_bytes: str, calls: list[Any]) -> None:
    segments = [(0, 5, NEW), (10, 15, NEW), (20, 30, NEW)]
    how = {"retention_ms": "-1", "retention_bytes": retention_bytes}
    log: Any = Segments(*segments, end=40, high_watermark=40, **how)
    apply_retention(log, NEW)
    assert log.calls == [*calls, 0]
    log = Segments(*segments, end=40, high_watermark=40, cleanup_policy="compact", **how)
    log.log_start_offset = 25
    assert apply_retention(log, 1 << 40) == 3
    assert log.calls == [25]
