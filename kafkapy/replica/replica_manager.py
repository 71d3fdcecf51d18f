"""ReplicaManager: the partitions that this broker hosts.

It obeys the controller (lead, follow, stop, update metadata), keeps the data plane's PartitionTable up to date, and
answers handlers' questions about partitions. Disk work runs on worker threads, in batches, so that ten thousand
partitions do not block the control loop; changes of memory run on the loop.

The data plane depends on the order of publication: a log is leader before the table shows it, and out of the table
before it is deleted. Source: kafka.server.ReplicaManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from kafkapy import errors
from kafkapy._speedups.log.replication import Replication
from kafkapy.errors import ErrorCode
from kafkapy.metadata.broker_requests import (
    BrokerRequest,
    BrokerResponse,
    LeaderAndIsr,
    LeaderAndIsrPartition,
    StopReplica,
    UpdateMetadata,
)
from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.config_repository import ConfigRepository
from kafkapy.metadata.store import STORE_FAILED, MetadataStore
from kafkapy.metadata.topic_names import is_internal
from kafkapy.metadata.znodes import CONFIG_TOPICS, LOG_DIR_EVENT_PREFIX, NO_LEADER, encode_log_dir_event
from kafkapy.replica.alter_log_dirs import ReplicaAlterLogDirsManager
from kafkapy.replica.fetcher_api import FetchStart
from kafkapy.replica.isr import IsrManager
from kafkapy.replica.log_configs import effective_log_config
from kafkapy.replica.log_dirs import ActiveProducer, ReplicaLogDirs
from kafkapy.replica.log_opener import LogOpener
from kafkapy.replica.offset_lookup import FoundOffset, legacy_offsets, lookup
from kafkapy.replica.partition import Partition
from kafkapy.replica.record_deletions import DeletedRecords, RecordDeletions
from kafkapy.replica.throttles import names_replica
from kafkapy.slices import in_chunks, in_slices
from kafkapy.types import ZERO_UUID, IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from kafkapy._speedups.log.partition_log import PartitionLog
    from kafkapy._speedups.log.replication import Replication
    from kafkapy._speedups.requests.partition_table import PartitionTable
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.config.topic import LogConfig
    from kafkapy.log.log_manager import LogManager
    from kafkapy.replica.fetcher_manager import ReplicaFetcherManager
    from kafkapy.replica.isr import IsrManager

logger = logging.getLogger("kafka.server.ReplicaManager")

STORE_RETRY_S: Final = 0.5
"""Pause in seconds before the metadata store is asked again after an error."""
HIGH_WATERMARK: Final = -1
"""The offset of a DeleteRecords that deletes everything below the high watermark."""
LEADER_RATE: Final = "leader.replication.throttled.rate"

BATCH: Final = 200
"""Partitions that one piece of work on a worker thread opens or deletes."""
STOPPED: Final = 500
"""Partitions that leave their fetchers within one slice."""
READERS: Final = 8
"""Partitions of one log directory that are read for clients at the same time."""

T = TypeVar("T")

LeadershipListener = Callable[[TopicPartition, int, bool], None]
"""Called with a partition, its leader epoch, and whether this broker leads it now."""


class ReplicaManager:
    """The partitions of this broker.

    Owned by KafkaServer and made on its running loop; used on the control loop unless a method says otherwise.
    Requests of controllers are served one at a time. `log_dir_failed` is for LogManager's on_log_dir_failure.
    """

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        store: MetadataStore,
        log_manager: LogManager,
        partition_table: PartitionTable,
        metadata_cache: MetadataCache,
        configs: ConfigRepository,
    ) -> None:
        self.config = config
        self.broker_id = broker_id
        self._store = store
        self._log_manager = log_manager
        self._table = partition_table
        self._cache = metadata_cache
        self._configs = configs
        self._loop = asyncio.get_running_loop()
        self._partitions: dict[TopicPartition, Partition] = {}
        self._partition_counts: dict[str, int] = {}
        self._controller_epoch = 0
        # Two controllers may send at the same time, while the older one does not know of the newer one.
        self._changing = asyncio.Lock()
        self.isr: IsrManager | None = None
        """The changes of ISRs that this broker leads; None before its connection to the controller."""
        self.fetchers: ReplicaFetcherManager | None = None
        """The fetchers of partitions that other brokers lead; None in a cluster of one broker."""
        self.failed_followers: dict[TopicPartition, errors.KafkaError] = {}
        """Partitions whose fetcher gave up, until the controller sends another leader epoch."""
        self._notifications: set[asyncio.Task[None]] = set()
        self._moves = ReplicaAlterLogDirsManager(config, log_manager)
        self.log_dirs = ReplicaLogDirs(log_manager, self._partitions, self.partition, self._moves)
        # The controller's requests come one at a time. Work of others on worker threads does not delay an election.
        self.replication = Replication(
            config.get_int("replica.lag.time.max.ms"),
            quota_windows=config.get_int("replication.quota.window.num"),
            quota_window_ms=1000 * config.get_int("replication.quota.window.size.seconds"),
        )
        """The lag time, live brokers and quota that all logs share."""
        self.replication.leader_rate = config.get_int(LEADER_RATE)
        self.deletions = RecordDeletions(self.replication)
        self._opener = LogOpener(broker_id, log_manager, self._log_config, self.replication)
        self._openers = ThreadPoolExecutor(1, thread_name_prefix="replica-opens")
        # Clients' reads of a directory have threads of their own: neither another directory nor an open delays them.
        self._readers: dict[Path | None, ThreadPoolExecutor] = {}
        self.leadership_listeners: list[LeadershipListener] = []
        """Coordinators' callbacks, on the control loop, when this broker begins or ceases to lead a partition."""
        self.deletion_listeners: list[Callable[[Mapping[str, UUID]], None]] = []
        """Called on the control loop with the topics that were deleted together, hosted here or not: name to id."""
        configs.listen(CONFIG_TOPICS, self._topic_config_changed)

    def follow_with(self, fetchers: ReplicaFetcherManager) -> None:
        """Copy what other brokers lead with these fetchers; before the controller's first request."""
        self.fetchers = fetchers

    async def stop(self) -> None:
        """Stop messages to the controller and moves of replicas, and release the logs."""
        for task in list(self._notifications):
            task.cancel()
        await asyncio.gather(*self._notifications, return_exceptions=True)
        if self.fetchers is not None:
            await self.fetchers.close()
        await asyncio.to_thread(self._moves.stop)
        for threads in (self._openers, *self._readers.values()):
            threads.shutdown(wait=False, cancel_futures=True)
        for topic_partition in self._partitions:
            self._table.remove_log(*topic_partition)
        self._partitions.clear()

    # --- what is hosted -----------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> Mapping[TopicPartition, Partition]:
        """Every partition hosted here, also on failed log directories."""
        return self._partitions

    def partition(self, topic_partition: TopicPartition) -> Partition:
        """A hosted partition.

        NOT_LEADER_OR_FOLLOWER when another broker hosts it, else UNKNOWN_TOPIC_OR_PARTITION.
        """
        found = self._partitions.get(topic_partition)
        if found is not None:
            return found
        if self._cache.contains(topic_partition):
            raise errors.NotLeaderOrFollowerError(f"This broker has no replica of partition {topic_partition}")
        raise errors.UnknownTopicOrPartitionError(f"Partition {topic_partition} does not exist")

    def log(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log of a hosted partition; None when not hosted or offline."""
        found = self._partitions.get(topic_partition)
        return None if found is None or found.offline else found.log

    # --- LeaderAndIsr -------------------------------------------------------------------------------------------------

    async def become_leader_or_follower(self, request: LeaderAndIsr) -> BrokerResponse:
        """Lead or follow partitions, and create their logs where they are missing.

        Per partition: KAFKA_STORAGE_ERROR, STALE_CONTROLLER_EPOCH (a leader epoch that is not newer),
        INCONSISTENT_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION (this broker is no replica).
        """
        async with self._changing:
            if request.controller_epoch < self._controller_epoch:
                return self._stale(request)
            self._controller_epoch = request.controller_epoch
            return await self._change_roles(request)

    async def _change_roles(self, request: LeaderAndIsr) -> BrokerResponse:
        fresh: set[str] = set()
        others: set[str] = set()
        async for topic_partition, each in in_slices(request.partitions.items()):
            (fresh if each.is_new else others).add(topic_partition.topic)
        await self._read_configs(fresh, others - fresh)
        failed: dict[TopicPartition, ErrorCode] = {}
        wanted: list[tuple[Partition, LeaderAndIsrPartition]] = []
        async for topic_partition, each in in_slices(request.partitions.items()):
            topic_id = request.topic_ids.get(topic_partition.topic, ZERO_UUID)
            known = self._partitions.get(topic_partition)
            error = self._refusal(known, topic_id, each)
            if error is not ErrorCode.NONE:
                failed[topic_partition] = error
            elif known is not None and each.state.leader_epoch == known.leader_epoch:
                await self._adopt_topic_id(known, topic_id)
            else:
                if known is not None and ZERO_UUID not in (topic_id, known.topic_id) and known.topic_id != topic_id:
                    self._unpublish(known)
                    self._partition_counts.pop(topic_partition.topic, None)
                    known = None
                if known is not None and known.topic_id == ZERO_UUID:
                    known.topic_id = topic_id
                wanted.append((known or Partition(topic_partition, topic_id, self.broker_id), each))
        await self._put_topics(request.topic_ids, (partition.topic_partition for partition, _ in wanted))
        async for led in in_chunks((p.topic_partition for p, each in wanted if not self._follows(each)), STOPPED):
            self._stop_fetchers(led)
        lost = 0
        for batch in _batches(wanted):
            outcomes = await self._loop.run_in_executor(self._openers, self._opener.open_batch, batch)
            starts: dict[TopicPartition, FetchStart] = {}
            for (partition, each), outcome in zip(batch, outcomes, strict=True):
                if isinstance(outcome, BaseException):
                    lost += 1
                    failed[partition.topic_partition] = self._open_failed(partition, outcome)
                    continue
                self._publish(partition, each, outcome)
                if self._follows(each):
                    starts[partition.topic_partition] = FetchStart(
                        outcome, partition.topic_id, each.state.leader, each.state.leader_epoch
                    )
            if self.fetchers is not None and starts:
                self.fetchers.add(starts)
        if wanted:
            logger.info("The broker took over %d partitions, of which %d failed", len(wanted), lost)
        return BrokerResponse(partition_errors=failed)

    def _stale(self, request: BrokerRequest) -> BrokerResponse:
        logger.warning(
            "The broker refused %s of controller %d with epoch %d: the latest controller has epoch %d",
            type(request).__name__,
            request.controller_id,
            request.controller_epoch,
            self._controller_epoch,
        )
        return BrokerResponse(ErrorCode.STALE_CONTROLLER_EPOCH)

    def _follows(self, each: LeaderAndIsrPartition) -> bool:
        return each.state.leader not in (self.broker_id, NO_LEADER)

    def partition_failed(self, topic_partition: TopicPartition, leader_epoch: int, error: errors.KafkaError) -> None:
        """Note a partition that its fetcher has given up (FetcherEvents)."""
        known = self._partitions.get(topic_partition)
        if known is not None and known.leader_epoch == leader_epoch:
            self.failed_followers[topic_partition] = error

    def _stop_fetchers(self, partitions: Iterable[TopicPartition]) -> None:
        if self.fetchers is not None:
            self.fetchers.remove(partitions)

    async def _read_configs(self, fresh: set[str], others: set[str]) -> None:
        """Read the settings of topics; those of `fresh` ones in any case.

        It waits while the store fails: a partition that is refused now has no leader.
        """
        while True:
            try:
                await self._configs.reload_topics(fresh)
                await self._configs.load_topics(others)
            except STORE_FAILED as error:
                logger.warning("Topic configurations cannot be read; the broker retries: %s", error)
                await asyncio.sleep(STORE_RETRY_S)
            else:
                return

    def _refusal(self, known: Partition | None, topic_id: UUID, each: LeaderAndIsrPartition) -> ErrorCode:
        if known is not None and known.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if known is not None and ZERO_UUID not in (topic_id, known.topic_id) and known.topic_id != topic_id:
            # A new topic of the name: the earlier one went without us, from the store itself.
            if not each.is_new:
                return ErrorCode.INCONSISTENT_TOPIC_ID
        elif known is not None and each.state.leader_epoch <= known.leader_epoch:
            # The same epoch again says nothing new, except the id of a topic that had none (KAFKA-13132).
            same = each.state.leader_epoch == known.leader_epoch
            if not (same and known.topic_id == ZERO_UUID and topic_id != ZERO_UUID):
                return ErrorCode.STALE_CONTROLLER_EPOCH
        if self.broker_id not in each.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    async def _adopt_topic_id(self, partition: Partition, topic_id: UUID) -> None:
        topic_partition = partition.topic_partition
        self._log_manager.get_or_create(topic_partition, topic_id)
        partition.topic_id = topic_id
        self._partition_counts.pop(topic_partition.topic, None)
        await self._put_topics({topic_partition.topic: topic_id}, [topic_partition])

    def _open_failed(self, partition: Partition, error: BaseException) -> ErrorCode:
        if isinstance(error, OSError):
            logger.error("Partition %s cannot be opened: %s", partition.topic_partition, error)
            partition.offline = True
            self._partitions[partition.topic_partition] = partition
            return ErrorCode.KAFKA_STORAGE_ERROR
        if isinstance(error, errors.KafkaError):
            logger.error("Partition %s cannot be opened: %s", partition.topic_partition, error)
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                partition.offline = True
                self._partitions[partition.topic_partition] = partition
        else:
            logger.error("Partition %s cannot be opened", partition.topic_partition, exc_info=error)
        return errors.code_of(error)

    def _publish(self, partition: Partition, each: LeaderAndIsrPartition, log: PartitionLog) -> None:
        topic_partition = partition.topic_partition
        partition.assignment = each
        if partition.log is not log:
            partition.log = log
            self._throttle(partition, log)
            self._table.set_log(topic_partition.topic, topic_partition.partition, log)
        self._partitions[topic_partition] = partition
        if self._log_manager.futures.is_moving(topic_partition):
            self._moves.add(topic_partition)
        self._leadership_changed(partition)

    def _throttle(self, partition: Partition, log: PartitionLog) -> None:
        listed = log.config.leader_replication_throttled_replicas
        log.leader_throttled = names_replica(listed, partition.topic_partition.partition, self.broker_id)

    def _leadership_changed(self, partition: Partition) -> None:
        self.failed_followers.pop(partition.topic_partition, None)
        if self.isr is not None and partition.log is not None:
            self.isr.leadership_changed(partition, partition.log)
        self.deletions.check()
        for listener in self.leadership_listeners:
            listener(partition.topic_partition, partition.leader_epoch, partition.is_leader)

    async def _put_topics(self, topic_ids: Mapping[str, UUID], partitions: Iterable[TopicPartition]) -> None:
        """Add topics to the table, with at least the partitions named.

        The partition count of a topic only grows.
        """
        counts: dict[str, int] = {}
        async for topic, number in in_slices(partitions):
            counts[topic] = max(counts.get(topic, 0), number + 1)
        async for topic, count in in_slices(counts.items()):
            known = self._partition_counts.get(topic, 0)
            if count > known:
                self._table.put(topic, topic_ids.get(topic, ZERO_UUID).bytes, count)
                self._partition_counts[topic] = count

    # --- UpdateMetadata -----------------------------------------------------------------------------------------------

    async def update_metadata(self, request: UpdateMetadata) -> BrokerResponse:
        """Apply the controller's metadata for clients.

        From here on, topics that are being deleted are unknown to the data plane.
        """
        async with self._changing:
            if request.controller_epoch < self._controller_epoch:
                return self._stale(request)
            self._controller_epoch = request.controller_epoch
            await self._apply_metadata(request)
            return BrokerResponse()

    async def _apply_metadata(self, request: UpdateMetadata) -> None:
        before = self._cache.snapshot.topics
        deleted = await self._cache.update_in_slices(request)
        self.replication.set_live_brokers(request.live_brokers)
        self.deletions.check()
        topics = self._cache.snapshot.topics
        await self._put_topics(request.topic_ids, (p for p in request.partitions if p.topic in topics))
        async for topic_partition, each in in_slices(request.partitions.items()):
            if topic_partition not in self._partitions and topic_partition.topic in topics:
                self._table.set_leader(*topic_partition, each.state.leader, each.state.leader_epoch)
        gone: dict[str, UUID] = {}
        async for topic, _ in in_slices(deleted):
            if topic not in topics and topic in before:
                gone[topic] = before[topic].topic_id
        async for topic in in_slices(gone):
            self._table.remove_topic(topic)
            self._partition_counts.pop(topic, None)
            self._configs.forget_topic(topic)
        if gone:
            for listener in self.deletion_listeners:
                listener(gone)

    # --- StopReplica --------------------------------------------------------------------------------------------------

    async def stop_replicas(self, request: StopReplica) -> BrokerResponse:
        """Stop hosting partitions, and delete the logs of those marked for deletion.

        Per partition: KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH (an older leader epoch).
        """
        async with self._changing:
            if request.controller_epoch < self._controller_epoch:
                return self._stale(request)
            self._controller_epoch = request.controller_epoch
            return await self._stop(request)

    async def _stop(self, request: StopReplica) -> BrokerResponse:
        failed: dict[TopicPartition, ErrorCode] = {}
        deleting: list[TopicPartition] = []
        async for topic_partition, each in in_slices(request.partitions.items()):
            known = self._partitions.get(topic_partition)
            if known is not None and known.offline:
                failed[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            if known is not None and 0 <= each.leader_epoch < known.leader_epoch:
                # Sent before the partition was made again, or led again (KIP-570).
                failed[topic_partition] = ErrorCode.FENCED_LEADER_EPOCH
                continue
            if known is not None:
                self._unpublish(known)
            if each.delete:
                deleting.append(topic_partition)
        for batch in _batches(deleting):
            outcomes = await self._loop.run_in_executor(self._openers, self._opener.delete_batch, batch)
            for topic_partition, error in zip(batch, outcomes, strict=True):
                if error is not None:
                    logger.error("Partition %s cannot be deleted: %s", topic_partition, error)
                    failed[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
                elif topic_partition.topic not in self._cache.snapshot.topics:
                    # The settings of a topic that moves away are kept: the rest of it and the controller need them.
                    self._configs.forget_topic(topic_partition.topic)
        return BrokerResponse(partition_errors=failed)

    def _unpublish(self, partition: Partition) -> None:
        topic, number = partition.topic_partition
        self._stop_fetchers([partition.topic_partition])
        self._table.remove_log(topic, number)
        del self._partitions[partition.topic_partition]
        if partition.log is not None:
            # Requests that wait at the log look again, and find that this broker does not lead it.
            partition.log.become_follower(-1, partition.leader_epoch)
            if self.isr is not None:
                self.isr.forget(partition, partition.log)
        self.deletions.check()
        for listener in self.leadership_listeners:
            listener(partition.topic_partition, partition.leader_epoch, False)

    # --- configuration ------------------------------------------------------------------------------------------------

    def _log_config(self, topic: str) -> LogConfig:
        return effective_log_config(topic, self._configs.topic(topic), self.config)

    async def _topic_config_changed(self, topic: str, overrides: Mapping[str, str]) -> None:
        del overrides
        self._apply_config([p for p in self._partitions.values() if p.topic_partition.topic == topic])

    def update_config(self, config: BrokerConfig) -> None:
        """Apply a changed broker configuration, which holds the topics' defaults."""
        self.config = config
        self._moves.update_config(config)
        self._apply_replication_config()
        self._apply_config(self._partitions.values())

    def _apply_replication_config(self) -> None:
        self.replication.lag_time_ms = self.config.get_int("replica.lag.time.max.ms")
        self.replication.leader_rate = self.config.get_int(LEADER_RATE)
        if self.fetchers is not None:
            self.fetchers.update_config(self.config)

    def _apply_config(self, partitions: Iterable[Partition]) -> None:
        by_topic: dict[str, LogConfig] = {}
        for partition in partitions:
            topic = partition.topic_partition.topic
            if partition.log is not None and not partition.offline:
                if topic not in by_topic:
                    by_topic[topic] = self._log_config(topic)
                partition.log.update_config(by_topic[topic])
                self._throttle(partition, partition.log)
        if self.fetchers is not None:
            self.fetchers.update_topics(by_topic)

    # --- requests about offsets ---------------------------------------------------------------------------------------

    def is_assigned(self, topic_partition: TopicPartition, replica_id: int) -> bool:
        """Whether the assignment of a hosted partition includes that broker."""
        partition = self._partitions.get(topic_partition)
        assignment = None if partition is None else partition.assignment
        return assignment is not None and replica_id in assignment.replicas

    async def list_offset(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        *,
        isolation: IsolationLevel | None,
        current_leader_epoch: int = -1,
        leader_only: bool = True,
    ) -> FoundOffset | None:
        """The answer of ListOffsets for one partition; see offset_lookup.lookup.

        `isolation` None: a follower or a debugging client. Raises the errors of Partition.local_log and of lookup.
        """
        log = self.partition(topic_partition).local_log(current_leader_epoch, leader_only)
        if timestamp < 0 and timestamp != -3:
            return lookup(log, timestamp, isolation)  # memory only
        return await self._read_apart(topic_partition, lookup, log, timestamp, isolation)

    async def legacy_list_offsets(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        max_num_offsets: int,
        *,
        from_consumer: bool,
        leader_only: bool = True,
    ) -> list[int]:
        """The answer of ListOffsets version 0; see offset_lookup.legacy_offsets."""
        log = self.partition(topic_partition).local_log(leader_only=leader_only)
        return legacy_offsets(log, timestamp, max_num_offsets, from_consumer)

    @staticmethod
    def _reading(work: Callable[..., T], *arguments: Any) -> T:
        try:
            return work(*arguments)
        except OSError as error:
            raise errors.KafkaStorageError(f"The log cannot be read: {error}") from error

    def end_offset_for_leader_epoch(
        self, topic_partition: TopicPartition, leader_epoch: int, *, current_leader_epoch: int = -1
    ) -> tuple[int, int]:
        """The largest known epoch up to `leader_epoch`, and its end offset.

        (-1, -1) when no such epoch is known (KIP-279).
        """
        log = self.partition(topic_partition).local_log(current_leader_epoch)
        return log.offset_for_leader_epoch(leader_epoch)

    async def read_log(self, topic_partition: TopicPartition, read: Callable[..., T], *arguments: Any) -> T:
        """Run `read` with the log of a partition led here, on its directory's thread.

        Raises the errors of Partition.local_log and of `read`; KafkaStorageError for an OSError.
        """
        log = self.partition(topic_partition).local_log(leader_only=True)
        return await self._read_apart(topic_partition, read, log, *arguments)

    async def _read_apart(self, topic_partition: TopicPartition, read: Callable[..., T], *arguments: Any) -> T:
        """Run `_reading` on a thread of the partition's log directory."""
        directory = self._log_manager.dir_of(topic_partition)
        threads = self._readers.get(directory)
        if threads is None:
            threads = self._readers[directory] = ThreadPoolExecutor(READERS, thread_name_prefix="replica-reads")
        return await self._loop.run_in_executor(threads, lambda: self._reading(read, *arguments))

    async def delete_records(
        self, topic_partition: TopicPartition, offset: int, *, of_internal_topic: bool = False
    ) -> DeletedRecords:
        """Move the log start to `offset`.

        `offset` -1: the high watermark. `of_internal_topic`: the topic's own coordinator asks.

        OFFSET_OUT_OF_RANGE, POLICY_VIOLATION (a compacted topic), INVALID_TOPIC_EXCEPTION (Kafka's own topics).
        """
        if is_internal(topic_partition.topic) and not of_internal_topic:
            raise errors.InvalidTopicError(f"Cannot delete records of internal topic {topic_partition.topic}")
        log = self.partition(topic_partition).local_log()
        if "delete" not in log.config.cleanup_policy:
            raise errors.PolicyViolationError(
                f"Records of partition {topic_partition} can not be deleted: cleanup.policy does not have delete"
            )
        wanted = log.high_watermark if offset == HIGH_WATERMARK else offset
        await self._read_apart(topic_partition, log.delete_records, wanted)
        return DeletedRecords(wanted, self.deletions.low_watermark(log))

    async def low_watermark_reached(self, topic_partition: TopicPartition, offset: int) -> int:
        """The low watermark, when all live replicas have deleted the records below `offset`.

        See RecordDeletions.reached.
        """
        partition = self.partition(topic_partition)
        return await self.deletions.reached(partition, partition.local_log(), offset)

    def active_producers(self, topic_partition: TopicPartition) -> list[ActiveProducer]:
        """The active producers of a partition hosted here, as leader or follower (KIP-664)."""
        log = self.partition(topic_partition).local_log(leader_only=False)
        return [
            ActiveProducer(
                each["producer_id"],
                each["epoch"],
                each["last_sequence"],
                each["last_timestamp"],
                each["coordinator_epoch"],
                each["current_transaction_first_offset"],
            )
            for each in log.producers()
        ]

    # --- log directories ----------------------------------------------------------------------------------------------

    def log_dir_failed(self, directory: Path, partitions: Sequence[TopicPartition]) -> None:
        """Take a failed log directory and its partitions offline.

        LogManager calls it, on any thread.
        """
        self._loop.call_soon_threadsafe(self._take_offline, directory, partitions)

    def _take_offline(self, directory: Path, partitions: Sequence[TopicPartition]) -> None:
        for topic_partition in partitions:
            partition = self._partitions.get(topic_partition)
            if partition is not None:
                partition.offline = True
                self._leadership_changed(partition)
        self._stop_fetchers(partitions)
        logger.error("Log directory %s is offline, and %d partitions with it", directory, len(partitions))
        task = self._loop.create_task(self._tell_controller())
        self._notifications.add(task)
        task.add_done_callback(self._notifications.discard)

    async def _tell_controller(self) -> None:
        value = encode_log_dir_event(self.broker_id)
        while True:
            try:
                await self._store.create(LOG_DIR_EVENT_PREFIX, value, sequential=True, make_parents=True)
            except STORE_FAILED as error:
                logger.warning(
                    "The controller cannot learn of the failed log directory yet; the broker retries: %s", error
                )
                await asyncio.sleep(STORE_RETRY_S)
            except Exception:
                logger.exception("The controller cannot learn of the failed log directory")
                return
            else:
                return


def _batches(items: Sequence[T]) -> Iterable[Sequence[T]]:
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]
