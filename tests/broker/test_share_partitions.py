"""Share groups on a broker, over a socket: records are acquired, acknowledged, and remembered over a restart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from broker.conftest import Client, config
from broker.dynamic_changes import changed
from waiting import wait_until

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkapy.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from kafkapy.protocol.messages.share_fetch import ShareFetchRequest
from kafkapy.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kafkapy.records.batches import iter_records
from kafkapy.types import CoordinatorType

ACCEPT, RELEASE, REJECT = 1, 2, 3
GROUP_RESOURCE = 32
NOW_MS = 1_700_000_000_000

Acks = list[tuple[int, int, list[int]]]


class Member:
    """A member with a connection; it fetches partition 0 of jobs."""

    def __init__(self, server: KafkaServer, topic: UUID, group: str = "workers") -> None:
        endpoint = server.endpoints[0]
        self.client = Client(endpoint.host, endpoint.port)
        self.name = str(uuid4())
        self.topic = topic
        self.group = group
        self.epoch = 0
        self.member_epoch = 0
        wait_until(self.is_assigned, "the member has an assignment")

    def is_assigned(self) -> bool:
        """Send a heartbeat: the coordinator assigns share partitions when it has initialized their state."""
        beat = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.name,
            member_epoch=self.member_epoch,
            subscribed_topic_names=["jobs"],
        )
        response = self.client(beat, 1)
        if response.error_code == ErrorCode.NONE:
            self.member_epoch = response.member_epoch
        elif response.error_code == ErrorCode.NOT_COORDINATOR:
            self.client(FindCoordinatorRequest(key=self.group, key_type=CoordinatorType.GROUP), 1)
        return bool(response.assignment and response.assignment.topic_partitions)

    def fetch(self, acks: Acks = (), max_wait_ms: int = 500, **fields: Any) -> Any:  # type: ignore[assignment]
        entry = ShareFetchRequest.Topic.Partition
        partition = entry(
            partition_index=0,
            acknowledgement_batches=[
                entry.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                for first, last, types in acks
            ],
        )
        values: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.name,
            "share_session_epoch": self.epoch,
            "max_wait_ms": max_wait_ms,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "topics": [ShareFetchRequest.Topic(topic_id=self.topic, partitions=[partition])],
            "forgotten_topics_data": [],
        }
        response = self.client(ShareFetchRequest(**{**values, **fields}), 2)
        self.epoch += 1
        assert response.error_code == ErrorCode.NONE
        return response

    def acquire(self, **fields: Any) -> list[tuple[int, int, int]]:
        """Fetch until there are records: (first, last, delivery count)."""
        found: list[tuple[int, int, int]] = []

        def some() -> bool:
            for topic in self.fetch(**fields).responses:
                for entry in topic.partitions:
                    found.extend((e.first_offset, e.last_offset, e.delivery_count) for e in entry.acquired_records)
            return bool(found)

        wait_until(some, "records are acquired")
        return found

    def acknowledge(self, *acks: tuple[int, int, list[int]], epoch: int | None = None) -> int:
        entry = ShareAcknowledgeRequest.Topic.Partition
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[
                ShareAcknowledgeRequest.Topic(
                    topic_id=self.topic,
                    partitions=[
                        entry(
                            partition_index=0,
                            acknowledgement_batches=[
                                entry.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=types
                                )
                                for first, last, types in acks
                            ],
                        )
                    ],
                )
            ],
        )
        response = self.client(request, 2)
        self.epoch += 1
        assert response.error_code == ErrorCode.NONE
        error: int = response.responses[0].partitions[0].error_code
        return error


def set_group(client: Client, group: str, **keys: str) -> None:
    """Set keys of a group, written with underscores for dots."""
    resource = IncrementalAlterConfigsRequest.Resource
    request = IncrementalAlterConfigsRequest(
        resources=[
            resource(
                resource_type=GROUP_RESOURCE,
                resource_name=group,
                configs=[
                    resource.Config(name=name.replace("_", "."), config_operation=0, value=value)
                    for name, value in keys.items()
                ],
            )
        ],
        validate_only=False,
    )
    (answer,) = client(request, 1).responses
    assert answer.error_code == ErrorCode.NONE, answer.error_message


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], KafkaServer]]:
    """Starts a broker over the test's directory; the broker before it is stopped."""
    running: list[KafkaServer] = []

    def begin() -> KafkaServer:
        while running:
            running.pop().stop()
        server = KafkaServer(
            config(
                tmp_path,
                share_coordinator_state_topic_replication_factor="1",
                share_coordinator_state_topic_min_isr="1",
                share_coordinator_state_topic_num_partitions="2",
            )
        )
        running.append(server.start())
        return server

    yield begin
    for server in running:
        server.stop()


