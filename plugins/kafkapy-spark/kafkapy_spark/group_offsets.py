"""offsetCommitGroup: where a streaming query is, as the committed offsets of a consumer group, for tools that show lag.

Nothing reads them back: a query goes on from its checkpoint. No group is joined: offsets are committed as by a consumer
that assigns its partitions itself, so a group of this name must have no members.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping
from typing import Final

from kafkapy.clients.consumer.consumer import KafkaConsumer
from kafkapy.errors import KafkaError
from kafkapy.types import OffsetAndMetadata, TopicPartition
from kafkapy_spark.offsets import PartitionOffsets

logger = logging.getLogger("kafkapy.spark")

RETRY_S: Final = 10.0
"""After a commit that failed, the next one waits so long."""
AGAIN_S: Final = 3600.0
"""Offsets of a group without members expire (offsets.retention.minutes): they are committed again after so long."""
COMMIT_TIMEOUT_MS: Final = 10_000
END_WAIT_S: Final = 5.0
"""How long a run that ends waits for its last commit."""


class GroupOffsets:
    """Commits on a thread of its own, one commit at a time; what is offered meanwhile waits, and the last of it is what
    is committed next. A commit that fails is a warning. Used by one thread."""

    def __init__(self, kafka: Mapping[str, str], group: str) -> None:
        self._configs: dict[str, object] = {
            **kafka,
            "group.id": group,
            "group.instance.id": None,
            "enable.auto.commit": False,
            "allow.auto.create.topics": False,
        }
        self._group = group
        self._changed = threading.Condition()
        self._wanted: PartitionOffsets = {}
        self._committed: PartitionOffsets = {}
        self._committed_at = 0.0
        self._retry_at = 0.0
        self._closed = False
        self._failure = ""
        self._thread = threading.Thread(target=self._run, name="kafkapy-group-offsets", daemon=True)
        self._thread.start()

    def offer(self, offsets: Mapping[TopicPartition, int]) -> None:
        """All records before these offsets are done with. Returns at once; no partition goes back."""
        with self._changed:
            wanted = {at: max(offset, self._wanted.get(at, offset)) for at, offset in offsets.items()}
            if wanted != self._wanted:
                self._wanted = wanted
                self._changed.notify_all()

    def forget(self, topics: Collection[str]) -> None:
        """Topics that have been created again, whose offsets begin anew."""
        with self._changed:
            self._wanted = {at: offset for at, offset in self._wanted.items() if at.topic not in topics}

    def flush(self) -> None:
        """Waits until what was offered is committed, for a time."""
        with self._changed:
            self._retry_at = 0.0
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._wanted == self._committed or self._retry_at > 0, END_WAIT_S)

    def close(self) -> None:
        """Waits as flush() does, and ends the thread and its connections."""
        self.flush()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(END_WAIT_S)

    # --- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        consumer: KafkaConsumer | None = None
        try:
            while (offsets := self._next()) is not None:
                try:
                    if consumer is None:
                        consumer = KafkaConsumer(configs=self._configs)
                    consumer.commit(
                        {at: OffsetAndMetadata(offset, "") for at, offset in offsets.items()}, COMMIT_TIMEOUT_MS
                    )
                except KafkaError as error:
                    self._failed(error)
                else:
                    self._succeeded(offsets)
        finally:
            if consumer is not None:
                consumer.close(autocommit=False)

    def _next(self) -> PartitionOffsets | None:
        """Waits for what is to be committed; None at the end."""
        with self._changed:
            while not self._closed:
                wait = self._retry_at - time.monotonic()
                if self._wanted == self._committed:
                    wait = self._committed_at + AGAIN_S - time.monotonic()
                if self._wanted and wait <= 0:
                    return self._wanted
                self._changed.wait(wait if self._wanted else None)
            return None

    def _failed(self, error: KafkaError) -> None:
        with self._changed:
            self._retry_at = time.monotonic() + RETRY_S
            self._changed.notify_all()
        level = logging.DEBUG if str(error) == self._failure else logging.WARNING
        self._failure = str(error)
        logger.log(level, "Offsets cannot be committed to group %s, and the query goes on: %s", self._group, error)

    def _succeeded(self, offsets: PartitionOffsets) -> None:
        with self._changed:
            self._committed = offsets
            self._committed_at = time.monotonic()
            self._retry_at = 0.0
            self._changed.notify_all()
        if self._failure:
            self._failure = ""
            logger.info("Offsets are committed to group %s again", self._group)
