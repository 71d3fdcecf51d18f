"""The controller's reads and writes of the metadata store.

Every write is fenced: it is one transaction with a check that /controller_epoch still has the version this controller
gave it, so a controller that was replaced without noticing cannot write any more. Source: kafka.zk.KafkaZkClient.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Final, TypeVar

from kafkapy import errors
from kafkapy.metadata.features import METADATA_VERSION
from kafkapy.metadata.store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SetData,
    Stat,
    StoreUnavailableError,
)
from kafkapy.metadata.znodes import (
    BROKER_IDS,
    CONFIG_TOPICS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    DELETE_TOPICS,
    FEATURE,
    PERSISTENT_PATHS,
    PREFERRED_REPLICA_ELECTION,
    PRODUCER_ID_BLOCK,
    REASSIGN_PARTITIONS,
    TOPICS,
    BrokerRegistration,
    PartitionState,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
    broker_path,
    config_path,
    decode_broker,
    decode_controller,
    decode_controller_epoch,
    decode_feature,
    decode_partition_state,
    decode_preferred_elections,
    decode_producer_id_block,
    decode_reassignments,
    decode_topic,
    delete_topic_path,
    encode_broker,
    encode_controller,
    encode_controller_epoch,
    encode_feature,
    encode_partition_state,
    encode_producer_id_block,
    encode_reassignments,
    encode_topic,
    feature_layout,
    partition_path,
    partition_state_path,
    partitions_path,
    topic_path,
)
from kafkapy.slices import in_chunks
from kafkapy.types import TopicPartition

logger = logging.getLogger("kafka.controller.KafkaController")

T = TypeVar("T")

MAX_OPERATIONS: Final = 1000
"""Operations in one transaction.

