"""Findings of the checks, and the subject that the checks look at."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from kafkapy.config.broker import BrokerConfig

__all__ = ["Finding", "Host", "Status", "Subject", "problem", "satisfied", "unknown", "warning", "within"]

T = TypeVar("T")


class Status(StrEnum):
    """The result of a check.

    PROBLEM: the broker does not start, or does not keep what it promises. WARNING: it works, and worse than it could.
    UNKNOWN: this process may not look.
    """

    OK = "ok"
    UNKNOWN = "unknown"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact, and for a fault the change and its reason. Immutable."""

    subject: str
    status: Status
    found: str
    change: str | None = None
    why: str | None = None


def satisfied(subject: str, found: str) -> Finding:
    """A finding that needs no change."""
    return Finding(subject, Status.OK, found)


def unknown(subject: str, found: str) -> Finding:
    """A finding of a check that was not possible."""
    return Finding(subject, Status.UNKNOWN, found)


def warning(subject: str, found: str, change: str, why: str) -> Finding:
    """A finding that costs speed, safety or reserve."""
    return Finding(subject, Status.WARNING, found, change, why)


def problem(subject: str, found: str, change: str, why: str) -> Finding:
    """A finding that keeps the broker from its work."""
    return Finding(subject, Status.PROBLEM, found, change, why)


@dataclass(frozen=True, slots=True)
class Host:
    """Reads the kernel's files of a machine, below `root`."""

    root: Path = Path("/")

    def text(self, path: str) -> str | None:
        """The stripped content of a file, None when it cannot be read."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """The content of a file as a number, None when it holds no number."""
        text = self.text(path)
        return int(text) if text is not None and text.isascii() and text.isdigit() else None

    def of_cgroups(self, name: str) -> list[str]:
        """The contents of a file in the process's cgroups (v2), the own one first."""
        lines = (self.text("proc/self/cgroup") or "").splitlines()
        own = next((line for line in lines if line.startswith("0::")), None)
        if own is None:
            return []
        top = Path("sys/fs/cgroup")
        place = top / own.removeprefix("0::").lstrip("/")
        folders = [each for each in (place, *place.parents) if each == top or top in each.parents]
        return [text for each in folders if (text := self.text(str(each / name))) is not None]

    def least_of_cgroups(self, name: str) -> int | None:
        """The smallest number in such a file, None without a limit."""
        return min((int(text) for text in self.of_cgroups(name) if text.isascii() and text.isdigit()), default=None)


@dataclass(frozen=True, slots=True)
class Subject:
    """A broker's configuration and the machine that it is meant for. Immutable."""

    config: BrokerConfig
    host: Host = field(default_factory=Host)
    properties: str | None = None
    """The path of the properties file."""


def within(seconds: float, work: Callable[[], T]) -> T:
    """The result of a function that may block on the network.

    TimeoutError when it takes longer; its thread then ends with the process.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            results.append(work())
        except BaseException as error:  # raised on the thread that waits
            errors.append(error)

    thread = threading.Thread(target=body, daemon=True, name="host-check")
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no answer within {seconds:g} s")
    return results[0]
