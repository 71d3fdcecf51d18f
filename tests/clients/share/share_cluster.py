"""A scripted cluster with one share group: records are acquired, acknowledged, released, and locked for a time.

    with ShareCluster(nodes=[1, 2], lock_ms=30_000) as cluster:
        cluster.add_topic("jobs")[0].append(10)
        cluster.state_of("jobs", 0)         # {0: "acquired", 1: "accepted", ...}

It is a model, not a broker: one assignment for all members, no durability. Hooks of ScriptedCluster come first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from clients.consumer.scripted_cluster import SERVED, Call, ScriptedCluster
from waiting import wait_until

from kafkapy import ConsumerRecord, KafkaShareConsumer
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.api_versions import ApiVersionsResponse
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafkapy.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from kafkapy.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from kafkapy.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

SHARE_SERVED = (FindCoordinatorRequest, ShareGroupHeartbeatRequest, ShareFetchRequest, ShareAcknowledgeRequest)
FetchTopic = ShareFetchResponse.TopicResponse
AckTopic = ShareAcknowledgeResponse.TopicResponse
STATES = {0: "gap", 1: "accepted", 2: "available", 3: "rejected", 4: "acquired"}


@dataclass
class Delivery:
    """One record of the queue."""

    state: str = "available"
    count: int = 0
    owner: str | None = None
    until: float = 0.0


class ShareCluster(ScriptedCluster):
    def __init__(self, nodes: list[int] | None = None, lock_ms: int = 30_000, share_versions: int = 2) -> None:
        super().__init__(nodes)
        self.lock_ms = lock_ms
        self.share_versions = share_versions
        """The newest ShareFetch and ShareAcknowledge version; 0: no share groups."""
        self.heartbeat_interval_ms = 100
        self.members: dict[str, list[str]] = {}
        self.deliveries: dict[tuple[str, int], dict[int, Delivery]] = {}
        self.share_sessions: dict[tuple[int, str], tuple[int, set[tuple[UUID, int]]]] = {}
        self.most_held = 0
        """The largest number of records that one member had at a time."""
        self._epochs_of_members: dict[str, int] = {}

    # --- what a test asks -----------------------------------------------------------------------------------------

    def state_of(self, topic: str, partition: int = 0) -> dict[int, str]:
        """The state of every record that was acquired so far."""
        return {offset: each.state for offset, each in sorted(self.deliveries.get((topic, partition), {}).items())}

    def acknowledgements(self) -> list[tuple[int, int, list[int]]]:
        """(first, last, types) of all that came, in order."""
        found = []
        for call in self.calls:
            if isinstance(call.request, ShareFetchRequest | ShareAcknowledgeRequest):
                for topic in call.request.topics:
                    for partition in topic.partitions:
                        for each in partition.acknowledgement_batches:
                            found.append((each.first_offset, each.last_offset, list(each.acknowledge_types)))
        return found

    # --- answers --------------------------------------------------------------------------------------------------

    async def _api_versions(self, call: Call) -> ApiVersionsResponse:
        keys = []
        for request in (*SERVED, *(SHARE_SERVED if self.share_versions else SHARE_SERVED[:1])):
            low, high = request.VERSIONS.low, request.VERSIONS.high
            if request in (ShareFetchRequest, ShareAcknowledgeRequest):
                low, high = 1, self.share_versions
            keys.append(ApiVersionsResponse.ApiVersion(api_key=request.API_KEY, min_version=low, max_version=high))
        return ApiVersionsResponse(api_keys=keys)

    async def _answer(self, call: Call) -> Any:
        answers: dict[type, Any] = {
            FindCoordinatorRequest: self._coordinator,
            ShareGroupHeartbeatRequest: self._heartbeat,
            ShareFetchRequest: self.share_fetch,
            ShareAcknowledgeRequest: self.share_acknowledge,
        }
        own = answers.get(type(call.request))
        if own is None:
            return await super()._answer(call)
        for hook in self._hooks.get(call.request.API_KEY, ()):
            answer = hook(call)
            if answer is not None:
                return await answer if asyncio.iscoroutine(answer) else answer
        return await own(call)

    async def _coordinator(self, call: Call) -> FindCoordinatorResponse:
        node = self.nodes[0]
        place = {"node_id": node, "host": "127.0.0.1", "port": self._ports[node]}
        if call.version >= 4:
            key = call.request.coordinator_keys[0]
            return FindCoordinatorResponse(
                coordinators=[FindCoordinatorResponse.Coordinator(key=key, error_code=0, **place)]
            )
        return FindCoordinatorResponse(error_code=0, **place)

    async def _heartbeat(self, call: Call) -> ShareGroupHeartbeatResponse:
        request = call.request
        member, epoch = request.member_id, request.member_epoch
        if epoch == -1:
            self.members.pop(member, None)
            return ShareGroupHeartbeatResponse(member_id=member, member_epoch=-1, heartbeat_interval_ms=0)
        if epoch > 0 and member not in self.members:
            return ShareGroupHeartbeatResponse(
                error_code=ErrorCode.UNKNOWN_MEMBER_ID, member_epoch=0, heartbeat_interval_ms=0
            )
        if request.subscribed_topic_names is not None:
            self.members[member] = request.subscribed_topic_names
        changed = epoch == 0 or request.subscribed_topic_names is not None
        Assignment = ShareGroupHeartbeatResponse.Assignment
        assigned = [
            Assignment.TopicPartitions(
                topic_id=self.topics[name].id, partitions=list(range(len(self.topics[name].logs)))
            )
            for name in self.members.get(member, [])
            if name in self.topics
        ]
        return ShareGroupHeartbeatResponse(
            member_id=member,
            member_epoch=max(epoch, 0) + (1 if changed else 0),
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            assignment=Assignment(topic_partitions=assigned) if changed else None,
        )

    # --- sessions -------------------------------------------------------------------------------------------------

    def _session(self, call: Call) -> ErrorCode:
        """Checks the epoch of a request, and steps the session on."""
        key, epoch = (call.node_id, call.request.member_id), call.request.share_session_epoch
        if epoch == 0:
            self.share_sessions[key] = (1, set())
            return ErrorCode.NONE
        if key not in self.share_sessions:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        expected, partitions = self.share_sessions[key]
        if epoch == -1:
            return ErrorCode.NONE
        if epoch != expected:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        self.share_sessions[key] = (expected + 1, partitions)
        return ErrorCode.NONE

    def drop_sessions(self, node_id: int) -> None:
        """The broker forgets its share sessions; their records stay locked."""
        for key in [key for key in self.share_sessions if key[0] == node_id]:
            del self.share_sessions[key]

    def _end_session(self, call: Call) -> None:
        self.share_sessions.pop((call.node_id, call.request.member_id), None)
        for delivery in self._held_by(call.request.member_id):
            delivery.state, delivery.owner = "available", None

    def _held_by(self, member: str) -> Iterator[Delivery]:
        self.expire()
        for records in self.deliveries.values():
            yield from (each for each in records.values() if each.state == "acquired" and each.owner == member)

    def expire(self) -> None:
        """Ends the locks whose time is over."""
        now = time.monotonic()
        for records in self.deliveries.values():
            for delivery in records.values():
                if delivery.state == "acquired" and now >= delivery.until:
                    delivery.state, delivery.owner = "available", None

    # --- records --------------------------------------------------------------------------------------------------

    def _name(self, topic_id: UUID) -> str | None:
        return next((name for name, topic in self.topics.items() if topic.id == topic_id), None)

    def _acknowledge(self, call: Call, name: str | None, partition: int, batches: list[Any]) -> ErrorCode:
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if self.topics[name][partition].leader != call.node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.expire()
        records = self.deliveries.setdefault((name, partition), {})
        wanted: dict[int, int] = {}
        for each in batches:
            types = list(each.acknowledge_types)
            count = each.last_offset - each.first_offset + 1
            assert len(types) in (1, count)
            for i in range(count):
                assert each.first_offset + i not in wanted
                wanted[each.first_offset + i] = types[i if len(types) > 1 else 0]
        for offset in wanted:
            found = records.get(offset)
            if found is None or found.state != "acquired" or found.owner != call.request.member_id:
                return ErrorCode.INVALID_RECORD_STATE
        for offset, kind in wanted.items():
            records[offset].state = STATES[kind]
            if kind == 4:
                records[offset].until = time.monotonic() + self.lock_ms / 1000
            else:
                records[offset].owner = None
        return ErrorCode.NONE

    def _acquire(self, call: Call, name: str, partition: int, limit: int) -> tuple[bytes, list[Any]]:
        """Whole batches, or with the record limit a part of one."""
        self.expire()
        log = self.topics[name][partition]
        records = self.deliveries.setdefault((name, partition), {})
        strict = call.version >= 2 and call.request.share_acquire_mode == 1
        data, ranges = b"", []
        taken = 0
        for base, end, batch in log.batches:
            free = [offset for offset in range(base, end) if records.get(offset, Delivery()).state == "available"]
            if strict:
                free = free[: limit - taken]
            if not free or taken >= limit:
                continue
            data += batch
            taken += len(free)
            for offset in free:
                found = records.setdefault(offset, Delivery())
                found.state, found.owner, found.count = "acquired", call.request.member_id, found.count + 1
                found.until = time.monotonic() + self.lock_ms / 1000
                if ranges and ranges[-1].last_offset == offset - 1 and ranges[-1].delivery_count == found.count:
                    ranges[-1].last_offset = offset
                else:
                    ranges.append(
                        FetchTopic.Partition.AcquiredRecords(
                            first_offset=offset, last_offset=offset, delivery_count=found.count
                        )
                    )
        self.most_held = max(self.most_held, len(list(self._held_by(call.request.member_id))))
        return data, ranges

    async def share_fetch(self, call: Call) -> ShareFetchResponse:
        request = call.request
        code = self._session(call)
        if code:
            return ShareFetchResponse(error_code=code)
        _, partitions = self.share_sessions[call.node_id, request.member_id]
        outcomes: dict[tuple[UUID, int], ErrorCode] = {}
        for topic in request.topics:
            for each in topic.partitions:
                partitions.add((topic.topic_id, each.partition_index))
                if each.acknowledgement_batches:
                    assert request.share_session_epoch > 0
                    name = self._name(topic.topic_id)
                    outcomes[topic.topic_id, each.partition_index] = self._acknowledge(
                        call, name, each.partition_index, each.acknowledgement_batches
                    )
        for topic in request.forgotten_topics_data:
            partitions.difference_update((topic.topic_id, number) for number in topic.partitions)
        until = time.monotonic() + request.max_wait_ms / 1000
        while True:
            found = self._fetched(call, partitions)
            if any(each.acquired_records or each.error_code for _, each in found) or time.monotonic() >= until:
                break
            await asyncio.sleep(0.005)
        answers: dict[UUID, list[Any]] = {}
        for topic_id, each in found:
            each.acknowledge_error_code = int(outcomes.pop((topic_id, each.partition_index), ErrorCode.NONE))
            answers.setdefault(topic_id, []).append(each)
        for (topic_id, number), outcome in outcomes.items():
            answers.setdefault(topic_id, []).append(
                FetchTopic.Partition(
                    partition_index=number,
                    acknowledge_error_code=int(outcome),
                    current_leader=FetchTopic.Partition.LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
                )
            )
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=self.lock_ms,
            responses=[FetchTopic(topic_id=topic_id, partitions=each) for topic_id, each in answers.items()],
        )

    def _fetched(self, call: Call, partitions: set[tuple[UUID, int]]) -> list[tuple[UUID, Any]]:
        found = []
        left = call.request.max_records
        for topic_id, number in sorted(partitions, key=str):
            name = self._name(topic_id)
            answer = FetchTopic.Partition(
                partition_index=number,
                current_leader=FetchTopic.Partition.LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
            )
            if name is None:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            elif self.topics[name][number].leader != call.node_id:
                answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif left > 0:
                answer.records, answer.acquired_records = self._acquire(call, name, number, left)
                left -= sum(each.last_offset - each.first_offset + 1 for each in answer.acquired_records)
            if answer.error_code or answer.acquired_records:
                found.append((topic_id, answer))
        return found

    async def share_acknowledge(self, call: Call) -> ShareAcknowledgeResponse:
        request = call.request
        code = self._session(call)
        if code:
            return ShareAcknowledgeResponse(error_code=code)
        topics = []
        for topic in request.topics:
            name = self._name(topic.topic_id)
            partitions = []
            for each in topic.partitions:
                renews = any(4 in batch.acknowledge_types for batch in each.acknowledgement_batches)
                assert not renews or request.is_renew_ack
                code = self._acknowledge(call, name, each.partition_index, each.acknowledgement_batches)
                partitions.append(
                    AckTopic.Partition(
                        partition_index=each.partition_index,
                        error_code=code,
                        current_leader=AckTopic.Partition.LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
                    )
                )
            topics.append(AckTopic(topic_id=topic.topic_id, partitions=partitions))
        if request.share_session_epoch == -1:
            self._end_session(call)
        return ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=self.lock_ms if call.version >= 2 else 0, responses=topics
        )


def read(consumer: KafkaShareConsumer, count: int, **arguments: Any) -> list[ConsumerRecord]:
    """One poll that has so many records."""
    found: list[ConsumerRecord] = []

    def got() -> bool:
        found[:] = consumer.poll_batch(timeout_ms=100, **arguments)
        return bool(found)

    wait_until(got, "records")
    assert len(found) == count
    return found


def every(cluster: ShareCluster, state: str, partition: int = 0) -> Callable[[], bool]:
    return lambda: set(cluster.state_of("jobs", partition).values()) == {state}
