"""Jobs with readFrom=segments: what they read of topics comes from files, as what a query reads does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark.sql")

import pyarrow as pa
from kafkapy_spark.jobs import archive_arrow, archive_writer, topic_scan
from kafkapy_spark.jobs.archive import archive
from kafkapy_spark.jobs.latest import latest
from kafkapy_spark.jobs.profile import profile
from kafkapy_spark.jobs.range_latest import COLUMNS, SCHEMA, latest_of_range
from kafkapy_spark.jobs.task_frame import Run
from test_segments import Disk, disk, fill, on_disk, options

from kafkapy.errors import IllegalArgumentError

__all__ = ["disk", "on_disk"]


def job_options(disk: Disk, **more: str) -> tuple[dict[str, str], dict[str, str]]:
    """(kafka, options), as the jobs take them."""
    given = options(disk, "", readFrom="segments", maxTasks="3", **more)
    return {"bootstrap.servers": given.pop("kafka.bootstrap.servers")}, {
        name: value for name, value in given.items() if name != "subscribe"
    }


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_scan_reads_files(disk: Disk, isolation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def here(_session: Any, number: int, run: Run, _schema: str) -> list[pa.RecordBatch]:
        return [batch for task in range(number) for batch in run(task)]

    monkeypatch.setattr(topic_scan, "frame_of_tasks", here)
    topic = disk.create(2)
    fill(disk, topic)
    kafka, given = job_options(disk)
    session: Any = None
    scan = topic_scan.TopicScan(session, {"isolation.level": isolation, **kafka}, [topic], given)
    found: Any = scan.frame(COLUMNS, latest_of_range, SCHEMA)
    table = pa.Table.from_batches(found)
    assert sum(filter(None, table["rows"].to_pylist())) == 1500 == scan.size
    assert set(table["key"].drop_null().to_pylist()) == {b"k%d" % number for number in range(20)}
    assert disk.asked == []


def test_an_archive_reads_files(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run goes on in them."""

    def run(_session: Any, plan: Any, tasks: Any) -> list[Any]:
        return [archive_writer.write_task(plan, number, task) for number, task in enumerate(tasks)]

    monkeypatch.setattr(archive_arrow, "_run", run)
    topic = disk.create(2)
    kafka, given = job_options(disk)
    session: Any = None
    for _ in range(2):
        fill(disk, topic)
        assert archive(session, topic, str(tmp_path / "out"), kafka=kafka, options=given).rows == 1500
    assert disk.asked == []


@pytest.mark.spark
def test_jobs_read_files_on_executors(disk: Disk, spark: Any, tmp_path: Path) -> None:
    """Where there are none they say so: they do not read elsewhere."""
    topic = disk.create(2)
    fill(disk, topic)
    kafka, given = job_options(disk)
    assert profile(spark, [topic], kafka=kafka, options=given).rows == 1500
    done = latest(spark, topic, kafka=kafka, options=given, path=str(tmp_path / "latest"))
    assert (done.rows, done.keys, done.deleted_keys) == (1500, 18, 2)
    for engine in ("arrow", "spark"):
        path = str(tmp_path / engine)
        assert archive(spark, topic, path, kafka=kafka, options=given, engine=engine).rows == 1500
    nowhere = given | {"segments.path": "/nowhere"}
    with pytest.raises(Exception, match=r"there is no directory of it in /nowhere") as error:
        profile(spark, [topic], kafka=kafka, options=nowhere)
    assert not isinstance(error.value, IllegalArgumentError)
