"""How an archive's files are made and committed, without Spark and without a broker."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
from kafkapy_spark.executor_reader import ReadPlan
from kafkapy_spark.jobs import archive_writer
from kafkapy_spark.jobs.archive_destination import OtherRunError, Position
from kafkapy_spark.jobs.archive_layout import Layout, Period
from kafkapy_spark.jobs.archive_parquet import COMMITS, KEPT_COMMITS, STAGING, ParquetDirectory
from kafkapy_spark.jobs.archive_store import Store
from kafkapy_spark.jobs.archive_writer import ArchivedFile, TaskWriter, WritePlan

from kafkapy.errors import IllegalArgumentError
from kafkapy.types import TopicPartition

HOUR_US = 3_600_000_000
NOON = int(datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp()) * 1_000_000
SCHEMA = pa.schema(
    {"value": pa.binary(), "topic": pa.string(), "offset": pa.int64(), "timestamp": pa.timestamp("us", tz="UTC")}
)
T0 = TopicPartition("t", 0)


def batch(times: list[int | None], first: int = 0, size: int = 20) -> pa.RecordBatch:
    """Rows with these times in microseconds, and offsets from `first` on."""
    columns = [
        pa.array([b"%0*d" % (size, first + at) for at in range(len(times))]),
        pa.array(["t"] * len(times)),
        pa.array(range(first, first + len(times)), pa.int64()),
        pa.array(times, pa.timestamp("us", tz="UTC")),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def plan(root: Path | str, layout: Layout = Layout.HOURLY, target: int = 1 << 30) -> WritePlan:
    return WritePlan(ReadPlan({}, "", True, 0), str(root), "run", layout, target, "snappy")


def rows(directory: Path | str) -> list[int]:
    """Offsets that a plain reader of a directory of Parquet files sees."""
    return sorted(pa.dataset.dataset(str(directory), SCHEMA, "parquet").to_table()["offset"].to_pylist())


# --- layout -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [Layout.HOURLY, Layout.DAILY])
def test_rows_go_to_the_period_of_their_time(layout: Layout) -> None:
    """Before 1970 and at the ends of periods too; every row once, in order."""
    chosen = random.Random(1)
    edges = [NOON, NOON - 1, NOON + HOUR_US - 1, NOON + HOUR_US, -1, 0, 1, -HOUR_US, -HOUR_US - 1, NOON + 12 * HOUR_US]
    times: list[int | None] = [*edges, None, *(chosen.randrange(-3 * HOUR_US, 3 * HOUR_US) for _ in range(200)), None]
    seen: dict[int, Period] = {}
    for period, part in layout.divide(batch(times)):
        offsets = part["offset"].to_pylist()
        assert offsets == sorted(offsets) and not seen.keys() & set(offsets)
        seen |= dict.fromkeys(offsets, period)
    assert sorted(seen) == list(range(len(times)))
    for offset, time in enumerate(times):
        when = None if time is None else datetime.fromtimestamp(time // 1_000_000, UTC)
        expected = {"date": when and when.date().isoformat(), "hour": when and str(when.hour)}
        if layout is Layout.DAILY:
            del expected["hour"]
        assert dict(seen[offset].values) == expected, time


def test_directories_of_periods() -> None:
    ((period, rows),) = Layout.HOURLY.divide(batch([NOON, NOON + 5]))
    assert (period.directory, period.day, rows.num_rows) == ("date=2026-11-22/hour=12/", date(2026, 11, 22), 2)
    ((period, _),) = Layout.HOURLY.divide(batch([NOON - 9 * HOUR_US]))
    assert period.directory == "date=2026-11-22/hour=03/"
    ((period, _),) = Layout.DAILY.divide(batch([None]))
    assert (period.directory, period.day) == ("date=__HIVE_DEFAULT_PARTITION__/", None)
    ((period, _),) = Layout.HOURLY.divide(batch([260_000_000_000 * 1_000_000]))  # the year 10209
    assert period.directory == "date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__/"
    ((period, _),) = Layout.NONE.divide(batch([NOON, None]))
    assert period.directory == ""


# --- files ------------------------------------------------------------------------------------------------------------


def test_files_have_their_size(tmp_path: Path) -> None:
    """One is closed at the first row group that brings it to its size; no row is lost or doubled."""
    chosen = random.Random(2)
    writer = TaskWriter(plan(tmp_path, Layout.NONE, target=200_000), "x")
    for number in range(100):
        values = [chosen.randbytes(1000) for _ in range(10)]
        one = batch([NOON] * 10, number * 10)
        writer.write(one.set_column(0, "value", pa.array(values)))
    files = writer.finish()
    assert sum(file.rows for file in files) == 1000 and sum(file.record_bytes for file in files) == 1_000_000
    assert len(files) == 5 and all(200_000 < file.size < 260_000 for file in files[:-1])
    assert [(tmp_path / file.path).stat().st_size for file in files] == [file.size for file in files]
    assert rows(tmp_path) == list(range(1000))


def test_a_file_for_each_period(tmp_path: Path) -> None:
    writer = TaskWriter(plan(tmp_path), "x")
    for at in range(0, 600, 100):
        writer.write(batch([NOON + (at + each) % 3 * HOUR_US for each in range(100)], at))
    files = {file.period.directory: file for file in writer.finish()}
    assert list(files) == [f"date=2026-11-22/hour={hour}/" for hour in (12, 13, 14)]
    for hour, file in enumerate(files.values()):
        assert file.rows == 200 and file.path.startswith(file.period.directory)
        assert file.bounds["offset"] == (hour, 597 + hour)
        assert {when.hour for when in file.bounds["timestamp"]} == {12 + hour}
        assert pq.read_table(tmp_path / file.path, partitioning=None)["offset"].to_pylist() == list(range(hour, 600, 3))
    assert rows(tmp_path) == list(range(600))


def test_few_files_are_open_and_few_rows_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the times are in a topic, a task's memory and files are bounded."""
    monkeypatch.setattr(archive_writer, "MAX_OPEN_FILES", 4)
    monkeypatch.setattr(archive_writer, "BUFFER_BYTES", 20_000)
    chosen = random.Random(3)
    writer = TaskWriter(plan(tmp_path), "x")
    for at in range(0, 300, 30):
        writer.write(batch([NOON + chosen.randrange(8) * HOUR_US for _ in range(30)], at, size=1000))
        assert len(writer._open) <= 4
        assert sum(file.pending_bytes for file in writer._open.values()) <= 20_000
    files = writer.finish()
    assert len({file.path for file in files}) == len(files) > 8
    assert rows(tmp_path) == list(range(300))


