"""What a crash or a disk error left half done comes back neither as a hole nor as another segment's index."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from kafkapy.errors import KafkaStorageError
from kafkapy.log.backends.local import LocalLogStorage
from kafkapy.log.cleaned_files import CleanedFiles
from kafkapy.log.cleaner import Cleaner
from kafkapy.log.cleaner_manager import log_to_clean
from kafkapy.types import TopicPartition

TP = TopicPartition("orders", 0)


def segments_of_two(logs: Any, batch: Any, count: int = 4, **overrides: Any) -> Any:
    """Segments of two batches of two records: [0, 4), [4, 8) ...; nothing is synced."""
    log = logs.open(**overrides)
    for _ in range(count):
        for _ in range(2):
            log.append_as_leader(batch(2), api_version=9)
        log.roll()
    return log


def data_file(logs: Any, base: int) -> Path:
    return logs.directory / f"{base:020d}.log"


def failing(*arguments: Any, **named: Any) -> None:
    raise OSError(errno.EIO, "Input/output error")


def test_a_lost_end_of_an_unsynced_segment_takes_what_follows(logs: Any, batch: Any) -> None:
    segments_of_two(logs, batch)
    path = data_file(logs, 4)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    log = logs.open(clean=False)
    assert log.log_end_offset == 6
    assert [segment[0] for segment in log.segments()] == [0, 4]


def test_offsets_that_compaction_left_out_are_no_hole(logs: Any, batch: Any) -> None:
    for overrides in ({"cleanup_policy": "compact"}, {}):
        segments_of_two(logs, batch, cleanup_policy="compact")
        for base in (4, 8):
            # The second batch, or the first and with it the sign of a cleaning, is gone.
            path = data_file(logs, base)
            data = path.read_bytes()
            path.write_bytes(data[: len(data) // 2] if base == 8 else data[len(data) // 2 :])
        log = logs.open(clean=False, **overrides)
        assert log.log_end_offset == 16
        logs.stop(log)
        for path in logs.directory.iterdir():
            path.unlink()


def test_a_recovery_that_fails_half_way_finds_the_hole_again(
    logs: Any, batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments_of_two(logs, batch)
    path = data_file(logs, 4)
    path.write_bytes(path.read_bytes()[:-3])
    size = path.stat().st_size
    rename = Path.rename
    renamed: list[str] = []

    def rename_some(self: Path, target: Path) -> Path:
        if renamed and not self.name.startswith(renamed[0][:20]):
            failing()
        renamed.append(self.name)
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename_some)
        with pytest.raises(OSError, match="Input/output"):
            logs.open(clean=False)
    assert path.stat().st_size == size
    assert renamed[0].startswith(f"{16:020d}"), "not the newest first"
    log = logs.open(clean=False)
    assert (log.log_end_offset, [segment[0] for segment in log.segments()]) == (6, [0, 4])


def test_an_index_without_a_segment_is_not_given_to_its_successor(logs: Any, batch: Any, marker: Any) -> None:
    log = segments_of_two(logs, batch)
    log.append_as_leader(batch(2, producer_id=1, epoch=0, sequence=0, attributes=0x10), api_version=9)
    log.append_as_leader(marker(1, 0, commit=False))
    logs.stop(log)
    # As a kill in the midst of a truncation leaves it.
    data_file(logs, 16).unlink()
    data_file(logs, 12).unlink()
    log = logs.open(clean=False)
    assert log.log_end_offset == 12
    log.append_as_leader(batch(4), api_version=9)
    log.roll()
    log.append_as_leader(batch(5), api_version=9)
    logs.stop(log)
    assert logs.open().aborted_transactions() == []


def test_an_epoch_that_no_batch_knows_is_forgotten(logs: Any, batch: Any) -> None:
    log = logs.open()
    for _ in range(3):
        log.append_as_leader(batch(2), api_version=9)
    logs.stop(log)
    # The checkpoint came to the disk, the truncation before it did not.
    (logs.directory / "leader-epoch-checkpoint").write_text("0\n3\n0 0\n1 2\n2 6\n")
    assert logs.open(clean=False, leader_epoch=None).leader_epochs() == [(0, 0)]


def test_a_sync_that_failed_is_not_tried_again(logs: Any, batch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log = logs.open()
    log.append_as_leader(batch(2), api_version=9)
    with monkeypatch.context() as patch:
        patch.setattr(LocalLogStorage, "sync", failing)
        with pytest.raises(OSError, match="Input/output"):
            log.flush()
    assert log.offline_errno == errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        log.flush()
    assert log.recovery_point == 0
    with pytest.raises(KafkaStorageError):
        log.append_as_leader(batch(2), api_version=9)


def test_an_offline_log_leaves_its_files_alone(logs: Any, batch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log = segments_of_two(logs, batch)
    with monkeypatch.context() as patch:
        patch.setattr(LocalLogStorage, "delete_segments", failing)
        with pytest.raises(OSError, match="Input/output"):
            log.delete_segments_below(4)
    assert log.offline_errno == errno.EIO
    before = sorted(path.name for path in logs.directory.iterdir())
    for work in (
        lambda: log.delete_segments_below(8),
        lambda: log.truncate_to(9),
        lambda: log.truncate_fully_and_start_at(3),
        log.seal_segments,
    ):
        with pytest.raises(OSError, match="Input/output"):
            work()
    assert sorted(path.name for path in logs.directory.iterdir()) == before
    assert logs.open(clean=False).log_end_offset == 16


def test_producers_outlive_the_segments_they_wrote_to(logs: Any, batch: Any) -> None:
    import time

    log = logs.open()
    log.append_as_leader(
        batch(2, producer_id=7, epoch=0, sequence=0, timestamp=time.time_ns() // 1_000_000), api_version=9
    )
    log.roll()
    log.append_as_leader(batch(2), api_version=9)
    assert log.delete_segments_below(2) == [0]
    # No clean stop, and nobody had the time to write the snapshots of the roll.
    log = logs.open(clean=False, log_start_offset=2)
    assert [producer["producer_id"] for producer in log.producers()] == [7]


def test_what_supersedes_a_record_is_synced_before_the_record_goes(logs: Any, batch: Any) -> None:
    log = segments_of_two(logs, batch, cleanup_policy="compact")
    assert log.recovery_point == 0
    synced = []
    promote = CleanedFiles.promote

    def promoted(self: CleanedFiles) -> None:
        synced.append(log.recovery_point)
        promote(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CleanedFiles, "promote", promoted)
        Cleaner(1 << 12).clean(log_to_clean(TP, log, None, 10_000), 10_000)
    assert synced
    assert min(synced) == 16


def test_a_swap_that_fails_takes_the_log_offline(logs: Any, batch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log = segments_of_two(logs, batch, cleanup_policy="compact")
    replace = Path.replace
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda self, to: (failing if self.suffix == ".swap" else replace)(self, to))
        with pytest.raises(OSError, match="Input/output"):
            Cleaner(1 << 12).clean(log_to_clean(TP, log, None, 10_000), 10_000)
    assert log.offline_errno == errno.EIO
    log = logs.open(clean=False, cleanup_policy="compact")
    assert log.log_end_offset == 16


def test_aborted_transactions_of_a_malformed_index_are_read_from_the_log(logs: Any, batch: Any, marker: Any) -> None:
    log = logs.open()
    for producer in (1, 2, 3):
        log.append_as_leader(batch(2, producer_id=producer, epoch=0, sequence=0, attributes=0x10), api_version=9)
        log.append_as_leader(marker(producer, 0, commit=False))
        log.roll()
    logs.stop(log)
    expected = log.aborted_transactions()
    spoiled = logs.directory / f"{3:020d}.txnindex"
    whole = spoiled.read_bytes()
    spoiled.write_bytes(whole[:-1])
    log = logs.open()
    assert log.aborted_transactions() == expected
    assert len(expected) == 3
    assert spoiled.read_bytes() == whole


def test_an_index_that_lost_its_end_hides_no_timestamp(logs: Any, batch: Any) -> None:
    log = logs.open(index_interval_bytes=1)
    for number in range(8):
        log.append_as_leader(batch(2, timestamp=1000 + number), api_version=9)
    assert log.flush() == 16
    log.roll()
    log.seal_segments()
    # A power failure before that came to the disk. The recovery point is the end of the closed segment.
    index = logs.directory / f"{0:020d}.timeindex"
    index.write_bytes(index.read_bytes()[: 3 * 12])
    log = logs.open(clean=False, recovery_point=16)
    assert logs.report.recovered_segments == 1
    found = log.find_timestamp(1007)
    assert found is not None
    assert found[:8] == (14).to_bytes(8, "big")


@pytest.mark.parametrize("what", ["delete_segments", "write_leader_epochs", "names"])
def test_a_truncation_ends_when_descriptors_come_back(
    logs: Any, batch: Any, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """In memory the log is cut: its files, epochs and producers must follow."""
    log = segments_of_two(logs, batch)
    short = [errno.EMFILE]
    work = getattr(LocalLogStorage, what)

    def sometimes(self: LocalLogStorage, *arguments: Any, **named: Any) -> Any:
        if short:
            raise OSError(short.pop(), "Too many open files")
        return work(self, *arguments, **named)

    monkeypatch.setattr(LocalLogStorage, what, sometimes)
    assert log.truncate_to(6)
    monkeypatch.undo()
    assert not short
    assert log.log_end_offset == 6
    assert [segment[0] for segment in log.segments()] == [0, 4]
    assert not data_file(logs, 8).exists()
    logs.stop(log)
    assert logs.open(clean=False).log_end_offset == 6
