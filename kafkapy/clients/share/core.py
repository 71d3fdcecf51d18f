"""ShareConsumerCore: a share consumer without an interface, as coroutines on one loop.

`KafkaShareConsumer` and `AIOKafkaShareConsumer` are interfaces to it.

    user's thread                                       loop
      poll(): accepts the records before, takes more
        nothing there: fetch()  ------------------------>  ShareFetcher: ShareFetch, with the acknowledgements
        waits                   <------ tell_ready -------  acquired records
      acknowledge(): marks records in their chunks
      commit(): marks, then waits ----------------------->  ShareFetcher: ShareAcknowledge
        next_work()             <------ Attendance -------  acknowledgement callbacks, errors

Chunks keep the state of each acquired record (acquired_partition.pyx), so acknowledging needs no turn of the loop.
Source: org.apache.kafka.clients.consumer.internals.ShareConsumerImpl (4.4).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final

from kafkapy._speedups.clients.consumer.record_iterator import FetchBuffer
from kafkapy.clients.consumer.attendance import Attendance
from kafkapy.clients.consumer.membership.group_coordinator import GroupCoordinator
from kafkapy.clients.consumer.metrics import PollMetrics
from kafkapy.clients.consumer.subscription import NO_RESET, SubscriptionState
from kafkapy.clients.consumer.topics import Topics
from kafkapy.clients.network_client import NetworkClient
from kafkapy.clients.share.acknowledgements import Acknowledgement, Deliveries
from kafkapy.clients.share.fetcher import ShareFetchConfig, ShareFetcher
from kafkapy.clients.share.membership import ShareMembership
from kafkapy.clients.share.metrics import ShareCoordinatorMetrics, ShareMetrics
from kafkapy.clients.telemetry import CLOSE_S, TelemetryReporter
from kafkapy.errors import ErrorCode, InvalidGroupIdError, error_for
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.clients.cluster import ClusterMetadata
    from kafkapy.config.clients import ClientConfig

__all__ = ["AcknowledgementCallback", "ShareConsumerCore"]

logger = logging.getLogger("kafka.consumer.share")

CHECK_S: Final = 1.0
"""Seconds between checks of the user's reading, and between the acknowledgements of a long iteration."""
LARGEST_BATCH: Final = 1 << 20
"""Room in bytes for a batch beyond fetch.max.bytes, as a topic's max.message.bytes has it by default."""

AcknowledgementCallback = Callable[[dict[TopicPartition, list[int]], Exception | None], Any]

_numbers = itertools.count(1)


