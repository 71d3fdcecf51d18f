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
from typing import Any

from kafkapy.errors import ConfigError

__all__ = ["Audit"]

KEPT = 1000
"""The newest lines that the page of the audit log shows."""

logger = logging.getLogger("kafkapy.console.audit")


class Audit:
    """Writes lines to the log `kafkapy.console.audit`, and to a file where one is set."""

    def __init__(self, file: Path | None, cluster: str = "") -> None:
        self._newest: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._cluster = cluster
        self._handle = None
        if file is not None:
            try:
                self._handle = file.open("a", encoding="utf-8", buffering=1)
            except OSError as error:
                raise ConfigError("audit.file", str(file), f"it cannot be written: {error.strerror}") from None

    def of(self, cluster: str) -> Audit:
        """The same log for one of several clusters: its lines name the cluster."""
        found = Audit(None, cluster)
        found._newest, found._handle = self._newest, self._handle
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
        self._newest.appendleft(line)
        text = json.dumps(line, ensure_ascii=False, default=str)
        logger.info("Audit: %s", text)
        if self._handle is not None:
            self._handle.write(text + "\n")

    @property
    def newest(self) -> list[dict[str, Any]]:
        """The newest lines first; of one of several clusters, its lines and those of no cluster (logins)."""
        return [line for line in self._newest if line.get("cluster", self._cluster) == self._cluster]

    def close(self) -> None:
        """Close the file."""
        if self._handle is not None:
            self._handle.close()
            self._handle = None
