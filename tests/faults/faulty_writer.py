"""A log in memory of which one append, or one read of a load, goes wrong."""

from __future__ import annotations

from collections.abc import Callable

from kafkapy import errors
from kafkapy.coordinator.writer import Appended, LoadedChunk
from kafkapy.testing.coordinator import MemoryWriter
from kafkapy.types import TopicPartition

ERRORS: dict[str, Callable[[], Exception]] = {
    "storage error": errors.KafkaStorageError,
    "not leader": errors.NotLeaderOrFollowerError,
    "too few replicas": errors.NotEnoughReplicasError,
    "fenced": errors.FencedLeaderEpochError,
    "full disk": lambda: OSError(28, "No space left on device"),
    "a defect": lambda: ValueError("nobody expects this"),
}
KINDS = (*ERRORS, "reply lost", "delayed", "raises", "not replicated")
"""How an operation goes wrong. "reply lost": it is done, and an error comes back; "raises": the call itself does."""


class FaultyWriter(MemoryWriter):
    """Counts appends and reads; the one that `arm` names goes wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.spoiled = ""
        self._at = -1
        self._kind = ""
        self._held: list[Callable[[], None]] = []

    def arm(self, at: int, kind: str) -> None:
        self.count, self._at, self._kind = 0, at, kind

    def release(self) -> None:
        """Nothing goes wrong any more, and what was delayed happens."""
        self._at = -1
        held, self._held = self._held, []
        for each in held:
            each()
        self.replicate = True
        self.commit()

    def _is_due(self, what: str, partition: TopicPartition) -> bool:
        self.count += 1
        if self.count - 1 != self._at:
            return False
        self.spoiled = f"{what} {self._at} of {partition}"
        return True

    def append(self, partition: TopicPartition, batches: bytes, leader_epoch: int, done: Appended) -> None:
        if not self._is_due("append", partition):
            super().append(partition, batches, leader_epoch, done)
            return
        if self._kind in ERRORS:
            done(ERRORS[self._kind]())
        elif self._kind == "reply lost":
            self.put(partition, batches)
            done(errors.KafkaStorageError())
        elif self._kind == "delayed":
            self._held.append(lambda: super(FaultyWriter, self).append(partition, batches, leader_epoch, done))
        elif self._kind == "raises":
            raise RuntimeError("nobody expects this")
        else:
            self.replicate = False
            super().append(partition, batches, leader_epoch, done)

    def read(self, partition: TopicPartition, offset: int) -> LoadedChunk:
        if self._is_due("read", partition) and self._kind in ERRORS:
            raise ERRORS[self._kind]()
        return super().read(partition, offset)
