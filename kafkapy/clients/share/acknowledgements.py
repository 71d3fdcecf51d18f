"""Acknowledgements from the user to the brokers, and a consumer's acquired records.

    user:   AcquiredPartition: HELD -> ACCEPT, RELEASE, REJECT, RENEW      acknowledge(), or the next poll
    loop:   Deliveries.collect() -> Acknowledgement (one per chunk)  ->  its broker  ->  finish(None or the error)

An acknowledgement belongs to the session in which its records were acquired: when the session or the leader is gone,
the broker releases the records by itself, and the acknowledgement fails.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import TYPE_CHECKING

from kafkapy._speedups.clients.consumer.acquired_partition import UNACKNOWLEDGED
from kafkapy.errors import IllegalStateError
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from kafkapy._speedups.clients.consumer.acquired_partition import AcquiredPartition
    from kafkapy._speedups.clients.consumer.consumer_record import ConsumerRecord

__all__ = ["AcknowledgeType", "Acknowledgement", "Batches", "Deliveries", "acknowledge_type"]

Batches = list[tuple[int, int, bytes]]
"""(first offset, last offset, types): one type for all offsets, or one for each."""

GAP = 0


class AcknowledgeType(IntEnum):
    """The outcome of a record for the user.

    Source: org.apache.kafka.clients.consumer.AcknowledgeType.
    """

    ACCEPT = 1
    """The record is done."""
    RELEASE = 2
    """Another delivery, to any member, until the group's delivery count limit is reached."""
    REJECT = 3
    """No other delivery: the record cannot be processed."""
    RENEW = 4
    """The record is in work: its lock starts from the beginning (KIP-1222, Kafka 4.2)."""


def acknowledge_type(given: AcknowledgeType | str) -> AcknowledgeType:
    """A type from itself or its name in any case. ValueError."""
    if isinstance(given, AcknowledgeType):
        return given
    try:
        return AcknowledgeType[given.upper()]
    except (KeyError, AttributeError):
        names = ", ".join(each.name for each in AcknowledgeType)
        raise ValueError(f"{given!r} is not an acknowledge type: {names}") from None


class Acknowledgement:
    """Collected acknowledgements of one chunk, until the broker's answer. On the loop's thread.

    `deadline` ends their retries, in seconds of the loop's clock.
    """

    __slots__ = ("_done", "_joined", "batches", "chunk", "deadline")

    def __init__(self, chunk: AcquiredPartition, batches: Batches, deadline: float) -> None:
        self.chunk = chunk
        self.batches = batches
        self.deadline = deadline
        self._done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._joined: list[Acknowledgement] = []

    @property
    def partition(self) -> TopicPartition:
        """The partition of the records."""
        return self.chunk.topic_partition

    @property
    def topic_id(self) -> UUID:
        """The id of the topic in the session."""
        topic_id = self.chunk.topic_id
        assert topic_id is not None
        return topic_id

    @property
    def renews(self) -> bool:
        """Whether some of them are renewals."""
        return any(AcknowledgeType.RENEW in types for _, _, types in self.batches)

    @property
    def count(self) -> int:
        """Number of acknowledged offsets, gaps included."""
        return sum(last - first + 1 for first, last, _ in self.batches)

    def offsets(self) -> list[int]:
        """The offsets of the records, without gaps."""
        found: list[int] = []
        for first, last, types in self.batches:
            if len(types) == 1:
                found += range(first, last + 1) if types[0] != GAP else ()
            else:
                found += [offset for offset, kind in enumerate(types, first) if kind != GAP]
        return found

    def join(self, other: Acknowledgement) -> bool:
        """Takes over another one of the same chunk; whether they fit into one request."""
        if other.chunk is not self.chunk or self.renews or other.renews:
            return False
        self.batches = sorted([*self.batches, *other.batches])
        self._joined.append(other)
        return True

    def finish(self, error: Exception | None) -> None:
        """Ends it with the broker's outcome."""
        if not self._done.done():
            self._done.set_result(error)
        for each in self._joined:
            each.finish(error)

    @property
    def error(self) -> Exception | None:
        """The outcome: None, or the error. Once it is finished."""
        return self._done.result()

    @property
    def is_finished(self) -> bool:
        """Whether there is an outcome."""
        return self._done.done()

    async def finished(self) -> None:
        """Returns once there is an outcome."""
        await asyncio.shield(self._done)


