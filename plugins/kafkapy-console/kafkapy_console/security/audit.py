"""The audit log: every action that changes something or reads records, by whom, and how it ended.

A line is a JSON object. It has names and numbers, never the content of a record, a password or a token.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from kafkapy.errors import ConfigError

__all__ = ["Audit"]

KEPT = 1000
"""Lines that each cluster keeps for its page of the audit log."""
KEPT_LOGINS = 200
"""Lines without a cluster (logins). The page shows 500 lines: failed logins leave room for those of the cluster."""

logger = logging.getLogger("kafkapy.console.audit")


class _File:
    """The file of a log. The logs of all clusters share it; after `close` it takes lines and drops them."""

    def __init__(self, path: Path | None) -> None:
        self._handle: TextIO | None = None
        if path is not None:
            try:
                self._handle = path.open("a", encoding="utf-8", buffering=1)
            except OSError as error:
                raise ConfigError("audit.file", str(path), f"it cannot be written: {error.strerror}") from None

    def write(self, text: str) -> None:
        if self._handle is not None:
            self._handle.write(text)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.close()
            self._handle = None


class Audit:
    """Writes lines to the log `kafkapy.console.audit`, and to a file where one is set.

    `of` makes the log of one cluster, which keeps its own lines. This log keeps the lines of no cluster.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = _File(file)
        self._cluster = ""
        self._kept: deque[dict[str, Any]] = deque(maxlen=KEPT_LOGINS)
        self._logins = self._kept

    def of(self, cluster: str) -> Audit:
        """The log of one cluster; with a name, its lines name the cluster."""
        found = Audit(None)
        found._file, found._cluster, found._kept, found._logins = self._file, cluster, deque(maxlen=KEPT), self._kept
        return found

    def write(
        self, user: str, action: str, about: str, outcome: str = "ok", details: Mapping[str, Any] | None = None
    ) -> None:
        """Add one line."""
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            **({"cluster": self._cluster} if self._cluster else {}),
            "user": user,
            "action": action,
            "about": about,
            "outcome": outcome,
            **({"details": dict(details)} if details else {}),
        }
        self._kept.appendleft(line)
        text = json.dumps(line, ensure_ascii=False, default=str)
        logger.info("Audit: %s", text)
        self._file.write(text + "\n")

    @property
    def newest(self) -> list[dict[str, Any]]:
        """The lines of the cluster and of no cluster (logins), the newest first."""
        others = () if self._logins is self._kept else self._logins
        return sorted((*self._kept, *others), key=lambda line: str(line["time"]), reverse=True)

    def close(self) -> None:
        """Close the file, for the logs of all clusters."""
        self._file.close()
