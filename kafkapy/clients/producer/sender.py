"""The sender: turns ready batches into Produce requests, and responses into results.

It has no thread: `wake` schedules one pass on the producer's loop. A pass collects the ready batches, sends those that
may be sent, and sets a timer for the next event; responses, new connections and full batches wake it again. It does no
work per record, and work per batch only after errors. Source: org.apache.kafka.clients.producer.internals.Sender.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafkapy._speedups.clients.producer.produce_frame import ProduceRequestFrame, ProduceResponseFrame
from kafkapy._speedups.clients.producer.producer_batch import ProducerBatch
from kafkapy._speedups.clients.producer.record_accumulator import RecordAccumulator
from kafkapy.clients.cluster import BrokerNode
from kafkapy.clients.network_client import request_header
from kafkapy.clients.producer.metrics import ProducerMetrics
from kafkapy.clients.producer.transaction_manager import State, TransactionManager
from kafkapy.clients.producer.transactional_requests import TransactionalRequests
from kafkapy.config.producer import ProducerConfig
from kafkapy.errors import (
    ErrorCode,
    InvalidMetadataError,
    InvalidRecordError,
    KafkaError,
    KafkaTimeoutError,
    TransactionAbortedError,
    error_class,
    error_for,
)
from kafkapy.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafkapy.protocol.schema import DecodeError
from kafkapy.types import ZERO_UUID, TopicPartition

__all__ = ["Sender"]

log = logging.getLogger("kafkapy.producer")

PRODUCE: Final = ProduceRequest.API_KEY
LOWEST_VERSION: Final = 3
HIGHEST_VERSION: Final = 13
TOPIC_ID_VERSION: Final = 13
LAST_VERSION_WITH_ADDED_PARTITIONS: Final = 11
"""In later versions the broker adds a partition to the transaction itself (KIP-890)."""
DEFAULT_LEVEL: Final = -0x7FFFFFFF
RECONNECT_CHECK_S: Final = 0.02


class PartitionResponse(NamedTuple):
    """A broker's result for one batch, or a substitute without a response."""

    code: ErrorCode
    message: str | None = None
    base_offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    record_errors: tuple[tuple[int, str | None], ...] = ()


def monotonic_ms() -> int:
    """The clock of batches, in ms."""
    return time.monotonic_ns() // 1_000_000