def test_records_are_worked_off_by_two_members(start: Callable[[], KafkaServer]) -> None:
    server = start()
    endpoint = server.endpoints[0]
    client = Client(endpoint.host, endpoint.port)
    topic = client.create_topic("jobs")
    set_group(client, "workers", share_auto_offset_reset="earliest")
    for number in range(4):
        client.produce("jobs", [(NOW_MS, b"%d" % number)])
    first, second = Member(server, topic), Member(server, topic)
    assert first.acquire(max_records=2)[0][0] == 0
    held = second.acquire()
    assert (held[0][0], held[-1][1]) == (2, 3)
    assert first.acknowledge((0, 0, [ACCEPT]), (1, 1, [RELEASE])) == ErrorCode.NONE
    assert first.acknowledge((0, 0, [ACCEPT])) == ErrorCode.NONE  # it is below the start offset
    assert first.acknowledge((2, 2, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
    assert second.acquire(acks=[(2, 3, [ACCEPT, REJECT])]) == [(1, 1, 2)]
    assert second.acknowledge((1, 1, [ACCEPT]), epoch=-1) == ErrorCode.NONE


def test_a_restart_loses_no_acknowledgement(start: Callable[[], KafkaServer]) -> None:
    server = start()
    endpoint = server.endpoints[0]
    client = Client(endpoint.host, endpoint.port)
    topic = client.create_topic("jobs")
    set_group(client, "workers", share_auto_offset_reset="earliest")
    for number in range(4):
        client.produce("jobs", [(NOW_MS, b"%d" % number)])
    member = Member(server, topic)
    member.acquire()
    assert member.acknowledge((0, 0, [ACCEPT]), (2, 2, [ACCEPT]), (3, 3, [RELEASE])) == ErrorCode.NONE
    member = Member(start(), topic)
    held = member.acquire()
    offsets = {offset: count for low, high, count in held for offset in range(low, high + 1)}
    assert offsets.keys() == {1, 3}
    assert offsets[3] == 2


def test_a_group_begins_at_the_end_and_stays_there(start: Callable[[], KafkaServer]) -> None:
    server = start()
    endpoint = server.endpoints[0]
    client = Client(endpoint.host, endpoint.port)
    topic = client.create_topic("jobs")
    client.produce("jobs", [(NOW_MS, b"old")])
    member = Member(server, topic)
    shares = server._broker.plane.share_table

    def loaded() -> bool:
        member.fetch(max_wait_ms=10)
        found = shares.describe("workers", topic.bytes, 0)
        return found is not None and found.get("start_offset") == 1

    wait_until(loaded, "the share partition is loaded")
    client.produce("jobs", [(NOW_MS, b"new")])
    server = start()
    endpoint = server.endpoints[0]
    Client(endpoint.host, endpoint.port).produce("jobs", [(NOW_MS, b"newer")])
    held = Member(server, topic).acquire()
    assert (held[0][0], held[-1][1]) == (1, 2)


def test_the_end_of_a_connection_gives_records_back(start: Callable[[], KafkaServer]) -> None:
    server = start()
    endpoint = server.endpoints[0]
    client = Client(endpoint.host, endpoint.port)
    topic = client.create_topic("jobs")
    set_group(client, "workers", share_auto_offset_reset="earliest")
    client.produce("jobs", [(NOW_MS, b"a")])
    first, second = Member(server, topic), Member(server, topic)
    assert first.acquire() == [(0, 0, 1)]
    first.client.socket.close()
    assert second.acquire() == [(0, 0, 2)]
    assert second.acknowledge((0, 0, [ACCEPT])) == ErrorCode.NONE


def letters_in(client: Client, topic: str) -> list[tuple[dict[str, bytes | None], bytes | None]]:
    """Headers and value of each dead letter in partition 0, as soon as there is one."""
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=100, topics=[FetchRequest.Topic(topic=topic, partitions=[partition])])
    letters: list[Any] = []

    def written() -> bool:
        data = client(request, 12).responses[0].partitions[0].records
        letters[:] = list(iter_records(data)) if data else []
        return bool(letters)

    wait_until(written, "the dead letter is written")
    return [(dict(record.headers), record.value) for record in letters]


def test_the_keys_of_dead_letter_topics_are_dynamic(start: Callable[[], KafkaServer]) -> None:
    server = start()
    endpoint = server.endpoints[0]
    client = Client(endpoint.host, endpoint.port)
    topic = client.create_topic("jobs")
    keys = {
        "errors.deadletterqueue.topic.name.prefix": "dead.",
        "errors.deadletterqueue.auto.create.topics.enable": "true",
    }
    with changed(client, keys, ""):
        set_group(
            client,
            "workers",
            share_auto_offset_reset="earliest",
            errors_deadletterqueue_topic_name="dead.jobs",
        )
        client.produce("jobs", [(NOW_MS, b"poison")])
        member = Member(server, topic)
        assert member.acquire() == [(0, 0, 1)]
        assert member.acknowledge((0, 0, [REJECT])) == ErrorCode.NONE
        ((headers, value),) = letters_in(client, "dead.jobs")
        assert (value, headers["__dlq.errors.offset"]) == (None, b"0")


def test_rejected_records_become_dead_letters(start: Callable[[], KafkaServer]) -> None:
    server = start()
    endpoint = server.endpoints[0]
    client = Client(endpoint.host, endpoint.port)
    topic = client.create_topic("jobs")
    client.create_topic("dlq.jobs", errors_deadletterqueue_group_enable="true")
    set_group(
        client,
        "workers",
        share_auto_offset_reset="earliest",
        errors_deadletterqueue_topic_name="dlq.jobs",
        errors_deadletterqueue_copy_record_enable="true",
    )
    client.produce("jobs", [(NOW_MS, b"poison"), (NOW_MS, b"good")])
    member = Member(server, topic)
    assert member.acquire() == [(0, 1, 1)]
    assert member.acknowledge((0, 1, [REJECT, ACCEPT])) == ErrorCode.NONE
    ((headers, value),) = letters_in(client, "dlq.jobs")
    assert (value, headers["__dlq.errors.topic"], headers["__dlq.errors.offset"]) == (b"poison", b"jobs", b"0")
    shares = server._broker.plane.share_table
    wait_until(lambda: shares.describe("workers", topic.bytes, 0)["start_offset"] == 2, "the records are archived")