class ShareConsumerCore:
    """Owns one share consumer's connections, subscription, fetcher and membership.

    All methods belong to the loop's thread. `post` schedules a function on the loop's thread, from any thread; `ring`
    wakes threads that wait for records or work. `attended`: callbacks wait for the user's thread to call `enter_poll`;
    otherwise they run on the loop at once, and headers have aiokafka's form.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        post: Callable[[Callable[[], object]], None],
        ring: Callable[[], None],
        attended: bool = True,
    ) -> None:
        least = config["fetch.max.bytes"] + LARGEST_BATCH
        if config["receive.message.max.bytes"] < least and "receive.message.max.bytes" not in config.given:
            config = config.replaced(receive_message_max_bytes=least)
        self.config = config
        self.group_id: str | None = config["group.id"]
        if self.group_id is None:
            raise InvalidGroupIdError("A share consumer needs a group: group_id is not set")
        client_id = config["client.id"] or f"consumer-{self.group_id}-share-{next(_numbers)}"
        self.network = NetworkClient(config, client_id=client_id)
        self.buffer = FetchBuffer(lambda: post(self._wake), ring)
        self.subscription = SubscriptionState(NO_RESET, self.buffer.partition)
        self.topics = Topics(self.network, self.subscription, exclude_internal=True)
        self.attendance = Attendance(self.buffer, self.subscription, ring, attended)
        self.deliveries = Deliveries(config["share.acknowledgement.mode"].lower() == "explicit")
        self.metrics = ShareMetrics(self.buffer)
        self._coordinator_metrics = ShareCoordinatorMetrics()
        self.coordinator = GroupCoordinator(self.network, self.group_id, self._coordinator_metrics)
        self.membership = ShareMembership(self)
        self.fetcher = ShareFetcher(
            self.network,
            self.subscription,
            self.buffer,
            self.deliveries,
            self._fetch_config(config, self.group_id, tuple_headers=not attended),
            self.metrics,
            member_id=lambda: self.membership.member_id,
            on_error=self.report,
            on_acknowledged=self._acknowledged,
        )
        self.polls = PollMetrics()
        self.telemetry = TelemetryReporter(self.network, self.all_metrics, self._telemetry_resource)
        self.callback: AcknowledgementCallback | None = None
        self.closed = False
        self.user_waits = False
        """Whether the user's thread waits inside poll(): such a member counts as polling."""
        self._ring = ring
        self._tasks: set[asyncio.Task[Any]] = set()
        self._member_started = False
        self._timer: asyncio.TimerHandle | None = None
        self._calls_seen = 0

    @staticmethod
    def _fetch_config(config: ClientConfig, group_id: str, tuple_headers: bool) -> ShareFetchConfig:
        return ShareFetchConfig(
            group_id=group_id,
            max_wait_ms=config["fetch.max.wait.ms"],
            min_bytes=config["fetch.min.bytes"],
            max_bytes=config["fetch.max.bytes"],
            max_records=config["max.poll.records"],
            record_limit=config["share.acquire.mode"].lower() == "record_limit",
            check_crcs=config["check.crcs"],
            request_timeout_ms=config["request.timeout.ms"],
            api_timeout_ms=config["default.api.timeout.ms"],
            retry_backoff_s=config["retry.backoff.ms"] / 1000,
            tuple_headers=tuple_headers,
            key_deserializer=config["key.deserializer"],
            value_deserializer=config["value.deserializer"],
        )

    async def start(self) -> None:
        """Connects to the cluster. NoBrokersAvailableError."""
        self.network.cluster.add_listener(self._metadata_changed)
        await self.network.start()
        self.telemetry.start()
        self._arm()

    # --- subscription ---------------------------------------------------------------------------------------------

    @property
    def subscribed_topics(self) -> Iterable[str]:
        """The subscribed topics."""
        return self.subscription.topics

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribes by name, in place of the previous topics."""
        self.subscription.subscribe(topics, None)
        self.topics.want()
        if self._member_started:
            self.membership.subscription_changed()
        self.attendance.need_poll()

    async def unsubscribe(self, reason: str = "the consumer unsubscribed from all topics") -> None:
        """Sends the acknowledgements, gives all other records back, and leaves the group."""
        for chunk in self.deliveries:
            chunk.committable = True
        try:
            await self.fetcher.end_sessions()
            if self._member_started:
                self._member_started = False
                await self.membership.leave(reason)
            self.subscription.unsubscribe()
            self.topics.want()
        finally:
            if not self.closed:
                self.fetcher.resume()

    def assigned(self, partitions: set[TopicPartition]) -> None:
        """Takes over the assigned partitions; unread records of others go back to the group."""
        if not self.subscription.auto_assigned:
            return
        gone = self.subscription.assigned - partitions
        self.deliveries.release(gone)
        added = self.subscription.assign_from_subscribed(sorted(partitions))
        for state in self.subscription.states(added):
            state.seek(0)  # the broker has the positions; here a partition is just readable
        self.subscription.callback_done(added)
        if added or gone:
            logger.info(
                "Share group %s assigns partitions %s, new: %s, gone: %s",
                self.group_id, sorted(partitions), sorted(added), sorted(gone),
            )  # fmt: skip
        self._wake()

    def _metadata_changed(self, _cluster: ClusterMetadata) -> None:
        for error in self.topics.errors():
            self.report(error)
        self._wake()

    def _wake(self) -> None:
        if not self.closed:
            self.fetcher.wake()

    # --- the user's thread in poll() ------------------------------------------------------------------------------

    def need_poll(self) -> None:
        """Makes the user's thread enter poll() after a change."""
        self.attendance.need_poll()

    def report(self, error: Exception) -> None:
        """Makes the next poll raise this error."""
        self.attendance.report(error)

    def enter_poll(self) -> None:
        """Enters poll(): the user's thread then does the attendance's work, and raises errors."""
        self.buffer.attention = False
        self._calls_seen = self.buffer.calls
        leaves = self.fetcher.is_closing
        if self.subscription.auto_assigned and not self._member_started and not self.closed and not leaves:
            self._member_started = True
            self._spawn(self.membership.start())
        self.membership.poll_called()
        if self.membership.error is not None:
            self.report(self.membership.error)
        if self.attendance.has_errors:
            # A poll after an error continues where possible.
            self.buffer.attention = True

    def fetch(self) -> None:
        """Asks the brokers for records: the user waits, and none are buffered."""
        self.fetcher.wants = True
        self._wake()

    def send_acknowledgements(self) -> None:
        """Sends acknowledgements that may be sent, to brokers without a running request."""
        self._wake()

    def _arm(self) -> None:
        if not self.closed:
            self._timer = asyncio.get_running_loop().call_later(
                min(CHECK_S, self.config["max.poll.interval.ms"] / 4000), self._check_polls
            )

    def _check_polls(self) -> None:
        calls = self.buffer.calls
        if (calls != self._calls_seen or self.user_waits) and self._member_started:
            self._calls_seen = calls
            self.membership.poll_called()
        if self.deliveries.unsent:
            self._wake()
        if self.membership.error is not None:
            self.attendance.need_poll()
        self._arm()

    # --- acknowledgements -----------------------------------------------------------------------------------------

    def commit_soon(self) -> None:
        """Sends all acknowledgements that may be sent, without waiting."""
        self.fetcher.commit()

    async def commit(self, timeout_ms: int) -> dict[TopicPartition, Exception | None]:
        """Sends the acknowledgements, and waits for their outcomes by partition.

        The first error of a partition counts; RequestTimedOutError without an outcome in time.
        """
        self.deliveries.user_commits()  # here: no round may send them before they are counted
        waiting = self.fetcher.commit()
        unfinished = set()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                for each in waiting:
                    await each.finished()
        except TimeoutError:
            unfinished = {each for each in waiting if not each.is_finished}
        outcomes: dict[TopicPartition, Exception | None] = {}
        for each in waiting:
            late = each in unfinished
            error = error_for(ErrorCode.REQUEST_TIMED_OUT, f"No outcome within {timeout_ms} ms") if late else each.error
            if outcomes.get(each.partition) is None:
                outcomes[each.partition] = error
        return outcomes

    def _acknowledged(self, acknowledgement: Acknowledgement, error: Exception | None) -> None:
        """An acknowledgement has its outcome."""
        if acknowledgement.renews:
            self.attendance.need_poll()  # the user gets the renewed records
        self._ring()
        callback = self.callback
        if callback is not None:
            offsets = {acknowledgement.partition: acknowledgement.offsets()}
            if offsets[acknowledgement.partition]:
                self._call_back(lambda: callback(offsets, error))

    def _call_back(self, call: Callable[[], Any]) -> None:
        """Runs the user's callback; a poll raises its error."""
        if self.attendance.attended:
            self.attendance.callback(call)
            return
        try:
            call()
        except Exception as error:
            self.report(error)

    # --- information ----------------------------------------------------------------------------------------------

    def all_metrics(self) -> dict[str, dict[str, Any]]:
        """The metrics by group and name."""
        counted = self.network.metrics_snapshot("consumer") | self.metrics.read()
        counted["consumer-share-metrics"] = self.polls.read()
        return counted | self._coordinator_metrics.read(len(self.subscription.assigned))

    def _telemetry_resource(self) -> dict[str, str | None]:
        return {
            "client_rack": self.config["client.rack"],
            "group_id": self.group_id,
            "group_instance_id": None,
            "group_member_id": self.membership.member_id,
        }

    # --- the end --------------------------------------------------------------------------------------------------

    async def close(self, timeout_ms: int) -> None:
        """Sends the acknowledgements, ends the sessions, leaves the group, and closes everything.

        It takes about `timeout_ms`.
        """
        if self.closed:
            return
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(deadline):
                await self.unsubscribe("the consumer is being closed")
        except TimeoutError:
            logger.warning("The share consumer closed with unfinished work after %d ms", timeout_ms)
        finally:
            await self.telemetry.close(min(CLOSE_S, timeout_ms / 1000))
            self.closed = True
            if self._timer is not None:
                self._timer.cancel()
            await self.fetcher.stop()
            for task in self._tasks:
                task.cancel()
            await self.membership.stop()
            await self.network.close()

    def _spawn(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.report(error)
