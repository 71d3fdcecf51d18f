"""The load on coordinators: its requests are right, and it refuses wrong replies."""

from __future__ import annotations

import contextlib
import shutil
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import client
import measure
import pytest
from work import coordinators

from kafkapy._speedups.records.record_batch import check_crc
from kafkapy.protocol.header import decode_request, encode_response
from kafkapy.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from kafkapy.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from kafkapy.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafkapy.protocol.messages.heartbeat import HeartbeatResponse
from kafkapy.protocol.messages.join_group import JoinGroupResponse
from kafkapy.protocol.messages.leave_group import LeaveGroupResponse
from kafkapy.protocol.messages.offset_commit import OffsetCommitResponse
from kafkapy.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafkapy.protocol.messages.sync_group import SyncGroupResponse
from kafkapy.records.batches import iter_batches

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="the load generator is compiled with gcc")

Handler = Callable[[Any], Any]
"""What a request, decoded, is answered: a response, or bytes in place of one."""
CONCURRENT_TRANSACTIONS, MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS, UNKNOWN_SERVER_ERROR = 51, 79, 27, -1
ASSIGNMENT = bytes(50)


@pytest.fixture
def serve() -> Iterator[Callable[[Handler], int]]:
    """Starts a broker that answers with what a handler makes of each request; gives the port."""
    listeners = []
    lock = threading.Lock()

    def talk(connection: socket.socket, handler: Handler) -> None:
        with connection, connection.makefile("rb") as reader, contextlib.suppress(OSError):
            while len(size := reader.read(4)) == 4:
                header, request = decode_request(reader.read(int.from_bytes(size, "big")))
                with lock:
                    answer = handler(request)
                key, version = header.request_api_key, header.request_api_version
                if not isinstance(answer, bytes):
                    answer = encode_response(key, version, header.correlation_id, answer)
                connection.sendall(len(answer).to_bytes(4, "big") + answer)

    def start(handler: Handler) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=talk, args=(connection, handler), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return int(listener.getsockname()[1])

    yield start
    for listener in listeners:
        listener.close()


def run(mode: str, port: int, *files: str, **named: object) -> dict[str, Any]:
    options = measure.options(**({"port": port, "seconds": 0.1} | named))
    return measure.run_native("coordinator", mode, *options, *files, pinned=False)


def file(folder: Path, name: str, data: bytes) -> str:
    (folder / name).write_bytes(data)
    return str(folder / name)


# --- commits --------------------------------------------------------------------------------------------------------


def committed(error: int = 0) -> OffsetCommitResponse:
    partition = OffsetCommitResponse.Topic.Partition(partition_index=0, error_code=error)
    return OffsetCommitResponse(topics=[OffsetCommitResponse.Topic(name=coordinators.TOPIC, partitions=[partition])])


def commit(folder: Path, port: int) -> dict[str, Any]:
    expected = file(folder, "expected", encode_response(8, coordinators.OFFSET_COMMIT, 0, committed()))
    frame = coordinators._request(folder, "commit", coordinators._commit(0), coordinators.OFFSET_COMMIT)
    return run("commits", port, frame, expected=expected, connections=2)


def test_commits_are_counted(serve, tmp_path):
    groups = []

    def handler(request):
        groups.append((request.group_id, request.topics[0].partitions[0].committed_offset))
        return committed()

    measured = commit(tmp_path, serve(handler))
    assert set(groups) == {("group-0", coordinators.OFFSET)}
    assert measured["requests"] == measured["latency_us"]["count"] == len(groups) > 2


@pytest.mark.parametrize("answer", [committed(UNKNOWN_SERVER_ERROR), OffsetCommitResponse(topics=[]), b"\0\0\0\1"])
def test_another_answer_to_a_commit_is_refused(serve, tmp_path, answer):
    with pytest.raises(measure.LoadError, match="another reply to OffsetCommit"):
        commit(tmp_path, serve(lambda _: answer))


# --- transactions ---------------------------------------------------------------------------------------------------


