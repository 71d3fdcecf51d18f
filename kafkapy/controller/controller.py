"""KafkaController: the broker that decides about topics, leaders and settings.

    start -> register the broker, elect -> failover: read the store, tell brokers, elect leaders, resume deletions

Every change of the cluster is an event, and events run one at a time, so no two decisions use the same state. Requests
of clients become events too and wait for their outcome. The next failover repairs a crash between two writes: topics
without partition states get them, topics marked for deletion are deleted.

The controller watches brokers, topics, deletions, ISR changes, failed log directories, and what old tools write.
Source: kafka.controller.KafkaController.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkapy import errors
from kafkapy.controller import feature_updates, register
from kafkapy.controller.broker_channel import ChannelFactory
from kafkapy.controller.context import ControllerContext
from kafkapy.controller.controller_stats import ControllerNumbers, ControllerStats, numbers_of
from kafkapy.controller.controller_store import ControllerMovedError, ControllerStore
from kafkapy.controller.controllership import Controllership
from kafkapy.controller.event_queue import ControllerEventQueue
from kafkapy.controller.events import (
    allocate_producer_ids,
    alter_partition,
    broker_change,
    broker_modifications,
    controlled_shutdown,
    failover,
    isr_change_notification,
    leader_and_isr_response,
    leader_balance,
    log_dir_event_notification,
    partition_modifications,
    partition_reassignment,
    preferred_election,
    replica_leader_election,
    retry_election,
    stop_replica_response,
    topic_change,
    topic_deletion,
)
from kafkapy.controller.events.alter_partition import AlteredPartitions, IsrChange
from kafkapy.controller.feature_updates import FeatureUpdate
from kafkapy.controller.leader_epochs import LogsAtStart, raise_epochs
from kafkapy.controller.reassignment import Reassignments
from kafkapy.controller.topic_deletion import ForgetOffsets
from kafkapy.errors import ErrorCode
from kafkapy.garbage import resting
from kafkapy.metadata.broker_requests import BrokerRequest, BrokerResponse, LeaderAndIsr, StopReplica
from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.config_repository import ConfigRepository
from kafkapy.metadata.metadata_version import LATEST, MetadataVersion
from kafkapy.metadata.store import (
    MetadataStore,
    MetadataStoreError,
    NodeExistsError,
    SessionState,
    StoreUnavailableError,
    Watch,
    WatchEvent,
)
from kafkapy.metadata.znodes import (
    CONFIG_TOPICS,
    CONTROLLER,
    TOPICS,
    BrokerRegistration,
    ProducerIdBlock,
    ReplicaAssignment,
)
from kafkapy.slices import in_slices
from kafkapy.types import Endpoint, TopicPartition

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

logger = logging.getLogger("kafka.controller.KafkaController")

T = TypeVar("T")

WATCHED: Final = (broker_change, topic_change, topic_deletion, log_dir_event_notification, isr_change_notification)
"""Events that follow the children of nodes of the store."""
WRITTEN_BY_TOOLS: Final = (partition_reassignment, preferred_election)
"""Events that follow single nodes, which old tools write."""
UNCLEAN: Final = "unclean.leader.election.enable"
DRAIN_S: Final = 2.0
"""Seconds that a stopping controller waits for the brokers' answers."""
RETRY_MS: Final = 1000
"""Pause in ms after a store error within a step, before the store is read again."""


@dataclass(slots=True, eq=False)
class _AskedIsrs:
    """An AlterPartition request, and its answer."""

    broker_id: int
    broker_epoch: int
    changes: Sequence[IsrChange]
    version: int
    altered: AlteredPartitions = field(default_factory=dict)
    error: errors.KafkaError | None = None
    done: bool = False


