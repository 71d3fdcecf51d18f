"""The fetchers that copy partitions from their leaders.

A partition goes through three hands: its log is first cut where the leader's log is another one (this module, on worker
threads), then a fetcher thread copies it (kafkapy/_speedups/replica), and whatever the thread cannot decide comes back
as an event: the logs diverge, the offset is out of range, the partition has failed. Source:
kafka.server.ReplicaFetcherManager, kafka.server.AbstractFetcherThread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy._speedups.replica import fetcher as kernel
from kafkapy._speedups.replica.fetcher import FollowedPartition, ReplicaFetcher
from kafkapy._speedups.replica.throttle import ReplicationThrottle
from kafkapy.errors import ErrorCode, KafkaError, KafkaStorageError, code_of, error_for
from kafkapy.log.shortage import FILES_AT_ONCE, close_idle, is_shortage, warn_of_shortage
from kafkapy.replica.fetcher_api import FetcherEvents, FetcherMetrics, FetchStart, FollowerVersions
from kafkapy.replica.leader_connections import LeaderConnections
from kafkapy.replica.leader_fetcher import LeaderFetcher, MakeKernel
from kafkapy.replica.truncation import EpochEnd, first_batch, truncation_of
from kafkapy.slices import SlicedQueue, in_slices
from kafkapy.types import Endpoint, ListOffsetsTimestamp, TopicPartition

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.config.clients import ClientConfig
    from kafkapy.log.log_manager import LogManager

__all__ = ["ReplicaFetcherManager"]

logger = logging.getLogger("kafka.server.ReplicaFetcherManager")

_AT_A_CHANGE_OF_LEADER: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH})
"""The leader or this follower has not heard of a change yet: both end by themselves."""

RATE: Final = "follower.replication.throttled.rate"
TRUNCATORS: Final = 4
"""Logs that are cut at the same time."""
ASKED_AT_ONCE: Final = 2000
"""Partitions of one OffsetForLeaderEpoch request."""


class _Followed:
    """One followed partition."""

    __slots__ = ("failed", "fetcher", "partition", "ready", "start", "task", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, start: FetchStart) -> None:
        self.topic_partition = topic_partition
        self.start = start
        self.ready = False
        """The log is cut: it may be fetched."""
        self.fetcher: LeaderFetcher | None = None
        self.partition: FollowedPartition | None = None
        """The fetcher's side; None: no fetcher has the partition."""
        self.task: asyncio.Task[None] | None = None
        """The answer to the thread's last event."""
        self.failed = False