class Transactions:
    """A coordinator and a log in one; `not_yet` answers come first, and the log takes the batches."""

    def __init__(self, not_yet: int = 0, ended: int = 0, partition: int | None = None) -> None:
        self.not_yet = not_yet
        self.ended = ended
        self.partition = partition
        self.steps: list[str] = []
        self.batches: list[Any] = []

    def __call__(self, request: Any) -> Any:
        self.steps.append(type(request).__name__)
        if isinstance(request, AddPartitionsToTxnRequest):
            [wanted] = request.v3_and_below_topics[0].partitions
            error = CONCURRENT_TRANSACTIONS if self.not_yet else 0
            self.not_yet = max(0, self.not_yet - 1)
            return added(wanted if self.partition is None else self.partition, error)
        if isinstance(request, EndTxnRequest):
            assert request.committed
            return EndTxnResponse(error_code=self.ended)
        assert isinstance(request, ProduceRequest)
        records = bytes(request.topic_data[0].partition_data[0].records)
        assert check_crc(records)
        [batch] = iter_batches(records)
        self.batches.append(batch)
        offset = len(self.batches) * 11
        answer = ProduceResponse.TopicResponse.PartitionResponse(index=0, error_code=0, base_offset=offset)
        return ProduceResponse(responses=[ProduceResponse.TopicResponse(name="t", partition_responses=[answer])])


def added(partition: int, error: int) -> AddPartitionsToTxnResponse:
    result = AddPartitionsToTxnTopicResult.PartitionResult(partition_index=partition, partition_error_code=error)
    topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=[result])
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])


def transact(folder: Path, port: int) -> dict[str, Any]:
    batch = bytearray(client.record_batch([b"x"] * 10))
    batch[coordinators._ATTRIBUTES] = coordinators.TRANSACTIONAL.to_bytes(2, "big")
    batch[coordinators._PRODUCER_ID] = (7).to_bytes(8, "big")
    batch[coordinators._PRODUCER_EPOCH] = (3).to_bytes(2, "big")
    data = ProduceRequest.Topic.Partition(index=5, records=bytes(batch))
    steps = [
        (
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="id",
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[5])],
            ),
            coordinators.ADD_PARTITIONS,
        ),
        (
            ProduceRequest(
                transactional_id="id",
                acks=-1,
                timeout_ms=1,
                topic_data=[ProduceRequest.Topic(name="t", partition_data=[data])],
            ),
            client.PRODUCE,
        ),
        (
            EndTxnRequest(transactional_id="id", producer_id=7, producer_epoch=3, committed=True),
            coordinators.END_TXN,
        ),
    ]
    frames = [coordinators._request(folder, str(i), *step) for i, step in enumerate(steps)]
    return run(
        "transactions",
        port,
        *frames,
        batch_bytes=len(batch),
        records=10,
        added=file(folder, "added", encode_response(24, coordinators.ADD_PARTITIONS, 0, added(0, 0))),
        ended=file(folder, "ended", encode_response(26, coordinators.END_TXN, 0, EndTxnResponse())),
    )


def test_transactions_go_on_with_their_sequence_numbers(serve, tmp_path):
    handler = Transactions(not_yet=3)
    measured = transact(tmp_path, serve(handler))
    assert measured["transactions"] == len(handler.batches) == handler.steps.count("EndTxnRequest") > 1
    assert measured["retries"] == 3
    assert measured["requests"] == 3 * measured["transactions"] + 3
    assert [batch.base_sequence for batch in handler.batches] == [10 * i for i in range(len(handler.batches))]
    assert {(batch.producer_id, batch.producer_epoch, batch.is_transactional) for batch in handler.batches} == {
        (7, 3, True)
    }


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"ended": UNKNOWN_SERVER_ERROR}, "EndTxn error code"), ({"partition": 4}, "another partition")],
)
def test_wrong_answers_in_a_transaction_are_refused(serve, tmp_path, wrong, said):
    with pytest.raises(measure.LoadError, match=said):
        transact(tmp_path, serve(Transactions(**wrong)))


# --- members --------------------------------------------------------------------------------------------------------


class OneMember:
    """A group of the classic protocol that has room for one member, and rebalances once."""

    def __init__(self, **wrong: Any) -> None:
        self.wrong = wrong
        self.steps: list[str] = []
        self.generation = 0

    def __call__(self, request: Any) -> Any:
        name = type(request).__name__.removesuffix("Request")
        self.steps.append(name)
        error = self.wrong.get(name, 0)
        if name == "JoinGroup":
            if not request.member_id:
                return JoinGroupResponse(error_code=MEMBER_ID_REQUIRED, member_id="m", members=[])
            self.generation += 1
            member = JoinGroupResponse.Member(member_id="m", metadata=request.protocols[0].metadata)
            return JoinGroupResponse(
                error_code=error,
                generation_id=self.generation,
                protocol_name="range",
                leader="m",
                member_id="m",
                members=[member],
            )
        if name == "SyncGroup":
            assert [(each.member_id, each.assignment) for each in request.assignments] == [("m", ASSIGNMENT)]
            if self.generation == 1:
                error = REBALANCE_IN_PROGRESS
            return SyncGroupResponse(error_code=error, assignment=self.wrong.get("assignment", ASSIGNMENT))
        return LeaveGroupResponse(error_code=error) if name == "LeaveGroup" else HeartbeatResponse(error_code=error)