def test_nothing_stays_of_an_attempt_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(read: Any, task: Any) -> Any:
        yield batch([NOON])
        yield batch([NOON + HOUR_US])
        raise OSError("gone")

    monkeypatch.setattr(archive_writer, "read_task", fails)
    with pytest.raises(OSError, match="gone"):
        archive_writer.write_task(plan(tmp_path), 0, ())
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


# --- commits ----------------------------------------------------------------------------------------------------------


def staged(archive: ParquetDirectory, first: int, count: int = 10) -> list[ArchivedFile]:
    """What a task of the run has written."""
    writer = TaskWriter(plan(archive.root), f"{archive.name}-{first}")
    writer.write(batch([NOON + each % 2 * HOUR_US for each in range(count)], first))
    return writer.finish()


def begun(path: Path | str) -> ParquetDirectory:
    archive = ParquetDirectory(str(path))
    archive.position()
    archive.begin()
    return archive


def test_readers_see_what_is_committed(tmp_path: Path) -> None:
    archive = ParquetDirectory(str(tmp_path))
    assert archive.position() == Position()
    archive.begin()
    files = staged(archive, 0)
    assert rows(tmp_path) == []
    archive.commit(files, Position({T0: 10}, {"t": "id"}, 7.5))
    assert rows(tmp_path) == list(range(10))
    archive.commit(staged(archive, 10), Position({T0: 20}, {"t": "id"}, 8.0))
    staged(archive, 20)
    archive.end()
    assert rows(tmp_path) == list(range(20))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["_kafkapy", "date=2026-11-22"]
    assert not (tmp_path / STAGING / archive.name).exists()
    assert ParquetDirectory(str(tmp_path)).position() == Position({T0: 20}, {"t": "id"}, 8.0)


