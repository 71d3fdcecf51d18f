"""The control topic and the client of transactions, request by request, without a broker."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import pytest
from kafkapy_spark import control_topic
from kafkapy_spark.control_topic import ControlTopic, _Partition
from kafkapy_spark.decisions import Decision, SinkState
from kafkapy_spark.sink_errors import SinkError
from kafkapy_spark.transactions import OpenTransaction
from test_transaction_client import DESCRIBED, OPEN, PARTITION, STATE, Left, run, slept

from kafkapy.clients.admin.transactions import TransactionState
from kafkapy.errors import (
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kafkapy.protocol.messages.list_transactions import ListTransactionsRequest
from kafkapy.types import CoordinatorType, TopicPartition

__all__ = ["slept"]

DECISION = Decision("q", 0, 7, 3, 2, (), time_ms=5)
DONE = b'["q",0,7,3]'


@pytest.mark.parametrize(
    ("records", "state"),
    [
        ([(b"s", DECISION.to_json())], SinkState(decision=DECISION)),
        ([(b"\0s", DONE)], SinkState(done=["q", 0, 7, 3])),  # type: ignore[arg-type]
        ([(b"s", DECISION.to_json()), (b"\0s", DONE)], SinkState(DECISION, ["q", 0, 7, 3])),  # type: ignore[arg-type]
        ([(b"s", DECISION.to_json()), (b"\0s", DONE), (b"\0s", None)], SinkState(decision=DECISION)),
        ([(b"s", DECISION.to_json()), (b"s", None)], None),
        ([(None, b"x"), (b"", b"x")], None),
    ],
)
def test_the_last_record_of_each_key_counts(records: list[Any], state: SinkState | None) -> None:
    partition = _Partition()
    assert (partition.position, partition.sinks) == (0, {})
    for key, value in records:
        partition.take(key, value)
    assert partition.sinks == ({} if state is None else {b"s": state})


def test_the_numbers_of_the_control_topic() -> None:
    assert (control_topic.PARTITIONS, control_topic.REPLICAS, control_topic.AT_ONCE) == (16, 3, 10_000)
    assert (control_topic.FETCH_LOW, control_topic.FETCH_HIGH, control_topic.FETCH_BYTES) == (4, 12, 8 << 20)


def metadata_of(*answers: tuple[int, str, int]) -> Any:
    """Error code, topic id and number of partitions, answer by answer."""
    left = list(answers)

    async def metadata(topics: set[str], deadline: Any) -> dict[str, Any]:
        assert topics == {"c"}
        code, topic_id, count = left.pop(0)
        return {"c": SimpleNamespace(error_code=code, topic_id=topic_id, partitions=[0] * count)}

    return metadata


def test_what_was_read_is_of_one_topic_id() -> None:
    checked: list[Any] = []

    async def described(resources: list[Any], *, config_filter: str) -> dict[str, Any]:
        checked.append((resources, config_filter))
        return {"topic": {"c": {"cleanup.policy": {"value": "compact"}}}}

    async def work(client: Any) -> None:
        control = ControlTopic(client, "c")
        await control.find()
        assert (control._count, len(checked)) == (3, 1)
        control._read[0] = kept = _Partition()
        await control.find()
        assert (control._count, control._read, len(checked)) == (4, {0: kept}, 1)
        await control.find()
        assert (control._count, control._read, len(checked)) == (4, {}, 2)
        with pytest.raises(UnknownTopicOrPartitionError):
            await control.find()
        assert control.partition_of("s").topic == "c"
        assert 0 <= control.partition_of("s").partition < 4

    answers = [(0, "one", 3), (0, "one", 4), (0, "two", 4), (3, "two", 4)]
    run(work, topic_metadata=metadata_of(*answers), describe_configs=described)
    ((resource,), config_filter) = checked[0]
    assert (resource.name, config_filter) == ("c", "all")


@pytest.mark.parametrize("policy", ["delete", "compact,delete", None])
def test_a_topic_that_forgets_is_refused(policy: str | None) -> None:
    async def described(resources: list[Any], *, config_filter: str) -> dict[str, Any]:
        return {"topic": {"c": {} if policy is None else {"cleanup.policy": {"value": policy}}}}

    async def work(client: Any) -> None:
        control = ControlTopic(client, "c")
        for _ in range(2):
            with pytest.raises(SinkError, match=f"has cleanup.policy={policy}, and has to have compact"):
                await control.find()

    run(work, topic_metadata=metadata_of((0, "one", 3), (0, "one", 3)), describe_configs=described)


def test_every_sink_that_has_decided_is_read() -> None:
    async def work(client: Any) -> None:
        control = ControlTopic(client, "c")
        control._count = 2
        listed: list[TopicPartition] = []

        async def read_on(partitions: Any) -> None:
            listed.extend(partitions)
            for number in range(2):
                control._read[number] = _Partition()
            control._read[1].take(b"b", DECISION.to_json())
            control._read[0].take(b"z", DECISION.to_json())
            control._read[0].take(b"\0done", DONE)

        control._read_on = read_on  # type: ignore[method-assign]
        assert list((await control.read_all()).items()) == [
            ("b", SinkState(decision=DECISION)),
            ("z", SinkState(decision=DECISION)),
        ]
        assert listed == [TopicPartition("c", 0), TopicPartition("c", 1)]

    run(work)


@pytest.mark.parametrize(
    ("error", "left_ms", "attempts"),
    [
        (NotLeaderOrFollowerError(), (1,), 3),
        (NotLeaderOrFollowerError(), (1, 0), 2),
        (NotLeaderOrFollowerError(), (0,), 1),
        (OffsetOutOfRangeError(), (1,), 1),
        (TopicAuthorizationFailedError(), (1,), 1),
    ],
)
def test_which_fetch_is_tried_again(
    slept: list[float], error: KafkaError, left_ms: tuple[int, ...], attempts: int
) -> None:
    async def work(client: Any) -> int:
        control = ControlTopic(client, "c")
        made: list[int] = []

        async def fetch(partition: TopicPartition, offset: int, deadline: Any) -> Any:
            made.append(offset)
            if len(made) == 3:
                return "chunk"
            raise error

        control._fetch_once = fetch  # type: ignore[method-assign]
        try:
            assert await control._fetch(PARTITION, 9, Left(*left_ms)) == "chunk"  # type: ignore[arg-type]
        except KafkaError as raised:
            assert raised is error
            assert len(made) < 3
        return len(made)

    assert run(work) == attempts
    assert slept == [20] * (attempts - 1)


@pytest.mark.parametrize(("whole", "of_partition"), [(0, 0), (ErrorCode.UNKNOWN_SERVER_ERROR, 0), (0, 1)])
def test_a_fetch_asks_for_committed_records(whole: int, of_partition: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    started: list[Any] = []
    chunk = SimpleNamespace(error_code=of_partition, start=lambda *given: started.append(given))

    class Response:
        def __init__(self, version: int) -> None:
            self.version, self.error_code, self.throttle_ms = version, whole, 70

        def partitions(self) -> list[Any]:
            return [chunk]

    monkeypatch.setattr(control_topic, "FetchResponseFrame", Response)
    monkeypatch.setattr(control_topic, "BytesFrame", lambda encoded: encoded)
    monkeypatch.setattr(control_topic, "encode_message", lambda request, version, header: (request, version))

    async def version(node: int, api_key: int, low: int, high: int) -> int:
        seen.append(("version", node, api_key, low, high))
        return 11

    async def submit(*given: Any) -> None:
        seen.append(("submit", *given))

    network = SimpleNamespace(
        version=version, submit=submit, client_id="me", throttled=lambda *given: seen.append(("throttled", *given))
    )

    async def leader(partition: TopicPartition, deadline: Any) -> int:
        return 4

    async def work(client: Any) -> Any:
        return await ControlTopic(client, "t")._fetch_once(PARTITION, 9, Left(100))  # type: ignore[arg-type]

    methods = {"network": network, "leader": leader, "request_ms": lambda deadline: deadline.left_ms}
    if whole or of_partition:
        with pytest.raises(KafkaError):
            run(work, **methods)
        assert started == []
    else:
        assert run(work, **methods) is chunk
        assert started == [("t", 9, True, None, None)]
    asked, (_, node, api_key, sent_version, (request, encoded_version), response, timeout_ms), throttled = seen
    assert asked == ("version", 4, 1, 4, 12)
    assert (node, api_key, sent_version, encoded_version, response.version, timeout_ms) == (4, 1, 11, 11, 11, 100)
    assert throttled == ("throttled", 4, 1, 11, 70)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level) == (0, 0, 8 << 20, 1)
    (topic,) = request.topics
    (wanted,) = topic.partitions
    assert (topic.topic, wanted.partition) == ("t", 0)
    assert (wanted.fetch_offset, wanted.partition_max_bytes) == (9, 8 << 20)


def test_what_is_written_of_a_sink() -> None:
    appended: list[Any] = []
    ended: list[Any] = []

    async def append(partition: TopicPartition, records: Any, transaction: Any = None) -> int:
        appended.append((partition, records, transaction))
        return 1

    async def end(transaction: Any, *, committed: bool) -> Any:
        ended.append((transaction, committed))
        if len(ended) == 2:
            await asyncio.Event().wait()
        return STATE

    async def check() -> float:
        assert len(appended) == len(ended) + 1
        return 60 if not ended else 0

    async def work(client: Any) -> None:
        control = ControlTopic(client, "c")
        control._count = 1
        assert await control.decide("s", OPEN, DECISION, check) == STATE
        with pytest.raises(KafkaTimeoutError, match="decision on batch 0 of q was not acknowledged in 0 s"):
            await control.decide("s", OPEN, DECISION, check)
        await control.done("s", DECISION)
        await control.forget(["s", "other"])

    run(work, append=append, end=end)
    place = TopicPartition("c", 0)
    assert appended == [
        *[(place, {b"s": DECISION.to_json()}, OPEN)] * 2,
        (place, {b"\0s": DONE}, None),
        (place, {b"s": None, b"\0s": None}, None),
        (place, {b"other": None, b"\0other": None}, None),
    ]
    assert ended == [(OPEN, True)] * 2


# --- the client ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "looked_up"), [(ErrorCode.CONCURRENT_TRANSACTIONS, 0), (ErrorCode.NOT_COORDINATOR, 1)]
)
@pytest.mark.parametrize("way", ["ask", "add"])
def test_a_coordinator_is_asked_again(slept: list[float], code: ErrorCode, looked_up: int, way: str) -> None:
    found: list[Any] = []
    lost: list[Any] = []
    sent: list[Any] = []

    async def find(name: str, kind: CoordinatorType, left_ms: int) -> int:
        found.append((name, kind))
        return 5

    def answer(error: int) -> Any:
        result = SimpleNamespace(partition_error_code=error)
        topics = [SimpleNamespace(results_by_partition=[result])]
        return SimpleNamespace(error_code=error if way == "ask" else 0, results_by_topic_v3_and_below=topics)

    async def send(node: int, request: Any, deadline: Any, **versions: Any) -> Any:
        sent.append((node, request, versions))
        return answer(code if len(sent) == 1 else 0)

    lookup = SimpleNamespace(find=find, invalidate=lambda *given: lost.append(given))

    async def work(client: Any) -> Any:
        if way == "ask":
            response, node = await client._ask_coordinator("id", "request", 2, 3)
            assert (response.error_code, node) == (0, 5)
        else:
            await client.add_partition(OPEN, PARTITION)

    run(work, lookup=lookup, send=send)
    assert found == [("id", CoordinatorType.TRANSACTION)] * 2
    assert lost == [("id", CoordinatorType.TRANSACTION)] * looked_up
    assert [node for node, _, _ in sent] == [5, 5]
    if way == "ask":
        assert [(request, versions) for _, request, versions in sent] == [("request", {"low": 2, "high": 3})] * 2
    else:
        (_, request, versions) = sent[0]
        assert versions == {"high": 3}
        assert (request.v3_and_below_transactional_id, request.v3_and_below_producer_id) == ("id", 7)
        assert request.v3_and_below_producer_epoch == 3
        assert [(each.name, each.partitions) for each in request.v3_and_below_topics] == [("t", [0])]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_open_transactions_are_found_by_their_whole_id(version: int) -> None:
    asked: list[Any] = []

    async def brokers() -> dict[int, Any]:
        return {3: None, 1: None}

    async def send_built(node: int, kind: Any, build: Any, deadline: Any) -> Any:
        asked.append((node, kind, build(version)))
        names = ["x-1", "x-2", "other", "x-4"] if node == 1 else ["x-3", "xx-1", "x-2"]
        return SimpleNamespace(
            error_code=0, transaction_states=[SimpleNamespace(transactional_id=name) for name in names]
        )

    async def one(place: Any, ask: Any, deadline: Any) -> Any:
        return await ask(place)

    async def describe(names: set[str]) -> dict[str, Any]:
        assert names == {"x-1", "x-2", "x-3", "x-4"}
        return {
            "x-3": DESCRIBED,
            "x-2": DESCRIBED._replace(state=TransactionState.COMPLETE_COMMIT),
            "x-1": DESCRIBED._replace(producer_id=9),
            "x-4": error_for(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        }

    methods: dict[str, Any] = {
        "brokers": brokers,
        "send_built": send_built,
        "one": one,
        "at_node": lambda node: node,
        "_describe": describe,
        "network": SimpleNamespace(finalized_feature=lambda node, name: 2),
    }
    found = run(lambda client: client.find_open(re.compile("x-[0-9]")), **methods)
    assert found == [
        OpenTransaction("x-1", STATE._replace(producer_id=9)),
        OpenTransaction("x-3", STATE),
    ]
    assert [(node, kind) for node, kind, _ in asked] == [(1, ListTransactionsRequest), (3, ListTransactionsRequest)]
    request = asked[0][2]
    assert request.transactional_id_pattern == ("x-[0-9]" if version >= 2 else None)
    assert (request.state_filters, request.producer_id_filters) == (["Ongoing"], [])
    assert run(lambda client: client.find_open(re.compile("nobody's")), **methods) == []

    async def refused(*_given: Any) -> Any:
        return SimpleNamespace(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, transaction_states=[])

    with pytest.raises(type(error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))):
        run(lambda client: client.find_open(re.compile("x")), **{**methods, "send_built": refused})


def test_the_leader_is_asked_for_now() -> None:
    error = NotLeaderOrFollowerError()
    answers: list[Any] = [4, error]

    def at_leaders(deadline: Any) -> Any:
        async def ask(partitions: list[TopicPartition], again: bool) -> dict[TopicPartition, Any]:
            assert (partitions, again) == ([PARTITION], True)
            return {PARTITION: answers.pop(0)}

        return ask

    async def work(client: Any) -> None:
        assert await client.leader(PARTITION, Left(1)) == 4
        with pytest.raises(NotLeaderOrFollowerError):
            await client.leader(PARTITION, Left(1))

    run(work, at_leaders=at_leaders)


@pytest.mark.parametrize(
    ("code", "offset"), [(0, 17), (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1), (ErrorCode.INVALID_RECORD, None)]
)
def test_an_append_that_was_made_before_is_one(code: int, offset: int | None) -> None:
    async def leader(partition: TopicPartition, deadline: Any) -> int:
        return 4

    async def send(*_given: Any, **_versions: Any) -> Any:
        result = SimpleNamespace(error_code=code, error_message="its text", base_offset=17 if code == 0 else -1)
        return SimpleNamespace(responses=[SimpleNamespace(partition_responses=[result])])

    async def work(client: Any) -> int:
        return int(await client.append(PARTITION, {b"k": None}))

    if offset is None:
        with pytest.raises(KafkaError, match="its text"):
            run(work, leader=leader, send=send)
    else:
        assert run(work, leader=leader, send=send) == offset
