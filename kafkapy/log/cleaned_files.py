"""The files of one cleaned segment on their way into a partition's directory.

A restart recovers from a kill at any point of these steps:

1. `<base>.log.cleaned`, .index.cleaned, .timeindex.cleaned and perhaps .txnindex.cleaned are written and synced.
2. Each is renamed to `.swap`. As long as one `.cleaned` is left, a restart throws all of them away.
3. The segments they were made from are renamed to `.deleted`, the first one's files replaced: indexes, then the data.
   As long as `<base>.log.swap` is there, a restart finishes this.

Source: kafka.log.LocalLog.replaceSegments and LogLoader; the restart's part is loader.finish_interrupted_work.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from struct import Struct

from kafkapy.log.backends.base import LogStorage
from kafkapy.log.checkpoints import sync_directory
from kafkapy.log.shortage import insist

__all__ = ["CleanedFiles"]

INDEXES = (".index", ".timeindex", ".txnindex")
SUFFIXES = (*INDEXES, ".log")
ABORTED_ENTRY = Struct(">hqqqq")


class CleanedFiles:
    """Names and moves the files of the cleaned segment at one base offset.

    Used by one cleaner thread.

    Without a directory (the memory backend) there is a descriptor and nothing to move.
    """

    def __init__(self, storage: LogStorage, base_offset: int) -> None:
        self._storage = storage
        self._directory = Path(storage.directory) if storage.directory else None
        self._stem = f"{base_offset:020d}"

    def create(self) -> tuple[int, str]:
        """The empty data file: an open descriptor and its path. OSError."""
        if self._directory is None:
            return self._storage.prepare_segment()
        self._remove(".cleaned")
        path = str(self._path(".log.cleaned"))
        return insist(os.open, path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644), path

    def finish(self, aborted: Sequence[tuple[int, int, int, int]], modified_ms: int) -> None:
        """Adds the transaction index and sets the data file's time. OSError.

        The time is that of the newest segment that the file replaces.
        """
        if self._directory is None:
            return
        if aborted:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            fd = insist(os.open, self._path(".txnindex.cleaned"), flags, 0o644)
            with os.fdopen(fd, "wb") as file:
                file.write(b"".join(ABORTED_ENTRY.pack(0, *entry) for entry in aborted))
                file.flush()
                os.fsync(fd)
        os.utime(self._path(".log.cleaned"), ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def promote(self) -> None:
        """Step 2. OSError."""
        if self._directory is None:
            return
        for suffix in SUFFIXES:
            cleaned = self._path(suffix + ".cleaned")
            if suffix != ".log" and not cleaned.exists():
                continue  # an empty segment has no indexes, and most have no transaction index
            cleaned.rename(self._path(suffix + ".swap"))
        sync_directory(self._directory)

    def install(self, replaced: Sequence[int], delay_ms: int) -> None:
        """Step 3, after the log has taken the segment over. OSError.

        `replaced`: base offsets, this one's own first.
        """
        if self._directory is None:
            return
        self._storage.delete_segments(replaced[1:], delay_ms=delay_ms)
        for suffix in INDEXES:
            swap = self._path(suffix + ".swap")
            if swap.exists():
                insist(swap.replace, self._path(suffix))
            else:
                insist(self._path(suffix).unlink, missing_ok=True)
        insist(self._path(".log.swap").replace, self._path(".log"))

    def discard(self) -> None:
        """Removes the written files. OSError.

        The data file goes first: without it a restart ignores the others.
        """
        if self._directory is not None:
            self._remove(".swap")
            self._remove(".cleaned")

    def _remove(self, kind: str) -> None:
        for suffix in reversed(SUFFIXES):
            self._path(suffix + kind).unlink(missing_ok=True)

    def _path(self, suffix: str) -> Path:
        assert self._directory is not None
        return self._directory / (self._stem + suffix)
