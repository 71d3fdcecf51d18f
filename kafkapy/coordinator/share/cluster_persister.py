"""The share coordinators of a cluster, for group coordinators and partition leaders.

A call goes to the coordinator of its share-partition: to this broker's at once, to another by one of the APIs
InitializeShareGroupState to ReadShareGroupStateSummary. A request is about one group; calls of a group wait for the
request before them and travel together in the next. A call without an answer, or with one that another attempt may
change, is tried again: any of them may be done twice. Source:
org.apache.kafka.server.share.persister.PersisterStateManager.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard
from uuid import UUID

from kafkapy.coordinator.clock import Clock
from kafkapy.coordinator.peers import Peers, RequestQueues
from kafkapy.coordinator.result import Later
from kafkapy.coordinator.share.state import (
    ShareKey,
    ShareState,
    ShareSummary,
    StateBatch,
    delivery_complete_in,
    from_wire,
    to_wire,
)
from kafkapy.coordinator.timer import TimerHeap
from kafkapy.errors import AuthenticationError, ErrorCode, KafkaError, UnsupportedVersionError, error_for
from kafkapy.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from kafkapy.protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from kafkapy.protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from kafkapy.protocol.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from kafkapy.protocol.messages.write_share_group_state import WriteShareGroupStateRequest

if TYPE_CHECKING:
    from kafkapy._speedups.requests.share.state_write import StateWrite
    from kafkapy.coordinator.share.persister import Persister

logger = logging.getLogger("kafka.server.share.Persister")

FIRST_PAUSE_MS: Final = 50
"""Pause in ms before a call is tried again; it doubles with each attempt."""
LONGEST_PAUSE_MS: Final = 2_000
GIVE_UP_AFTER_MS: Final = 15_000
"""Time in ms from its begin after which a call is tried no more; Kafka's five attempts take as long."""
CALLS_PER_REQUEST: Final = 10_000
BATCHES_PER_REQUEST: Final = 50_000
"""State batches of one request, after which the next write waits for another."""

TRIED_AGAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors that another attempt may not meet. A new topic may not be known everywhere yet."""

Writing = WriteShareGroupStateRequest.Topic.Partition
Initializing = InitializeShareGroupStateRequest.Topic.Partition
Reading = ReadShareGroupStateRequest.Topic.Partition
Summarizing = ReadShareGroupStateSummaryRequest.Topic.Partition


class _Kind(NamedTuple):
    """One of the five calls: the Persister's method, the request, its entries and the replies in its response."""

    method: str
    request: Any
    entry: Callable[..., Any]
    reply: Callable[[Any], Any]


def _state(result: Any) -> ShareState:
    batches = tuple(from_wire(result.state_batches))
    return ShareState(result.state_epoch, result.start_offset, delivery_complete_in(batches), batches)


def _summary(result: Any) -> ShareSummary:
    return ShareSummary(result.state_epoch, result.leader_epoch, result.start_offset, result.delivery_complete_count)


def _writing(
    partition: int,
    state_epoch: int,
    leader_epoch: int,
    start_offset: int,
    delivery_complete: int,
    batches: Sequence[StateBatch],
) -> Writing:
    return Writing(
        partition=partition,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=delivery_complete,
        state_batches=to_wire(Writing.StateBatch, batches),
    )


_INITIALIZE: Final = _Kind(
    "initialize",
    InitializeShareGroupStateRequest,
    lambda partition, state_epoch, start_offset: Initializing(
        partition=partition, state_epoch=state_epoch, start_offset=start_offset
    ),
    lambda _: None,
)
_READ: Final = _Kind(
    "read",
    ReadShareGroupStateRequest,
    lambda partition, leader_epoch: Reading(partition=partition, leader_epoch=leader_epoch),
    _state,
)
_WRITE: Final = _Kind("write", WriteShareGroupStateRequest, _writing, lambda _: None)
_DELETE: Final = _Kind(
    "delete",
    DeleteShareGroupStateRequest,
    lambda partition: DeleteShareGroupStateRequest.Topic.Partition(partition=partition),
    lambda _: None,
)
_SUMMARY: Final = _Kind(
    "summary",
    ReadShareGroupStateSummaryRequest,
    lambda partition, leader_epoch: Summarizing(partition=partition, leader_epoch=leader_epoch),
    _summary,
)


