"""The destination of log lines, with a limit of repeated lines.

Neither a full disk nor a client that provokes many lines disturbs the broker.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

REPEATED: Final = 1000
"""Lines of one kind at once, by default."""
PER_SECOND: Final = 1.0
"""Further lines of one kind per second."""
EXAMPLE_SIZE: Final = 200
AUDIT: Final = "kafka.authorizer.logger"
"""Its lines begin with the principal, so that a principal with many denials hides no others."""
MOST_KINDS: Final = 2000
NOTE_EVERY_S: Final = 10.0
"""Seconds between two lines with the number of dropped lines of a kind."""


class _Kind:
    """The remaining lines of a kind, and the number of dropped ones."""

    __slots__ = ("asked_s", "example", "left_out", "note_s", "tokens")

    def __init__(self, tokens: float, now_s: float) -> None:
        self.tokens = tokens
        self.asked_s = now_s
        self.left_out = 0
        self.note_s = 0.0
        self.example = ""
        """The text of the first dropped line. (A record would keep the objects of a traceback alive.)"""


class LineLimit:
    """Limits the lines of each kind.

    A kind is one place in the code, one logger and one level, and in the audit log also one principal, so clients
    cannot create many kinds. Lines below INFO have no limit. A LogOutput owns it and uses it under its lock.
    """

    def __init__(self, repeated: int = REPEATED) -> None:
        self._repeated = float(repeated)
        self._kinds: dict[tuple[str, int, str, int, str], _Kind] = {}
        self._next_note_s = float("inf")

    def allows(self, record: logging.LogRecord, now_s: float) -> bool:
        """Whether to write a line. `now_s` is a monotonic clock's time."""
        if not self._repeated or record.levelno < logging.INFO:
            return True
        who = str(record.args[0]) if record.name == AUDIT and isinstance(record.args, tuple) and record.args else ""
        key = (record.name, record.levelno, record.pathname, record.lineno, who)
        kind = self._kinds.get(key)
        if kind is None and who and len(self._kinds) >= MOST_KINDS:
            key = (*key[:-1], "")
            kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(self._repeated, now_s)
        kind.tokens = min(self._repeated, kind.tokens + (now_s - kind.asked_s) * PER_SECOND)
        kind.asked_s = now_s
        if kind.tokens >= 1:
            kind.tokens -= 1
            return True
        if not kind.left_out:
            kind.example = record.getMessage()[:EXAMPLE_SIZE]
            kind.note_s = now_s + NOTE_EVERY_S
            self._next_note_s = min(self._next_note_s, kind.note_s)
        kind.left_out += 1
        return False

    def notes(self, now_s: float) -> Iterator[logging.LogRecord]:
        """A line for each kind with older dropped lines, with their number."""
        if now_s < self._next_note_s:
            return
        self._next_note_s = float("inf")
        for (name, level, path, line, _who), kind in self._kinds.items():
            if not kind.left_out:
                continue
            if kind.note_s > now_s:
                self._next_note_s = min(self._next_note_s, kind.note_s)
                continue
            said = f"{kind.left_out} more like this were suppressed: {kind.example}"
            yield logging.LogRecord(name, level, path, line, said, None, None)
            kind.left_out = 0


class LogOutput(logging.Handler):
    """Writes each line to a file descriptor at once.

    It drops a line that cannot be written (no space, a file of the largest allowed size, a closed reader). The next
    written line follows a line with the number of dropped ones. Every thread that logs uses it, under the Handler's
    lock.
    """

    def __init__(self, descriptor: int, limit: LineLimit, *, owned: bool = False) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._owned = owned
        self._limit = limit
        self._dropped = 0
        self._reason = ""
        self._torn = False
        """A line was written partly, and needs an end before the next one."""

    @classmethod
    def to_file(cls, path: str, limit: LineLimit) -> LogOutput:
        """Append to a file, and create its directory. OSError."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return cls(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666), limit, owned=True)

    @classmethod
    def to_standard(cls, name: str, limit: LineLimit) -> logging.Handler:
        """Write to "stderr" or "stdout", or to nothing when it is closed."""
        stream = sys.stderr if name == "stderr" else sys.stdout
        # Its number may be a partition's file by now where it was closed at the start.
        return logging.NullHandler() if stream is None else cls(stream.fileno(), limit)

    @property
    def is_terminal(self) -> bool:
        """Whether the destination is a terminal."""
        return self._descriptor >= 0 and os.isatty(self._descriptor)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record's line, unless its kind exceeds the limit."""
        if self._descriptor < 0:
            return
        try:
            now_s = time.monotonic()
            for note in self._limit.notes(now_s):
                self._write(note)
            if self._limit.allows(record, now_s):
                self._write(record)
        except Exception:  # a line that cannot be formatted
            self.handleError(record)

    def close(self) -> None:
        """Write the last count of dropped lines, and close a file."""
        self.acquire()
        try:
            if self._descriptor >= 0:
                for note in self._limit.notes(float("inf")):
                    self._write(note)
                if self._owned:
                    os.close(self._descriptor)
                self._descriptor = -1
        finally:
            self.release()
        super().close()

    def _write(self, record: logging.LogRecord) -> None:
        text = self.format(record) + "\n"
        if self._dropped:
            message = f"{self._dropped} lines could not be written: {self._reason}"
            lost = logging.LogRecord("kafka.utils.Logging", logging.WARNING, __file__, 0, message, None, None)
            text = self.format(lost) + "\n" + text
        if self._torn:
            text = "\n" + text
        left = memoryview(text.encode("utf-8", "backslashreplace"))
        size = len(left)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            self._dropped += 1
            self._reason = error.strerror or str(error)
            self._torn = self._torn or len(left) < size
        else:
            self._dropped, self._torn = 0, False
