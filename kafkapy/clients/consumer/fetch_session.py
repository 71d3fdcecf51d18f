"""The fetch session with one broker (KIP-227).

The first request has all partitions, later ones only changes.

    INITIAL (0, 0) --full response with a session id--> (id, 1) --incremental response--> (id, 2) --> ...
        ^                                                  |
        +--session not found, closed, or full of errors----+     (id, 0): a full request that closes the session and
        asks for another

Source: org.apache.kafka.clients.FetchSessionHandler (4.1).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from kafkapy.errors import ErrorCode
from kafkapy.types import ZERO_UUID, TopicPartition

__all__ = ["FetchPlan", "FetchSession", "WantedPartition"]

logger = logging.getLogger("kafka.consumer.fetch_session")

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH: Final = 2**31 - 1


class WantedPartition(NamedTuple):
    """The request for one partition. An unchanged one is not sent again."""

    topic_id: UUID
    offset: int
    leader_epoch: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """The content of one request: sent, forgotten, and all fetched partitions."""

    session_id: int
    epoch: int
    send: dict[TopicPartition, WantedPartition]
    forget: list[tuple[TopicPartition, UUID]]
    replaced: list[tuple[TopicPartition, UUID]]
    """Partitions of a topic that was re-created: forgotten under the old id, if requests have ids."""
    partitions: dict[TopicPartition, WantedPartition]
    with_topic_ids: bool
    """Whether the ids of all topics are known; without them version 12 is the newest usable one."""

    @property
    def full(self) -> bool:
        """Whether the request contains all partitions."""
        return self.epoch in (FIRST_EPOCH, FINAL_EPOCH)


class FetchSession:
    """A session with a broker. On the loop's thread.

    One request at a time: `build`, then `completed` or `failed`.
    """

    def __init__(self, node_id: int, enabled: bool = True) -> None:
        self.node_id = node_id
        self._enabled = enabled
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH if enabled else FINAL_EPOCH
        self._partitions: dict[TopicPartition, WantedPartition] = {}
        self.names: dict[UUID, str] = {}
        """The topics of the session, by id."""

    @property
    def partitions(self) -> Iterable[TopicPartition]:
        """The partitions of the last request."""
        return self._partitions.keys()

    def build(self, wanted: dict[TopicPartition, WantedPartition]) -> FetchPlan:
        """The next request, for these partitions in this order. Keeps `wanted`."""
        before, self._partitions = self._partitions, wanted
        if self._epoch in (FIRST_EPOCH, FINAL_EPOCH):
            self.names = {each.topic_id: partition.topic for partition, each in wanted.items()}
            return FetchPlan(self._id, self._epoch, wanted, [], [], wanted, ZERO_UUID not in self.names)
        send: dict[TopicPartition, WantedPartition] = {}
        forget: list[tuple[TopicPartition, UUID]] = []
        replaced: list[tuple[TopicPartition, UUID]] = []
        kept = 0
        with_ids = True
        for partition, now in wanted.items():
            # An unchanged partition keeps its object, so that a session of many partitions costs little.
            if now.topic_id is ZERO_UUID:
                with_ids = False
            then = before.get(partition)
            if then is not None:
                kept += 1
            if now is then:
                continue
            if now != then:
                send[partition] = now
                self.names[now.topic_id] = partition.topic
                if (
                    then is not None
                    and now.topic_id != then.topic_id
                    and ZERO_UUID not in (now.topic_id, then.topic_id)
                ):
                    replaced.append((partition, then.topic_id))
                    self.names.pop(then.topic_id, None)
        if kept < len(before):
            forget = [(partition, then.topic_id) for partition, then in before.items() if partition not in wanted]
            # A session has topic ids for all partitions or for none, and ends when that changes.
            with_ids = with_ids and all(topic_id != ZERO_UUID for _, topic_id in forget)
        return FetchPlan(self._id, self._epoch, send, forget, replaced, wanted, with_ids)

    def completed(
        self,
        plan: FetchPlan,
        error_code: int,
        session_id: int,
        throttle_ms: int,
        answered: set[TopicPartition],
        unknown_topics: bool,
    ) -> bool:
        """Whether the response is usable.

        `unknown_topics`: it has topic ids that the request did not have.
        """
        if error_code:
            logger.info("Node %d could not process a fetch: %s", self.node_id, ErrorCode.of(error_code).name)
            if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._restart()
            else:
                self.failed()
            return False
        extra = unknown_topics or not answered <= plan.partitions.keys()
        if plan.full:
            if not answered and throttle_ms > 0 and not extra:
                # KIP-219: the broker only throttles.
                self._restart()
                return False
            if extra or len(answered) != len(plan.partitions):
                logger.info("Node %d sent a full fetch response with other partitions than the request", self.node_id)
                self._restart()
                return False
            if session_id == NO_SESSION or not self._enabled:
                self._restart()
            else:
                self._id, self._epoch = session_id, 1
            return True
        if extra:
            logger.info("Node %d sent an incremental fetch response with partitions outside the session", self.node_id)
            self.failed()
            return False
        if session_id == NO_SESSION:
            self._restart()
        else:
            self._epoch = 1 if self._epoch == MAX_EPOCH else self._epoch + 1
        return True

    def failed(self) -> None:
        """Ends the session after a failed request.

        The broker's state is unknown: the next request closes the session and opens another.
        """
        if self._enabled:
            self._epoch = FIRST_EPOCH

    def _restart(self) -> None:
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH if self._enabled else FINAL_EPOCH

    def close(self) -> FetchPlan | None:
        """The request that closes the session, or None without a session."""
        if self._id == NO_SESSION:
            return None
        plan = FetchPlan(self._id, FINAL_EPOCH, {}, [], [], {}, True)
        self._restart()
        self._partitions = {}
        self.names = {}
        return plan