class ReplicaFetcherManager:
    """Owns the fetchers: num.replica.fetchers threads for each leader that this broker follows.

    Made and used on the control loop. `add` and `remove` do not block: a fetcher checks the leader epoch of the log,
    under the log's mutex, with each append and truncation, so nothing that was fetched for an earlier epoch gets into
    a log after `become_leader` or `become_follower`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        log_manager: LogManager,
        client_config: ClientConfig,
        leaders: Callable[[int], Endpoint | None],
        events: FetcherEvents,
        *,
        versions: FollowerVersions = FollowerVersions(),  # noqa: B008
        connections: LeaderConnections | None = None,
        make_kernel: MakeKernel = ReplicaFetcher,
    ) -> None:
        """`client_config`: see inter_broker_client_config; `leaders`: an EndpointOf of the inter-broker listener.

        A simulation has its own `connections` and threads.
        """
        self.closed = False
        self._config = config
        self._broker_id = broker_id
        self._broker_epoch = -1
        self._log_manager = log_manager
        self._events = events
        self._versions = versions
        self._count = config.get_int("num.replica.fetchers")
        self._loop = asyncio.get_running_loop()
        self._connections = connections or LeaderConnections(config, broker_id, client_config, leaders, versions)
        self._make_kernel = make_kernel
        self._throttle = ReplicationThrottle(
            config.get_int("replication.quota.window.num"),
            config.get_int("replication.quota.window.size.seconds") * 1000,
        )
        self._throttle.bytes_per_second = config.get_int(RATE)
        self._workers = ThreadPoolExecutor(TRUNCATORS, thread_name_prefix="replica-truncations")
        self._followed: dict[TopicPartition, _Followed] = {}
        self._by_handle: dict[int, _Followed] = {}
        self._fetchers: dict[tuple[int, int], LeaderFetcher] = {}
        self._short: dict[tuple[int, int], dict[TopicPartition, _Followed]] = {}
        """Partitions by the fetcher that could not be made for want of threads or descriptors."""
        self._waiting: dict[int, dict[TopicPartition, _Followed]] = {}
        """Partitions by leader whose epochs the leader is to be asked for (OffsetForLeaderEpoch)."""
        self._asking: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ending: set[asyncio.Future[None]] = set()
        self._resizing: asyncio.Task[None] | None = None
        self._closing_idle = False
        self._past = [0, 0, 0]
        self._queue = EventQueue()
        self._events_left = SlicedQueue(self._on_event)
        self._loop.add_reader(self._queue.fileno(), self._on_events)

    @property
    def broker_epoch(self) -> int:
        """The broker epoch that the requests carry from Fetch 15 on; -1: none."""
        return self._broker_epoch

    @broker_epoch.setter
    def broker_epoch(self, epoch: int) -> None:
        self._broker_epoch = epoch
        for fetcher in self._fetchers.values():
            fetcher.configure(self._config, epoch)

    # --- partitions ---------------------------------------------------------------------------------------------------

    def add(self, starts: Mapping[TopicPartition, FetchStart]) -> None:
        """Follow partitions, or follow them in a newer leader epoch.

        A partition that is followed in the same epoch goes on as it is.
        """
        if self.closed:
            return
        for topic_partition, start in starts.items():
            known = self._followed.get(topic_partition)
            if known is not None:
                # The same log, topic id, leader and epoch.
                if known.start[:4] == start[:4] and not known.failed:
                    continue
                self._drop(known)
            followed = self._followed[topic_partition] = _Followed(topic_partition, start)
            self._begin(followed)

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Follow partitions no longer; a partition that is not followed is ignored."""
        for topic_partition in topic_partitions:
            known = self._followed.pop(topic_partition, None)
            if known is not None:
                self._drop(known)

    def _drop(self, followed: _Followed) -> None:
        self._take_back(followed)
        if followed.task is not None:
            followed.task.cancel()
        waiting = self._waiting.get(followed.start.leader_id)
        if waiting is not None and waiting.get(followed.topic_partition) is followed:
            del waiting[followed.topic_partition]

    def _is_current(self, followed: _Followed) -> bool:
        return self._followed.get(followed.topic_partition) is followed and not followed.failed

    def _begin(self, followed: _Followed) -> None:
        """Fetch at once, or cut the log first."""
        log = followed.start.log
        if log.log_end_offset == log.log_start_offset and not log.leader_epochs():
            self._fetch(followed)  # empty: there is nothing to cut
        elif not log.leader_epochs():
            self._spawn(followed, self._cut(followed, self._initial_offset(followed)))
        elif self._versions.truncates_on_fetch:
            self._fetch(followed)
        else:
            self._ask_later(followed)

    @staticmethod
    def _initial_offset(followed: _Followed) -> int:
        start = followed.start
        return start.initial_offset if start.initial_offset >= 0 else start.log.high_watermark

    # --- fetchers -----------------------------------------------------------------------------------------------------

    def _fetch(self, followed: _Followed) -> None:
        """Give a partition to its fetcher, or have the fetcher go on with it."""
        followed.ready = True
        if self._resizing is not None:
            return
        if followed.partition is not None and followed.fetcher is not None:
            followed.fetcher.resume(followed.partition)
            return
        start = followed.start
        key = start.leader_id, _index(followed.topic_partition, self._count)
        if key in self._short:
            self._short[key][followed.topic_partition] = followed
            return
        try:
            fetcher = self._fetcher(*key)
        except OSError as error:
            # Threads and descriptors come back.
            warn_of_shortage(error)
            self._short[key] = {followed.topic_partition: followed}
            self._in_background(self._fetch_later(key))
            return
        partition = FollowedPartition(start.log, start.topic_id.bytes, start.leader_epoch, self._is_throttled(followed))
        followed.fetcher = fetcher
        followed.partition = partition
        self._by_handle[partition.handle] = followed
        fetcher.add(partition)

    async def _fetch_later(self, key: tuple[int, int]) -> None:
        """Try again to make a fetcher, for all partitions that wait for it."""
        await self._loop.run_in_executor(self._workers, close_idle, FILES_AT_ONCE)
        await self._back_off()
        async for followed in in_slices(list(self._short.pop(key).values())):
            if self._is_current(followed):
                self._fetch(followed)

    def _fetcher(self, leader_id: int, index: int) -> LeaderFetcher:
        fetcher = self._fetchers.get((leader_id, index))
        if fetcher is None:
            fetcher = self._fetchers[leader_id, index] = LeaderFetcher(
                self._config,
                self._broker_id,
                leader_id,
                index,
                self._connections,
                self._queue,
                self._throttle,
                self._broker_epoch,
                self._make_kernel,
            )
        return fetcher

    def _take_back(self, followed: _Followed) -> None:
        """Take a partition from its fetcher."""
        if followed.partition is not None and followed.fetcher is not None:
            self._by_handle.pop(followed.partition.handle, None)
            followed.fetcher.remove(followed.partition)
            if not followed.fetcher.partitions and not self._closing_idle:
                # At the end of the request that moves partitions, as Kafka does.
                self._closing_idle = True
                self._loop.call_soon(self._close_idle)
        followed.fetcher = followed.partition = None

    def _close_idle(self) -> None:
        self._closing_idle = False
        for key, fetcher in list(self._fetchers.items()):
            if not fetcher.partitions:
                del self._fetchers[key]
                self._end(fetcher)

    def _end(self, fetcher: LeaderFetcher) -> asyncio.Future[None]:
        """End a fetcher; its thread may be waiting for a disk."""
        fetcher.stop()
        ended = asyncio.ensure_future(self._ended(fetcher))
        self._ending.add(ended)
        ended.add_done_callback(self._ending.discard)
        return ended

    async def _ended(self, fetcher: LeaderFetcher) -> None:
        await asyncio.to_thread(fetcher.join)
        for i, count in enumerate(fetcher.counters()[:3]):
            self._past[i] += count

    # --- events of the threads ----------------------------------------------------------------------------------------

    def _on_events(self) -> None:
        self._events_left.put(self._queue.drain())

    def _on_event(self, event: tuple[int, int, int, bytes]) -> None:
        kind, handle, argument, text = event
        if kind == kernel.WANTS_CONNECTION:
            for fetcher in self._fetchers.values():
                if fetcher.handle == handle:
                    fetcher.connection_wanted(argument, text.decode(errors="replace"))
            return
        followed = self._by_handle.get(handle)
        if followed is None:
            return  # removed meanwhile
        if kind == kernel.DIVERGED:
            self._spawn(followed, self._diverged(followed, EpochEnd(int(text), argument)))
        elif kind == kernel.OUT_OF_RANGE:
            self._spawn(followed, self._out_of_range(followed))
        elif kind == kernel.STRADDLES:
            self._spawn(followed, self._straddles(followed, argument, text))
        elif kind == kernel.EPOCHS:
            self._in_background(self._write_epochs(followed))
        elif kind == kernel.FAILED:
            why = text.decode(errors="replace")
            self._fail(followed, error_for(argument, why or None))
        elif argument:
            self._tell_error(followed, argument, text.decode(errors="replace"))
        else:
            logger.info("Partition %s is fetched again", followed.topic_partition)

    def _tell_error(self, followed: _Followed, code: int, why: str) -> None:
        logger.log(
            logging.INFO if code in _AT_A_CHANGE_OF_LEADER else logging.WARNING,
            "Partition %s is not fetched from leader %d for a while: %s (%s)",
            followed.topic_partition,
            followed.start.leader_id,
            ErrorCode.of(code).name,
            why,
        )

    def _fail(self, followed: _Followed, error: KafkaError) -> None:
        """Give a partition up, until it is added again."""
        if not self._is_current(followed):
            return
        # A fenced follower waits for the LeaderAndIsr request that is on its way: no fault, and there are thousands.
        fenced = error.code == ErrorCode.FENCED_LEADER_EPOCH
        logger.log(
            logging.DEBUG if fenced else logging.ERROR,
            "Partition %s is not followed any more in leader epoch %d: %s",
            followed.topic_partition,
            followed.start.leader_epoch,
            error,
        )
        self._take_back(followed)
        followed.failed = True
        self._events.partition_failed(followed.topic_partition, followed.start.leader_epoch, error)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _spawn(self, followed: _Followed, work: Coroutine[Any, Any, None]) -> None:
        """Run what a partition waits for, and fetch it afterwards."""
        followed.task = self._in_background(self._settle(followed, work))
        # A task that is cancelled before its first step has not awaited the work.
        followed.task.add_done_callback(lambda _: work.close())

    async def _settle(self, followed: _Followed, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except KafkaError as error:
            # In another epoch the partition is added or removed by ReplicaManager.
            if followed.start.log.leader_epoch == followed.start.leader_epoch:
                self._fail(followed, error)
        except Exception as error:
            logger.exception("Partition %s cannot be followed", followed.topic_partition)
            self._fail(followed, KafkaError(str(error)))
        else:
            if self._is_current(followed):
                self._fetch(followed)

    # --- truncation ---------------------------------------------------------------------------------------------------

    async def _on_worker(self, work: Callable[[], Any]) -> None:
        """Change a log. A shortage of descriptors or memory is waited for."""
        while True:
            try:
                await self._loop.run_in_executor(self._workers, work)
                return
            except KeyError:
                raise error_for(ErrorCode.FENCED_LEADER_EPOCH, "the log was deleted") from None
            except OSError as error:
                if not is_shortage(error):
                    raise KafkaStorageError(str(error)) from error
                warn_of_shortage(error)
            await self._back_off()

    async def _cut(self, followed: _Followed, offset: int) -> None:
        """Drop what the log has from `offset` on. FENCED_LEADER_EPOCH, KAFKA_STORAGE_ERROR."""
        log, epoch = followed.start.log, followed.start.leader_epoch
        before = log.log_end_offset
        if offset < log.high_watermark:
            logger.warning(
                "Partition %s is cut to offset %d, below its high watermark %d",
                followed.topic_partition,
                offset,
                log.high_watermark,
            )
        await self._on_worker(
            lambda: self._log_manager.truncate_to(followed.topic_partition, offset, followed=log, leader_epoch=epoch)
        )
        if offset < before:
            logger.info("Partition %s was cut from offset %d to %d", followed.topic_partition, before, offset)

    async def _empty(self, followed: _Followed, offset: int) -> None:
        log, epoch = followed.start.log, followed.start.leader_epoch
        await self._on_worker(
            lambda: self._log_manager.truncate_fully_and_start_at(
                followed.topic_partition, offset, followed=log, leader_epoch=epoch
            )
        )
        logger.info("Partition %s begins again, empty, at offset %d", followed.topic_partition, offset)

    async def _diverged(self, followed: _Followed, answer: EpochEnd) -> None:
        """The leader's answer to a Fetch names its end of the fetched epoch."""
        log = followed.start.log
        before = log.log_end_offset, log.leader_epochs()
        cut = truncation_of(log, answer, self._initial_offset(followed))
        await self._cut(followed, cut.offset)
        if (log.log_end_offset, log.leader_epochs()) == before:
            await self._back_off()  # the leader would say the same again

    async def _out_of_range(self, followed: _Followed) -> None:
        """The log's end lies outside the leader's log (AbstractFetcherThread.fetchOffsetAndTruncate)."""
        end = await self._leader_offset(followed, ListOffsetsTimestamp.LATEST)
        log = followed.start.log
        if end < log.log_end_offset:
            # The leader was elected without our records, or has lost them.
            await self._cut(followed, end)
            return
        start = await self._leader_offset(followed, ListOffsetsTimestamp.EARLIEST)
        if start > log.log_end_offset:
            await self._empty(followed, start)
        else:
            await self._back_off()  # by its own word the leader has what it denied

    async def _leader_offset(self, followed: _Followed, timestamp: ListOffsetsTimestamp) -> int:
        """An offset of the leader's log, asked for until it comes. FENCED_LEADER_EPOCH."""
        start = followed.start
        while True:
            try:
                return await self._connections.offset(
                    start.leader_id, followed.topic_partition, start.leader_epoch, timestamp
                )
            except KafkaError as error:
                if code_of(error) is ErrorCode.FENCED_LEADER_EPOCH:
                    raise
                logger.warning("Leader %d does not tell the offsets of %s: %s", start.leader_id, *_of(followed, error))
            await self._back_off()

    async def _back_off(self) -> None:
        await asyncio.sleep(self._config.get_int("replica.fetch.backoff.ms") / 1000)

    async def _straddles(self, followed: _Followed, base_offset: int, records: bytes) -> None:
        """The leader's log start lies within a batch, and the log here is empty: it begins with that batch."""
        batch = first_batch(records)
        if batch is None:
            await self._back_off()
            return
        await self._empty(followed, base_offset)
        log, epoch = followed.start.log, followed.start.leader_epoch
        await self._on_worker(lambda: log.append_as_follower(batch, leader_epoch=epoch))

    async def _write_epochs(self, followed: _Followed) -> None:
        """Write the leader epochs' file; a flush would do it as well."""
        try:
            await self._on_worker(followed.start.log.write_leader_epochs)
        except KafkaError as error:
            # The log is offline by now, and its directory with it, unless it was deleted.
            logger.warning("Leader epochs of %s cannot be written: %s", *_of(followed, error))

    # --- truncation by OffsetForLeaderEpoch (before 2.7-IV1) ----------------------------------------------------------

    def _ask_later(self, followed: _Followed) -> None:
        leader_id = followed.start.leader_id
        self._waiting.setdefault(leader_id, {})[followed.topic_partition] = followed
        if leader_id not in self._asking:
            self._asking[leader_id] = self._in_background(self._ask_epochs(leader_id))

    async def _ask_epochs(self, leader_id: int) -> None:
        """Ask a leader where the epochs of waiting partitions end, and cut their logs there."""
        waiting = self._waiting[leader_id]
        try:
            while waiting:
                asked = dict(list(waiting.items())[:ASKED_AT_ONCE])
                if not await self._ask_some(leader_id, waiting, asked):
                    await self._back_off()
        finally:
            del self._asking[leader_id]
            self._waiting.pop(leader_id, None)

    async def _ask_some(
        self, leader_id: int, waiting: dict[TopicPartition, _Followed], asked: dict[TopicPartition, _Followed]
    ) -> bool:
        """One request; False when some of the answers are errors that a retry may heal."""
        epochs = {}
        for topic_partition, followed in asked.items():
            known = followed.start.log.leader_epochs()
            epochs[topic_partition] = (followed.start.leader_epoch, known[-1][0] if known else -1)
        try:
            answers = await self._connections.epoch_ends(leader_id, epochs)
        except KafkaError as error:
            logger.warning("Leader %d does not tell where its epochs end: %s", leader_id, error)
            return False
        healthy = True
        for topic_partition, answer in answers.items():
            followed = asked[topic_partition]
            if waiting.get(topic_partition) is not followed:
                continue  # removed meanwhile
            if isinstance(answer, EpochEnd):
                cut = truncation_of(followed.start.log, answer, self._initial_offset(followed))
                del waiting[topic_partition]
                self._spawn(followed, self._cut_and_ask(followed, cut.offset, cut.complete))
            elif code_of(answer) is ErrorCode.FENCED_LEADER_EPOCH:
                del waiting[topic_partition]
                self._fail(followed, answer)
            else:
                healthy = False
                logger.warning("Leader %d does not tell the epochs of %s: %s", leader_id, *_of(followed, answer))
        return healthy

    async def _cut_and_ask(self, followed: _Followed, offset: int, complete: bool) -> None:
        await self._cut(followed, offset)
        while not complete and self._is_current(followed) and followed.start.log.leader_epochs():
            start = followed.start
            epoch = start.log.leader_epochs()[-1][0]
            try:
                answers = await self._connections.epoch_ends(
                    start.leader_id, {followed.topic_partition: (start.leader_epoch, epoch)}
                )
            except KafkaError as error:
                logger.warning("Leader %d does not tell the epochs of %s: %s", start.leader_id, *_of(followed, error))
                await self._back_off()
                continue
            answer = answers[followed.topic_partition]
            if isinstance(answer, KafkaError):
                if code_of(answer) is ErrorCode.FENCED_LEADER_EPOCH:
                    raise answer
                await self._back_off()
                continue
            cut = truncation_of(start.log, answer, self._initial_offset(followed))
            await self._cut(followed, cut.offset)
            complete = cut.complete

    # --- configuration ------------------------------------------------------------------------------------------------

    def update_config(self, config: BrokerConfig) -> None:
        """Apply a changed broker configuration: the throttle's rate, num.replica.fetchers."""
        self._config = config
        self._throttle.bytes_per_second = config.get_int(RATE)
        for fetcher in self._fetchers.values():
            fetcher.configure(config, self._broker_epoch)
        self.resize(config.get_int("num.replica.fetchers"))

    def _is_throttled(self, followed: _Followed) -> bool:
        listed = followed.start.log.config.follower_replication_throttled_replicas
        return "*" in listed or f"{followed.topic_partition.partition}:{self._broker_id}" in listed

    def update_topics(self, topics: Iterable[str]) -> None:
        """Apply follower.replication.throttled.replicas of the logs' current configurations."""
        changed = set(topics)
        for followed in self._followed.values():
            if followed.topic_partition.topic in changed and followed.partition is not None and followed.fetcher:
                followed.fetcher.set_throttled(followed.partition, self._is_throttled(followed))

    def resize(self, fetchers: int) -> None:
        """Set the number of fetchers for each leader, and spread the partitions over them."""
        if fetchers == self._count or self.closed:
            return
        self._count = fetchers
        if self._resizing is None:
            self._resizing = self._in_background(self._spread_anew())

    async def _spread_anew(self) -> None:
        """No partition has two fetchers: the old threads end first."""
        for followed in self._followed.values():
            self._take_back(followed)
        ended = [self._end(fetcher) for fetcher in self._fetchers.values()]
        self._fetchers.clear()
        if ended:
            await asyncio.wait(ended)
        self._resizing = None
        for followed in list(self._followed.values()):
            # A partition whose event came before is cut first; its task goes on with it.
            if followed.ready and not followed.failed and (followed.task is None or followed.task.done()):
                self._fetch(followed)

    # --- numbers ------------------------------------------------------------------------------------------------------

    def metrics(self) -> FetcherMetrics:
        """The numbers of all fetchers."""
        requests, received, throttled = self._past
        dead = 0
        for fetcher in self._fetchers.values():
            counters = fetcher.counters()
            requests += counters[0]
            received += counters[1]
            throttled += counters[2]
            dead += not counters[3]
        return FetcherMetrics(
            fetchers=len(self._fetchers),
            partitions=len(self._followed),
            failed_partitions=sum(1 for followed in self._followed.values() if followed.failed),
            dead_threads=dead,
            max_lag=max(self.lags().values(), default=0),
            bytes_in=received,
            requests=requests,
            throttled=throttled,
            min_fetch_rate=min((each.fetch_rate for each in self._fetchers.values()), default=0.0),
        )

    def lags(self) -> dict[TopicPartition, int]:
        """Records that each followed partition is behind its leader; -1 before the first answer."""
        return {
            topic_partition: -1 if followed.partition is None else followed.partition.lag
            for topic_partition, followed in self._followed.items()
        }

    # --- end ----------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End all fetchers. A second call does nothing."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._queue.fileno())
        self._events_left.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        self._followed.clear()
        self._by_handle.clear()
        for fetcher in self._fetchers.values():
            self._end(fetcher)
        self._fetchers.clear()
        await asyncio.gather(*tasks, *self._ending, return_exceptions=True)
        await self._connections.close()
        await asyncio.to_thread(self._workers.shutdown)


def _index(topic_partition: TopicPartition, fetchers: int) -> int:
    """The fetcher of a partition, as in Kafka: by the hash of Java's strings."""
    number = 0
    for unit in topic_partition.topic.encode("utf-16-be").hex(" ", 2).split():
        number = (31 * number + int(unit, 16)) & 0xFFFFFFFF
    number = (31 * number + topic_partition.partition) & 0xFFFFFFFF
    # The smallest number of 32 bits has no absolute value there: it counts as 0.
    return (abs(number - (1 << 32) if number >> 31 else number) & 0x7FFFFFFF) % fetchers


def _of(followed: _Followed, error: KafkaError) -> tuple[TopicPartition, KafkaError]:
    """The arguments of a log message."""
    return followed.topic_partition, error
