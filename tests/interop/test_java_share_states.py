"""The share coordinator beside that of Apache Kafka 4.4: the same answers, and each loads what the other wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import pytest
from broker.handlers.share_states import ShareStates, empty_requests
from interop.conftest import JAVA, with_jars
from interop.differential.exchanges import Peer, plain
from peers.apache_kafka import ApacheKafka

from kafkapy.coordinator.result import Later
from kafkapy.coordinator.share.config import ShareCoordinatorConfig
from kafkapy.coordinator.share.coordinator import ShareCoordinator
from kafkapy.coordinator.share.records import SHARE_RECORDS
from kafkapy.coordinator.share.state import ShareKey, ShareSummary
from kafkapy.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from kafkapy.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from kafkapy.protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from kafkapy.protocol.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from kafkapy.protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from kafkapy.records.batches import RecordBatchBuilder, decode_records, iter_batches
from kafkapy.testing.broker_process import BrokerProcess
from kafkapy.testing.coordinator import MemoryWriter, VirtualClock
from kafkapy.types import ZERO_UUID, TopicPartition

VERSION = "4.x"
PARTITION = TopicPartition("__share_group_state", 0)
OVERRIDES = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
}
KINDS = (
    InitializeShareGroupStateRequest,
    ReadShareGroupStateRequest,
    WriteShareGroupStateRequest,
    DeleteShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
)
PARTITIONS = 5

pytestmark = JAVA


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """A running broker of that kind with one partition of __share_group_state."""
    with_jars(VERSION)
    made: list[Any] = []

    def make(kind: str) -> Any:
        place = tmp_path / kind
        broker = BrokerProcess(place, OVERRIDES) if kind == "kafkapy" else ApacheKafka(VERSION, place, OVERRIDES)
        made.append(broker)
        return broker.start()

    yield make
    for each in made:
        each.remove()


def fill(peer: Peer) -> tuple[UUID, dict[str, Any]]:
    """Share-partitions in every state; the topic, and what was answered."""
    topic_id = peer.create_topic("topic", PARTITIONS)
    states = ShareStates(peer.setup, "group", topic_id)
    answers: dict[str, Any] = {}

    def note(label: str, answer: Any) -> None:
        answers[f"{len(answers)} {label}"] = plain(answer)

    for epoch, offset in ((3, 10), (3, 10), (2, 10), (3, 20), (4, -1), (-1, 5), (4, 7), (5, -1)):
        note(f"initialize {epoch} {offset}", states.initialize(epoch, offset))
        note("then", states.summary())
    for epoch in (2, 2, 1, -1, 3):
        note(f"read {epoch}", states.read(epoch))
        note("then", states.summary())
    for start_offset, complete in ((0, 0), (5, 4), (5, 2), (5, 6), (3, 9), (-1, 1), (9, -1)):
        note(
            f"write {start_offset} {complete}",
            states.write((5, 9, 2, 1), state_epoch=5, leader_epoch=3, start_offset=start_offset, complete=complete),
        )
        note("then", states.summary())
    for state_epoch, leader_epoch in ((4, 3), (6, 3), (5, 2), (5, 4), (-1, 3), (5, -1), (-1, -1)):
        note(
            f"write of {state_epoch} {leader_epoch}",
            states.write((10, 12, 0, 1), state_epoch=state_epoch, leader_epoch=leader_epoch, start_offset=9),
        )
        note("then", states.summary())
    note("again", states.initialize(7, 3))
    note("read a lower epoch", states.read(2))
    note("read the same epoch", states.read(3))
    note("then", states.summary())

    note("write without a beginning", states.write((0, 0, 2, 1), partition=1))
    note("read without a beginning", states.read(partition=1))
    note("summary without a beginning", states.summary(partition=1))
    note("delete without a beginning", states.delete(partition=1))
    for partition in (-1, PARTITIONS):
        for name in ("initialize", "read", "write", "delete", "summary"):
            note(f"{name} of partition {partition}", getattr(states, name)(partition=partition))
    states.topic_id = uuid5(ZERO_UUID, "nowhere")
    for name in ("initialize", "read", "write", "delete", "summary"):
        note(f"{name} of an unknown topic", getattr(states, name)())
    states.topic_id = topic_id

    # Batches that overlap in every way, over several snapshots.
    states.initialize(0, 0, partition=2)
    states.read(1, partition=2)
    for number, batches in enumerate(
        (
            [(0, 9, 0, 1), (10, 19, 0, 1)],
            [(5, 14, 2, 1)],
            [(3, 6, 0, 2), (12, 25, 4, 1)],
            [(20, 22, 2, 1), (20, 22, 0, 1)],
            [(30, 30, 2, 1), (32, 32, 2, 1), (31, 31, 2, 1)],
            [(0, 40, 0, 1)],
            [(7, 7, 4, 3)],
        )
    ):
        note(f"batches {number}", states.write(*batches, leader_epoch=1, start_offset=number // 3, partition=2))
        note("then", states.read(1, partition=2))
    states.initialize(1, 2, partition=3)
    states.delete(partition=3)
    states.initialize(0, 5, partition=4)
    for kind in KINDS:
        for number, request in enumerate(empty_requests(kind, topic_id)):
            note(f"{kind.NAME} {number}", peer.setup(request, 0))
    for key in (
        ShareKey("group", topic_id, 0).text,
        ShareKey("a:group", topic_id, 0).text,
        ShareKey("group", topic_id, -5).text,
        "group",
        "",
        "a:b:c",
        f"group:{topic_id}:0",
    ):
        found = peer.setup(FindCoordinatorRequest(coordinator_keys=[key], key_type=2), 6).coordinators[0]
        named = key.replace(ShareKey("", topic_id, 0).text[1:-2], "topic").replace(str(topic_id), "topic as a UUID")
        answers[f"find {named}"] = found.error_code
    return topic_id, answers


def summaries(peer: Peer, topic_id: UUID) -> list[Any]:
    states = ShareStates(peer.setup, "group", topic_id)
    return [plain(states.summary(partition)) for partition in range(PARTITIONS)]


def log_of(broker: Any) -> Path:
    (path,) = (broker.data_dir / "logs" / str(PARTITION)).glob("*.log")
    return Path(path)


def configs(peer: Peer) -> dict[str, str]:
    resource = DescribeConfigsRequest.Resource(resource_type=2, resource_name=PARTITION.topic, configuration_keys=None)
    entries = peer.setup(DescribeConfigsRequest(resources=[resource]), 4).results[0].configs
    return {each.name: each.value for each in entries if each.config_source == 1}


def with_topic_id(data: bytes, old: UUID, new: UUID) -> bytes:
    """The batches of a log, with another topic id in the keys."""
    made = b""
    for batch in iter_batches(data):
        builder = RecordBatchBuilder()
        for record in decode_records(batch):
            builder.append(record.timestamp, (record.key or b"").replace(old.bytes, new.bytes), record.value)
        header, built = batch.to_bytes(), builder.build(0)
        # Base offset and leader epoch, which the checksum does not cover.
        made += header[:8] + built[8:12] + header[12:16] + built[16:]
    return made


def test_answers_and_the_topic_are_those_of_apache_kafka(start: Callable[[str], Any]) -> None:
    found = []
    for kind in ("kafkapy", "apache"):
        peer = Peer(kind, start(kind).bootstrap)
        _, answers = fill(peer)
        found.append((answers, configs(peer)))
        peer.close()
    (ours, our_configs), (theirs, their_configs) = found
    assert our_configs == their_configs
    assert ours.keys() == theirs.keys()
    different = [f"{label}: {ours[label]}, theirs {theirs[label]}" for label in ours if ours[label] != theirs[label]]
    assert not different, "\n".join(different)


def test_kafkapy_loads_what_kafka_wrote(start: Callable[[str], Any]) -> None:
    broker = start("apache")
    peer = Peer("apache", broker.bootstrap)
    topic_id, _ = fill(peer)
    theirs = summaries(peer, topic_id)
    peer.close()
    broker.stop()

    writer, clock = MemoryWriter(), VirtualClock()
    kinds = set()
    for batch in iter_batches(log_of(broker).read_bytes(), check_crc=True):
        writer.put(PARTITION, batch.to_bytes())
        for record in decode_records(batch):
            key = record.key or b""
            decoded = SHARE_RECORDS.decode(key, record.value)
            assert decoded is not None, key
            assert decoded.encode() == (key, record.value)
            kinds.add((decoded.key_version, decoded.value is None))
    assert kinds == {(0, False), (1, False), (0, True)}
    coordinator = ShareCoordinator(
        ShareCoordinatorConfig(),
        writer,
        clock,
        partition_count=lambda: 1,
        exists=lambda *_: True,
        is_gone=lambda _: False,
        delete_records=lambda *_: Later.of(None),
    )
    coordinator.on_leadership_change(PARTITION, 1, True)
    clock.run()
    for partition, shown in enumerate(theirs):
        later = coordinator.summary(ShareKey("group", topic_id, partition), -1)
        names = ("state_epoch", "leader_epoch", "start_offset", "delivery_complete_count")
        assert later.result() == ShareSummary(*(shown[name] for name in names))


def test_kafka_loads_what_kafkapy_wrote(start: Callable[[str], Any]) -> None:
    broker = start("kafkapy")
    peer = Peer("kafkapy", broker.bootstrap)
    topic_id, _ = fill(peer)
    ours = summaries(peer, topic_id)
    peer.close()
    broker.stop()

    apache = start("apache")
    before = Peer("apache", apache.bootstrap)
    their_id = before.create_topic("topic", PARTITIONS)
    ShareStates(before.setup, "none", their_id)
    before.close()
    apache.stop()
    partition = log_of(apache).parent
    for path in partition.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    data = log_of(broker).read_bytes()
    (partition / log_of(broker).name).write_bytes(with_topic_id(data, topic_id, their_id))
    (apache.data_dir / "logs" / ".kafka_cleanshutdown").unlink(missing_ok=True)
    apache.start()

    peer = Peer("apache", apache.bootstrap)
    assert summaries(peer, their_id) == ours
    peer.close()
