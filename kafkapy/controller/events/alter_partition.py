"""AlterPartitionReceived: leaders ask for other ISRs (KIP-497, KIP-841). Source: processAlterPartition."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from kafkapy import errors
from kafkapy.controller.context import ControllerContext
from kafkapy.controller.controllership import Controllership
from kafkapy.errors import ErrorCode
from kafkapy.metadata.znodes import PartitionState
from kafkapy.slices import in_slices
from kafkapy.types import TopicPartition

logger = logging.getLogger("kafka.controller.KafkaController")

NAME: Final = "AlterPartition"


class IsrChange(NamedTuple):
    """The ISR that the leader of one partition wants."""

    topic: str | UUID
    partition: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    recovering: bool = False


LAST_VERSION: Final = 3
FIRST_THAT_ASKS_AGAIN: Final = 1
"""Leaders of Kafka 2.7 to 3.1 (AlterIsr) keep a change that is refused for a reason unknown to them, and ask for no
other one until there is a new leader epoch. Their own controllers refuse no replica for not being alive."""
FIRST_WITH_INELIGIBLE_REPLICA: Final = 2

AlteredPartitions = Mapping[tuple[str | UUID, int], PartitionState | ErrorCode]
"""By topic, as the request names it, and partition: the state after the change, or an error."""


async def run(
    controllership: Controllership,
    broker_id: int,
    broker_epoch: int,
    changes: Sequence[IsrChange],
    version: int = LAST_VERSION,
) -> AlteredPartitions:
    """Write the ISRs that are allowed; `tell` sends them to all brokers' caches.

    STALE_BROKER_EPOCH for the whole, NOT_CONTROLLER too for AlterIsr. `version`: of the request.
    """
    context = controllership.context
    broker = context.live_brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        raise errors.StaleBrokerEpochError(
            f"Broker {broker_id} with epoch {broker_epoch} is not registered: its registration has epoch "
            f"{'none' if broker is None else broker.epoch}"
        )
    results: dict[tuple[str | UUID, int], PartitionState | ErrorCode] = {}
    wanted: dict[TopicPartition, PartitionState] = {}
    keys: dict[TopicPartition, tuple[str | UUID, int]] = {}
    asked: list[TopicPartition] = []
    async for change in in_slices(changes):
        key = (change.topic, change.partition)
        name = context.topics_by_id.get(change.topic) if isinstance(change.topic, UUID) else change.topic
        if name is None:
            results[key] = ErrorCode.UNKNOWN_TOPIC_ID
            continue
        partition = TopicPartition(name, change.partition)
        asked.append(partition)
        keys[partition] = key
        outcome = _decide(context, broker_id, partition, change, version)
        if outcome is ErrorCode.NOT_CONTROLLER and version < FIRST_THAT_ASKS_AGAIN:
            raise errors.error_for(ErrorCode.NOT_CONTROLLER)
        if isinstance(outcome, PartitionState) and outcome is not context.leadership.get(partition):
            wanted[partition] = outcome
        else:
            results[key] = outcome
    written, refused = await controllership.store.update_partition_states(wanted)
    context.leadership.update(written)
    async for partition, state in in_slices(written.items()):
        results[keys[partition]] = state
    results |= dict.fromkeys([keys[partition] for partition in refused], ErrorCode.INVALID_UPDATE_VERSION)
    for partition, state in (await controllership.store.partition_states(refused)).items() if refused else ():
        context.leadership[partition] = state
        if state._replace(version=wanted[partition].version, controller_epoch=context.epoch) == wanted[partition]:
            # An earlier attempt has written it, and its answer was lost.
            results[keys[partition]] = state
    await controllership.batch.add_update_metadata(context.live_brokers, asked)
    controllership.isr_changed(keys.keys() - set(refused))
    return results


async def tell(controllership: Controllership) -> None:
    """Tell all brokers' caches of the changes since the last call."""
    await controllership.batch.send()


def _decide(
    context: ControllerContext, broker_id: int, partition: TopicPartition, change: IsrChange, version: int
) -> PartitionState | ErrorCode:
    """The state to write, the current state when nothing is to be written, or an error."""
    current = context.leadership.get(partition)
    if current is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if change.partition_epoch > current.version or change.leader_epoch > current.leader_epoch:
        # The leader knows more than this broker, which may not be the controller any more.
        return ErrorCode.NOT_CONTROLLER
    if change.leader_epoch < current.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if (broker_id, change.isr, change.recovering) == (current.leader, current.isr, current.recovering):
        return current
    if change.partition_epoch < current.version:
        return ErrorCode.INVALID_UPDATE_VERSION
    if change.recovering and (len(change.isr) > 1 or not current.recovering):
        logger.info("The ISR of partition %s stays: its leader %d cannot recover in that way", partition, broker_id)
        return ErrorCode.INVALID_REQUEST
    members = set(change.isr)
    if broker_id not in members or len(members) < len(change.isr):
        # Apache Kafka with ZooKeeper would write it, and nobody could be elected from an empty ISR.
        logger.info("The ISR of partition %s stays: its leader %d wants a wrong list", partition, broker_id)
        return ErrorCode.INVALID_REQUEST
    ineligible = [each for each in members if not context.is_eligible(each)]
    if version < FIRST_THAT_ASKS_AGAIN:
        ineligible = [each for each in ineligible if each not in context.replicas_of(partition)]
    if ineligible:
        logger.info(
            "The ISR of partition %s stays: its leader %d wants the brokers %s in it, which are not alive",
            partition,
            broker_id,
            sorted(ineligible),
        )
        known = version >= FIRST_WITH_INELIGIBLE_REPLICA
        return ErrorCode.INELIGIBLE_REPLICA if known else ErrorCode.OPERATION_NOT_ATTEMPTED
    return PartitionState(
        broker_id, change.leader_epoch, change.isr, context.epoch, change.recovering, change.partition_epoch
    )
