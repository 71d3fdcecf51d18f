"""Each test leaves the loggers as it found them: a level that one sets would hide the messages another waits for."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

State = tuple[int, bool, bool]


def _states() -> dict[str, State]:
    root = logging.getLogger()
    loggers = {"": root, **root.manager.loggerDict}
    return {
        name: (each.level, each.propagate, each.disabled)
        for name, each in loggers.items()
        if isinstance(each, logging.Logger)
    }


class LoggerState:
    """Level, propagation and `disabled` of each logger, and what listens to all, as they were before the test."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        before, disabled, handlers = _states(), logging.root.manager.disable, logging.root.handlers[:]
        try:
            return (yield)
        finally:
            logging.disable(disabled)
            logging.root.handlers[:] = handlers
            for name, state in _states().items():
                # One of ours that the test itself made says nothing of its own.
                ours = name.split(".")[0] in ("kafka", "kafkapy", "kafkapy_console", "kafkapy_spark")
                was = before.get(name, (logging.NOTSET, True, False) if ours else state)
                if was != state:
                    logger = logging.getLogger(name)
                    logger.setLevel(was[0])
                    logger.propagate, logger.disabled = was[1], was[2]


def register(config: pytest.Config) -> None:
    """Take part in the run, once."""
    if not config.pluginmanager.has_plugin("logger_state"):
        config.pluginmanager.register(LoggerState(), "logger_state")
