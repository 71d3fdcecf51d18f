"""ShareManager: the durable state of the share partitions that this broker leads.

The data plane serves ShareFetch and ShareAcknowledge (kafkapy/_speedups/requests/share). It asks for two things: the
state of a share partition that a member fetches for the first time, and the writes behind acknowledgements. Both come
as lists for all requests since the last turn of the loop, and go to the share coordinators by the Persister together.
Source: kafka.server.share.SharePartitionManager and SharePartition.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kafkapy.broker.dead_letters import DeadLetter, DeadLetters
from kafkapy.coordinator.share.state import UNINITIALIZED_START_OFFSET, ShareKey, ShareState, StateBatch, share_key
from kafkapy.errors import ErrorCode, code_of
from kafkapy.types import IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from kafkapy._speedups.requests.share.state_write import StateWrite
    from kafkapy._speedups.requests.share.table import ShareTable
    from kafkapy.coordinator.group.share.config import ShareGroupConfigs
    from kafkapy.coordinator.result import Later
    from kafkapy.coordinator.share.persister import Persister

logger = logging.getLogger("kafka.server.share.SharePartitionManager")

TICK_S: Final = 0.1
"""Pause in seconds between two looks for locks whose time is over."""
SWEEP_S: Final = 1.0
"""Pause in seconds between two looks for lost leaderships, moved log starts and changed configurations."""
FOLLOWED_A_TURN: Final = 1_000
"""Groups whose configuration one look compares."""
ARCHIVING: Final = 3
"""The state of records that wait for their dead letters (RecordState of Kafka 4.4)."""
WORK_A_TURN: Final = 500
"""Loads and writes that begin in one turn of the loop."""

StartOffset = Callable[[TopicPartition, int, str], Awaitable[int]]
"""The first offset of a share partition: partition, leader epoch, share.auto.offset.reset."""

_PERSISTER_ERRORS: Final = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""Errors of the Persister, and what members get for them; every other error is UNKNOWN_SERVER_ERROR, as in Kafka."""

_REPLACED: Final = (
    ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.GROUP_ID_NOT_FOUND,
)  # fmt: skip
"""Errors after which the state has to be read again."""


class Load(NamedTuple):
    """A share partition whose state is wanted, as ShareTable.take tells it."""

    id: int
    group_id: str
    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int

    @property
    def key(self) -> ShareKey:
        """Its key at the share coordinator."""
        return share_key(self.group_id, self.topic_id, self.partition)


def member_error(error: BaseException) -> ErrorCode:
    """The error that members get when the Persister has failed."""
    return _PERSISTER_ERRORS.get(code_of(error), ErrorCode.UNKNOWN_SERVER_ERROR)


