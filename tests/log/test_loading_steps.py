"""The steps of loading a log, with a kernel that does nothing: what it is told, and what is done after it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kafkapy.config.topic import LogConfig
from kafkapy.log import loader
from kafkapy.log.backends.base import SegmentFile
from kafkapy.log.epochs import format_leader_epochs
from kafkapy.log.loader import load_log
from kafkapy.types import ZERO_UUID, TopicPartition

TP = TopicPartition("t", 3)
EPOCH_FILE = "leader-epoch-checkpoint"
SEGMENTS = [SegmentFile(0, 10, 100), SegmentFile(5, 20, 200)]


class Storage:
    """A partition's files by name."""

    directory = ""

    def __init__(self, segments: list[SegmentFile], epochs: bytes | None) -> None:
        self.found = segments
        self.files = {} if epochs is None else {EPOCH_FILE: epochs}
        self.listed = 0

    def names(self) -> list[str]:
        self.listed += 1
        return [*(f"{each.base_offset:020d}.log" for each in self.found), *self.files]

    def segments(self, names: list[str]) -> list[SegmentFile]:
        return self.found

    def read_file(self, name: str) -> bytes | None:
        return self.files.get(name)

    def remove_file(self, name: str) -> None:
        del self.files[name]


class Log:
    """A PartitionLog that notes its calls."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.made = arguments, named
        self.calls: list[Any] = []
        self.log_start_offset, self.log_end_offset = 0, 8
        self.unflushed_messages = 0
        self.epochs: list[tuple[int, int]] = [(1, 0)]

    def segments(self) -> list[Any]:
        return [(0, 10)]

    def leader_epochs(self) -> list[tuple[int, int]]:
        return self.epochs

    def __getattr__(self, name: str) -> Any:
        return lambda *how: self.calls.append((name, *how))


class Kernel:
    """What the kernel is told, and what it says: removed segments, first recovered one, their number, cut bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **log: Any) -> None:
        self.said: tuple[list[int], int, int, int] = [], -1, 0, 0
        self.told: dict[str, Any] = {}
        self.producers: list[Any] = []
        self.log = Log()
        self.values = log
        monkeypatch.setattr(loader, "PartitionLog", self.make)
        monkeypatch.setattr(loader, "load", self.load)
        monkeypatch.setattr(loader, "_load_producers", self.load_producers)

    def make(self, *arguments: Any, **named: Any) -> Log:
        self.log = Log(*arguments, **named)
        for name, value in self.values.items():
            setattr(self.log, name, value)
        return self.log

    def load(self, log: Any, segments: list[Any], **told: Any) -> Any:
        assert log is self.log
        self.told = told | {"segments": segments}
        return self.said

    def load_producers(self, log: Any, storage: Any, names: list[str], first_recovered: int, report: Any) -> None:
        self.producers.append((names, first_recovered))


def load(storage: Any, config: LogConfig | None = None, **how: Any) -> tuple[Any, Any]:
    return load_log(storage, TP, config or LogConfig.create(), **how)


def test_the_kernel_is_told_what_the_files_and_the_checkpoints_say(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch)
    storage, events, config = Storage(SEGMENTS, format_leader_epochs([(1, 0), (2, 5)])), object(), LogConfig.create()
    log, report = load(
        storage, config, events=events, topic_id=UUID(int=7), clean=False, recovery_point=3, log_start_offset=2,
        high_watermark=6, producer_id_expiration_ms=99,
    )  # fmt: skip
    assert log is kernel.log
    assert log.made == (
        ("t", 3, storage, config),
        {"events": events, "topic_id": UUID(int=7).bytes, "producer_id_expiration_ms": 99},
    )
    assert kernel.told == {
        "segments": [(0, 10, 100), (5, 20, 200)],
        "recovery_point": 3,
        "log_start_offset": 2,
        "clean": False,
        "epochs": [(1, 0), (2, 5)],
    }
    assert log.calls == [("set_high_watermark", 6)]
    assert (report.recovered_segments, report.cut_bytes, report.deleted_segments) == (0, 0, [])
    assert (storage.listed, len(kernel.producers)) == (1, 1)


def test_an_empty_directory_is_not_given_to_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch)
    log, _ = load(Storage([], None))
    assert (log.calls, kernel.told) == ([("roll",)], {})
    assert log.made[1] == {"events": None, "topic_id": ZERO_UUID.bytes, "producer_id_expiration_ms": 86_400_000}
    for start in (1, 2):
        load(Storage([], None), log_start_offset=start)
        assert (kernel.told["log_start_offset"], kernel.told["clean"], kernel.told["recovery_point"]) == (
            start,
            True,
            0,
        )
    kernel.told = {}
    load(Storage(SEGMENTS, None))
    assert kernel.told["epochs"] == []