class Sender:
    """The sender of a producer's core.

    All methods belong to the loop's thread, except `wake`.
    """

    def __init__(
        self,
        config: ProducerConfig,
        network: Any,
        accumulator: RecordAccumulator,
        metrics: ProducerMetrics,
        transactions: TransactionManager | None,
        clock: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._network = network
        self._accumulator = accumulator
        self._metrics = metrics
        self._transactions = transactions
        self._clock = clock
        self.requests: TransactionalRequests | None = None
        """The requests for producer ids and new partitions; the core sets it."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._acks: int = config["acks"]
        self._retries: int = config["retries"]
        self._max_in_flight: int = config["max.in.flight.requests.per.connection"]
        self._max_request_size: int = config["max.request.size"]
        self._request_timeout_ms: int = config["request.timeout.ms"]
        self._delivery_timeout_ms: int = config["delivery.timeout.ms"]
        self._linger_ms: int = config["linger.ms"]
        self._unavailable_ms: int = config["partitioner.availability.timeout.ms"]
        self._codec = config.codec
        level = config.compression_level
        self._level = DEFAULT_LEVEL if level is None else level
        self._one_at_a_time = self._max_in_flight == 1
        self._in_flight: dict[int, int] = {}
        self._slow_since: dict[int, int] = {}
        self._connecting: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaders: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._expires_ms: int | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._scheduled = False
        self.closed = False

    # --- running --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._accumulator.wake = self.wake
        self.schedule()

    def wake(self) -> None:
        """Schedules a pass. Any thread."""
        if self._loop is not None and not self.closed:
            try:
                self._loop.call_soon_threadsafe(self._pass)
            except RuntimeError:
                log.debug("The loop of a producer is closed")

    def schedule(self) -> None:
        """Schedules a pass, on the loop's thread."""
        if not self._scheduled and self._loop is not None and not self.closed:
            self._scheduled = True
            self._loop.call_soon(self._pass)

    def stop(self) -> None:
        """Stops the passes."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._release_waiters()

    @property
    def in_flight(self) -> int:
        """Number of Produce requests in flight."""
        return sum(self._in_flight.values())

    async def all_complete(self) -> None:
        """Returns when all batches have results, or the producer has an error."""
        while self._accumulator.incomplete and not self._has_failed() and not self.closed:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            self.schedule()
            await waiter

    def _has_failed(self) -> bool:
        return self._transactions is not None and self._transactions.failed

    def _release_waiters(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def leaders_changed(self, leaders: set[int]) -> None:
        """Records the brokers that lead partitions of the produced topics."""
        self._leaders = leaders
        self.schedule()

    def _pass(self) -> None:
        try:
            self._run_pass()
        except Exception:
            log.exception("A pass of the sender failed")
            if self._loop is not None and self._timer is None:
                self._timer = self._loop.call_later(RECONNECT_CHECK_S, self._on_timer)

    def _run_pass(self) -> None:
        accumulator = self._accumulator
        self._scheduled = False
        # First: later wakes ask for another pass, even for data that this one has already seen.
        accumulator.wake_asked = False
        accumulator.timer_set = accumulator.saturated = False
        if self.closed:
            return
        now = self._clock()
        if self._transactions is not None and not self._advance_transactions(self._transactions):
            self._release_waiters()
            return
        nodes, next_ms, leaderless = accumulator.ready(now)
        if leaderless:
            self._network.cluster.want(leaderless)
            self._network.cluster.invalidate()
        for node in nodes:
            self._send_to(node, now)
        expiry = self._expire(now)
        if not accumulator.incomplete or self._has_failed():
            self._release_waiters()
        self._set_timer(next_ms, expiry)

    def _advance_transactions(self, transactions: TransactionManager) -> bool:
        """Handles ids, sequences and errors before a pass sends.

        Returns whether the pass may send.
        """
        transactions.resolve_sequences()
        if transactions.state is State.FATAL_ERROR:
            error = transactions.last_error or KafkaError("the producer has a fatal error")
            for batch in self._accumulator.take_all():
                self._accumulator.fail(batch, error)
            return False
        transactions.bump_epoch_if_required()
        if self.requests is not None:
            self.requests.advance()
        if transactions.state is State.ABORTABLE_ERROR or transactions.state is State.ABORTING:
            aborted = transactions.last_error or TransactionAbortedError(
                "the transaction was aborted before the record was sent"
            )
            for batch in self._accumulator.take_undrained():
                self._accumulator.fail(batch, aborted)
        return True

    def _set_timer(self, next_ms: int | None, expiry_ms: int | None) -> None:
        assert self._loop is not None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        accumulator = self._accumulator
        in_flight = self._in_flight
        accumulator.saturated = bool(self._leaders) and all(
            in_flight.get(node, 0) >= self._max_in_flight for node in self._leaders
        )
        wait = min((ms for ms in (next_ms, expiry_ms) if ms is not None), default=None)
        if wait is not None:
            self._timer = self._loop.call_later(wait / 1000, self._on_timer)
        accumulator.timer_set = accumulator.saturated or (wait is not None and wait <= self._linger_ms)

    def _on_timer(self) -> None:
        self._timer = None
        self._pass()

    # --- sending --------------------------------------------------------------------------------------------------

    def _send_to(self, node: int, now: int) -> None:
        """Sends requests to a node, up to max.in.flight.requests.per.connection."""
        network = self._network
        if not network.is_ready(node):
            self._note_slow(node, now, drained=False)
            if node not in self._connecting:
                self._connecting.add(node)
                task = asyncio.ensure_future(self._connect(node))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            return
        self._note_slow(node, now, drained=True)
        while self._in_flight.get(node, 0) < self._max_in_flight:
            batches = self._accumulator.drain(node, self._max_request_size, now, self._one_at_a_time)
            if not batches:
                return
            self._send(node, batches)

    def _note_slow(self, node: int, now: int, *, drained: bool) -> None:
        """Notes nodes that do not take their ready batches.

        Records without a key avoid their partitions.
        """
        if drained:
            self._slow_since.pop(node, None)
        else:
            self._slow_since.setdefault(node, now)
        self._accumulator.update_loads(self._slow(now))

    def _slow(self, now: int) -> set[int]:
        if not self._unavailable_ms or not self._slow_since:
            return set()
        return {node for node, since in self._slow_since.items() if now - since > self._unavailable_ms}

    async def _connect(self, node: int) -> None:
        try:
            await self._network.ready(node)
        except KafkaError as error:
            log.debug("Broker %d is not ready: %s", node, error)
            if not isinstance(error, InvalidMetadataError) and not error.retriable:
                self._refuse_all(node, error)
            await asyncio.sleep(max(self._network.connection_delay_s(node), RECONNECT_CHECK_S))
        finally:
            self._connecting.discard(node)
            self.schedule()

    def _refuse_all(self, node: int, error: KafkaError) -> None:
        """Fails the batches for a broker that will never accept them.

        The broker is too old, or refuses this client.
        """
        if self._transactions is not None and error.code is ErrorCode.UNSUPPORTED_VERSION:
            self._transactions.fatal(error)
        for batch in self._accumulator.drain(node, 2**62, self._clock()):
            self._fail(batch, error, adjust=True)

    def _version(self, node: int, topic_ids: dict[str, UUID]) -> int:
        highest = HIGHEST_VERSION
        if ZERO_UUID in topic_ids.values():
            highest = TOPIC_ID_VERSION - 1
        transactions = self._transactions
        if transactions is not None and transactions.transactional and not transactions.v2:
            highest = LAST_VERSION_WITH_ADDED_PARTITIONS
        version: int = self._network.negotiated(node, PRODUCE, LOWEST_VERSION, highest)
        return version

    def _send(self, node: int, batches: list[ProducerBatch]) -> None:
        """Sends one request with drained batches."""
        network = self._network
        topics = self._accumulator.topics
        topic_ids = {batch.topic: topics[batch.topic].topic_id or ZERO_UUID for batch in batches}
        transactions = self._transactions
        try:
            version = self._version(node, topic_ids)
            request = ProduceRequestFrame(
                version,
                request_header(PRODUCE, version, network.client_id),
                batches,
                self._acks,
                self._request_timeout_ms,
                transactions.transactional_id if transactions is not None else None,
                topic_ids,
                self._codec,
                self._level,
            )
            response = ProduceResponseFrame(version) if self._acks else None
            future = network.submit(node, PRODUCE, version, request, response, self._request_timeout_ms)
        except KafkaError as error:
            self._request_failed(batches, error)
            self.schedule()
            return
        if transactions is not None:
            transactions.started = True
        self._in_flight[node] = self._in_flight.get(node, 0) + 1
        self._metrics.request(batches)
        future.add_done_callback(lambda future: self._on_response(node, request, future))

    # --- responses ------------------------------------------------------------------------------------------------

    def _on_response(self, node: int, request: ProduceRequestFrame, future: asyncio.Future[Any]) -> None:
        self._in_flight[node] -= 1
        self._metrics.sent(request)
        try:
            self._take_response(node, request, future)
        finally:
            request.release()
            self._accumulator.tell_room()
            self.schedule()

    def _take_response(self, node: int, request: ProduceRequestFrame, future: asyncio.Future[Any]) -> None:
        try:
            response: ProduceResponseFrame | None = future.result()
        except KafkaError as error:
            self._request_failed(request.batches, error)
            return
        except asyncio.CancelledError:
            self._request_failed(request.batches, error_for(ErrorCode.NETWORK_EXCEPTION))
            return
        if response is None:
            for batch in request.batches:
                self._accumulator.succeed(batch, -1, -1)
            return
        throttle_ms = response.throttle_time_ms
        if not response.succeed_all(request, self._accumulator):
            throttle_ms = self._answered(request, response)
        self._metrics.throttled(throttle_ms)
        if throttle_ms:
            self._network.throttled(node, PRODUCE, response.version, throttle_ms)

    def _request_failed(self, batches: list[ProducerBatch], error: KafkaError) -> None:
        """Handles a request without a response.

        Its batches may or may not be written.
        """
        code = error.code
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            code = ErrorCode.NETWORK_EXCEPTION if error.retriable else code
        for batch in batches:
            self._complete(batch, PartitionResponse(code, str(error)))

    def _answered(self, request: ProduceRequestFrame, frame: ProduceResponseFrame) -> int:
        """Handles a response with errors or a throttle time.

        Returns the throttle time in ms.
        """
        try:
            response = ProduceResponse.decode(frame.body(), frame.version)
        except DecodeError as error:
            self._request_failed(
                request.batches, error_class(ErrorCode.CORRUPT_MESSAGE)(f"an unreadable response: {error}")
            )
            return 0
        topics = self._accumulator.topics
        names = {topics[batch.topic].topic_id: batch.topic for batch in request.batches}
        left = {(batch.topic, batch.partition): batch for batch in request.batches}
        endpoints = {
            each.node_id: BrokerNode(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints
        }
        for topic in response.responses:
            name = topic.name if topic.topic_id == ZERO_UUID else names.get(topic.topic_id, "")
            for each in topic.partition_responses:
                batch = left.pop((name, each.index), None)
                if batch is None:
                    continue
                self._complete(
                    batch,
                    PartitionResponse(
                        ErrorCode.of(each.error_code),
                        each.error_message,
                        each.base_offset,
                        each.log_append_time_ms,
                        each.log_start_offset,
                        tuple((record.batch_index, record.batch_index_error_message) for record in each.record_errors),
                    ),
                )
                leader = each.current_leader
                if each.error_code and leader.leader_id >= 0 and leader.leader_epoch >= 0:
                    self._network.cluster.update_leader(
                        TopicPartition(batch.topic, batch.partition),
                        leader.leader_id,
                        leader.leader_epoch,
                        endpoints.get(leader.leader_id),
                    )
        if left:
            self._request_failed(list(left.values()), error_for(ErrorCode.NETWORK_EXCEPTION))
        throttle_ms: int = response.throttle_time_ms
        return throttle_ms

    def _complete(self, batch: ProducerBatch, response: PartitionResponse) -> None:
        """Completes one batch, or sends it again."""
        code = response.code
        accumulator = self._accumulator
        if code is ErrorCode.NONE or (code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER and not batch.done):
            # The broker has written a duplicate, but no longer knows its offset.
            accumulator.succeed(batch, response.base_offset, response.log_append_time)
            return
        if batch.done:
            return  # it expired meanwhile, and the next batch may be in flight to another leader
        if code is ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1:
            log.warning("%s of %d bytes is too large for its topic; splitting it", batch, batch.size)
            accumulator.split(batch)
            self._metrics.splits += 1
        elif self._can_retry(batch, response):
            level = logging.WARNING if batch.attempts in (0, 10, 100, 1000) else logging.DEBUG
            log.log(level, "Retrying %s (attempt %d): %s", batch, batch.attempts + 1, response.message or code.name)
            accumulator.retry(batch, self._clock())
            self._metrics.record_retries(batch)
        else:
            self._refused(batch, response)
        if issubclass(error_class(code), InvalidMetadataError):
            self._network.cluster.want({batch.topic})
            self._network.cluster.invalidate()

    def _has_time(self, batch: ProducerBatch) -> bool:
        """Whether neither retries nor delivery.timeout.ms are exhausted."""
        return batch.attempts < self._retries and self._clock() - batch.created_ms < self._delivery_timeout_ms

    def _can_retry(self, batch: ProducerBatch, response: PartitionResponse) -> bool:
        if not self._has_time(batch):
            return False
        if self._transactions is None:
            return response.code.retriable
        queue = self._accumulator.queue(batch.topic, batch.partition)
        return self._transactions.can_retry(queue, batch, response.code, response.log_start_offset)

    def _refused(self, batch: ProducerBatch, response: PartitionResponse) -> None:
        """Fails a batch without another attempt."""
        code = response.code
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            error = error_for(code, f"not authorized for topic {batch.topic}")
        else:
            error = error_for(code, response.message)
        # After the last retry or the timeout, it is unknown whether the broker wrote the batch.
        adjust = self._has_time(batch)
        if not adjust and self._transactions is not None and batch.has_sequence:
            self._transactions.mark_unresolved(self._accumulator.queue(batch.topic, batch.partition), batch)
        if not response.record_errors:
            self._fail(batch, error, adjust=adjust)
            return
        single = len(response.record_errors) == 1
        record_errors: dict[int, BaseException] = {}
        for index, text in response.record_errors:
            message = text or response.message or code.message
            record_errors[index] = error_for(code, message) if single else InvalidRecordError(message)
        others = KafkaError("the record was not written because other records of its batch are invalid")
        self._fail(batch, error, adjust=adjust, record_errors=record_errors, others=others)

    def _fail(
        self,
        batch: ProducerBatch,
        error: BaseException,
        *,
        adjust: bool,
        record_errors: dict[int, BaseException] | None = None,
        others: BaseException | None = None,
    ) -> None:
        queue = self._accumulator.queue(batch.topic, batch.partition)
        self._metrics.record_errors(batch)
        if self._accumulator.fail(batch, others or error, record_errors) and self._transactions is not None:
            self._transactions.batch_failed(queue, batch, error, adjust)

    # --- expiry ---------------------------------------------------------------------------------------------------

    def _expire(self, now: int) -> int | None:
        """Fails batches older than delivery.timeout.ms.

        Returns the ms until the next batch may expire, None without batches.
        """
        if not self._accumulator.incomplete:
            self._expires_ms = None
            return None
        if self._expires_ms is None:
            self._expires_ms = now + self._delivery_timeout_ms - self._linger_ms
        if now < self._expires_ms:
            return self._expires_ms - now
        expired, next_ms = self._accumulator.take_expired(now, self._delivery_timeout_ms)
        for batch in expired:
            sent = batch.has_sequence and batch.drained_ms > 0
            queue = self._accumulator.queue(batch.topic, batch.partition)
            self._fail(
                batch,
                KafkaTimeoutError(
                    f"{batch.record_count} records for {batch.topic}-{batch.partition} were not sent within "
                    f"{now - batch.created_ms} ms"
                ),
                adjust=False,
            )
            if self._transactions is not None and sent:
                # No new batch gets a sequence until the batches in flight have responses.
                self._transactions.mark_unresolved(queue, batch)
        if expired:
            self._accumulator.tell_room()
            self.schedule()
        self._expires_ms = None if next_ms is None else now + max(next_ms, 1)
        return next_ms
