"""A test leaves the signals of its thread as they were.

Programs that later tests start would inherit what is blocked, and never hear of SIGTERM.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


class SignalState:
    """Looks after each test."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        try:
            result = yield
        finally:
            after = signal.pthread_sigmask(signal.SIG_SETMASK, before)
        assert after == before, "the test has blocked signals: what blocks them is to run in a thread of its own"
        return result


def register(config: pytest.Config) -> None:
    """Take part in the run, once."""
    if not config.pluginmanager.has_plugin("signal_state"):
        config.pluginmanager.register(SignalState(), "signal_state")