@pytest.mark.parametrize(
    ("start", "end", "segments", "rolls"), [(8, 8, [], True), (7, 8, [], False), (8, 8, [1], False)]
)
def test_a_log_without_a_segment_gets_one(
    monkeypatch: pytest.MonkeyPatch, start: int, end: int, segments: list[int], rolls: bool
) -> None:
    Kernel(monkeypatch, log_start_offset=start, log_end_offset=end, segments=lambda: segments)
    log, _ = load(Storage(SEGMENTS, None))
    assert (("roll",) in log.calls) == rolls


def test_malformed_epochs_make_the_whole_log_be_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kernel = Kernel(monkeypatch)
    kernel.said = [], 0, 2, 0
    load(Storage(SEGMENTS, b"nonsense"), recovery_point=8, clean=True)
    assert (kernel.told["clean"], kernel.told["recovery_point"], kernel.told["epochs"]) == (False, 0, [])
    assert ("write_leader_epochs",) in kernel.log.calls
    assert "Partition t-3 has a malformed leader epoch file" in caplog.text


@pytest.mark.parametrize(
    ("file", "epochs", "left"),
    [
        ([(1, 0)], [(1, 0)], True),
        ([(1, 0), (2, 8)], [(1, 0)], True),  # an epoch without a record counts for nothing
        ([(1, 0), (2, 7)], [(1, 0)], False),
        ([(1, 0), (2, 7)], [(1, 0), (2, 7)], True),
        ([(1, 0)], [(1, 0), (2, 7)], False),
        ([], [], True),
        (None, [(1, 0)], False),
        (None, [], False),
    ],
)
def test_epochs_are_written_where_the_file_says_something_else(
    monkeypatch: pytest.MonkeyPatch, file: list[tuple[int, int]] | None, epochs: list[tuple[int, int]], left: bool
) -> None:
    kernel = Kernel(monkeypatch, epochs=epochs)
    kernel.said = [], 5, 1, 0
    storage = Storage(SEGMENTS, None if file is None else format_leader_epochs(file))
    _, report = load(storage)
    written = "leave_leader_epochs" if left else "write_leader_epochs"
    assert kernel.log.calls == [
        ("rewrite_transaction_indexes", 5), (written,), ("seal_segments",), ("set_high_watermark", 0),
    ]  # fmt: skip
    assert (report.recovered_segments, storage.listed, kernel.producers[0][1]) == (1, 2, 5)


@pytest.mark.parametrize(
    ("said", "listed", "lines"),
    [
        (([], -1, 0, 0), 1, []),
        (([], 0, 1, 0), 2, []),
        (([7], -1, 0, 0), 2, ["Recovery of t-3 removed the segments [7]: they do not continue the log"]),
        (([], -1, 0, 33), 1, ["Recovery of t-3 cut off 33 bytes after the last whole batch"]),
    ],
)
def test_what_a_recovery_took_away_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, said: Any, listed: int, lines: list[str]
) -> None:
    kernel = Kernel(monkeypatch)
    kernel.said = said
    storage = Storage(SEGMENTS, None)
    _, report = load(storage)
    assert (report.deleted_segments, kernel.producers[0][1], report.recovered_segments, report.cut_bytes) == said
    assert (storage.listed, caplog.messages) == (listed, lines)
    assert (("rewrite_transaction_indexes", said[1]) in kernel.log.calls) == (said[1] >= 0)


@pytest.mark.parametrize(("unflushed", "flushed"), [(99, False), (100, True), (101, True)])
def test_what_is_due_is_synced_at_the_start(monkeypatch: pytest.MonkeyPatch, unflushed: int, flushed: bool) -> None:
    Kernel(monkeypatch, unflushed_messages=unflushed)
    log, _ = load(Storage(SEGMENTS, None), LogConfig.create(overrides={"flush.messages": "100"}))
    assert (("flush",) in log.calls) == flushed


def test_orphans_are_gone_before_the_files_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch)
    storage = Storage(SEGMENTS, None)
    storage.files = {f"{9:020d}.index": b"", f"{5:020d}.index": b""}
    load(storage)
    assert list(storage.files) == [f"{5:020d}.index"]
    assert (storage.listed, kernel.producers[0][0][2:]) == (2, [f"{5:020d}.index"])
    assert [base for base, *_ in kernel.told["segments"]] == [0, 5]