def test_a_member_joins_again_until_it_has_its_assignment(serve):
    handler = OneMember()
    measured = run("join", serve(handler), group="g")
    assert handler.steps == ["JoinGroup", "JoinGroup", "SyncGroup", "JoinGroup", "SyncGroup", "LeaveGroup"]
    assert (measured["generation"], measured["requests"]) == (2, 5)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"JoinGroup": UNKNOWN_SERVER_ERROR}, "JoinGroup error code"),
        ({"SyncGroup": UNKNOWN_SERVER_ERROR}, "SyncGroup error code"),
        ({"LeaveGroup": UNKNOWN_SERVER_ERROR}, "LeaveGroup error code"),
        ({"assignment": b""}, "bytes of an assignment"),
    ],
)
def test_wrong_answers_to_a_member_are_refused(serve, wrong, said):
    with pytest.raises(measure.LoadError, match=said):
        run("join", serve(OneMember(**wrong)), group="g")


def test_a_reply_that_is_cut_off_is_refused(serve):
    reply = JoinGroupResponse(error_code=MEMBER_ID_REQUIRED, member_id="m", members=[])
    whole = encode_response(11, 5, 1, reply)
    with pytest.raises(measure.LoadError, match="short reply"):
        run("join", serve(lambda _: whole[:20]), group="g")


def test_a_member_of_a_consumer_group_acknowledges_what_it_gets(serve):
    topic = ConsumerGroupHeartbeatResponse.Assignment.TopicPartitions(topic_id=uuid.UUID(int=9), partitions=[0, 1, 2])
    given = ConsumerGroupHeartbeatResponse.Assignment(topic_partitions=[topic])
    nothing = ConsumerGroupHeartbeatResponse.Assignment(topic_partitions=[])
    requests = []

    def handler(request):
        requests.append(request)
        # First nothing, and all the partitions once it has said that it has nothing.
        assignment = [nothing, None, given][len(requests) - 1] if len(requests) <= 3 else None
        return ConsumerGroupHeartbeatResponse(
            member_id="m",
            member_epoch=-1 if request.member_epoch < 0 else min(len(requests), 3),
            heartbeat_interval_ms=10,
            assignment=assignment,
        )

    measured = run("heartbeats", serve(handler), group="g", topic="t", partitions=3)
    assert measured["generation"] == 3
    first = requests[0]
    assert (first.group_id, first.member_epoch, first.subscribed_topic_names) == ("g", 0, ["t"])
    owned = [request.topic_partitions for request in requests[1:4]]
    assert owned[0] == [] and owned[1] is None
    assert [(each.topic_id.int, each.partitions) for each in owned[2]] == [(9, [0, 1, 2])]
    assert requests[-1].member_epoch == -1


def test_members_without_their_share_are_not_settled(serve):
    """A broker may give all partitions to the first member, and compute a second assignment later."""
    beats = {}

    def given(*partitions):
        topic = ConsumerGroupHeartbeatResponse.Assignment.TopicPartitions(
            topic_id=uuid.UUID(int=9), partitions=list(partitions)
        )
        return ConsumerGroupHeartbeatResponse.Assignment(topic_partitions=[topic] if partitions else [])

    def handler(request):
        member = request.member_id or f"m{len(beats)}"
        beats[member] = number = beats.get(member, 0) + 1
        first = member == "m0"
        assignment = {1: given(0, 1) if first else given(), 5: given(0) if first else given(1)}.get(number)
        return ConsumerGroupHeartbeatResponse(
            member_id=member,
            member_epoch=-1 if request.member_epoch < 0 else 1 if number < 5 else 2,
            heartbeat_interval_ms=10,
            assignment=assignment,
        )

    measured = run("heartbeats", serve(handler), group="g", topic="t", partitions=2, connections=2)
    assert measured["generation"] == 2
