"""What the arrow engine needs of the thing that it archives into: a place for files, and commits of files with
offsets."""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kafkapy.errors import IllegalStateError
from kafkapy_spark.jobs.archive_store import Store
from kafkapy_spark.jobs.archive_writer import ArchivedFile
from kafkapy_spark.offsets import PartitionOffsets

__all__ = ["Destination", "OtherRunError", "Position"]


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


class Destination(ABC):
    """Used by the driver of one run: `position`, and where there is something new `begin`, `commit` for each round,
    `end`."""

    def __init__(self) -> None:
        self.name: Final = f"{time.time_ns() // 1_000_000:013}-{uuid.uuid4().hex[:8]}"
        """How names of this run's files begin: no other run has it, and it is in the order of time."""

    @property
    @abstractmethod
    def root(self) -> str:
        """The URI of the directory below which tasks write; known once the run has begun."""

    @abstractmethod
    def position(self) -> Position:
        """Where the archive is."""

    @abstractmethod
    def begin(self) -> None:
        """There is something new: files will be written."""

    @abstractmethod
    def commit(self, files: Sequence[ArchivedFile], position: Position) -> None:
        """Makes the files a part of the archive and sets where it is, both or neither. OtherRunError."""

    @abstractmethod
    def end(self) -> None:
        """The last commit of the run was made."""

    def discard(self, files: Sequence[ArchivedFile]) -> None:
        """Removes files that will not be committed."""
        store = Store(self.root)
        for file in files:
            store.delete(file.path)
