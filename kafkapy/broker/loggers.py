"""The broker's loggers as DescribeConfigs and AlterConfigs see them (resource type BROKER_LOGGER, KIP-412).

The names are Kafka's, the root is "root", levels are Kafka's words. Logger levels live in this process only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

ROOT: Final = "root"
LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


on_change: Final[list[Callable[[], None]]] = []
"""Called after every change of a level made here."""


def _name_of(level: int) -> str:
    for name, number in LEVELS.items():
        if level <= number:
            return name
    return "FATAL"


def levels() -> dict[str, str]:
    """Every logger's effective level, by name."""
    found = {ROOT: _name_of(logging.getLogger().level)}
    for name, each in sorted(logging.root.manager.loggerDict.items()):
        if isinstance(each, logging.Logger):
            found[name] = _name_of(each.getEffectiveLevel())
    return found


def exists(name: str) -> bool:
    """Whether there is a logger of that name."""
    return name == ROOT or isinstance(logging.root.manager.loggerDict.get(name), logging.Logger)


def set_level(name: str, level: str) -> None:
    """Set a logger's level.

    KeyError for a word that is not a level.
    """
    logging.getLogger(None if name == ROOT else name).setLevel(LEVELS[level])
    _changed()


def unset_level(name: str) -> None:
    """Let a logger have its parent's level again.

    ValueError for the root, which has no parent.
    """
    if name == ROOT:
        raise ValueError("the root logger must have a level")
    logging.getLogger(name).setLevel(logging.NOTSET)
    _changed()


def _changed() -> None:
    for listener in list(on_change):
        listener()
