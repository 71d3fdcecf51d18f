"""The garbage collector works in each test, and what earlier ones left in cycles holds no files for long.

A broker that is stopped in the test's process may have told the collector to rest, or to keep all there is for good.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

MORE_FILES = 150
"""Open files of this process that are new since the last look for garbage."""


class CollectorState:
    """Looks after each test."""

    def __init__(self) -> None:
        self._files = 0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        try:
            return (yield)
        finally:
            gc.enable()
            if gc.get_freeze_count():
                gc.unfreeze()
            if _open_files() > self._files + MORE_FILES:
                gc.collect()
                self._files = _open_files()


def _open_files() -> int:
    with os.scandir("/proc/self/fd") as entries:
        return sum(1 for _ in entries)


def register(config: pytest.Config) -> None:
    """Take part in the run, once."""
    if not config.pluginmanager.has_plugin("collector_state"):
        config.pluginmanager.register(CollectorState(), "collector_state")