class Deliveries:
    """The chunks of acquired records that are not settled yet.

    The loop's thread adds and removes chunks; the user's thread reads and acknowledges their records. Changes replace
    the tuple, so either thread may walk over it.
    """

    def __init__(self, explicit: bool) -> None:
        self.explicit = explicit
        self._chunks: tuple[AcquiredPartition, ...] = ()
        self._renewing: dict[tuple[AcquiredPartition, int], ConsumerRecord] = {}
        self._renewed: deque[tuple[AcquiredPartition, Batches]] = deque()

    def __iter__(self) -> Iterator[AcquiredPartition]:
        return iter(self._chunks)

    def add(self, chunk: AcquiredPartition) -> None:
        """Takes a chunk of a response. On the loop's thread."""
        chunk.explicit = self.explicit
        self._chunks = (*self._chunks, chunk)

    def prune(self) -> None:
        """Forgets settled chunks. On the loop's thread."""
        if any(chunk.settled for chunk in self._chunks):
            self._chunks = tuple(chunk for chunk in self._chunks if not chunk.settled)

    # --- the user's thread ----------------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """Number of records with the user."""
        return sum(chunk.held for chunk in self._chunks)

    @property
    def unsent(self) -> bool:
        """Whether acknowledgements may be sent now."""
        return any(chunk.unsent and chunk.committable for chunk in self._chunks)

    def user_polls(self) -> None:
        """Accepts the records with the user; explicit acknowledgements become sendable.

        IllegalStateError when the user must acknowledge some of them.
        """
        if self.explicit and self.held:
            raise IllegalStateError(UNACKNOWLEDGED)
        for chunk in self._chunks:
            chunk.user_polls()

    def user_commits(self) -> None:
        """As `user_polls`; unacknowledged records stay with the user."""
        for chunk in self._chunks:
            if not self.explicit:
                chunk.accept_held()
            chunk.committable = True

    def acknowledge(
        self, topic: str, partition: int, offset: int, kind: AcknowledgeType, record: ConsumerRecord | None = None
    ) -> None:
        """Acknowledges one record.

        IllegalStateError unless the user has it; ValueError for a renewal without the record.
        """
        if kind is AcknowledgeType.RENEW and record is None:
            raise ValueError("RENEW needs the record, which a later poll returns once more")
        place = (topic, partition)
        # The newest first: an expired record may be acquired once more.
        for chunk in reversed(self._chunks):
            if chunk.topic_partition == place and chunk.acknowledge(offset, kind):
                if kind is AcknowledgeType.RENEW and record is not None:
                    self._renewing[chunk, offset] = record
                elif self._renewing:
                    self._renewing.pop((chunk, offset), None)
                return
        raise IllegalStateError(
            f"The record at offset {offset} of {topic}-{partition} cannot be acknowledged: it is not among the records "
            "of the last poll, or its acknowledgement was sent"
        )

    def errors_seen(self) -> None:
        """The user has the error of the last read."""
        for chunk in self._chunks:
            chunk.error_seen()

    @property
    def renewing(self) -> bool:
        """Whether records are being renewed, or renewed ones were not returned yet."""
        return bool(self._renewing)

    def take_renewed(self) -> list[ConsumerRecord]:
        """The renewed records, for the user once more."""
        found = []
        while self._renewed:
            chunk, batches = self._renewed.popleft()
            for offset in chunk.renewed(batches, True):
                record = self._renewing.pop((chunk, offset), None)
                if record is not None:
                    found.append(record)
        return found

    # --- the loop's thread ----------------------------------------------------------------------------------------

    def collect(self, chunk: AcquiredPartition, deadline: float) -> Acknowledgement | None:
        """The acknowledgements of a chunk that may be sent."""
        if not chunk.unsent or not chunk.committable:
            return None
        return Acknowledgement(chunk, chunk.collect(), deadline)

    def finish(self, acknowledgement: Acknowledgement, error: Exception | None) -> None:
        """Ends an acknowledgement; the user gets renewed records again."""
        chunk, batches = acknowledgement.chunk, acknowledgement.batches
        if acknowledgement.renews:
            if error is None:
                self._renewed.append((chunk, batches))
            else:
                for offset in chunk.renewed(batches, False):
                    self._renewing.pop((chunk, offset), None)
        acknowledgement.finish(error)

    def release(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Releases unread records of these partitions, or all."""
        wanted = None if partitions is None else set(partitions)
        for chunk in self._chunks:
            if wanted is None or chunk.topic_partition in wanted:
                chunk.release_waiting()

    def drop(self) -> None:
        """Forgets all chunks: their locks end with the sessions."""
        self._chunks = ()
        self._renewing.clear()
        self._renewed.clear()
