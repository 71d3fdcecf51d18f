"""Produces of several connections that share a write: each has the answer that it would have alone."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.requests.client_quotas import QuotaSensor
from kafkapy._speedups.testing.held_turn import HeldTurn
from kafkapy._speedups.testing.request_driver import (
    GATHERED,
    NO_REPLY,
    PARKED,
    REPLY,
    RESUME,
    Exchange,
    RequestDriver,
    settle_group,
)
from kafkapy.errors import ErrorCode
from kafkapy.log.backends.local import LocalLogStorage
from kafkapy.protocol.messages.produce import ProduceResponse

VERSION = 9
MOST = 64  # members of a group


class Connections:
    """As many connections to a broker as there are requests at a time."""

    def __init__(self, broker: Any) -> None:
        self.broker = broker
        self.drivers: list[RequestDriver] = []

    def send(
        self, number: int, topics: Any, *, gathers: bool = True, version: int = VERSION, **fields: Any
    ) -> Exchange:
        while len(self.drivers) <= number:
            self.drivers.append(RequestDriver(self.broker.plane))
        request = self.broker.produce_request(topics, version=version, **fields)
        return self.drivers[number].handle(0, version, number, "c", request.encode(version), gathers)

    def gather(self, batches: list[bytes], **fields: Any) -> list[Exchange]:
        """One request for each batch to partition 0 of "t"."""
        exchanges = [self.send(number, {"t": [(0, data)]}, **fields) for number, data in enumerate(batches)]
        assert {exchange.kind for exchange in exchanges} == {GATHERED}
        return exchanges


def topic(broker: Any, **config: Any) -> PartitionLog:
    """Topic "t" with one record: the first append to a log opens its segment, which no group does."""
    (log,) = broker.topic("t", **config)
    broker.produce({"t": [(0, broker.batch())]})
    return log


def entry(broker: Any, exchange: Exchange) -> Any:
    assert exchange.kind == REPLY and exchange.reply is not None, exchange.kind
    return broker.only(ProduceResponse.decode(exchange.reply[9:], VERSION))


def contents(log: PartitionLog) -> bytes:
    out, offset = b"", 0
    while offset < log.log_end_offset:
        data = log.read(offset, max_bytes=1 << 20)[0]
        out += data
        offset = int.from_bytes(data[-len(last_batch(data)) :][:8], "big") + last_delta(last_batch(data)) + 1
    return out


def last_batch(data: bytes) -> bytes:
    while True:
        size = 12 + int.from_bytes(data[8:12], "big")
        if size >= len(data):
            return data
        data = data[size:]


def last_delta(batch: bytes) -> int:
    return int.from_bytes(batch[23:27], "big")


# --- alone or together ------------------------------------------------------------------------------------------------

PRODUCERS = st.sampled_from([-1, -1, 1, 2, 3])
REQUESTS = st.lists(
    st.fixed_dictionaries(
        {
            "partition": st.integers(0, 1),
            "producer": PRODUCERS,
            "epoch": st.sampled_from([0, 0, 0, 1]),
            "sequence": st.integers(0, 3),
            "records": st.integers(1, 2),
            "acks": st.sampled_from([1, 1, -1, 0, 2]),
            "codec": st.sampled_from([0, 0, 0, 3]),
            "spoiled": st.sampled_from(["", "", "", "", "crc", "cut", "timestamp", "large", "no key", "twice"]),
        }
    ),
    min_size=1,
    max_size=10,
)
NOW_MS = 1_700_000_000_000


def records_of(broker: Any, wanted: dict[str, Any], number: int) -> bytes:
    spoiled, producer = wanted["spoiled"], wanted["producer"]
    values = [b"%d" % number * (3000 if spoiled == "large" else 1)] * wanted["records"]
    data: bytes = broker.batch(
        *values,
        key=None if spoiled == "no key" else b"k",
        timestamp=NOW_MS * 9 if spoiled == "timestamp" else NOW_MS + number,
        codec=wanted["codec"],
        producer_id=producer,
        producer_epoch=wanted["epoch"] if producer >= 0 else -1,
        base_sequence=wanted["sequence"] if producer >= 0 else -1,
    )
    if spoiled == "crc":
        data = data[:-1] + bytes([data[-1] ^ 1])
    return data[:-3] if spoiled == "cut" else data * 2 if spoiled == "twice" else data


def small_topic(broker: Any) -> list[PartitionLog]:
    logs: list[PartitionLog] = broker.topic(
        "t",
        2,
        max_message_bytes=2000,
        segment_bytes=2000,
        segment_index_bytes=64,
        index_interval_bytes=100,
        cleanup_policy=["compact"],
        timestamp_after_max_ms=1 << 50,
    )
    return logs


def by_id(log: PartitionLog) -> list[dict[str, int]]:
    return sorted(log.producers(), key=lambda producer: producer["producer_id"])


def end(exchange: Exchange, log: PartitionLog) -> None:
    """Goes on with a request until its answer; a segment is there when it needs one."""
    while exchange.kind in (PARKED, RESUME):
        log.prepare_segment()
        exchange.resume()


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(turns=st.lists(REQUESTS, min_size=1, max_size=4))
def test_the_answers_and_the_log_are_those_of_single_appends(make_broker: Any, turns: list[Any]) -> None:
    together, alone = make_broker(), make_broker()
    logs, others = small_topic(together), small_topic(alone)
    connections, singles = Connections(together), Connections(alone)
    for turn in turns:
        requests = [{"t": [(wanted["partition"], records_of(together, wanted, n))]} for n, wanted in enumerate(turn)]
        acks = [wanted["acks"] for wanted in turn]
        exchanges = [connections.send(n, topics, acks=acks[n]) for n, topics in enumerate(requests)]
        # Those that were refused before any append come first.
        order = [n for n, exchange in enumerate(exchanges) if exchange.kind != GATHERED]
        gathered = [n for n, exchange in enumerate(exchanges) if exchange.kind == GATHERED]
        for group in {exchanges[n].group: None for n in gathered}:
            members = [n for n in gathered if exchanges[n].group == group]
            settle_group([exchanges[n] for n in members])
            later = [n for n in members if exchanges[n].kind == RESUME]
            order += [n for n in members if n not in later] + later
            for n in later:
                end(exchanges[n], logs[turn[n]["partition"]])
        for n in order:
            exchange = singles.send(n, requests[n], acks=acks[n], gathers=False)
            end(exchange, others[turn[n]["partition"]])
            assert (exchanges[n].kind, exchanges[n].reply) == (exchange.kind, exchange.reply), turn[n]
            assert exchanges[n].message == exchange.message
    for log, other in zip(logs, others, strict=True):
        assert log.offsets() == other.offsets()
        assert contents(log) == contents(other)
        assert by_id(log) == by_id(other)
        assert log.counters() == other.counters()
        assert [segment[:3] for segment in log.segments()] == [segment[:3] for segment in other.segments()]


def test_members_get_offsets_in_their_order(broker: Any) -> None:
    log = topic(broker)
    exchanges = Connections(broker).gather([broker.batch(b"%d" % n, b"x") for n in range(MOST)])
    settle_group(exchanges)
    assert [entry(broker, exchange).base_offset for exchange in exchanges] == list(range(1, 2 * MOST, 2))
    assert (log.log_end_offset, log.high_watermark) == (2 * MOST + 1, 2 * MOST + 1)
    counters = log.counters()
    assert (counters["produce_requests"], counters["messages_in"]) == (MOST + 1, 2 * MOST + 1)
    assert counters["bytes_in"] == log.size == len(contents(log))


def test_a_fetch_that_waits_is_woken_once_for_all(broker: Any) -> None:
    topic(broker)
    fetch = broker.fetch_exchange([("t", 0, 1)], max_wait_ms=10_000)
    assert fetch.kind == PARKED
    settle_group(Connections(broker).gather([broker.batch()] * 5))
    assert fetch.wakes == 1


def test_members_wait_for_their_own_acks(broker: Any) -> None:
    log = topic(broker, isr=(1, 2), replicas=(1, 2))
    exchanges = Connections(broker).gather([broker.batch()] * 4, acks=-1)
    settle_group(exchanges)
    assert {exchange.kind for exchange in exchanges} == {PARKED}
    log.follower_position(2, 4)
    assert [exchange.wakes for exchange in exchanges] == [1, 1, 1, 0]
    for exchange in exchanges[:3]:
        assert entry(broker, exchange.resume()).error_code == ErrorCode.NONE
    exchanges[3].resume(timed_out=True)
    assert entry(broker, exchanges[3]).error_code == ErrorCode.REQUEST_TIMED_OUT


def test_too_few_replicas_refuse_those_that_ask_for_all(broker: Any) -> None:
    log = topic(broker, min_insync_replicas=2)
    connections = Connections(broker)
    exchanges = [connections.send(n, {"t": [(0, broker.batch())]}, acks=acks) for n, acks in enumerate([1, -1, 0, -1])]
    settle_group(exchanges)
    assert [exchange.kind for exchange in exchanges] == [REPLY, RESUME, NO_REPLY, RESUME]
    assert entry(broker, exchanges[1].resume()).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert log.log_end_offset == 3


@pytest.mark.parametrize(
    "config", [{"message_timestamp_type": "LogAppendTime"}, {"flush_messages": 1}, {"compression_type": "lz4"}]
)
def test_what_one_write_cannot_do_is_left_to_each(broker: Any, config: dict[str, Any]) -> None:
    (log,) = broker.topic("t", **config)
    log.append_as_leader(broker.batch())
    exchanges = Connections(broker).gather([broker.batch()] * 3)
    settle_group(exchanges)
    assert {exchange.kind for exchange in exchanges} == {RESUME}
    assert log.log_end_offset == 1
    for exchange in exchanges:
        exchange.resume()
        assert exchange.kind != GATHERED


def test_a_taken_turn_is_waited_for_by_each(broker: Any) -> None:
    turn = HeldTurn(topic(broker))
    exchanges = Connections(broker).gather([broker.batch()] * 3)
    settle_group(exchanges)
    assert [exchange.resume().kind for exchange in exchanges] == [PARKED] * 3
    # Nor does a group pass those that wait.
    turn.end()
    later = Connections(broker).gather([broker.batch()] * 2)
    settle_group(later)
    assert {exchange.kind for exchange in later} == {RESUME}
    for offset, exchange in enumerate(exchanges, 1):
        assert entry(broker, exchange.resume()).base_offset == offset


def test_an_empty_segment_gets_its_first_batch_alone(broker: Any) -> None:
    """Its time, and a size beyond segment.bytes, are those of one batch."""
    log = topic(broker)
    log.prepare_segment()
    assert log.roll()
    exchanges = Connections(broker).gather([broker.batch()] * 3)
    settle_group(exchanges)
    assert [exchange.kind for exchange in exchanges] == [REPLY, RESUME, RESUME]
    assert [segment[:2] for segment in log.segments()][-1] == (1, len(contents(log)) - log.segments()[0][1])


def test_a_member_that_is_gone_leaves_nothing(broker: Any) -> None:
    log = topic(broker)
    exchanges = Connections(broker).gather([broker.batch()] * 3)
    exchanges[1].cancel()
    settle_group([exchanges[0], exchanges[2]])
    assert [entry(broker, exchanges[n]).base_offset for n in (0, 2)] == [1, 2]
    assert log.log_end_offset == 3


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_a_write_that_fails_fails_all_its_members_and_nobody_else(broker: Any, tmp_path: Path) -> None:
    (good,) = broker.topic("other")
    broker.topic("t")
    storage = LocalLogStorage(tmp_path)
    log = PartitionLog("t", 0, storage, broker.log_config(), events=broker.events, topic_id=broker.topic_id("t"))
    log.prepare_segment()
    log.become_leader(1, 0, [1])
    broker.table.set_log("t", 0, log)
    connections = Connections(broker)
    for only in (log, good):
        only.append_as_leader(broker.batch())
    size = log.size
    exchanges = connections.gather([broker.batch(b"x" * 300)] * 10)
    others = [connections.send(20 + n, {"other": [(0, broker.batch())]}) for n in range(3)]
    # Four whole batches would have room.
    with files_end_at(size + 1700):
        settle_group(exchanges)
        settle_group(others)
    assert {entry(broker, exchange).error_code for exchange in exchanges} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert (tmp_path / f"{0:020d}.log").stat().st_size == size
    assert log.log_end_offset == 1 and log.offline_errno
    assert log.counters()["failed_produce_requests"] == 10
    assert [entry(broker, exchange).base_offset for exchange in others] == [1, 2, 3]
    assert good.log_end_offset == 4


# --- who is gathered --------------------------------------------------------------------------------------------------


def test_only_plain_appends_of_one_partition_are_gathered(broker: Any) -> None:
    broker.topic("t", 2)
    connections = Connections(broker)
    batch = broker.batch()

    def kind(topics: Any, **fields: Any) -> str:
        exchange = connections.send(0, topics, **fields)
        kind: str = exchange.kind
        exchange.cancel()
        return kind

    assert kind({"t": [(0, batch)]}) == GATHERED
    assert kind({"t": [(0, batch)]}, gathers=False) == REPLY
    assert kind({"t": [(0, batch), (1, batch)]}) == REPLY
    assert kind({"t": [(7, batch)]}) == REPLY
    in_transaction = broker.batch(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    assert kind({"t": [(0, in_transaction)]}, transactional_id="x") != GATHERED
    connections.drivers[0].set_quotas(produce=QuotaSensor(1e9))
    assert kind({"t": [(0, batch)]}) == REPLY


def test_a_group_is_of_one_partition(broker: Any) -> None:
    for log in broker.topic("t", 2):
        log.append_as_leader(broker.batch())
    connections = Connections(broker)
    exchanges = [connections.send(n, {"t": [(n, broker.batch())]}) for n in range(2)]
    assert exchanges[0].group != exchanges[1].group
    with pytest.raises(ValueError):
        settle_group(exchanges)
    for exchange in exchanges:
        settle_group([exchange])
        assert entry(broker, exchange).base_offset == 1
