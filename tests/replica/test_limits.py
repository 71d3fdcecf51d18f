"""Limits, pauses and defaults of replication: what operators and other brokers see."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from kafkapy.replica import (
    alter_log_dirs,
    alter_partition,
    fetcher_manager,
    isr,
    leader_connections,
    log_dirs,
    log_opener,
    minute_rate,
    offset_lookup,
    replica_manager,
    truncation,
)
from kafkapy.replica.fetcher_api import FetchStart, FollowerVersions


@pytest.mark.parametrize(
    ("module", "limits"),
    [
        (alter_log_dirs, {"BACKOFF_S": 0.1}),
        (
            alter_partition,
            {
                "AT_ONCE": 1000,
                "RETRY_S": 0.05,
                "LOOK_S": 0.5,
                "TELL_S": 10.0,
                "FIRST_VERSION_WITH_IDS": 2,
                "FIRST_VERSION_WITH_EPOCHS": 3,
                "CHECK_S": 2.5,
                "LINGER_S": 5.0,
                "MAX_DELAY_S": 60.0,
            },
        ),
        (fetcher_manager, {"TRUNCATORS": 4, "ASKED_AT_ONCE": 2000}),
        (isr, {"RETRY_S": 0.05}),
        (leader_connections, {"SAMPLES": (2, 30.0)}),
        (log_dirs, {"LOGGED_AT_MOST": 100}),
        (log_opener, {"SHORTAGE_S": 30.0, "SHORTAGE_PAUSE_S": 0.2}),
        (minute_rate, {"TICK_S": 5.0}),
        (offset_lookup, {"NO_TIMESTAMP": -1}),
        (replica_manager, {"STORE_RETRY_S": 0.5, "HIGH_WATERMARK": -1, "BATCH": 200, "STOPPED": 500, "READERS": 8}),
        (truncation, {"UNDEFINED": -1, "LENGTH_AT": 8, "LENGTH_END": 12}),
    ],
    ids=lambda each: each.__name__.rpartition(".")[2] if isinstance(each, ModuleType) else "",
)
def test_limits_change_on_purpose_only(module: ModuleType, limits: dict[str, Any]) -> None:
    assert {name: getattr(module, name) for name in limits} == limits


def test_what_is_not_said_is_that_of_the_newest_version() -> None:
    assert FollowerVersions() == (17, 9, 4, True)
    nothing: Any = None
    assert FetchStart(nothing, nothing, 1, 2).initial_offset == -1
    assert offset_lookup.FoundOffset(1, 2).leader_epoch == -1