@pytest.mark.parametrize("moved", [0, 1])
def test_a_commit_that_was_decided_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int) -> None:
    """The next run moves what the one that was killed has not."""
    archive = begun(tmp_path)
    files = staged(archive, 0)
    assert len(files) == 2
    left = [moved]
    move = Store.move

    def dies(self: Store, source: str, target: str) -> bool:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return move(self, source, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Store, "move", dies)
        archive.commit(files, Position({T0: 10}))
    assert len(rows(tmp_path)) == 5 * moved
    again = ParquetDirectory(str(tmp_path))
    assert again.position().offsets == {T0: 10}
    assert rows(tmp_path) == list(range(10))
    assert ParquetDirectory(str(tmp_path)).position().offsets == {T0: 10}  # once more does nothing


def test_what_was_not_committed_is_removed(tmp_path: Path) -> None:
    killed = begun(tmp_path)
    staged(killed, 0)
    again = ParquetDirectory(str(tmp_path))
    assert again.position().offsets == {}
    again.begin()
    assert not (tmp_path / STAGING / killed.name).exists()
    assert rows(tmp_path) == []


def test_a_run_that_was_overtaken_commits_nothing(tmp_path: Path) -> None:
    old = begun(tmp_path)
    files = staged(old, 0)
    new = begun(tmp_path)
    with pytest.raises(OtherRunError, match="Another run"):
        old.commit(files, Position({T0: 10}))
    new.commit(staged(new, 0), Position({T0: 10}))
    assert rows(tmp_path) == list(range(10))


def test_of_runs_that_begin_together_one_goes_on(tmp_path: Path) -> None:
    one, other = ParquetDirectory(str(tmp_path)), ParquetDirectory(str(tmp_path))
    one.position(), other.position()
    other.begin()
    with pytest.raises(OtherRunError):
        one.begin()


def test_a_run_that_begins_does_not_disturb_one_that_has_begun_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later one begins, and writes, when the commit of the earlier one is there and what else it does is not."""
    earlier, later = ParquetDirectory(str(tmp_path)), ParquetDirectory(str(tmp_path))
    files: list[ArchivedFile] = []
    waiting = [later]
    create = Store.create

    def then_the_later_one(self: Store, path: str, data: bytes) -> None:
        create(self, path, data)
        if waiting:
            waiting.pop()
            assert later.position().offsets == {}
            later.begin()
            files.extend(staged(later, 0))

    earlier.position()
    with monkeypatch.context() as patch:
        patch.setattr(Store, "create", then_the_later_one)
        earlier.begin()
    with pytest.raises(OtherRunError):
        earlier.commit(staged(earlier, 0), Position({T0: 10}))
    later.commit(files, Position({T0: 10}))
    assert rows(tmp_path) == list(range(10))


def test_a_commit_that_another_run_has_gone_on_from_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one begins as soon as the commit is there: the records are in the archive, and no error says that they
    are not."""
    archive = begun(tmp_path)
    files = staged(archive, 0)
    others: list[ParquetDirectory] = []
    create = Store.create

    def then_another(self: Store, path: str, data: bytes) -> None:
        create(self, path, data)
        if not others:
            others.append(ParquetDirectory(str(tmp_path)))
            assert others[0].position().offsets == {T0: 10}
            others[0].begin()

    with monkeypatch.context() as patch:
        patch.setattr(Store, "create", then_another)
        archive.commit(files, Position({T0: 10}))
    assert f"{2:020}.json" in {path.name for path in (tmp_path / COMMITS).iterdir()}
    with pytest.raises(OtherRunError):
        archive.commit(staged(archive, 10), Position({T0: 20}))
    others[0].commit(staged(others[0], 10), Position({T0: 20}))
    assert rows(tmp_path) == list(range(20))


