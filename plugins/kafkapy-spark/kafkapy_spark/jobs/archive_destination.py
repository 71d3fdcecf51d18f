"""What the arrow engine needs of the thing that it archives into: a place for files, and commits of files with
offsets."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kafkapy.errors import IllegalStateError
from kafkapy_spark.jobs.archive_writer import ArchivedFile
from kafkapy_spark.offsets import PartitionOffsets

__all__ = ["Destination", "OtherRunError", "Position", "new_run"]


class OtherRunError(IllegalStateError):
    """Another run archives into the same place, and has begun or committed since this one began."""

    def __init__(self, where: str) -> None:
        super().__init__(f"Another run has archived into {where} since this one began; nothing of this round is in it")


@dataclass(frozen=True)
class Position:
    """Where an archive is. Partitions that it has nothing of are not in `offsets`.

    `topic_ids` are those that topics had, as text; `bytes_per_row` is what a record takes in its files, if known.
    """

    offsets: PartitionOffsets = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    bytes_per_row: float | None = None


class Destination(Protocol):
    """Used by the driver of one run: `position`, and where there is something new `begin`, `commit` for each round,
    `end`."""

    @property
    def root(self) -> str:
        """The URI of the directory below which tasks write."""

    @property
    def name(self) -> str:
        """How names of this run's files begin."""

    def position(self) -> Position:
        """Where the archive is."""

    def begin(self) -> None:
        """There is something new: files will be written."""

    def commit(
        self,
        files: Sequence[ArchivedFile],
        offsets: PartitionOffsets,
        topic_ids: Mapping[str, str],
        bytes_per_row: float | None,
    ) -> None:
        """Makes the files a part of the archive and sets where it is, both or neither. OtherRunError."""

    def discard(self, files: Sequence[ArchivedFile]) -> None:
        """Removes files that will not be committed."""

    def end(self) -> None:
        """The last commit of the run was made."""


def new_run() -> str:
    """A name that no other run has, in the order of time."""
    return f"{time.time_ns() // 1_000_000:013}-{uuid.uuid4().hex[:8]}"
