"""What holds for all tests."""

from __future__ import annotations

import os
import signal
import time

import collector_state
import logger_state
import pytest
import signal_state
from hypothesis import HealthCheck, settings

# No test depends on how fast the machine is.
settings.register_profile("untimed", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    """A shell that runs the tests in the background has them ignore Ctrl-C, and so would the programs they start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    logger_state.register(config)
    collector_state.register(config)
    signal_state.register(config)
    # Local time is not UTC, so that a time without zone that is read or written as the other one is noticed. Processes
    # that tests start inherit it. TZ chooses another zone.
    os.environ.setdefault("TZ", "TST-5:45")
    time.tzset()
