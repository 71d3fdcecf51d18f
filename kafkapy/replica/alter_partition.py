"""AlterPartition: a leader's changes of an ISR on their way to the controller.

Source: kafka.server.AlterPartitionManager (KIP-497), kafka.server.ZkAlterPartitionManager.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from kafkapy import errors
from kafkapy.clients.network_client import RequestOf
from kafkapy.errors import ErrorCode
from kafkapy.metadata.inter_broker_sender import InterBrokerSender
from kafkapy.metadata.store import STORE_FAILED, BadVersionError, MetadataStore, NoNodeError
from kafkapy.metadata.znodes import (
    ISR_CHANGE_PREFIX,
    PartitionState,
    decode_partition_state,
    encode_isr_change,
    encode_partition_state,
    partition_state_path,
)
from kafkapy.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from kafkapy.types import ZERO_UUID, TopicPartition

logger = logging.getLogger("kafka.server.AlterPartitionManager")

AT_ONCE: Final = 1000
"""Most partitions of one request: the controller writes them in one transaction, and the loop takes no longer pause."""
RETRY_S: Final = 0.05
"""Pause before a request that failed as a whole goes to the controller again."""
LOOK_S: Final = 0.5
"""Seconds between two looks whether a request waits for the answer of a controller that is none any more."""
TELL_S: Final = 10.0
"""Seconds between two warnings while requests fail as a whole."""
FIRST_VERSION_WITH_IDS: Final = 2
FIRST_VERSION_WITH_EPOCHS: Final = 3
CHECK_S: Final = 2.5
LINGER_S: Final = 5.0
MAX_DELAY_S: Final = 60.0
"""Notifications of ISR changes: seconds between looks, without a further change, and at most."""


class IsrChange(NamedTuple):
    """The ISR that a leader wants, on top of the state with `partition_epoch`."""

    topic_partition: TopicPartition
    topic_id: UUID
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    """The epochs of the members in their last Fetch; -1: not known."""
    controller_epoch: int
    """The epoch of the controller that made this broker the leader."""


class AlterPartitionSender(Protocol):
    """Has an ISR changed. Used on the control loop."""

    async def alter(self, change: IsrChange) -> PartitionState:
        """The state of the partition after the change.

        It is the present state when that is so already. The call waits as long as no controller answers.
        OPERATION_NOT_ATTEMPTED while another change of the partition is on its way, and the controller's errors.
        """

    async def close(self) -> None:
        """End all changes."""


class _Item(NamedTuple):
    change: IsrChange
    answer: asyncio.Future[PartitionState]


class AlterPartitionManager:
    """Sends ISR changes to the controller, one request at a time. An AlterPartitionSender.

    Changes that come meanwhile wait, and go together. Owned by KafkaServer, used on the control loop.
    """

    def __init__(
        self,
        broker_id: int,
        client: InterBrokerSender,
        controller_id: Callable[[], int],
        broker_epoch: Callable[[], int],
    ) -> None:
        """`controller_id`: -1 while none is known; `client` is closed with this."""
        self._broker_id = broker_id
        self._client = client
        self._controller_id = controller_id
        self._broker_epoch = broker_epoch
        self._waiting: dict[TopicPartition, _Item] = {}
        self._sending: asyncio.Task[None] | None = None
        self._closed = False
        self._failing_since: float | None = None
        self._told_s = 0.0

    async def alter(self, change: IsrChange) -> PartitionState:
        """See AlterPartitionSender."""
        if self._closed or change.topic_partition in self._waiting:
            raise errors.error_for(ErrorCode.OPERATION_NOT_ATTEMPTED)
        loop = asyncio.get_running_loop()
        item = _Item(change, loop.create_future())
        self._waiting[change.topic_partition] = item
        if self._sending is None:
            self._sending = loop.create_task(self._send_all(), name="alter-partition")
        return await item.answer

    async def close(self) -> None:
        """See AlterPartitionSender."""
        self._closed = True
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        for item in self._waiting.values():
            item.answer.cancel()
        self._waiting.clear()
        await self._client.close()

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                if not await self._send(list(islice(self._waiting.values(), AT_ONCE))):
                    await asyncio.sleep(RETRY_S)
        finally:
            self._sending = None

    async def _send(self, items: list[_Item]) -> bool:
        """Whether the controller answered all items; those without an answer stay."""
        controller = self._controller_id()
        if controller < 0:
            return False
        by_id = all(item.change.topic_id != ZERO_UUID for item in items)
        version = None if by_id else 0
        epoch = self._broker_epoch()
        request = RequestOf(AlterPartitionRequest, lambda version: self._request(items, epoch, version))
        sending = asyncio.ensure_future(self._client.send(controller, request, version=version))
        try:
            while not (await asyncio.wait({sending}, timeout=LOOK_S))[0]:
                if self._controller_id() not in (controller, -1):
                    # A controller that stands still answers only after the next one is elected, or never.
                    self._client.disconnect(controller)
                    self._tell_failure(controller, f"broker {self._controller_id()} is the controller now")
                    return False
            response = sending.result()
        except errors.KafkaError as error:
            self._tell_failure(controller, str(error))
            return False
        finally:
            sending.cancel()
        if response.error_code:
            code = _code(response.error_code)
            if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                logger.error("This broker is not authorized to send AlterPartition to controller %d", controller)
            else:
                self._tell_failure(controller, code.name)
            return False
        self._failing_since = None
        return self._answer(items, response)

    def _tell_failure(self, controller: int, why: str) -> None:
        """Log a failure, as a warning when the failures have lasted for a while.

        A change of the controller explains the first one.
        """
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = self._told_s = now
            level = logging.INFO
        elif now - self._told_s >= TELL_S:
            self._told_s = now
            level = logging.WARNING
        else:
            level = logging.DEBUG
        seconds = now - self._failing_since
        logger.log(
            level,
            "AlterPartition has failed for %.0f s, the last time at controller %d; the broker retries: %s",
            seconds,
            controller,
            why,
        )

    def _request(self, items: list[_Item], broker_epoch: int, version: int) -> AlterPartitionRequest:
        topics: dict[tuple[str, UUID], AlterPartitionRequest.Topic] = {}
        for change, _ in items:
            name, number = change.topic_partition
            topic = topics.get((name, change.topic_id))
            if topic is None:
                topic = topics[name, change.topic_id] = AlterPartitionRequest.Topic(topic_name=name, partitions=[])
                if version >= FIRST_VERSION_WITH_IDS:
                    topic.topic_id = change.topic_id
            partition = AlterPartitionRequest.Topic.Partition(
                partition_index=number, leader_epoch=change.leader_epoch, partition_epoch=change.partition_epoch
            )
            if version >= FIRST_VERSION_WITH_EPOCHS:
                partition.new_isr_with_epochs = [
                    AlterPartitionRequest.Topic.Partition.BrokerState(broker_id=broker, broker_epoch=epoch)
                    for broker, epoch in zip(change.isr, change.broker_epochs, strict=True)
                ]
            else:
                partition.new_isr = list(change.isr)
            topic.partitions.append(partition)
        return AlterPartitionRequest(broker_id=self._broker_id, broker_epoch=broker_epoch, topics=list(topics.values()))

    def _answer(self, items: list[_Item], response: AlterPartitionResponse) -> bool:
        by_name = {item.change.topic_partition: item for item in items}
        by_id = {(item.change.topic_id, item.change.topic_partition.partition): item for item in items}
        answered = 0
        for topic in response.topics:
            for each in topic.partitions:
                if topic.topic_id != ZERO_UUID:
                    item = by_id.get((topic.topic_id, each.partition_index))
                else:
                    item = by_name.get(TopicPartition(topic.topic_name, each.partition_index))
                if item is None or item.answer.done():
                    logger.error("The controller's AlterPartition response has an unexpected partition; it is ignored")
                    continue
                answered += 1
                self._waiting.pop(item.change.topic_partition, None)
                if each.error_code:
                    item.answer.set_exception(errors.error_for(_code(each.error_code)))
                else:
                    item.answer.set_result(_state(item.change, each))
        if answered < len(items):
            logger.warning("The controller's AlterPartition response lacks %d partitions", len(items) - answered)
        return answered == len(items)


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _state(change: IsrChange, each: Any) -> PartitionState:
    return PartitionState(
        each.leader_id,
        each.leader_epoch,
        tuple(each.isr),
        change.controller_epoch,
        bool(each.leader_recovery_state),
        each.partition_epoch,
    )


class StoreIsrWriter:
    """Writes ISR changes into the metadata store itself, below IBP 2.7-IV2. An AlterPartitionSender.

    The controller hears of them by nodes below /isr_change_notification. Owned by KafkaServer, used on the control
    loop.
    """

    def __init__(self, store: MetadataStore, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._changed: set[TopicPartition] = set()
        self._changed_s = self._told_s = clock()
        self._telling: asyncio.Task[None] | None = None
        self._closed = False

    async def alter(self, change: IsrChange) -> PartitionState:
        """See AlterPartitionSender. INVALID_UPDATE_VERSION when another writer has changed the state."""
        state = PartitionState(change.leader, change.leader_epoch, change.isr, change.controller_epoch)
        path = partition_state_path(change.topic_partition)
        while True:
            try:
                version = await self._write(change, path, state)
            except NoNodeError:
                raise errors.error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from None
            except STORE_FAILED as error:
                logger.warning("The ISR of %s cannot be written; the broker retries: %s", change.topic_partition, error)
                await asyncio.sleep(RETRY_S)
                continue
            break
        self._changed.add(change.topic_partition)
        self._changed_s = self._clock()
        if self._telling is None and not self._closed:
            self._telling = asyncio.get_running_loop().create_task(self._tell(), name="isr-change-propagation")
        return state._replace(version=version)

    async def close(self) -> None:
        """See AlterPartitionSender."""
        self._closed = True
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)

    async def _write(self, change: IsrChange, path: str, state: PartitionState) -> int:
        """The version of the write, or of an equal one whose answer was lost (checkLeaderAndIsrZkData)."""
        try:
            return (await self._store.set(path, encode_partition_state(state), change.partition_epoch)).version
        except BadVersionError:
            value, stat = await self._store.get(path)
        found = decode_partition_state(change.topic_partition, value, stat.version)
        if found._replace(version=-1) != state:
            raise errors.error_for(ErrorCode.INVALID_UPDATE_VERSION)
        return stat.version

    async def _tell(self) -> None:
        """Tell the controller, when no change has come for a while, or after a long time."""
        while self._changed:
            await asyncio.sleep(CHECK_S)
            now = self._clock()
            if now < self._changed_s + LINGER_S and now < self._told_s + MAX_DELAY_S:
                continue
            changed, self._changed = self._changed, set()
            try:
                await self._store.create(
                    ISR_CHANGE_PREFIX, encode_isr_change(sorted(changed)), sequential=True, make_parents=True
                )
            except STORE_FAILED as error:
                logger.warning("The controller cannot learn of ISR changes yet; the broker retries: %s", error)
                self._changed |= changed
            else:
                self._told_s = now
        self._telling = None