class ShareManager:
    """Reads and writes the state of share partitions, on the control loop.

    `persister` makes or returns the Persister. `configs` gives the effective keys of a group. It hears of deleted
    groups and changed states as a listener of the group coordinator (ShareGroupListener).
    """

    def __init__(
        self,
        table: ShareTable,
        persister: Callable[[], Persister],
        configs: Callable[[str], ShareGroupConfigs],
        start_offset: StartOffset,
        *,
        session_idle_ms: int = -1,
        allows_dead_letters: Callable[[], bool] = lambda: False,
    ) -> None:
        """`session_idle_ms`: sessions unused for longer end; -1: none does.

        `allows_dead_letters`: whether the level of share.version does.
        """
        self._table = table
        self._persister = persister
        self._configs = configs
        self._start_offset = start_offset
        self._session_idle_ms = session_idle_ms
        self._allows_dead_letters = allows_dead_letters
        self.dead_letters: DeadLetters | None = None
        """Writes dead letters; its `done` is `dead_lettered`."""
        self._loads: deque[Load] = deque()
        self._writes: deque[StateWrite] = deque()
        self._working = False
        self._stored: list[StateWrite] = []
        """Finished writes, whose share partitions get a lease at the end of the turn."""
        self._emptied: set[str] = set()
        """Groups without a session here; their share partitions go when the writes have ended."""
        self._known: dict[str, tuple[int, int, int, bool, bool, bool]] = {}
        """The settings of groups, as the table has them."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._swept = 0.0
        self._sweeping = False
        self._unfollowed: deque[str] = deque()
        """Groups whose configuration this round has not looked at."""
        self._fileno = -1
        self._stopped = False

    # --- start and stop -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to serve the data plane."""
        self._fileno = self._table.fileno()
        asyncio.get_running_loop().add_reader(self._fileno, self._take)

    async def stop(self) -> None:
        """End all sessions and share partitions; members go on with another leader."""
        self._stopped = True
        if self._fileno >= 0:
            asyncio.get_running_loop().remove_reader(self._fileno)
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.dead_letters is not None:
            await self.dead_letters.stop()
        self._loads.clear()
        self._writes.clear()
        self._table.close()

    # --- work of the data plane -----------------------------------------------------------------------------------

    def _take(self) -> None:
        loads, writes, emptied = self._table.take()
        self._loads.extend(Load(*load) for load in loads)
        self._writes.extend(writes)
        self._emptied.update(emptied)
        if self._timer is None:
            self._swept = time.monotonic()
            self._arm()
        if not self._working:
            self._work()
        if self._emptied:
            self._drop_emptied()

    def _work(self) -> None:
        """Begin the writes, which members wait for, and then the loads."""
        self._working = False
        if self._stopped:
            return
        for _ in range(WORK_A_TURN):
            if self._writes:
                self._write(self._writes.popleft())
            elif self._loads:
                self._load(self._loads.popleft())
            else:
                return
        self._working = True
        asyncio.get_running_loop().call_soon(self._work)

    # --- writes ---------------------------------------------------------------------------------------------------

    def _write(self, write: StateWrite) -> None:
        batches = [*map(StateBatch._make, write.batches)]
        try:
            later = self._persister().write(
                share_key(*write.key),
                write.state_epoch,
                write.leader_epoch,
                write.start_offset,
                write.delivery_complete,
                batches,
            )
        except Exception as error:
            self._not_written(write, error)
        else:
            letters = [each for each in batches if each[2] == ARCHIVING]
            later.then(partial(self._written, write, letters))

    def _written(self, write: StateWrite, letters: Iterable[StateBatch], later: Later[None]) -> None:
        if self._stopped:
            return  # the table has answered whoever waits
        if later.error is not None:
            self._not_written(write, later.error)
            return
        write.finish()
        if letters:
            self._bury_all(write, letters)
        if not self._stored:
            asyncio.get_running_loop().call_soon(self._lend)
        self._stored.append(write)

    def _lend(self) -> None:
        """Let network threads store what follows the writes that have ended; see Persister.lend."""
        stored, self._stored = self._stored, []
        if not self._stopped:
            persister = self._persister()
            for write in stored:
                persister.lend(share_key(*write.key), write)

    def _not_written(self, write: StateWrite, error: BaseException) -> None:
        code = code_of(error)
        group_id, topic_id, partition = write.key
        logger.log(
            logging.INFO if code in _REPLACED else logging.WARNING,
            "The state of share partition %s:%s:%d cannot be written: %s",
            group_id,
            UUID(bytes=topic_id),
            partition,
            error,
        )
        write.finish(member_error(error), code in _REPLACED)
        if code not in _REPLACED:
            self._bury_all(write, [each for each in write.held if each[2] == ARCHIVING])

    def _bury_all(self, write: StateWrite, letters: Iterable[tuple[int, int, int, int]]) -> None:
        """Send the dead letters of batches that wait for them."""
        group_id, topic_id, partition = write.key
        for first, last, _, count in letters:
            self._bury(DeadLetter(group_id, write.topic, topic_id, partition, first, last, count))

    # --- loads ----------------------------------------------------------------------------------------------------

    def _load(self, load: Load) -> None:
        try:
            later = self._persister().read(load.key, load.leader_epoch)
        except Exception as error:
            self._not_loaded(load, error)
        else:
            later.then(partial(self._read, load))

    def _read(self, load: Load, later: Later[ShareState]) -> None:
        if self._stopped:
            return
        if later.error is not None:
            self._not_loaded(load, later.error)
            return
        state = later.result()
        if state.start_offset == UNINITIALIZED_START_OFFSET:
            self._do(self._begin(load, state))
        else:
            self._loaded(load, state)

    async def _begin(self, load: Load, state: ShareState) -> None:
        """Decide the first offset, and store it: after a restart "latest" would pass over unread records."""
        try:
            start_offset = await self._start_offset(
                TopicPartition(load.topic, load.partition),
                load.leader_epoch,
                self._configs(load.group_id).auto_offset_reset,
            )
            await self._persister().write(load.key, state.state_epoch, load.leader_epoch, start_offset, 0, ())
        except asyncio.CancelledError:
            self._table.load_failed(load.id, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            raise
        except Exception as error:
            self._not_loaded(load, error)
        else:
            self._loaded(load, state._replace(start_offset=start_offset))

    def _loaded(self, load: Load, state: ShareState) -> None:
        try:
            settings = self._settings(load.group_id)
            self._table.loaded(load.id, state.state_epoch, settings, state.start_offset, state.batches)
        except Exception as error:
            self._not_loaded(load, error)
            return
        for first, last, count in self._table.archiving(load.group_id, load.topic_id, load.partition):
            self._bury(DeadLetter(load.group_id, load.topic, load.topic_id, load.partition, first, last, count))
        known = self._known.setdefault(load.group_id, settings)
        if known != settings:
            self._known[load.group_id] = settings
            self._table.configure(load.group_id, settings)

    def _not_loaded(self, load: Load, error: BaseException) -> None:
        logger.warning(
            "The state of share partition %s:%s-%d cannot be read: %s",
            load.group_id,
            load.topic,
            load.partition,
            error,
        )
        self._table.load_failed(load.id, member_error(error))

    def _settings(self, group_id: str) -> tuple[int, int, int, bool, bool, bool]:
        """The group's keys as the table wants them."""
        configs = self._configs(group_id)
        return (
            configs.record_lock_duration_ms,
            configs.max_record_locks,
            configs.delivery_count_limit,
            bool(configs.dead_letter_topic) and self._allows_dead_letters(),
            configs.isolation_level == IsolationLevel.READ_COMMITTED,
            configs.renew_acknowledge,
        )

    def _do(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- dead letters ---------------------------------------------------------------------------------------------

    def _bury(self, letter: DeadLetter) -> None:
        if self.dead_letters is None:
            self.dead_lettered(letter)
        else:
            self.dead_letters.send(letter)

    def dead_lettered(self, letter: DeadLetter) -> None:
        """The letter is written or given up: its records are archived."""
        self._table.dead_lettered(letter.group_id, letter.topic_id, letter.partition, letter.first, letter.last)

    # --- time -----------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        """End locks in time, while there are share partitions or sessions."""
        self._arm()  # first: whatever fails here, locks end in time
        self._table.expire()
        now = time.monotonic()
        if self._sweeping or now - self._swept >= SWEEP_S:
            self._swept = now
            self._sweeping = self._table.sweep(self._session_idle_ms)
            self._follow_configs()
        if self._emptied:
            self._drop_emptied()
        if not len(self._table) and not self._emptied and self._timer is not None:
            self._known.clear()
            self._timer.cancel()
            self._timer = None

    def _follow_configs(self) -> None:
        """Look at the configurations of some groups, in turn."""
        if not self._unfollowed:
            self._unfollowed.extend(self._known)
        for _ in range(min(FOLLOWED_A_TURN, len(self._unfollowed))):
            group_id = self._unfollowed.popleft()
            known = self._known.get(group_id)
            if known is not None and (settings := self._settings(group_id)) != known:
                self._known[group_id] = settings
                self._table.configure(group_id, settings)

    def _drop_emptied(self) -> None:
        """Let go of groups without a session here: an operator may set the offsets of an empty group."""
        for group_id in list(self._emptied):
            if not self._table.has_writes(group_id):
                self._emptied.discard(group_id)
                if self._table.drop_group(group_id, ErrorCode.NOT_LEADER_OR_FOLLOWER, only_unused=True):
                    self._known.pop(group_id, None)

    # --- events of the group coordinator --------------------------------------------------------------------------

    def group_deleted(self, group_id: str) -> None:
        """Nobody writes its state any more."""
        self._table.drop_group(group_id, ErrorCode.GROUP_ID_NOT_FOUND)

    def state_changed(self, group_id: str, topic_id: UUID, partitions: frozenset[int]) -> None:
        """The next fetch reads the new state."""
        for partition in partitions:
            self._table.drop_partition(group_id, topic_id.bytes, partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def member_gone(self, group_id: str, member_id: str) -> None:
        """Its records come back when its share session or locks end, as in Kafka."""
        logger.debug("Member %s of share group %s is gone", member_id, group_id)