@dataclass(slots=True, eq=False)
class _Call:
    """One call that has no answer yet."""

    kind: _Kind
    key: ShareKey
    arguments: tuple[Any, ...]
    begun_ms: int
    pause_ms: int = FIRST_PAUSE_MS
    later: Later[Any] = field(default_factory=Later)

    @property
    def batches(self) -> int:
        """The number of state batches that the call carries."""
        return len(self.arguments[-1]) if self.kind is _WRITE else 0


class _Destination(NamedTuple):
    """The common parts of the calls of one request."""

    broker_id: int
    method: str
    group_id: str


class ClusterPersister:
    """The share coordinators of the cluster. A Persister.

    Owned by Coordinators; used on the clock's thread. `local` is this broker's coordinator. `coordinator_of` returns
    the broker of a share-partition: -1 when it has none now, None when __share_group_state does not exist.
    `create_topic` begins to create that.
    """

    def __init__(
        self,
        broker_id: int,
        local: Persister,
        peers: Peers,
        clock: Clock,
        coordinator_of: Callable[[ShareKey], int | None],
        create_topic: Callable[[], object],
        *,
        timeout_ms: Callable[[], int],
    ) -> None:
        self._broker_id = broker_id
        self._local = local
        self._peers = peers
        self._clock = clock
        self._coordinator_of = coordinator_of
        self._create_topic = create_topic
        self._timeout_ms = timeout_ms
        self._timer = TimerHeap(clock)
        self._waiting: set[_Call] = set()
        """Calls that are tried again later."""
        self._homeless: set[_Call] = set()
        """The calls among them whose coordinator was not known."""
        self._queues: RequestQueues[_Destination, _Call] = RequestQueues(clock, _take, self._send, self._answered)
        self._closed = False

    # --- the Persister ----------------------------------------------------------------------------------------------

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> Later[None]:
        """See Persister."""
        return self._begin(_INITIALIZE, key, state_epoch, start_offset)

    def read(self, key: ShareKey, leader_epoch: int) -> Later[ShareState]:
        """See Persister."""
        return self._begin(_READ, key, leader_epoch)

    def write(
        self,
        key: ShareKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete: int,
        batches: Sequence[StateBatch],
    ) -> Later[None]:
        """See Persister."""
        return self._begin(_WRITE, key, state_epoch, leader_epoch, start_offset, delivery_complete, batches)

    def lend(self, key: ShareKey, write: StateWrite) -> None:
        """See Persister."""
        if self._coordinator_of(key) == self._broker_id:
            self._local.lend(key, write)

    def delete(self, key: ShareKey) -> Later[None]:
        """See Persister."""
        return self._begin(_DELETE, key)

    def summary(self, key: ShareKey, leader_epoch: int) -> Later[ShareSummary]:
        """See Persister."""
        return self._begin(_SUMMARY, key, leader_epoch)

    # --- life -------------------------------------------------------------------------------------------------------

    def leaders_changed(self) -> None:
        """Send the calls that wait for a coordinator, or for another one, to it."""
        moved = self._queues.remove(
            lambda destination, call: self._coordinator_of(call.key) != destination.broker_id,
        )
        if self._homeless:
            for call in [each for each in self._homeless if _is_known(self._coordinator_of(each.key))]:
                self._timer.cancel(call)
                moved.append(call)
        for call in moved:
            self._go_again(call)

    def close(self) -> None:
        """Send nothing more; calls without an answer fail."""
        self._closed = True
        self._queues.close()
        self._timer.close()
        for call in list(self._waiting):
            call.later.fail(_stopping())
        self._waiting.clear()
        self._homeless.clear()

    # --- one call ---------------------------------------------------------------------------------------------------

    def _begin(self, kind: _Kind, key: ShareKey, *arguments: Any) -> Later[Any]:
        call = _Call(kind, key, arguments, self._clock.monotonic_ms())
        self._go(call)
        return call.later

    def _go_again(self, call: _Call) -> None:
        self._waiting.discard(call)
        self._homeless.discard(call)
        self._go(call)

    def _go(self, call: _Call) -> None:
        if self._closed:
            call.later.fail(_stopping())
            return
        broker_id = self._coordinator_of(call.key)
        if broker_id == self._broker_id:
            reply: Later[Any] = getattr(self._local, call.kind.method)(call.key, *call.arguments)
            reply.then(partial(self._ended, call))
        elif _is_known(broker_id):
            self._queues.add(_Destination(broker_id, call.kind.method, call.key.group_id), call)
        else:
            if broker_id is None:
                self._create_topic()
            self._failed(call, error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE), homeless=True)

    def _ended(self, call: _Call, done: Later[Any]) -> None:
        if done.error is None:
            call.later.set(done.result())
        else:
            self._failed(call, done.error)

    def _failed(self, call: _Call, error: BaseException, *, homeless: bool = False) -> None:
        too_late = self._clock.monotonic_ms() - call.begun_ms >= GIVE_UP_AFTER_MS
        if self._closed or too_late or not (isinstance(error, KafkaError) and error.code in TRIED_AGAIN):
            call.later.fail(error)
            return
        self._waiting.add(call)
        if homeless:
            self._homeless.add(call)
        self._timer.schedule(call, call.pause_ms, lambda: self._go_again(call))
        call.pause_ms = min(2 * call.pause_ms, LONGEST_PAUSE_MS)

    # --- requests to other brokers ----------------------------------------------------------------------------------

    def _send(self, destination: _Destination, calls: Sequence[_Call]) -> Later[Any]:
        kind = calls[0].kind
        topics: dict[UUID, list[Any]] = {}
        for call in calls:
            topics.setdefault(call.key.topic_id, []).append(kind.entry(call.key.partition, *call.arguments))
        request = kind.request(
            group_id=destination.group_id,
            topics=[
                kind.request.Topic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()
            ],
        )
        return self._peers.send(destination.broker_id, request, self._timeout_ms())

    def _answered(self, calls: Sequence[_Call], done: Later[Any]) -> None:
        error = done.error
        if error is not None:
            level = logging.ERROR if isinstance(error, AuthenticationError) else logging.INFO
            logger.log(level, "The state of share-partitions cannot be sent to their coordinator: %s", error)
            if not isinstance(error, UnsupportedVersionError):
                error = error_for(ErrorCode.NETWORK_EXCEPTION, str(error))
            for call in calls:
                self._failed(call, error)
            return
        results = {
            (topic.topic_id, each.partition): each for topic in done.result().results for each in topic.partitions
        }
        for call in calls:
            result = results.get((call.key.topic_id, call.key.partition))
            if result is None:
                call.later.fail(error_for(ErrorCode.UNKNOWN_SERVER_ERROR, "The coordinator's response has no result"))
            elif result.error_code:
                self._failed(call, error_for(result.error_code, result.error_message or None))
            else:
                call.later.set(call.kind.reply(result))


def _is_known(broker_id: int | None) -> TypeGuard[int]:
    return broker_id is not None and broker_id >= 0


def _stopping() -> KafkaError:
    return error_for(ErrorCode.NETWORK_EXCEPTION, "The broker is being stopped")


def _take(queue: deque[_Call]) -> list[_Call]:
    """The calls of the next request: one of a share-partition, as results have only that."""
    taken: list[_Call] = []
    kept: list[_Call] = []
    keys: set[ShareKey] = set()
    batches = 0
    while queue and len(taken) + len(kept) < CALLS_PER_REQUEST:
        call = queue[0]
        if taken and batches + call.batches > BATCHES_PER_REQUEST:
            break
        queue.popleft()
        if call.key in keys:
            kept.append(call)
            continue
        keys.add(call.key)
        batches += call.batches
        taken.append(call)
    queue.extendleft(reversed(kept))
    return taken