ZooKeeper takes about a megabyte; an operation here is 150 to 450 bytes.
"""

PRODUCER_ID_BLOCK_SIZE: Final = 1000
MAX_PRODUCER_ID: Final = 2**63 - 1


class ControllerMovedError(Exception):
    """Another broker has become controller; this one must stop controlling at once."""


class ControllerStore:
    """Fenced access to the store. Owned by KafkaController; used on the control loop."""

    def __init__(self, store: MetadataStore) -> None:
        self.store = store
        self._epoch_version = -1

    # --- election -----------------------------------------------------------------------------------------------------

    async def ensure_paths(self) -> None:
        """Create the nodes that are the parents of all others."""
        await self.store.ensure_paths(PERSISTENT_PATHS)

    async def controller_id(self) -> int:
        """The controller's broker id, -1 without a controller."""
        found = (await self.store.get_many([CONTROLLER]))[0]
        return -1 if found is None else decode_controller(found[0])

    async def register_controller(self, broker_id: int) -> tuple[int, int]:
        """Become controller and raise the epoch by one, in one transaction.

        Returns the epoch and the version of its node. ControllerMovedError when another broker was faster.
        """
        found = (await self.store.get_many([CONTROLLER_EPOCH]))[0]
        if found is None:
            try:
                await self.store.create(CONTROLLER_EPOCH, encode_controller_epoch(0))
            except NodeExistsError:
                pass  # another broker starts at the same moment
            found = await self.store.get(CONTROLLER_EPOCH)
        epoch, version = decode_controller_epoch(found[0]) + 1, found[1].version
        try:
            results = await self.store.commit(
                [
                    Create(CONTROLLER, encode_controller(broker_id), ephemeral=True),
                    SetData(CONTROLLER_EPOCH, encode_controller_epoch(epoch), version),
                ]
            )
        except (NodeExistsError, BadVersionError) as error:
            raise ControllerMovedError(f"another broker has become controller ({error})") from None
        except StoreUnavailableError:
            # The write may have succeeded although its answer was lost.
            stat = await self._won(broker_id, epoch)
            if stat is None:
                raise
        else:
            made = results[1]
            assert isinstance(made, Stat)
            stat = made
        self._epoch_version = stat.version
        return epoch, stat.version

    async def _won(self, broker_id: int, epoch: int) -> Stat | None:
        """The stat of the epoch's node, if this session wrote it and controls."""
        mine, found = await self.store.get_many([CONTROLLER, CONTROLLER_EPOCH])
        if mine is None or found is None or mine[1].ephemeral_owner != self.store.session_id:
            return None
        won = decode_controller(mine[0]) == broker_id and decode_controller_epoch(found[0]) == epoch
        return found[1] if won else None

    async def remove_unused(self) -> bool:
        """Remove a controller's node that this session made without knowing it.

        Returns whether there was one.
        """
        found = (await self.store.get_many([CONTROLLER]))[0]
        if found is None or found[1].ephemeral_owner != self.store.session_id:
            return False
        try:
            await self.store.delete(CONTROLLER, found[1].version)
        except (NoNodeError, BadVersionError):
            return False
        return True

    async def resign(self) -> None:
        """Give up the controllership, if this session still holds it."""
        try:
            await self.commit([Delete(CONTROLLER)])
        except (ControllerMovedError, NoNodeError):
            return

    async def commit(self, operations: Sequence[Operation]) -> list[str | Stat | None]:
        """Apply the operations if this broker is still controller.

        ControllerMovedError, and the store's own errors.
        """
        try:
            return (await self.store.commit([Check(CONTROLLER_EPOCH, self._epoch_version), *operations]))[1:]
        except BadVersionError as error:
            if error.path == CONTROLLER_EPOCH:
                raise ControllerMovedError("another broker has become controller") from None
            raise

    # --- brokers ------------------------------------------------------------------------------------------------------

    async def register_broker(self, broker: BrokerRegistration, earlier_session: int = 0) -> BrokerRegistration:
        """Create the broker's ephemeral node; returns the registration with its epoch.

        A node of this session, or of `earlier_session`, the one this process had before, is replaced: the store may
        not have noticed yet that the earlier one has ended (KAFKA-7165). NodeExistsError when another process has the
        id.
        """
        path = broker_path(broker.id)
        while True:
            try:
                # Made empty and then filled: a registration has version 1, as Kafka's tools expect.
                await self.store.commit([Create(path, b"", ephemeral=True), SetData(path, encode_broker(broker), 0)])
            except NodeExistsError:
                found = (await self.store.get_many([path]))[0]
                if found is not None and found[1].ephemeral_owner not in (self.store.session_id, earlier_session):
                    raise
                if found is not None:
                    await self._remove(path, found[1].version)
                continue
            _, stat = await self.store.get(path)
            return broker._replace(epoch=stat.created_transaction)

    async def update_broker(self, broker: BrokerRegistration) -> None:
        """Write the registration of this broker again. NoNodeError without one."""
        path = broker_path(broker.id)
        _, stat = await self.store.get(path)
        await self.store.commit([SetData(path, encode_broker(broker), stat.version)])

    async def _remove(self, path: str, version: int) -> None:
        try:
            await self.store.delete(path, version)
        except (NoNodeError, BadVersionError):
            return

    async def registration(self, broker_id: int) -> BrokerRegistration | None:
        """A broker's registration, None when it is not registered."""
        found = (await self.store.get_many([broker_path(broker_id)]))[0]
        return None if found is None else decode_broker(broker_id, found[0], found[1].created_transaction)

    async def broker_ids(self) -> list[int]:
        """The ids of the registered brokers."""
        return [int(name) for name in await self.store.children(BROKER_IDS)]

    async def live_brokers(self) -> dict[int, BrokerRegistration]:
        """Every registered broker."""
        return await self.registrations(await self.broker_ids())

    async def registrations(self, ids: Sequence[int]) -> dict[int, BrokerRegistration]:
        """The readable registrations of these brokers."""
        found = await self.store.get_many([broker_path(each) for each in ids])
        result = {}
        for each, node in zip(ids, found, strict=True):
            if node is not None:
                try:
                    result[each] = decode_broker(each, node[0], node[1].created_transaction)
                except ValueError as error:
                    logger.error("Broker %d is left out: %s", each, error)
        return result

    # --- topics -------------------------------------------------------------------------------------------------------

    async def topics(self) -> list[str]:
        """The names of all topics, also of those that are being deleted."""
        return await self.store.children(TOPICS)

    async def topic_assignments(self, topics: Sequence[str]) -> dict[str, tuple[TopicAssignment, Stat]]:
        """The readable assignments of the named topics, with their stats."""
        found = await self.store.get_many([topic_path(topic) for topic in topics])
        result = {}
        for topic, node in zip(topics, found, strict=True):
            if node is not None:
                try:
                    result[topic] = (decode_topic(topic, node[0]), node[1])
                except ValueError as error:
                    logger.error("Topic %s is left out: %s", topic, error)
        return result

    async def set_topic(self, topic: str, assignment: TopicAssignment, version: int) -> None:
        """Replace a topic's assignment. BadVersionError when it has changed."""
        await self.commit([SetData(topic_path(topic), encode_topic(assignment), version)])

    async def update_assignments(self, name: str, assignments: Mapping[int, ReplicaAssignment]) -> None:
        """Replace the replicas of some partitions in their topic's node.

        NoNodeError when the topic is gone.
        """
        path = topic_path(name)
        while True:
            data, stat = await self.store.get(path)
            topic = decode_topic(name, data)
            changed = topic._replace(partitions={**topic.partitions, **assignments})
            try:
                await self.set_topic(name, changed, stat.version)
            except BadVersionError:
                continue  # a tool has added partitions meanwhile
            return

    # --- work that tools write ----------------------------------------------------------------------------------------

    async def reassignments(self) -> dict[TopicPartition, tuple[int, ...]]:
        """The reassignments that tools have written, with their targets.

        Empty for a node that cannot be read.
        """
        found = (await self.store.get_many([REASSIGN_PARTITIONS]))[0]
        return {} if found is None else _reassignments(found[0])

    async def remove_reassignments(self, over: Callable[[TopicPartition, tuple[int, ...]], bool]) -> None:
        """Remove reassignments of tools from their node, and with the last one the node."""
        while True:
            found = (await self.store.get_many([REASSIGN_PARTITIONS]))[0]
            if found is None:
                return
            running = _reassignments(found[0])
            left = {partition: to for partition, to in running.items() if not over(partition, to)}
            if len(left) == len(running):
                return
            version = found[1].version
            change: Operation = Delete(REASSIGN_PARTITIONS, version)
            if left:
                change = SetData(REASSIGN_PARTITIONS, encode_reassignments(left), version)
            try:
                await self.commit([change])
            except (BadVersionError, NoNodeError):
                continue
            return

    async def preferred_elections(self) -> list[TopicPartition] | None:
        """The preferred elections that a tool asks for, None without its node.

        Empty for a node that cannot be read.
        """
        found = (await self.store.get_many([PREFERRED_REPLICA_ELECTION]))[0]
        if found is None:
            return None
        try:
            return decode_preferred_elections(found[0])
        except ValueError as error:
            logger.warning("Elections of preferred leaders in the metadata store are ignored: %s", error)
            return []

    async def remove_preferred_elections(self) -> None:
        """Remove the node of preferred elections: its tool waits for that."""
        try:
            await self.commit([Delete(PREFERRED_REPLICA_ELECTION)])
        except NoNodeError:
            return

    # --- producer ids and features ------------------------------------------------------------------------------------

    async def allocate_producer_ids(self, broker_id: int) -> ProducerIdBlock:
        """Take the next block of producer ids for a broker.

        UNKNOWN_SERVER_ERROR when all ids are taken.
        """
        while True:
            found = (await self.store.get_many([PRODUCER_ID_BLOCK]))[0]
            first = 0 if found is None or not found[0] else decode_producer_id_block(found[0]).last + 1
            if first > MAX_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
                raise errors.error_for(
                    errors.ErrorCode.UNKNOWN_SERVER_ERROR,
                    "Exhausted all producerIds as the next block is above 2^63-1",
                )
            block = ProducerIdBlock(broker_id, first, first + PRODUCER_ID_BLOCK_SIZE - 1)
            value = encode_producer_id_block(block)
            change: Operation = Create(PRODUCER_ID_BLOCK, value)
            if found is not None:
                change = SetData(PRODUCER_ID_BLOCK, value, found[1].version)
            try:
                await self.commit([change])
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue  # a broker below IBP 3.0 has taken this block itself
            return block

    async def set_up_features(self, enabled: bool, version: int, initial: Mapping[str, int]) -> None:
        """Bring /feature to the state that the inter-broker protocol version wants.

        Finalized features stay when versioning is enabled already (KIP-584). `version` is the node's layout. `initial`
        are the levels of a new cluster; where these name metadata.version, a node without it gets them too, because an
        earlier kafkapy has written it.
        """
        while True:
            found = (await self.store.get_many([FEATURE]))[0]
            features = initial
            if found is not None:
                was_enabled, finalized = decode_feature(found[0])
                features = finalized if enabled and was_enabled else {}
                if not was_enabled and finalized:
                    logger.warning("Features %s are in a disabled /feature and have no effect", sorted(finalized))
                if METADATA_VERSION in initial and METADATA_VERSION not in features:
                    features = initial
                if feature_layout(found[0]) == version and (was_enabled, finalized) == (enabled, features):
                    return
            value = encode_feature(enabled, features, version)
            change: Operation = Create(FEATURE, value) if found is None else SetData(FEATURE, value, found[1].version)
            try:
                await self.commit([change])
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue
            return

    async def features(self) -> tuple[dict[str, int], int]:
        """The finalized features, and the version of /feature. NoNodeError without one."""
        value, stat = await self.store.get(FEATURE)
        return decode_feature(value)[1], stat.version

    async def set_features(self, levels: Mapping[str, int], expected: int) -> int:
        """Write the finalized features over an expected version of /feature; returns the new one.

        FEATURE_UPDATE_FAILED when somebody else has written in between.
        """
        written, _ = await self.store.get(FEATURE)
        value = encode_feature(True, levels, feature_layout(written))
        try:
            (stat,) = await self.commit([SetData(FEATURE, value, expected)])
        except BadVersionError:
            raise errors.error_for(errors.ErrorCode.FEATURE_UPDATE_FAILED) from None
        assert isinstance(stat, Stat)
        return stat.version

    # --- deletions ----------------------------------------------------------------------------------------------------

    async def topics_to_delete(self) -> set[str]:
        """Topics that are marked for deletion."""
        return set(await self.store.children(DELETE_TOPICS))

    async def mark_for_deletion(self, topics: Iterable[str]) -> None:
        """Mark topics for deletion in one transaction.

        NodeExistsError when a topic is marked already.
        """
        await self.commit([Create(delete_topic_path(topic)) for topic in topics])

    async def unmark_for_deletion(self, topics: Iterable[str]) -> None:
        """Remove marks for deletion, for instance of topics that do not exist."""
        for topic in topics:
            try:
                await self.commit([Delete(delete_topic_path(topic))])
            except NoNodeError:
                continue

    async def delete_topic(self, topic: str) -> None:
        """Remove a topic's nodes; its node, settings and mark go last and together.

        A crash in between leaves the mark, so the next controller resumes.
        """
        try:
            await self._delete_topic(topic, await self._usual_nodes(topic))
        except (NoNodeError, NotEmptyError):
            await self._delete_topic(topic, await self.store.subtree(topic_path(topic)))

    async def _usual_nodes(self, topic: str) -> list[str]:
        """A topic's nodes, children first, as long as each partition has a state and nothing else.

        A walk asks for the children of each.
        """
        parent = partitions_path(topic)
        try:
            names = await self.store.children(parent)
        except NoNodeError:
            return [topic_path(topic)]
        nodes = [path for name in names for path in (f"{parent}/{name}/state", f"{parent}/{name}")]
        return [*nodes, parent, topic_path(topic)]

    async def _delete_topic(self, topic: str, paths: Sequence[str]) -> None:
        operations: list[Operation] = [Delete(path) for path in paths]
        config, mark = config_path(CONFIG_TOPICS, topic), delete_topic_path(topic)
        tail: list[Operation] = operations[-1:]
        for path, found in zip((config, mark), await self.store.get_many([config, mark]), strict=True):
            if found is not None:
                tail.append(Delete(path))
        for chunk in _chunks(operations[:-1], MAX_OPERATIONS):
            await self.commit(chunk)
        await self.commit(tail)

    # --- partitions ---------------------------------------------------------------------------------------------------

    async def partition_states(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, PartitionState]:
        """Leader and ISR of the partitions that have had a leader."""
        result: dict[TopicPartition, PartitionState] = {}
        async for chunk in in_chunks(partitions):
            found = await self.store.get_many([partition_state_path(partition) for partition in chunk])
            for partition, node in zip(chunk, found, strict=True):
                if node is not None:
                    result[partition] = decode_partition_state(partition, node[0], node[1].version)
        return result

    async def create_partition_states(
        self, states: Mapping[TopicPartition, PartitionState]
    ) -> dict[TopicPartition, PartitionState]:
        """Write the first state of partitions; returns the states with their versions.

        NodeExistsError when a partition has a state.
        """
        topics = list({partitions_path(partition.topic) for partition in states})
        found = await self.store.get_many(topics)
        existing = {path for path, node in zip(topics, found, strict=True) if node is not None}
        created: dict[TopicPartition, PartitionState] = {}
        # A partition takes two operations, and the first one of a topic a third.
        async for chunk in in_chunks(states, MAX_OPERATIONS // 3):
            try:
                await self.commit(_first_states(chunk, states, existing))
            except NodeExistsError:
                # A controller has crashed within this step: parents are there without a state.
                parents = [partition_path(each) for each in chunk]
                nodes = zip(parents, await self.store.get_many(parents), strict=True)
                there = existing | {path for path, node in nodes if node is not None}
                await self.commit(_first_states(chunk, states, there))
            existing.update(partitions_path(each.topic) for each in chunk)
            for partition in chunk:
                created[partition] = states[partition]._replace(version=0)
        return created

    async def update_partition_states(
        self, states: Mapping[TopicPartition, PartitionState]
    ) -> tuple[dict[TopicPartition, PartitionState], list[TopicPartition]]:
        """Replace states whose version is still the one given.

        Returns the states written, and the partitions that another writer has changed.
        """
        written: dict[TopicPartition, PartitionState] = {}
        refused: list[TopicPartition] = []
        async for chunk in in_chunks(states.items(), MAX_OPERATIONS):
            waiting = [chunk]
            while waiting:
                part = waiting.pop()
                try:
                    written |= await self._write_states(part)
                except (BadVersionError, NoNodeError):
                    # Another writer has changed one of many meanwhile: halves tell which.
                    middle = len(part) // 2
                    if middle:
                        waiting += [part[middle:], part[:middle]]
                    else:
                        refused.append(part[0][0])
        return written, refused

    async def _write_states(
        self, states: Sequence[tuple[TopicPartition, PartitionState]]
    ) -> dict[TopicPartition, PartitionState]:
        results = await self.commit(
            [SetData(partition_state_path(p), encode_partition_state(state), state.version) for p, state in states]
        )
        versions = [result.version for result in results if isinstance(result, Stat)]
        return {p: state._replace(version=v) for (p, state), v in zip(states, versions, strict=True)}


def _reassignments(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    try:
        return decode_reassignments(data)
    except ValueError as error:
        logger.warning("Reassignments in the metadata store are ignored: %s", error)
        return {}


def _first_states(
    partitions: Iterable[TopicPartition], states: Mapping[TopicPartition, PartitionState], existing: Set[str]
) -> list[Operation]:
    """The operations that create states, and the parents that do not exist."""
    operations: list[Operation] = []
    made: set[str] = set()
    for partition in partitions:
        for path in (partitions_path(partition.topic), partition_path(partition)):
            if path not in existing and path not in made:
                made.add(path)
                operations.append(Create(path))
        operations.append(Create(partition_state_path(partition), encode_partition_state(states[partition])))
    return operations


def _chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