class KafkaController:
    """A broker's candidate for controller, and the controller while elected.

    Owned by the broker; used on the control loop. `channel_factory` opens the channel to a registered broker.
    TopicAdmin serves the requests of clients about topics.
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
        replaced: Callable[[], None] | None = None,
        notify: Callable[..., None] | None = None,
        forget_offsets: ForgetOffsets | None = None,
        logs_at_start: LogsAtStart | None = None,
        metadata_version: MetadataVersion = LATEST,
    ) -> None:
        """Create the candidate; `start` registers the broker.

        `replaced` is called when a broker with this broker's id is registered after this broker's session has expired:
        this broker must stop. `notify` calls the plugins' hooks of an event (`PluginManager.notify`). `forget_offsets`:
        see TopicDeletionManager; `logs_at_start`: see raise_epochs; `metadata_version`: the inter-broker
        protocol version.
        """
        self.config = config
        self.broker_id = broker_id
        self.store = ControllerStore(store)
        self.metadata_cache = metadata_cache
        self.configs = configs
        self.active_controller_id = -1
        self.registration: BrokerRegistration | None = None
        self._channel_factory = channel_factory
        self._replaced = replaced
        self._notify = notify or _nobody_listens
        self._forget_offsets = forget_offsets
        self._logs_at_start = logs_at_start
        self._metadata_version = metadata_version
        self._balance: asyncio.TimerHandle | None = None
        self.stats = ControllerStats()
        self._events = ControllerEventQueue(self._event_failed, self.stats)
        self._watches: list[Watch] = []
        self._controller_watch: Watch | None = None
        self._expired = False
        self._stopped = False
        self._session = 0
        self._asked_isrs: list[_AskedIsrs] = []
        """AlterPartition requests that wait."""
        self.registered: list[Callable[[int], None]] = []
        """Called with the broker epoch after each registration of this broker."""
        # The controller's node does not tell this: it may name this broker from an earlier session or epoch.
        self._elected = False
        self.current = self._make_controllership(epoch=0)
        """The latest controllership, or the next one."""

    def _make_controllership(self, epoch: int) -> Controllership:
        return Controllership(
            self.broker_id,
            epoch,
            self.store,
            self.configs,
            lambda: self.config,
            self._channel_factory,
            self._answered,
            self._notify,
            self._forget_offsets,
            lambda name, run: self._events.put(name, self._while_active(run)),
            self._node_changed,
            self._metadata_version,
            self.stats,
        )

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self._elected

    @property
    def context(self) -> ControllerContext:
        """The cluster as this broker knows it while it is the controller."""
        return self.current.context

    @property
    def queued_events(self) -> int:
        """The number of events that wait."""
        return len(self._events)

    def numbers(self) -> ControllerNumbers:
        """The gauges of this controller.

        All are 0 while another broker controls. Any thread may ask.
        """
        if not self.is_active:
            return ControllerNumbers()
        return numbers_of(self.context, self.metadata_cache.snapshot, self.current.channels.queued())

    @property
    def epoch(self) -> int:
        """The epoch of this broker's latest controllership."""
        return self.context.epoch

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration, -1 without one."""
        return -1 if self.registration is None else self.registration.epoch

    async def start(self, registration: BrokerRegistration) -> None:
        """Register the broker and try to become controller.

        When this broker is elected, the call returns after the controller's first requests to this broker are done: all
        logs are open and the metadata cache is filled. DUPLICATE_BROKER_REGISTRATION when the id or an address is
        taken.
        """
        store = self.store
        store.store.listen_session(self._session_changed)
        await register.patiently(store, store.ensure_paths)
        self.configs.listen(CONFIG_TOPICS, self._topic_config_changed)
        await register.patiently(store, lambda: register.check_addresses(store, registration))
        await register.patiently(store, lambda: register.wait_for_earlier_life(store, registration))
        await register.patiently(store, lambda: self._register(registration))
        self._controller_watch = await register.patiently(
            store, lambda: store.store.watch_node(CONTROLLER, self._controller_changed)
        )
        self._events.start()
        try:
            await self._events.submit("Startup", self._elect)
        except ControllerMovedError:
            logger.info("Another broker has become the controller meanwhile")
        except StoreUnavailableError as error:
            if not store.store.is_shared:
                raise
            # As at any later time: the event has been put back, and other brokers may elect a controller before.
            logger.warning("The first election of a controller was interrupted; the broker tries again: %s", error)
        await self.current.channels.drain(self.broker_id)

    async def stop(self) -> None:
        """Stop the controller's events.

        The owner closes the store's session, which ends the registration and the controllership.
        """
        self._stopped = True
        await self._events.stop()
        if self._controller_watch is not None:
            self._controller_watch.cancel()
        await self._clear()

    async def _register(self, registration: BrokerRegistration) -> None:
        try:
            self.registration = await self.store.register_broker(registration, self._session)
        except NodeExistsError:
            raise register.taken(registration.id) from None
        self._session = self.store.store.session_id
        logger.info("Broker %d is registered with epoch %d", registration.id, self.registration.epoch)
        for listener in self.registered:
            listener(self.registration.epoch)

    async def update_registration(self, endpoints: tuple[Endpoint, ...], cordoned: bool) -> None:
        """Rewrite this broker's registration with other addresses, and whether it gets new partitions.

        DUPLICATE_BROKER_REGISTRATION when another broker has one of the addresses.
        """
        if self.registration is not None and not self._stopped:
            # In the order of events: a registration after the end of a session is another one.
            await self._events.submit("UpdateRegistration", lambda: self._update_registration(endpoints, cordoned))

    async def _update_registration(self, endpoints: tuple[Endpoint, ...], cordoned: bool) -> None:
        assert self.registration is not None
        registration = self.registration._replace(endpoints=endpoints, cordoned=cordoned)
        await register.check_addresses(self.store, registration)
        await self.store.update_broker(registration)
        self.registration = registration
        logger.info("Broker %d has updated its registration", registration.id)
        # A store that only this process uses has no watches (NodeWatches).
        self._enqueue_one(broker_modifications.NAME, self.broker_id, broker_modifications.run)

    def update_config(self, config: BrokerConfig) -> None:
        """Apply a broker configuration whose dynamic part has changed."""
        was_allowed = self.config.get_bool(UNCLEAN)
        self.config = config
        if config.get_bool(UNCLEAN) and not was_allowed:
            self._events.put("UncleanLeaderElectionEnable", self._while_active(_elect_everywhere))

    async def _topic_config_changed(self, topic: str, configs: Mapping[str, str]) -> None:
        if configs.get(UNCLEAN, "").strip().lower() == "true":
            self._enqueue_one("TopicUncleanLeaderElectionEnable", topic, _elect_leaders_of)

    async def submit(self, name: str, run: Callable[[], Awaitable[Any]]) -> Any:
        """Run a function as an event of the controller. NOT_CONTROLLER."""
        if self._stopped:
            raise errors.NotControllerError

        async def checked() -> Any:
            if not self.is_active:
                raise errors.NotControllerError
            return await run()

        try:
            return await self._events.submit(name, checked)
        except ControllerMovedError:
            raise errors.NotControllerError from None

    async def update_features(self, updates: Sequence[FeatureUpdate], validate_only: bool) -> int:
        """Finalize levels of features; see feature_updates.run. NOT_CONTROLLER."""
        version: int = await self.submit(
            feature_updates.NAME, lambda: feature_updates.run(self.current, self.broker_id, updates, validate_only)
        )
        return version

    async def update_features_with_zookeeper(
        self, updates: Sequence[FeatureUpdate], validate_only: bool, all_or_none: bool
    ) -> tuple[dict[str, str], int]:
        """Remove finalized features; see feature_updates.run_with_zookeeper. NOT_CONTROLLER."""
        outcome: tuple[dict[str, str], int] = await self.submit(
            feature_updates.NAME,
            lambda: feature_updates.run_with_zookeeper(self.current, updates, validate_only, all_or_none),
        )
        return outcome

    # --- election -----------------------------------------------------------------------------------------------------

    async def _elect(self) -> None:
        self.active_controller_id = await self.store.controller_id()
        # A node that names this broker is left from an election, or a resignation, whose outcome it could not learn.
        if self.active_controller_id == self.broker_id and await self.store.remove_unused():
            self.active_controller_id = -1
        if self.active_controller_id != -1:
            logger.debug("Broker %d is the controller", self.active_controller_id)
            return
        try:
            epoch, version = await self.store.register_controller(self.broker_id)
        except ControllerMovedError:
            self.active_controller_id = await self.store.controller_id()
            if self.active_controller_id == -1:
                # The other broker is gone already: its going may have been told before this attempt began.
                self._later("ControllerChange", self._check_controllership)
            return
        self.context.epoch, self.context.epoch_version = epoch, version
        self.active_controller_id = self.broker_id
        self._elected = True
        logger.info("This broker is the controller, with epoch %d", epoch)
        try:
            await self._take_over()
        except ControllerMovedError:
            raise
        except Exception as error:
            if isinstance(error, StoreUnavailableError):
                logger.warning("This broker failed to become the controller; it resigns: %s", error)
            else:
                logger.exception("This broker failed to become the controller; it resigns")
            await self._resign()
            await self.store.resign()
            raise

    async def _take_over(self) -> None:
        # Watches come first: an event behind this one sees changes that happen while the store is read.
        for event in WATCHED:
            watch = await self.store.store.watch_children(event.PATH, self._enqueue(event.NAME, event.run))
            self._watches.append(watch)
        for work in WRITTEN_BY_TOOLS:
            watch = await self.store.store.watch_node(work.PATH, self._enqueue(work.NAME, work.run))
            self._watches.append(watch)
        with resting():
            await failover.run(self.current, self._raise_epochs)
        self._balance_later(leader_balance.FIRST_S)

    def _balance_later(self, seconds: float) -> None:
        self._balance = asyncio.get_running_loop().call_later(
            seconds, self._events.put, leader_balance.NAME, self._while_active(self._balance_leaders)
        )

    async def _balance_leaders(self, current: Controllership) -> None:
        try:
            if self.config.get_bool("auto.leader.rebalance.enable"):
                await leader_balance.run(current)
        finally:
            self._balance_later(self.config.get_int("leader.imbalance.check.interval.seconds"))

    async def _raise_epochs(self) -> None:
        if self._logs_at_start is not None:
            await raise_epochs(self.context, self.store, self.broker_id, self._logs_at_start)
            self._logs_at_start = None

    async def _resign(self) -> None:
        logger.info("This broker resigns as the controller")
        self.active_controller_id = -1
        self._elected = False
        await self._clear()

    async def _clear(self) -> None:
        for watch in self._watches:
            watch.cancel()
        self._watches.clear()
        if self._balance is not None:
            self._balance.cancel()
            self._balance = None
        await self.current.close()
        self.current = self._make_controllership(self.epoch)

    async def _event_failed(self, error: BaseException) -> bool:
        if isinstance(error, ControllerMovedError):
            await self._resign()
            self._events.put("ControllerChange", self._elect)
            return True
        if isinstance(error, MetadataStoreError) and self.is_active:
            # The step may have stopped half way, and a write may have been done whose answer was lost: the store is
            # read again, and what was left without a leader is tried again.
            self._later(retry_election.NAME, self._retry)
        elif isinstance(error, MetadataStoreError):
            # No broker may be controller now, or this broker without knowing it.
            self._later("ControllerChange", self._check_controllership)
        return False

    def _later(self, name: str, run: Callable[[], Awaitable[Any]]) -> None:
        asyncio.get_running_loop().call_later(RETRY_MS / 1000, self._events.put, name, run)

    async def _retry(self) -> None:
        # The event that failed may be the one that told of the end of this controllership.
        await self._check_controllership()
        if self.is_active:
            await retry_election.run(self.current)

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
            # Before all other events: they get NOT_CONTROLLER.
            self._events.put_first("Expire", self._session_expired)
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
            except errors.DuplicateBrokerRegistrationError as error:
                logger.critical("This broker stops, because its session with the metadata store expired: %s", error)
                if self._replaced is not None:
                    self._replaced()
                return
            except MetadataStoreError:
                # The node may be there without this broker knowing its epoch: it is made once more.
                self._later("RegisterBrokerAndReelect", self._register_again)
                raise
        await self._check_controllership()

    def _while_active(self, run: Callable[[Controllership], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        async def checked() -> None:
            if self.is_active:
                await run(self.current)

        return checked

    def _enqueue(self, name: str, run: Callable[[Controllership], Awaitable[None]]) -> Callable[[WatchEvent], None]:
        def changed(event: WatchEvent) -> None:
            del event
            self._events.put(name, self._while_active(run))

        return changed

    def _node_changed(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        if parent == TOPICS:
            self._enqueue_one(partition_modifications.NAME, name, partition_modifications.run)
        else:
            self._enqueue_one(broker_modifications.NAME, int(name), broker_modifications.run)

    def _enqueue_one(self, event: str, which: T, run: Callable[[Controllership, T], Awaitable[None]]) -> None:
        self._events.put(f"{event} {which}", self._while_active(lambda current: run(current, which)))

    # --- brokers ------------------------------------------------------------------------------------------------------

    def _answered(self, broker_id: int, request: BrokerRequest, response: BrokerResponse) -> None:
        """A broker has answered.

        Its queue calls this, so the follow-up becomes an event.
        """
        if response.error is not ErrorCode.NONE:
            logger.error("Broker %d answered %s with %s", broker_id, type(request).__name__, response.error.name)

        async def follow_up() -> None:
            if not self.is_active or request.controller_epoch != self.context.epoch:
                return
            broker = self.context.live_brokers.get(broker_id)
            if broker is None or broker.epoch != request.broker_epoch:
                return  # an earlier registration of the broker answered
            if isinstance(request, StopReplica):
                await stop_replica_response.run(self.current, broker_id, request, response)
            elif isinstance(request, LeaderAndIsr):
                await leader_and_isr_response.run(self.current, broker_id, request, response)

        stops = isinstance(request, StopReplica) and any(each.delete for each in request.partitions.values())
        leads = isinstance(request, LeaderAndIsr)
        offline = self.context.offline_dir_partitions.get(broker_id)
        if stops or (leads and (response.partition_errors or offline)):
            name = stop_replica_response.NAME if stops else leader_and_isr_response.NAME
            self._events.put(name, follow_up, once=False)

    # --- requests of brokers ------------------------------------------------------------------------------------------

    async def alter_partitions(
        self,
        broker_id: int,
        broker_epoch: int,
        changes: Sequence[IsrChange],
        version: int = alter_partition.LAST_VERSION,
    ) -> AlteredPartitions:
        """Change ISRs as their leaders ask.

        The result holds the new state of each partition, or an error. `version`: of the request. STALE_BROKER_EPOCH,
        NOT_CONTROLLER.
        """
        asked = _AskedIsrs(broker_id, broker_epoch, changes, version)
        self._asked_isrs.append(asked)
        try:
            await self.submit(alter_partition.NAME, lambda: self._alter_partitions(asked))
        finally:
            if asked in self._asked_isrs:
                self._asked_isrs.remove(asked)
        if asked.error is not None:
            raise asked.error
        return asked.altered

    async def _alter_partitions(self, asked: _AskedIsrs) -> None:
        """Serve the requests of all leaders that wait, and tell a thousand brokers once."""
        if asked.done:
            return
        waiting, self._asked_isrs = self._asked_isrs, []
        if asked not in waiting:
            waiting = [asked]  # an event that failed has taken it
        for each in waiting:
            try:
                each.altered = await alter_partition.run(
                    self.current, each.broker_id, each.broker_epoch, each.changes, each.version
                )
            except errors.KafkaError as error:
                each.error = error
            each.done = True
        await alter_partition.tell(self.current)

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        """The next block of producer ids for a broker.

        BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH, NOT_CONTROLLER.
        """
        block: ProducerIdBlock = await self.submit(
            allocate_producer_ids.NAME, lambda: allocate_producer_ids.run(self.current, broker_id, broker_epoch)
        )
        return block

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int = -1) -> set[TopicPartition]:
        """Move leaderships off a broker that is about to stop.

        The result holds the replicated partitions that it still leads. BROKER_NOT_AVAILABLE for a broker that is not
        alive; STALE_BROKER_EPOCH, NOT_CONTROLLER.
        """
        remaining: set[TopicPartition] = await self.submit(
            controlled_shutdown.NAME, lambda: controlled_shutdown.run(self.current, broker_id, broker_epoch)
        )
        if broker_id == self.broker_id:
            # This controller ends soon: brokers must know their new roles before.
            with suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_S):
                    await self.current.channels.drain_all()
        return remaining

    # --- requests of administrators -----------------------------------------------------------------------------------

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition], unclean: bool, timeout_ms: int = 30_000
    ) -> dict[TopicPartition, errors.KafkaError | None]:
        """Run preferred elections, or `unclean` ones as a last resort.

        ElectLeaders asks for them. The result holds the error of each partition, or None when the metadata cache shows
        the new leader.

        UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE,
        ELIGIBLE_LEADERS_NOT_AVAILABLE, REQUEST_TIMED_OUT; NOT_CONTROLLER for the whole.
        """
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        wanted = list(partitions)
        outcomes: dict[TopicPartition, int | errors.KafkaError] = await self.submit(
            replica_leader_election.NAME, lambda: replica_leader_election.run(self.current, wanted, unclean)
        )
        expected = {partition: leader for partition, leader in outcomes.items() if isinstance(leader, int)}
        late = await self._led_otherwise(expected, deadline)
        return {
            partition: outcome
            if isinstance(outcome, errors.KafkaError)
            else errors.RequestTimedOutError()
            if partition in late
            else None
            for partition, outcome in outcomes.items()
        }

    async def _led_otherwise(self, expected: dict[TopicPartition, int], deadline: float) -> set[TopicPartition]:
        """The partitions whose leader is not yet the expected one in the metadata cache at the deadline."""
        late = set(expected)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                while True:
                    seen = self.metadata_cache.snapshot
                    async for partition in in_slices(list(late)):
                        found = seen.partition(*partition)
                        if found is not None and found.leader == expected[partition]:
                            late.discard(partition)
                    if not late:
                        break
                    if self.metadata_cache.snapshot is seen:
                        await self.metadata_cache.wait_for_change()
        return late

    async def alter_reassignments(
        self, wanted: Reassignments, allow_replication_factor_change: bool = True
    ) -> dict[TopicPartition, errors.KafkaError | None]:
        """Begin, replace or cancel reassignments; the error of each partition, or None.

        See PartitionReassignments.alter for the errors; NOT_CONTROLLER for the whole.
        """
        results: dict[TopicPartition, errors.KafkaError | None] = await self.submit(
            "ApiPartitionReassignment",
            lambda: self.current.reassignments.alter(wanted, allow_replication_factor_change),
        )
        return results

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """The running reassignments among the partitions, None for all. NOT_CONTROLLER."""
        found: dict[TopicPartition, ReplicaAssignment] = await self.submit(
            "ListPartitionReassignments", lambda: self.current.reassignments.in_progress(partitions)
        )
        return found


async def _elect_everywhere(controllership: Controllership) -> None:
    await controllership.partitions.elect_where_needed()
    await controllership.bring_new_replicas_online()


async def _elect_leaders_of(controllership: Controllership, topic: str) -> None:
    await controllership.partitions.elect_where_needed(topic)


def _nobody_listens(event: str, **arguments: object) -> None:
    del event, arguments