def test_old_commits_go_and_their_numbers_are_not_taken_again(tmp_path: Path) -> None:
    """A run that has slept through more commits than are kept finds its number free; it is not the last one."""
    asleep = begun(tmp_path)
    files = staged(asleep, 0)
    directory = begun(tmp_path)
    (tmp_path / STAGING / asleep.name).mkdir(parents=True, exist_ok=True)
    for number in range(KEPT_COMMITS + 5):
        directory.commit([], Position({T0: number}))
    directory = begun(tmp_path)
    names = sorted(path.name for path in (tmp_path / COMMITS).iterdir())
    assert len(names) == KEPT_COMMITS and f"{2:020}.json" not in names
    with pytest.raises(OtherRunError):
        asleep.commit(files, Position({T0: 10}))
    assert sorted(path.name for path in (tmp_path / COMMITS).iterdir()) == names
    assert rows(tmp_path) == [] and directory.position().offsets == {T0: KEPT_COMMITS + 4}


def test_what_is_in_a_commit(tmp_path: Path) -> None:
    archive = begun(tmp_path)
    files = staged(archive, 0)
    archive.commit(files, Position({T0: 10, TopicPartition("s", 3): 4}, {"t": "id"}, 9.0))
    commit = json.loads((tmp_path / COMMITS / f"{2:020}.json").read_text())
    assert commit.pop("timeMs") > 0 and commit == {
        "format": 1,
        "run": archive.name,
        "offsets": {"s": {"3": 4}, "t": {"0": 10}},
        "topicIds": {"t": "id"},
        "bytesPerRow": 9.0,
        "files": [{"path": file.path, "rows": 5, "bytes": file.size} for file in files],
    }
    (tmp_path / COMMITS / f"{3:020}.json").write_text(json.dumps(commit | {"format": 2}))
    with pytest.raises(IllegalArgumentError, match="commits of format 2"):
        ParquetDirectory(str(tmp_path)).position()


def test_directories_of_sparks_file_sink_are_refused(tmp_path: Path) -> None:
    (tmp_path / "_spark_metadata").mkdir()
    with pytest.raises(IllegalArgumentError, match="Spark's own file sink"):
        ParquetDirectory(str(tmp_path))


# --- places -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["", "file://", "local://"])
def test_places(tmp_path: Path, scheme: str) -> None:
    """A path, a URI of pyarrow's, and one of fsspec's."""
    if scheme == "local://":
        pytest.importorskip("fsspec")
    uri = f"{scheme}{tmp_path}/archive"
    archive = begun(uri)
    archive.commit(staged(archive, 0), Position({T0: 10}))
    assert rows(tmp_path / "archive") == list(range(10))
    old = begun(uri)
    new = begun(uri)
    with pytest.raises(OtherRunError):
        old.commit(staged(old, 10), Position({T0: 20}))
    new.discard(files := staged(new, 10))
    assert not any((tmp_path / "archive" / STAGING / new.name / file.path).exists() for file in files)
    new.end()
    assert rows(tmp_path / "archive") == list(range(10))
    store = Store(uri)
    assert store.names("nowhere") == [] and not store.exists("nowhere") and not store.move("nowhere", "there")
    store.create("a/b", b"1")
    with pytest.raises(FileExistsError):
        store.create("a/b", b"2")
    assert store.read("a/b") == b"1" and store.names("a") == ["b"]
    assert sorted(path.name for path in (tmp_path / "archive" / "a").iterdir()) == ["b"]


def test_places_that_nobody_knows() -> None:
    with pytest.raises(IllegalArgumentError, match="No filesystem for nowhere"):
        Store("nowhere://bucket/path")
