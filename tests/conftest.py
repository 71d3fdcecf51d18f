"""What holds for all tests."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """A shell that runs the tests in the background has them ignore Ctrl-C, and so would the programs they start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
