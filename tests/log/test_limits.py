"""Limits, pauses and defaults of the logs: what operators and other brokers see, and tests elsewhere make smaller."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.log import (
    checkpoints,
    cleaner,
    cleaner_manager,
    dir_loader,
    dir_scan,
    epochs,
    future_logs,
    loader,
    log_dir,
    log_manager,
    log_table,
    log_tasks,
    log_work,
    shortage,
    timestamps,
    workers,
)
from kafkapy.log.backends import local


@pytest.mark.parametrize(
    ("module", "limits"),
    [
        (checkpoints, {"VERSION": 0, "READ_SIZE": 65536}),
        (cleaner, {"MAX_RELATIVE_OFFSET": 2147483647, "MAX_MAP_BYTES": 2147483647, "OPEN_SHARE": 4}),
        (cleaner_manager, {"LOG_END": 2, "NEVER": 9223372036854775807}),
        (dir_loader, {"LOADS_AT_ONCE": 16}),
        (dir_scan, {"MAX_PARTITION": 2147483647, "MAX_NAME": 255}),
        (epochs, {"VERSION": 0}),
        (future_logs, {"NEVER": 9223372036854775807, "STEP_BYTES": 16777216, "FLUSH_BYTES": 67108864}),
        (log_dir, {"UNKNOWN_BYTES": -1}),
        (log_table, {"MAX_PREFERRED": 10000}),
        (log_tasks, {"NEVER": 9223372036854775807, "IDLE_SPACE_MS": 30000}),
        (log_work, {"RETRY_MS": 250}),
        (shortage, {"FILES_AT_ONCE": 32, "PAUSES_S": (0.0, 0.01, 0.05, 0.1, 0.2, 0.4), "WARN_EVERY_S": 60.0}),
        (timestamps, {"MAGIC_AT": 16}),
        (workers, {"THREADS": 4}),
        (local, {"READ_SIZE": 65536}),
    ],
    ids=lambda each: each.__name__.rpartition(".")[2] if isinstance(each, ModuleType) else "",
)
def test_limits_change_on_purpose_only(module: ModuleType, limits: dict[str, Any]) -> None:
    assert {name: getattr(module, name) for name in limits} == limits


def test_errors_are_kafkas() -> None:
    for module in (future_logs, log_manager, log_table):
        assert module.KAFKA_STORAGE_ERROR == ErrorCode.KAFKA_STORAGE_ERROR
    assert log_manager.INCONSISTENT_TOPIC_ID == ErrorCode.INCONSISTENT_TOPIC_ID
    assert log_table.LOG_DIR_NOT_FOUND == ErrorCode.LOG_DIR_NOT_FOUND


def test_what_is_not_said_is_nothing() -> None:
    """A log is loaded from its begin, after a clean stop; producers are known for a day."""
    asked = {name: each.default for name, each in inspect.signature(loader.load_log).parameters.items()}
    wanted = {"clean": True, "recovery_point": 0, "log_start_offset": 0, "high_watermark": 0, "events": None}
    assert {name: asked[name] for name in wanted} == wanted
    assert asked["producer_id_expiration_ms"] == 24 * 3600 * 1000
    report = loader.LoadReport()
    found = report.recovered_segments, report.cut_bytes, report.deleted_segments, report.snapshot_offset
    assert found == (0, 0, [], -1)
    stats = cleaner.CleanerStats()
    assert (stats.figures, stats.keys, stats.map_fullness, stats.seconds) == ({}, 0, 0.0, 0.0)
    nothing: Any = None
    future = log_table.FutureLog(nothing, nothing, nothing)
    moving = future.copy, future.stopped, future.swapping, future.written_epochs, future.unflushed
    assert moving == (None, False, False, [], 0)
