"""KafkaController: the one broker that decides about topics, leaders and settings.

    start -> register the broker, elect -> failover: read the store, tell brokers, elect leaders, go on with deletions

Everything that changes the cluster is an event, and events run one at a time, so no two decisions are made on the same
state. Requests of clients become events too and wait for their outcome. A crash between two writes is made good by the
next failover: topics without partition states get them, topics marked for deletion are deleted.

Watched are brokers, topics, deletions, ISR changes and failed log directories. Partitions that a foreign tool adds by
writing a topic's node itself are seen at the next election only. Source: kafka.controller.KafkaController.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kafkapy import errors
from kafkapy.controller.broker_channel import BrokerRequestBatch, ChannelFactory, ControllerChannelManager
from kafkapy.controller.context import ControllerContext, PartitionStatus, Replica, ReplicaStatus
from kafkapy.controller.controller_store import ControllerMovedError, ControllerStore, OtherBrokersError
from kafkapy.controller.events import ControllerEventQueue
from kafkapy.controller.leader_epochs import LogsAtStart, raise_epochs
from kafkapy.controller.partition_state_machine import ElectionStrategy, PartitionStateMachine
from kafkapy.controller.replica_state_machine import ReplicaStateMachine
from kafkapy.controller.topic_deletion import ForgetOffsets, TopicDeletionManager
from kafkapy.errors import ErrorCode
from kafkapy.metadata.broker_requests import BrokerRequest, BrokerResponse, LeaderAndIsr, StopReplica
from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.config_repository import ConfigRepository
from kafkapy.metadata.store import (
    MetadataStore,
    MetadataStoreError,
    NodeExistsError,
    NoNodeError,
    SessionState,
    Watch,
    WatchEvent,
)
from kafkapy.metadata.znodes import (
    BROKER_IDS,
    CONTROLLER,
    DELETE_TOPICS,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    TOPICS,
    BrokerRegistration,
    decode_isr_change,
    decode_log_dir_event,
)
from kafkapy.slices import in_slices
from kafkapy.types import TopicPartition, random_uuid

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

logger = logging.getLogger("kafka.controller.KafkaController")

RETRY_MS: Final = 1000
"""After the store failed half way through a step: when it is read again, and leaders are tried again."""


class KafkaController:
    """A broker's candidate for, and while elected the, controller. Owned by the broker; used on the control loop.

    `channel_factory` opens the way to a broker that has registered. TopicAdmin serves the requests of clients
    about topics.
    """

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        store: MetadataStore,
        metadata_cache: MetadataCache,
        configs: ConfigRepository,
        channel_factory: ChannelFactory,
        *,
        alone: bool = False,
        replaced: Callable[[], None] | None = None,
        notify: Callable[..., None] | None = None,
        forget_offsets: ForgetOffsets | None = None,
        logs_at_start: LogsAtStart | None = None,
    ) -> None:
        """`alone`: no other broker may be registered. `replaced` is called when one is, or one with this broker's id,
        after this broker's session has expired: this broker must stop. `notify` calls the plugins' hooks of an event
        (`PluginManager.notify`). `forget_offsets`: see TopicDeletionManager; `logs_at_start`: see raise_epochs.
        """
        self.config = config
        self.broker_id = broker_id
        self.context = ControllerContext()
        self.store = ControllerStore(store)
        self.metadata_cache = metadata_cache
        self.configs = configs
        self.active_controller_id = -1
        self.registration: BrokerRegistration | None = None
        self._channel_factory = channel_factory
        self._alone = alone
        self._replaced = replaced
        self._notify = notify or _nobody_listens
        self._forget_offsets = forget_offsets
        self._logs_at_start = logs_at_start
        self._events = ControllerEventQueue(self._event_failed)
        self._watches: list[Watch] = []
        self._controller_watch: Watch | None = None
        self._deletion_waiters: dict[str, set[asyncio.Future[None]]] = {}
        self._expired = False
        # Not the same as the store naming this broker: that may be left from a session or an epoch that is over.
        self._elected = False
        self._build()

    def _build(self) -> None:
        """The parts that live as long as one controllership."""
        context = self.context
        self.channels = ControllerChannelManager(self._channel_factory, self._answered)
        self.batch = BrokerRequestBatch(self.broker_id, context, self.channels)
        self.partitions = PartitionStateMachine(context, self.store, self.batch, self._unclean_allowed)
        self.replicas = ReplicaStateMachine(context, self.store, self.batch)
        self.deletion = TopicDeletionManager(
            context,
            self.store,
            self.batch,
            self.partitions,
            self.replicas,
            self._topic_deleted,
            self._forget_offsets,
            lambda: self._events.put("TopicDeletionResume", self._resume_deletion),
        )

    async def _resume_deletion(self) -> None:
        if self.is_active:
            await self.deletion.resume()

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self._elected

    @property
    def epoch(self) -> int:
        """The epoch of this broker's latest controllership."""
        return self.context.epoch

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration, -1 before it."""
        return -1 if self.registration is None else self.registration.epoch

    async def start(self, registration: BrokerRegistration) -> None:
        """Register the broker and try to become controller.

        Returns when this broker, if it was elected, has done what it told itself: all logs are open and the metadata
        cache is filled. DUPLICATE_BROKER_REGISTRATION when the id is taken; OtherBrokersError.
        """
        self.store.store.listen_session(self._session_changed)
        await self.store.ensure_paths()
        await self._register(registration)
        self._controller_watch = await self.store.store.watch_node(CONTROLLER, self._controller_changed)
        self._events.start()
        await self._events.submit("Startup", self._elect)
        await self.channels.drain(self.broker_id)

    async def stop(self) -> None:
        """Stop deciding. The store's session, closed by the owner, takes registration and controllership with it."""
        await self._events.stop()
        if self._controller_watch is not None:
            self._controller_watch.cancel()
        await self._clear()

    async def _register(self, registration: BrokerRegistration) -> None:
        register = self.store.register_only_broker if self._alone else self.store.register_broker
        try:
            self.registration = await register(registration)
        except NodeExistsError:
            raise errors.DuplicateBrokerRegistrationError(
                f"a broker with id {registration.id} is registered already; broker.id must be unique in the cluster"
            ) from None
        logger.info("Registered broker %d with epoch %d", registration.id, self.registration.epoch)

    def update_config(self, config: BrokerConfig) -> None:
        """Take over a broker configuration whose dynamic part has changed."""
        self.config = config

    async def submit(self, name: str, run: Callable[[], Awaitable[Any]]) -> Any:
        """Run something as an event while this broker is controller. NOT_CONTROLLER when it is not."""

        async def checked() -> Any:
            if not self.is_active:
                raise errors.NotControllerError
            return await run()

        try:
            return await self._events.submit(name, checked)
        except ControllerMovedError:
            raise errors.NotControllerError from None

    # --- election -----------------------------------------------------------------------------------------------------

    async def _elect(self) -> None:
        self.active_controller_id = await self.store.controller_id()
        # One that names this broker is left from an election, or a resignation, whose outcome it could not learn.
        if self.active_controller_id == self.broker_id and await self.store.remove_unused():
            self.active_controller_id = -1
        if self.active_controller_id != -1:
            logger.debug("Broker %d is the controller", self.active_controller_id)
            return
        try:
            epoch, version = await self.store.register_controller(self.broker_id)
        except ControllerMovedError:
            self.active_controller_id = await self.store.controller_id()
            return
        self.context.epoch, self.context.epoch_version = epoch, version
        self.active_controller_id = self.broker_id
        self._elected = True
        logger.info("Elected as the controller with epoch %d", epoch)
        try:
            await self._failover()
        except ControllerMovedError:
            raise
        except Exception:
            logger.exception("Error while becoming controller; resigning")
            await self._resign()
            await self.store.resign()
            raise

    async def _failover(self) -> None:
        """Take over: read everything, tell all brokers, elect leaders, and go on with what was under way."""
        context = self.context
        store = self.store.store
        for path, name, run in (
            (BROKER_IDS, "BrokerChange", self._brokers_changed),
            (TOPICS, "TopicChange", self._topics_changed),
            (DELETE_TOPICS, "TopicDeletion", self._deletions_changed),
            (LOG_DIR_EVENTS, "LogDirEventNotification", self._log_dirs_failed),
            (ISR_CHANGES, "IsrChangeNotification", self._isr_changed),
        ):
            self._watches.append(await store.watch_children(path, self._enqueue(name, run)))
        for path in (LOG_DIR_EVENTS, ISR_CHANGES):
            await self._remove_notifications(path, await store.children(path))
        context.live_brokers = await self.store.live_brokers()
        topics = await self.store.topics()
        await self.configs.load_topics(topics)
        await self._adopt_topics(topics)
        context.leadership = await self.store.partition_states(context.all_partitions())
        if self._logs_at_start is not None:
            await raise_epochs(context, self.store, self.broker_id, self._logs_at_start)
            self._logs_at_start = None
        for broker in context.live_brokers.values():
            self.channels.add_broker(broker)
        marked = await self.store.topics_to_delete()
        await self._initialize_deletions(marked)
        self.batch.add_update_metadata(context.live_brokers)
        self.batch.send()
        await self.replicas.startup()
        self.partitions.initialize()
        await self.partitions.elect_where_needed()
        await self._bring_new_replicas_online()
        await self.deletion.resume()
        logger.info("Ready to serve as the controller with epoch %d", context.epoch)

    async def _initialize_deletions(self, marked: set[str]) -> None:
        known = marked & self.context.assignments.keys()
        if not self.config.get_bool("delete.topic.enable"):
            if marked:
                logger.info("Removing deletion marks of %s: topic deletion is disabled", ", ".join(sorted(marked)))
            await self.store.unmark_for_deletion(marked)
            known = set()
        else:
            await self.store.unmark_for_deletion(marked - known)
        self.deletion.initialize(known)

    async def _bring_new_replicas_online(self) -> None:
        """Replicas of partitions that were created but had no state when the last controller went."""
        online = [
            replica
            for replica in self.context.replicas_for(self.context.all_partitions())
            if self.context.replica_state(replica) is ReplicaStatus.NEW
        ]
        await self.replicas.handle_state_changes(online, ReplicaStatus.ONLINE)

    async def _resign(self) -> None:
        logger.info("Resigning as the controller")
        self.active_controller_id = -1
        self._elected = False
        await self._clear()

    async def _clear(self) -> None:
        for watch in self._watches:
            watch.cancel()
        self._watches.clear()
        await self.channels.close()
        await self.deletion.close()
        epoch = self.context.epoch
        self.context = ControllerContext()
        self.context.epoch = epoch
        self._build()
        for waiters in self._deletion_waiters.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(errors.NotControllerError())
        self._deletion_waiters.clear()

    async def _event_failed(self, error: BaseException) -> bool:
        if isinstance(error, ControllerMovedError):
            await self._resign()
            self._events.put("ControllerChange", self._elect)
            return True
        if isinstance(error, MetadataStoreError) and self.is_active:
            # The step may have stopped half way, and a write may have been done whose answer was lost: the store is
            # read again, and what was left without a leader is tried again.
            self._later("RetryElection", self._retry)
        elif isinstance(error, MetadataStoreError):
            # Nobody may be controller now, or this broker without knowing.
            self._later("ControllerChange", self._check_controllership)
        return False

    def _later(self, name: str, run: Callable[[], Awaitable[Any]]) -> None:
        asyncio.get_running_loop().call_later(RETRY_MS / 1000, self._events.put, name, run)

    async def _retry(self) -> None:
        # The event that failed may be the one that told of the end of this controllership.
        await self._check_controllership()
        if self.is_active:
            await self._brokers_changed()
            await self._replicas_offline(self.context.replicas_without_broker())
            await self._log_dirs_failed()
            await self._isr_changed()
            await self._topics_changed()
            await self._adopt_topics(self.context.assignments)
            await self._deletions_changed()
            await self._bring_up_partitions()
            await self.partitions.elect_where_needed()
            await self._bring_new_replicas_online()
            await self.deletion.resume()

    async def _bring_up_partitions(self) -> None:
        """Bring to life what is in the context and nothing more, because a step stopped before that."""
        context = self.context
        missing = [
            each
            for each in context.all_partitions()
            if each not in context.partition_status and not context.is_topic_being_deleted(each.topic)
        ]
        grown = {each.topic for each in context.partition_status}
        await self.partitions_created([each for each in missing if each.topic in grown])
        created = dict.fromkeys(each.topic for each in missing if each.topic not in grown)
        if created:
            await self.topics_created(list(created))

    def _controller_changed(self, event: WatchEvent) -> None:
        del event
        self._events.put("ControllerChange", self._check_controllership)

    async def _check_controllership(self) -> None:
        current = await self.store.controller_id()
        if self.is_active and current != self.broker_id:
            await self._resign()
        if not self.is_active:
            await self._elect()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._expired = True
            self._events.put("Expire", self._session_expired)
        elif state is SessionState.CONNECTED and self._expired:
            self._expired = False
            self._events.put("RegisterBrokerAndReelect", self._register_again)

    async def _session_expired(self) -> None:
        if self.is_active:
            await self._resign()

    async def _register_again(self) -> None:
        if self.registration is not None:
            try:
                await self._register(self.registration)
            except (OtherBrokersError, errors.DuplicateBrokerRegistrationError) as error:
                logger.critical("This broker stops, because its ZooKeeper session has expired: %s", error)
                if self._replaced is not None:
                    self._replaced()
                return
        await self._check_controllership()

    def _enqueue(self, name: str, run: Callable[[], Awaitable[None]]) -> Callable[[WatchEvent], None]:
        async def while_active() -> None:
            if self.is_active:
                await run()

        def changed(event: WatchEvent) -> None:
            del event
            self._events.put(name, while_active)

        return changed

    # --- brokers ------------------------------------------------------------------------------------------------------

    async def _brokers_changed(self) -> None:
        context = self.context
        now = await self.store.live_brokers()
        before = dict(context.live_brokers)
        bounced = {each for each in before.keys() & now.keys() if before[each].epoch != now[each].epoch}
        gone = (before.keys() - now.keys()) | bounced
        new = (now.keys() - before.keys()) | bounced
        for broker_id in sorted(gone):
            logger.info("Broker %d is gone", broker_id)
            await self.channels.remove_broker(broker_id)
            del context.live_brokers[broker_id]
        if gone:
            for broker_id in gone:
                context.offline_dir_partitions.pop(broker_id, None)
                context.shutting_down_brokers.discard(broker_id)
            await self._replicas_offline(context.replicas_on(gone))
        for broker_id in sorted(new):
            logger.info("Broker %d has come up", broker_id)
            context.live_brokers[broker_id] = now[broker_id]
            self.channels.add_broker(now[broker_id])
        if new:
            await self._brokers_started(new)

    async def _brokers_started(self, brokers: set[int]) -> None:
        context = self.context
        self.batch.add_update_metadata(context.live_brokers.keys() - brokers)
        self.batch.send()
        self.batch.add_update_metadata(brokers, list(context.leadership))
        self.batch.send()
        replicas = context.replicas_on(brokers)
        await self.replicas.handle_state_changes(
            [r for r in replicas if not context.is_topic_being_deleted(r.partition.topic)], ReplicaStatus.ONLINE
        )
        await self.partitions.elect_where_needed()
        await self._bring_new_replicas_online()
        await self.deletion.retry({replica.partition.topic for replica in replicas})

    async def _replicas_offline(self, replicas: Iterable[Replica]) -> None:
        """Brokers or log directories are gone: elect other leaders and shrink ISRs."""
        context = self.context
        replicas = list(replicas)
        deleting = [each for each in replicas if context.is_topic_being_deleted(each.partition.topic)]
        others = [each for each in replicas if not context.is_topic_being_deleted(each.partition.topic)]
        leaderless = context.partitions_with_offline_leader()
        await self.partitions.handle_state_changes(leaderless, PartitionStatus.OFFLINE)
        await self.partitions.elect_where_needed()
        await self.replicas.handle_state_changes(others, ReplicaStatus.OFFLINE)
        if deleting:
            await self.deletion.replicas_failed(deleting)
        self.batch.add_update_metadata(context.live_brokers, leaderless)
        self.batch.send()

    async def _log_dirs_failed(self) -> None:
        """Ask the brokers again to lead and follow: their answers say which partitions are on the failed directory."""
        names, values = await self._notifications(LOG_DIR_EVENTS)
        brokers = {decode_log_dir_event(value) for value in values} & self.context.live_brokers.keys()
        try:
            replicas = self.context.replicas_on(brokers)
            await self.replicas.handle_state_changes(
                [r for r in replicas if not self.context.is_topic_being_deleted(r.partition.topic)],
                ReplicaStatus.ONLINE,
            )
        finally:
            await self._remove_notifications(LOG_DIR_EVENTS, names)

    async def _isr_changed(self) -> None:
        """Leaders have changed ISRs in the store: read them and tell all brokers' caches."""
        names, values = await self._notifications(ISR_CHANGES)
        known = set(self.context.leadership)
        changed = [partition for value in values for partition in decode_isr_change(value) if partition in known]
        self.context.leadership.update(await self.store.partition_states(changed))
        self.batch.add_update_metadata(self.context.live_brokers, changed)
        self.batch.send()
        await self._remove_notifications(ISR_CHANGES, names)

    async def _notifications(self, path: str) -> tuple[list[str], list[bytes]]:
        names = await self.store.store.children(path)
        found = await self.store.store.get_many([f"{path}/{name}" for name in names])
        return names, [each[0] for each in found if each is not None]

    async def _remove_notifications(self, path: str, names: list[str]) -> None:
        for name in names:
            try:
                await self.store.store.delete(f"{path}/{name}")
            except NoNodeError:
                continue

    def _answered(self, broker_id: int, request: BrokerRequest, response: BrokerResponse) -> None:
        """A broker has answered. Called by its queue, so what follows becomes an event."""
        if response.error is not ErrorCode.NONE:
            logger.error("Broker %d answered %s with %s", broker_id, type(request).__name__, response.error.name)

        async def follow_up() -> None:
            if not self.is_active or request.controller_epoch != self.context.epoch:
                return
            if isinstance(request, StopReplica):
                await self._replicas_stopped(broker_id, request, response)
            elif isinstance(request, LeaderAndIsr):
                await self._leader_and_isr_answered(broker_id, request, response)

        stops = isinstance(request, StopReplica) and any(each.delete for each in request.partitions.values())
        leads = isinstance(request, LeaderAndIsr)
        offline = self.context.offline_dir_partitions.get(broker_id)
        if stops or (leads and (response.partition_errors or offline)):
            self._events.put(f"{type(request).__name__}ResponseReceived", follow_up, once=False)

    async def _leader_and_isr_answered(self, broker_id: int, request: LeaderAndIsr, response: BrokerResponse) -> None:
        if response.error is not ErrorCode.NONE:
            return
        before = self.context.offline_dir_partitions.get(broker_id, set())
        offline = {p for p, e in response.partition_errors.items() if e is ErrorCode.KAFKA_STORAGE_ERROR}
        online = {p for p in request.partitions if p not in response.partition_errors}
        now = (before - online) | offline
        self.context.offline_dir_partitions[broker_id] = now
        newly = now - before
        if newly:
            logger.info("%d replicas on broker %d are offline: storage error", len(newly), broker_id)
            await self._replicas_offline([Replica(partition, broker_id) for partition in newly])

    async def _replicas_stopped(self, broker_id: int, request: StopReplica, response: BrokerResponse) -> None:
        asked = {p for p, each in request.partitions.items() if each.delete}
        failed = asked if response.error is not ErrorCode.NONE else asked & response.partition_errors.keys()
        if failed:
            await self.deletion.replicas_failed([Replica(partition, broker_id) for partition in failed])
        await self.deletion.replicas_deleted([Replica(partition, broker_id) for partition in asked - failed])

    # --- topics -------------------------------------------------------------------------------------------------------

    async def _adopt_topics(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Take topics from the store into the context, giving an id to those of old brokers. Their partitions."""
        added: list[TopicPartition] = []
        for topic, (assignment, stat) in (await self.store.topic_assignments(list(topics))).items():
            topic_id = assignment.topic_id
            if topic_id is None:
                topic_id = random_uuid()
                await self.store.set_topic(topic, assignment._replace(topic_id=topic_id), stat.version)
            self.context.put_topic(topic, topic_id, assignment)
            added += self.context.partitions_of(topic)
        return added

    async def _topics_changed(self) -> None:
        """Topics that something else than this controller has written."""
        now = set(await self.store.topics())
        for topic in self.context.assignments.keys() - now:
            logger.info("Topic %s has vanished from the metadata store", topic)
            await self.deletion.vanished(topic)
        new = now - self.context.assignments.keys()
        if new:
            await self._adopt_topics(sorted(new))
            await self.topics_created([each for each in sorted(new) if each in self.context.assignments])

    async def _deletions_changed(self) -> None:
        marked = await self.store.topics_to_delete()
        unknown = marked - self.context.assignments.keys()
        await self.store.unmark_for_deletion(unknown)
        fresh = marked - unknown - self.context.topics_to_delete
        if not self.config.get_bool("delete.topic.enable"):
            await self.store.unmark_for_deletion(fresh)
        elif fresh:
            await self.deletion.enqueue(fresh)

    async def topics_created(self, topics: Sequence[str]) -> None:
        """Bring topics that are new in the context to life, and tell plugins of them. Called within an event."""
        await self.configs.reload_topics(topics)
        await self.partitions_created([each for topic in topics for each in self.context.partitions_of(topic)])
        for topic in topics:
            self._notify(
                "topic_created",
                topic=topic,
                topic_id=self.context.topic_ids[topic],
                partitions=len(self.context.assignments[topic]),
                configs=dict(self.configs.topic(topic)),
            )

    async def partitions_created(self, partitions: list[TopicPartition]) -> None:
        """Bring partitions that are in the context now to life. Called within an event."""
        replicas = self.context.replicas_for(partitions)
        await self.partitions.handle_state_changes(partitions, PartitionStatus.NEW)
        await self.replicas.handle_state_changes(replicas, ReplicaStatus.NEW)
        await self.partitions.handle_state_changes(partitions, PartitionStatus.ONLINE)
        await self.replicas.handle_state_changes(replicas, ReplicaStatus.ONLINE)

    def topic_deletion(self, topic: str) -> asyncio.Future[None]:
        """Done when the topic is gone for good."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters = self._deletion_waiters.setdefault(topic, set())
        waiters.add(waiter)

        def done(each: asyncio.Future[None]) -> None:
            waiters.discard(each)
            if not each.cancelled():
                each.exception()  # whoever waited may have given up; then nobody asks for the outcome

        waiter.add_done_callback(done)
        return waiter

    async def _topic_deleted(self, topic: str, topic_id: UUID) -> None:
        self.configs.forget_topic(topic)
        self._notify("topic_deleted", topic=topic, topic_id=topic_id)
        for waiter in self._deletion_waiters.pop(topic, ()):
            if not waiter.done():
                waiter.set_result(None)

    def _unclean_allowed(self, topic: str) -> bool:
        own = self.configs.topic(topic).get("unclean.leader.election.enable")
        if own is not None:
            return own.strip().lower() == "true"
        return self.config.get_bool("unclean.leader.election.enable")

    # --- elections asked for ------------------------------------------------------------------------------------------

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition], unclean: bool
    ) -> dict[TopicPartition, errors.KafkaError | None]:
        """Preferred (or, `unclean`, last-resort) elections as ElectLeaders asks for them; the error of each, or None.

        UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE,
        ELIGIBLE_LEADERS_NOT_AVAILABLE; NOT_CONTROLLER for the whole.
        """
        wanted = list(partitions)

        async def run() -> dict[TopicPartition, errors.KafkaError | None]:
            return await self._elect_asked(wanted, unclean)

        result: dict[TopicPartition, errors.KafkaError | None] = await self.submit("ReplicaLeaderElection", run)
        return result

    async def controlled_shutdown(self, broker_id: int) -> set[TopicPartition]:
        """Hand the leaderships of a broker that is about to stop to others; the replicated partitions it still leads.

        BROKER_NOT_AVAILABLE for a broker that is not alive; NOT_CONTROLLER.
        """

        async def run() -> set[TopicPartition]:
            context = self.context
            if broker_id not in context.live_brokers:
                raise errors.BrokerNotAvailableError(f"Broker id {broker_id} does not exist.")
            context.shutting_down_brokers.add(broker_id)
            replicated = [
                replica
                for replica in context.replicas_on({broker_id})
                if len(context.replicas_of(replica.partition)) > 1 and replica.partition in context.leadership
            ]
            led = [r.partition for r in replicated if context.leadership[r.partition].leader == broker_id]
            await self.partitions.handle_state_changes(
                led, PartitionStatus.ONLINE, ElectionStrategy.CONTROLLED_SHUTDOWN
            )
            following = [r for r in replicated if context.leadership[r.partition].leader != broker_id]
            await self.replicas.handle_state_changes(following, ReplicaStatus.OFFLINE)
            return {partition for partition in led if context.leadership[partition].leader == broker_id}

        remaining: set[TopicPartition] = await self.submit("ControlledShutdown", run)
        return remaining

    async def _elect_asked(
        self, partitions: list[TopicPartition], unclean: bool
    ) -> dict[TopicPartition, errors.KafkaError | None]:
        context = self.context
        results: dict[TopicPartition, errors.KafkaError | None] = {}
        unknown = errors.UnknownTopicOrPartitionError("The partition does not exist.")
        not_needed = errors.ElectionNotNeededError()
        needed = []
        async for partition in in_slices(partitions):
            state = context.leadership.get(partition)
            if state is None or context.is_topic_being_deleted(partition.topic):
                results[partition] = unknown
                continue
            has_leader = context.is_replica_online(state.leader, partition)
            done = has_leader if unclean else state.leader == context.replicas_of(partition)[0]
            if done:
                results[partition] = not_needed
            else:
                needed.append(partition)
        strategy = ElectionStrategy.OFFLINE_PARTITION_UNCLEAN if unclean else ElectionStrategy.PREFERRED_REPLICA
        moved = await self.partitions.handle_state_changes(needed, PartitionStatus.ONLINE, strategy)
        for partition in needed:
            failure: errors.KafkaError | None = None
            if partition not in moved:
                code = 83 if unclean else 80
                failure = errors.error_for(code)
            results[partition] = failure
        return results


def _nobody_listens(event: str, **arguments: object) -> None:
    del event, arguments
