"""Questions of the data plane to Python, asked over the network: what each says, and what each answer leads to."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy._speedups.log.replication import Replication
from kafkapy._speedups.network.network_request import ASK_CONVERT, ASK_SELECT, ASK_VALIDATE, ASK_VERIFY
from kafkapy.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkapy.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafkapy.records.batches import RecordBatchBuilder


def collect(net: Any) -> list[Any]:
    requests: list[Any] = []
    net.handler = requests.append
    return requests


def produce(
    client: Any, topics: list[tuple[str, bytes]], *, version: int = 9, transactional_id: str | None = None
) -> None:
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=1,
        timeout_ms=30_000,
        topic_data=[
            ProduceRequest.Topic(name=topic, partition_data=[ProduceRequest.Topic.Partition(index=0, records=records)])
            for topic, records in topics
        ],
    )
    client.send(request.encode(version), key=0, version=version)


def produced(client: Any, version: int = 9) -> dict[str, Any]:
    reply = ProduceResponse.decode(client.receive()[1][1:], version)
    return {topic.name: topic.partition_responses[0] for topic in reply.responses}


def wrong_kinds(request: Any, right: int) -> None:
    """Each method that answers another kind of question is refused."""
    methods = {
        ASK_VALIDATE: (
            lambda: request.records_to_validate(0),
            lambda: request.replace_records(0, b""),
            lambda: request.accept_records(0),
        ),
        ASK_VERIFY: (
            lambda: request.transactional_id,
            lambda: request.batch_to_verify(0),
            lambda: request.confirm_transaction(0),
        ),
        ASK_CONVERT: (
            lambda: request.records_to_convert(0),
            lambda: request.give_message_set(0, b"", 0),
            lambda: request.refuse_conversion(0, 1),
        ),
        ASK_SELECT: (lambda: request.replica_selection(0), lambda: request.select_replica(0, 1)),
        -1: (lambda: request.reply(b""), request.no_reply, lambda: request.answer_authorization([True])),
    }
    if right not in (ASK_VALIDATE, ASK_VERIFY):
        methods[-1] += (lambda: request.refuse_records(0, 1),)
    for kind, calls in methods.items():
        for call in calls:
            if kind != right:
                with pytest.raises(RuntimeError, match=f"it asks for a decision of kind {right}"):
                    call()
    assert request.ask_kind == right


def test_records_are_accepted_replaced_or_refused(network, eventually):
    net = network()
    logs = {name: net.topic(name, compression_type="gzip") for name in "abcd"}
    requests = collect(net)
    client = net.client()
    batch = net.batch(b"v" * 10)
    produce(client, [(name, batch) for name in "abcd"])
    request = eventually(lambda: requests).pop()
    assert (request.questions, request.question_count) == ([b"0", b"1", b"2", b"3"], 4)
    assert request.questions_between(1, 3) == [b"1", b"2"]
    wrong_kinds(request, ASK_VALIDATE)
    for index, name in enumerate("abcd"):
        assert request.records_to_validate(index) == (logs[name].id, name, 0, batch)
    for index in (-1, 4):
        with pytest.raises(IndexError, match=f"has no records at {index}"):
            request.records_to_validate(index)
    other = net.batch(b"w" * 5, b"w" * 6)
    request.accept_records(0)
    request.replace_records(1, other)
    request.refuse_records(2, 87)
    request.refuse_records(3, 87, "m\N{LATIN SMALL LETTER U WITH DIAERESIS}de", [0])
    request.resume()
    assert (request.questions, request.question_count) == ([], 0)
    answers = produced(client)
    assert {name: each.error_code for name, each in answers.items()} == {"a": 0, "b": 0, "c": 87, "d": 87}
    assert [logs[name].log_end_offset for name in "abcd"] == [1, 2, 0, 0]
    assert other[61:] in logs["b"].read(0, 1 << 20)[0]
    assert (answers["c"].error_message, answers["c"].record_errors) == (None, [])
    assert answers["d"].error_message == "m\N{LATIN SMALL LETTER U WITH DIAERESIS}de"
    assert [each.batch_index for each in answers["d"].record_errors] == [0]


def transactional(producer_id: int) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(1_700_000_000_000, b"k", b"v")
    return builder.build(0, producer_id=producer_id, producer_epoch=3, base_sequence=0, transactional=True)


@pytest.mark.parametrize("transactional_id", ["t\N{LATIN SMALL LETTER U WITH DIAERESIS}x", "tx"])
def test_a_transaction_is_confirmed_or_refused(network, eventually, transactional_id):
    net = network()
    logs = {name: net.topic(name) for name in "ab"}
    requests = collect(net)
    client = net.client()
    produce(client, [("a", transactional(7)), ("b", transactional(7))], transactional_id=transactional_id)
    request = eventually(lambda: requests).pop()
    wrong_kinds(request, ASK_VERIFY)
    assert (request.questions, request.transactional_id) == ([b"0", b"1"], transactional_id)
    assert [request.batch_to_verify(index) for index in range(2)] == [("a", 0, 7, 3), ("b", 0, 7, 3)]
    for index in (-1, 2):
        with pytest.raises(IndexError, match=f"has no batch to verify at {index}"):
            request.batch_to_verify(index)
    request.confirm_transaction(0)
    request.refuse_records(1, 48, "it has no such partition")
    request.resume()
    answers = produced(client)
    assert [answers[name].error_code for name in "ab"] == [0, 48]
    assert answers["b"].error_message == "it has no such partition"
    assert [logs[name].log_end_offset for name in "ab"] == [1, 0]
    with pytest.raises(RuntimeError, match="was answered already"):
        request.resume()


def fetch(client: Any, topics: list[tuple[str, int]], version: int, rack: str = "") -> None:
    kind = FetchRequest.Topic
    asked = [
        kind(topic=topic, partitions=[kind.Partition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)])
        for topic, offset in topics
    ]
    request = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 25, topics=asked)
    if version >= 7:
        request.session_id, request.session_epoch = 0, -1
    if version >= 11:
        request.rack_id = rack
    client.send(request.encode(version), key=1, version=version)


def fetched(client: Any, version: int) -> dict[str, Any]:
    payload = client.receive()[1]
    reply = FetchResponse.decode(payload[1:] if version >= 12 else payload, version)
    return {topic.topic: topic.partitions[0] for topic in reply.responses}


def test_records_are_converted_for_old_clients(network, eventually, monkeypatch):
    monkeypatch.setitem(network.__globals__["APIS"], 1, (0, 18, 12, True))
    net = network()
    logs = {name: net.topic(name) for name in "abc"}
    for log in logs.values():
        log.append_as_leader(net.batch(b"one"))
        log.append_as_leader(net.batch(b"two"))
    requests = collect(net)
    client = net.client()
    fetch(client, [("a", 0), ("b", 1), ("c", 0)], 3)
    request = eventually(lambda: requests).pop()
    wrong_kinds(request, ASK_CONVERT)
    assert request.questions == [b"0", b"1", b"2"]
    data = {name: log.read(0, 1 << 20)[0] for name, log in logs.items()}
    topic, partition, offset, records = request.records_to_convert(0)
    assert (topic, partition, offset, records) == ("a", 0, 0, data["a"])
    topic, partition, offset, records = request.records_to_convert(1)
    assert (topic, partition, offset, records) == ("b", 0, 1, data["b"][len(data["b"]) // 2 :])
    for index in (-1, 3):
        with pytest.raises(IndexError, match=f"has no records at {index}"):
            request.records_to_convert(index)
    request.give_message_set(0, b"message set", 2)
    request.give_message_set(1, bytearray(b"another"), 2)
    request.refuse_conversion(2, 43)
    request.resume()
    answers = fetched(client, 3)
    assert [(bytes(answers[name].records or b""), answers[name].error_code) for name in "abc"] == [
        (b"message set", 0),
        (b"another", 0),
        (b"", 43),
    ]


def test_a_selector_is_asked_for_the_replica(network, eventually):
    net = network()
    net.plane.replica_selector = "asked"
    replication = Replication(10_000)
    logs = {name: net.topic(name, isr=(1, 2)) for name in "ab"}
    for log in logs.values():
        log.use_replication(replication)
        log.append_as_leader(net.batch(b"v"))
        log.follower_position(2, 1)
    requests = collect(net)
    client = net.client()
    fetch(client, [("a", 0), ("b", 0)], 12, rack="r\N{LATIN SMALL LETTER A WITH DIAERESIS}ck")
    request = eventually(lambda: requests).pop()
    wrong_kinds(request, ASK_SELECT)
    assert request.questions == [b"0", b"1"]
    for index, name in enumerate("ab"):
        found = request.replica_selection(index)
        assert found[:5] == (name, 0, 0, "r\N{LATIN SMALL LETTER A WITH DIAERESIS}ck", 1)
        [(replica, end, behind_ms)] = found[5]
        assert (replica, end) == (2, 1) and behind_ms >= 0
    for index in (-1, 2):
        with pytest.raises(IndexError, match=f"selects no replica at {index}"):
            request.replica_selection(index)
    request.select_replica(0, 2)
    request.select_replica(1, -1)
    request.resume()
    answers = fetched(client, 12)
    assert [answers[name].preferred_read_replica for name in "ab"] == [2, -1]
    assert [bool(answers[name].records) for name in "ab"] == [False, True]


def test_a_request_that_wants_a_reply_asks_for_no_decision(network, eventually):
    net = network()
    requests = collect(net)
    client = net.client()
    client.send(b"x")
    request = eventually(lambda: requests).pop()
    for call in (
        request.resume,
        lambda: request.set_quotas(1, None, None, None, None),
        lambda: request.confirm_transaction(0),
        lambda: request.select_replica(0, 1),
        lambda: request.refuse_conversion(0, 1),
        lambda: request.refuse_records(0, 1),
    ):
        with pytest.raises(RuntimeError, match="asks for no decision, it wants a reply"):
            call()
    assert (request.ask_kind, request.questions, request.question_count) == (None, [], 0)
    with pytest.raises(ValueError, match="the client waits for a reply"):
        request.authenticated("User:a")
    with pytest.raises(TypeError):
        request.principal = None
    request.reply(b"served")
    assert client.receive() == (1, b"served")
