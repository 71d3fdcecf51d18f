"""A directory of Parquet files as an archive, with a log of commits in it.

    <directory>/date=2026-11-22/hour=05/<file>.parquet      what is archived
    <directory>/_kafkapy/commits/<20 digits>.json           a commit: the offsets that the archive is at, and its files
    <directory>/_kafkapy/staging/<run>/date=.../...         what tasks of a run have written, and no commit has named

Exactly once: tasks write to the staging directory, which readers of a directory leave out (its path has a name that
begins with "_"). A commit is a file that is created with the next number, complete and by one process only; it is what
decides. Its files are moved to their places then, by the run itself or, where that was killed, by the next one. A plain
spark.read.parquet(directory) or pyarrow.dataset therefore sees committed files only, each once, whatever was killed
when; right after a kill some of the last commit's may not be there yet. Records of a commit appear file by file.

A run that begins writes a commit without files before it writes anything else, so that an older run which is still at
work finds its number taken when it commits, and fails. Where creating a file does not exclude others (filesystems other
than a local disk, see Store.create) that holds unless both commit in the same moment: keep runs apart there.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafkapy.errors import IllegalArgumentError
from kafkapy_spark.jobs.archive_destination import Destination, OtherRunError, Position
from kafkapy_spark.jobs.archive_store import Store
from kafkapy_spark.jobs.archive_writer import ArchivedFile
from kafkapy_spark.offsets import from_json, to_json

__all__ = ["ParquetDirectory"]

logger = logging.getLogger("kafkapy.spark")

COMMITS: Final = "_kafkapy/commits"
STAGING: Final = "_kafkapy/staging"
KEPT_COMMITS: Final = 100
"""Older ones say nothing that is needed: each holds all offsets."""
_FORMAT: Final = 1


class ParquetDirectory(Destination):
    """`uri` may be a path."""

    def __init__(self, uri: str) -> None:
        super().__init__()
        self._store = Store(uri)
        self._version = 0
        self._at = Position()
        if self._store.exists("_spark_metadata"):
            raise IllegalArgumentError(
                f"{uri} is what Spark's own file sink has written; archive with the engine spark, or elsewhere"
            )

    @property
    def root(self) -> str:
        """Where tasks write."""
        return self._store.uri.rstrip("/") + "/" + self._staging

    @property
    def _staging(self) -> str:
        return f"{STAGING}/{self.name}"

    def position(self) -> Position:
        """Where the archive is; what the last commit has not moved into place is moved. IllegalArgumentError."""
        names = self._store.names(COMMITS)
        if names:
            self._version = int(names[-1].removesuffix(".json"))
            last = json.loads(self._store.read(f"{COMMITS}/{names[-1]}"))
            if last["format"] != _FORMAT:
                raise IllegalArgumentError(f"{self._store.uri} has commits of format {last['format']}")
            self._put_in_place(last)
            self._at = Position(from_json(last["offsets"]), last["topicIds"], last["bytesPerRow"])
        return self._at

    def begin(self) -> None:
        """From now on no other run that has begun before can commit. OtherRunError."""
        # Looked up before the commit: a run that begins right after it can commit, and its files are not to be removed.
        overtaken = self._store.names(STAGING)
        self._write((), self._at)
        for run in overtaken:
            self._store.delete_directory(f"{STAGING}/{run}")
        for name in self._store.names(COMMITS)[:-KEPT_COMMITS]:
            self._store.delete(f"{COMMITS}/{name}")

    def commit(self, files: Sequence[ArchivedFile], position: Position) -> None:
        """The files are in the archive, which is at these offsets. OtherRunError: they are not."""
        self._put_in_place(self._write(files, position))

    def end(self) -> None:
        """Of this run nothing is left but its commits."""
        self._store.delete_directory(self._staging)

    def _write(self, files: Sequence[ArchivedFile], position: Position) -> dict[str, Any]:
        version = self._version + 1
        commit = {
            "format": _FORMAT,
            "run": self.name,
            "timeMs": time.time_ns() // 1_000_000,
            "offsets": to_json(position.offsets),
            "topicIds": position.topic_ids,
            "bytesPerRow": position.bytes_per_row,
            "files": [{"path": file.path, "rows": file.rows, "bytes": file.size} for file in files],
        }
        name = f"{version:020}.json"
        path = f"{COMMITS}/{name}"
        try:
            self._store.create(path, json.dumps(commit, indent=1).encode())
        except FileExistsError:
            raise OtherRunError(self._store.uri) from None
        # The number was free, but it may be an old one that has been removed since this run began: as many as are kept
        # are behind it then. Fewer are those of a run that has gone on from this commit.
        if name not in self._store.names(COMMITS)[-KEPT_COMMITS:]:
            self._store.delete(path)
            raise OtherRunError(self._store.uri)
        self._version, self._at = version, position
        return commit

    def _put_in_place(self, commit: Mapping[str, Any]) -> None:
        """Any number of times, by any number of processes."""
        missing = 0
        for file in commit["files"]:
            staged = f"{STAGING}/{commit['run']}/{file['path']}"
            if not self._store.move(staged, file["path"]) and not self._store.exists(file["path"]):
                missing += 1
        if missing:
            logger.warning(
                "%d files of the last commit of %s are gone; somebody has removed them", missing, self._store.uri
            )
