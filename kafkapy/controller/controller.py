"""KafkaController: the broker that decides about topics, leaders and settings.

    start -> register the broker, elect -> failover: read the store, tell brokers, elect leaders, resume deletions

Every change of the cluster is an event, and events run one at a time, so no two decisions use the same state. Requests
of clients become events too and wait for their outcome. The next failover repairs a crash between two writes: topics
without partition states get them, topics marked for deletion are deleted.

The controller watches brokers, topics, deletions, ISR changes and failed log directories. When another tool adds
partitions by writing a topic's node, the controller sees them at the next election only. Source:
kafka.controller.KafkaController.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from kafkapy import errors
from kafkapy.controller import register
from kafkapy.controller.broker_channel import ChannelFactory
from kafkapy.controller.context import ControllerContext
from kafkapy.controller.controller_store import ControllerMovedError, ControllerStore
from kafkapy.controller.controllership import Controllership
from kafkapy.controller.event_queue import ControllerEventQueue
from kafkapy.controller.events import (
    broker_change,
    controlled_shutdown,
    failover,
    isr_change_notification,
    leader_and_isr_response,
    log_dir_event_notification,
    replica_leader_election,
    retry_election,
    stop_replica_response,
    topic_change,
    topic_deletion,
)
from kafkapy.controller.leader_epochs import LogsAtStart, raise_epochs
from kafkapy.controller.topic_deletion import ForgetOffsets
from kafkapy.errors import ErrorCode
from kafkapy.metadata.broker_requests import BrokerRequest, BrokerResponse, LeaderAndIsr, StopReplica
from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.config_repository import ConfigRepository
from kafkapy.metadata.store import (
    MetadataStore,
    MetadataStoreError,
    NodeExistsError,
    SessionState,
    Watch,
    WatchEvent,
)
from kafkapy.metadata.znodes import (
    CONTROLLER,
    BrokerRegistration,
)
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

logger = logging.getLogger("kafka.controller.KafkaController")

WATCHED: Final = (broker_change, topic_change, topic_deletion, log_dir_event_notification, isr_change_notification)
"""Events that follow nodes of the store."""
RETRY_MS: Final = 1000
"""Pause in ms after a store error within a step, before the store is read again."""


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
    ) -> None:
        """Create the candidate; `start` registers the broker.

        `replaced` is called when a broker with this broker's id is registered after this broker's session has expired:
        this broker must stop. `notify` calls the plugins' hooks of an event (`PluginManager.notify`). `forget_offsets`:
        see TopicDeletionManager; `logs_at_start`: see raise_epochs.
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
        self._events = ControllerEventQueue(self._event_failed)
        self._watches: list[Watch] = []
        self._controller_watch: Watch | None = None
        self._expired = False
        self._session = 0
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
            lambda: self._events.put("TopicDeletionResume", self._while_active(_resume_deletion)),
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
        self.store.store.listen_session(self._session_changed)
        await self.store.ensure_paths()
        await register.check_addresses(self.store, registration)
        await register.wait_for_earlier_life(self.store, registration, self.config)
        await self._register(registration)
        self._controller_watch = await self.store.store.watch_node(CONTROLLER, self._controller_changed)
        self._events.start()
        await self._events.submit("Startup", self._elect)
        await self.current.channels.drain(self.broker_id)

    async def stop(self) -> None:
        """Stop the controller's events.

        The owner closes the store's session, which ends the registration and the controllership.
        """
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

    def update_config(self, config: BrokerConfig) -> None:
        """Apply a broker configuration whose dynamic part has changed."""
        self.config = config

    async def submit(self, name: str, run: Callable[[], Awaitable[Any]]) -> Any:
        """Run a function as an event of the controller. NOT_CONTROLLER."""

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
        except Exception:
            logger.exception("This broker failed to become the controller; it resigns")
            await self._resign()
            await self.store.resign()
            raise

    async def _take_over(self) -> None:
        # Watches come first: an event behind this one sees changes that happen while the store is read.
        for event in WATCHED:
            watch = await self.store.store.watch_children(event.PATH, self._enqueue(event.NAME, event.run))
            self._watches.append(watch)
        await failover.run(self.current, self._raise_epochs)

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
            except errors.DuplicateBrokerRegistrationError as error:
                logger.critical("This broker stops, because its session with the metadata store expired: %s", error)
                if self._replaced is not None:
                    self._replaced()
                return
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

    # --- elections asked for ------------------------------------------------------------------------------------------

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition], unclean: bool
    ) -> dict[TopicPartition, errors.KafkaError | None]:
        """Run preferred elections, or `unclean` ones as a last resort.

        ElectLeaders asks for them. The result holds the error of each partition, or None.

        UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE;
        NOT_CONTROLLER for the whole.
        """
        wanted = list(partitions)
        result: dict[TopicPartition, errors.KafkaError | None] = await self.submit(
            replica_leader_election.NAME, lambda: replica_leader_election.run(self.current, wanted, unclean)
        )
        return result

    async def controlled_shutdown(self, broker_id: int) -> set[TopicPartition]:
        """Move leaderships off a broker that is about to stop.

        The result holds the replicated partitions that it still leads. BROKER_NOT_AVAILABLE for a broker that is not
        alive; NOT_CONTROLLER.
        """

        remaining: set[TopicPartition] = await self.submit(
            controlled_shutdown.NAME, lambda: controlled_shutdown.run(self.current, broker_id)
        )
        return remaining


async def _resume_deletion(controllership: Controllership) -> None:
    await controllership.deletion.resume()


def _nobody_listens(event: str, **arguments: object) -> None:
    del event, arguments
