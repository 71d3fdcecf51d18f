"""The contract of a storage backend: names, directories and file descriptors.

The data plane reads and writes those descriptors itself (pwrite, pread, sendfile), so a backend is never on the path
of a record. A backend is small:
`StorageBackend` makes and lists the directories of partitions, `LogStorage` is one partition's files.

Registered with the hook register_storage_backends, chosen by the key kafkapy.storage.backend.
`kafkapy.log.backends.local` is the
worked example.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

__all__ = ["LogStorage", "SegmentFile", "StorageBackend"]


class SegmentFile(NamedTuple):
    """A segment that exists: immutable, made by LogStorage.segments."""

    base_offset: int
    size: int
    """Bytes of the data file."""
    created_ms: int
    """Last modification of the data file, ms since the epoch: what Kafka uses as the age of a segment without
    timestamps."""


@runtime_checkable
class LogStorage(Protocol):
    """One partition's files. Owned by its PartitionLog.

    Called on worker threads and the control loop, never under the log's mutex.

    Every method may raise OSError, which takes the log directory offline.
    """

    @property
    def directory(self) -> str:
        """The absolute path of the segment files' directory, or "".

        A backend without paths gives "": then descriptors are all there is, and indexes and producer snapshots stay in
        memory.
        """

    def prepare_segment(self) -> tuple[int, str]:
        """A new empty data file that waits to become the active segment.

        Returns an open descriptor, which the caller owns, and the file's path.

        With a directory, the data plane renames that path to `<directory>/<20 digits>.log` when it rolls. Without,
        the path is "".

        A storage with an attribute `native_segments` that is true is not asked: the data plane's own threads make the
        file, an ordinary one in the directory, or a memfd where there is none. So a roll does not wait for Python.
        """

    def segments(self, names: Sequence[str] | None = None) -> list[SegmentFile]:
        """The existing segments, by base offset.

        Leftovers of a crash (.deleted, .cleaned, .swap) have been dealt with.

        `names` is what `names()` has just said, where the caller knows it: a start with many partitions lists each
        directory once.
        """

    def delete_segments(self, base_offsets: Sequence[int], *, delay_ms: int) -> None:
        """Removes the files of those segments.

        Readers of the directory lose them at once; the files go for good after the delay.
        """

    def read_file(self, name: str) -> bytes | None:
        """A small file of the partition (leader-epoch-checkpoint, partition.metadata, a snapshot); None when it is
        not there."""

    def write_file(self, name: str, data: bytes, *, sync: bool = True) -> None:
        """Replaces a small file in one step.

        A reader, also after a crash, sees all of the old content or all of the new.
        """

    def sync(self) -> None:
        """Puts on disk what `write_file` and `write_leader_epochs` left unsynced, and the directory's own name.

        Called by a flush before the recovery point moves."""

    def retire(self) -> None:
        """The partition is deleted, its directory about to be renamed.

        Once this returns no method changes a file: a new partition may get the name, while work on this one is still on
        its way.
        """

    def write_leader_epochs(self, epochs: Iterable[tuple[int, int]]) -> None:
        """Replaces the leader-epoch-checkpoint by these (epoch, start offset) pairs."""

    def names(self) -> list[str]:
        """The names of all files."""

    def remove_file(self, name: str) -> None:
        """Removes a small file; nothing happens when it is not there."""


@runtime_checkable
class StorageBackend(Protocol):
    """The home of a broker's partitions: one object per broker and backend.

    Called by LogManager on worker threads.
    """

    persistent: bool
    """Whether logs are still there after a restart. If not, the log manager neither recovers nor checkpoints them."""

    def open_log(self, log_dir: Path, name: str, *, create: bool) -> LogStorage:
        """The storage of the partition directory `name` ("topic-0") in a log directory.

        FileNotFoundError without `create` when it is not there.
        """

    def list_logs(self, log_dir: Path) -> list[str]:
        """Names of the partition directories there, those marked for deletion ("-delete") too."""

    def rename_log(self, log_dir: Path, old: str, new: str) -> None:
        """Renames a partition directory (deletion: `<topic>-<partition>.<uuid>-delete`)."""

    def delete_log(self, log_dir: Path, name: str) -> None:
        """Removes a partition directory and its content; does nothing without it."""
