"""Producers that follow the protocol and some that do not, against real partition logs and a coordinator that crashes:

- no partition is left with a transaction that nobody ends: its last stable offset comes to its end;
- who reads committed records only sees all those, and only those, of transactions that were committed.

A produce is begun and finished in two steps, so that anything may come between the coordinator's word and the append.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from speedups.conftest import NOW_MS, MemoryBroker

from kafkapy._speedups.testing.request_driver import RequestDriver
from kafkapy.coordinator.result import Later
from kafkapy.coordinator.transaction.markers import Marker
from kafkapy.coordinator.transaction.metadata import ProducerIdAndEpoch
from kafkapy.coordinator.transaction.verification import Operation, TransactionVerification, produce_error
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.protocol.messages.produce import ProduceResponse
from kafkapy.records.batches import decode_records, iter_batches
from kafkapy.records.control import build_end_transaction_marker, read_control_batch
from kafkapy.types import TopicPartition

COUNT = 3
PRODUCE_VERSIONS = {0: 11, 2: 12}
NAMES = st.sampled_from(["a", "b"])
WHICH = st.integers(0, 5)
PARTITION = st.integers(0, COUNT - 1)
VERSION = st.sampled_from([0, 2])


class Logs:
    """The partitions, as a MarkerWriter. Those in `away` take no markers."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.logs = self.broker.topic("p", COUNT)
        self.away: set[int] = set()

    def write(self, partition: TopicPartition, marker: Marker) -> Later[None]:
        """See MarkerWriter."""
        if partition.partition in self.away:
            return Later.failure(error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        batch = build_end_transaction_marker(
            marker.producer_id,
            marker.producer_epoch,
            committed=marker.committed,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=NOW_MS,
        )
        try:
            self.logs[partition.partition].append_as_leader(batch)
        except KafkaError as error:
            return Later.failure(error)
        return Later.of(None)

    def committed(self, number: int) -> list[bytes]:
        """What a reader of committed records gets."""
        data, *_, aborted = self.logs[number].read(0, 1 << 24, isolation=1)
        starts = sorted(aborted, key=lambda each: each[1])
        dropped: set[int] = set()
        values: list[bytes] = []
        for batch in iter_batches(data):
            while starts and starts[0][1] <= batch.base_offset:
                dropped.add(starts.pop(0)[0])
            if batch.is_control:
                marker = read_control_batch(batch)
                if marker is not None and not marker.committed:
                    dropped.discard(batch.producer_id)
            elif batch.producer_id not in dropped:
                values += [record.value or b"" for record in decode_records(batch)]
        return values


@dataclass(eq=False)
class Client:
    """A producer. `version` None: one that mixes the versions of its requests, as no library would."""

    name: str
    producer: ProducerIdAndEpoch
    version: int | None
    number: int
    transaction: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    in_flight: set[int] = field(default_factory=set)
    added: set[int] = field(default_factory=set)
    ending: bool | None = None

    @property
    def token(self) -> bytes:
        """Its current transaction, as the value of its records."""
        return b"%d/%d" % (self.number, self.transaction)


@dataclass(eq=False)
class Produce:
    """A batch on its way: the data plane waits for `answer`."""

    client: Client
    partition: int
    producer: ProducerIdAndEpoch
    token: bytes
    version: int
    driver: RequestDriver
    exchange: Any
    answer: Later[dict[TopicPartition, ErrorCode]]


class Verified(RuleBasedStateMachine):
    """The rules; `make_bench` is put in by the test."""

    make_bench: Any

    @initialize()
    def begin(self) -> None:
        self.logs = Logs()
        self.bench = type(self).make_bench(partitions=self.logs)
        self.ask_coordinator()
        self.clients: list[Client] = []
        self.waiting: list[Produce] = []
        self.taken: dict[bytes, set[int]] = {}
        self.told: dict[bytes, bool] = {}

    def ask_coordinator(self) -> None:
        self.verification = TransactionVerification(
            self.bench.coordinator, self.bench.clock, enabled=True, backoff_ms=20, backoff_max_ms=100
        )

    def client(self, which: int) -> Client | None:
        return self.clients[-1 - which % len(self.clients)] if self.clients else None

    @rule(name=NAMES, version=st.sampled_from([0, 2, 2, None]))
    def start(self, name: str, version: int | None) -> None:
        reply = self.bench.init(name)
        if reply is ErrorCode.CONCURRENT_TRANSACTIONS:
            reply = self.bench.init(name)
        if not isinstance(reply, ErrorCode):
            self.clients.append(Client(name, reply, version, len(self.clients)))

    @rule(which=WHICH, partition=PARTITION)
    def add(self, which: int, partition: int) -> None:
        client = self.client(which)
        if client is None or client.ending is not None:
            return
        if self.bench.add(client.producer, TopicPartition("p", partition), name=client.name) is None:
            client.added.add(partition)

    @rule(which=WHICH, partition=PARTITION, version=VERSION, adds=st.booleans())
    def begin_produce(self, which: int, partition: int, version: int, adds: bool) -> None:
        """`adds`: as a library would, and not only when it was reminded of it."""
        client = self.client(which)
        if client is None or partition in client.in_flight or client.ending is not None:
            return
        version = version if client.version is None else client.version
        if version == 0 and adds and partition not in client.added:
            self.add(which, partition)
        api = PRODUCE_VERSIONS[version]
        batch = self.logs.broker.batch(
            client.token,
            producer_id=client.producer.producer_id,
            producer_epoch=client.producer.producer_epoch,
            base_sequence=client.sequences.get(partition, 0),
            transactional=True,
        )
        request = self.logs.broker.produce_request(
            {"p": [(partition, batch)]}, version=api, transactional_id=client.name
        )
        driver = RequestDriver(self.logs.broker.plane)
        exchange = self.logs.broker.send(request, api, driver=driver)
        answer: Later[dict[TopicPartition, ErrorCode]] = Later.of({})
        if exchange.kind == "ask":
            topic, number, *stamp = exchange.batch_to_verify(0)
            answer = self.verification.ask(
                client.name,
                ProducerIdAndEpoch(*stamp),
                [TopicPartition(topic, number)],
                Operation.of_produce(api),
                patient=True,
            )
        client.in_flight.add(partition)
        self.waiting.append(Produce(client, partition, client.producer, client.token, api, driver, exchange, answer))
        self.bench.settle()

    @rule(which=WHICH)
    def finish_produce(self, which: int) -> None:
        if self.waiting:
            self.finish(self.waiting[which % len(self.waiting)])

    def finish(self, produce: Produce) -> None:
        if not produce.answer.done:
            return
        self.waiting.remove(produce)
        client, exchange = produce.client, produce.exchange
        client.in_flight.discard(produce.partition)
        while exchange.kind == "ask":
            for error in produce.answer.result().values():
                exchange.refuse_records(0, *produce_error(error, Operation.of_produce(produce.version)))
            if not produce.answer.result():
                exchange.confirm_transaction(0)
            exchange.resume()
        response = ProduceResponse.decode(exchange.reply[9:], produce.version)
        error = ErrorCode(response.responses[0].partition_responses[0].error_code)
        assert error is not ErrorCode.UNKNOWN_SERVER_ERROR
        if error is ErrorCode.NONE:
            self.taken.setdefault(produce.token, set()).add(produce.partition)
            if client.producer == produce.producer:
                client.sequences[produce.partition] = client.sequences.get(produce.partition, 0) + 1

    @rule(which=WHICH, committed=st.booleans(), version=VERSION)
    def end(self, which: int, committed: bool, version: int) -> None:
        client = self.client(which)
        if client is None:
            return
        asked = committed if client.ending is None else client.ending
        if asked and client.in_flight:
            return  # a commit is for what was acknowledged
        client.ending = asked
        version = version if client.version is None else client.version
        reply = self.bench.end(client.producer, asked, version, name=client.name)
        if reply is ErrorCode.CONCURRENT_TRANSACTIONS:
            return
        if isinstance(reply, ErrorCode):
            client.ending = None
            client.transaction += 1
            return
        self.told[client.token] = asked
        client.ending = None
        client.transaction += 1
        client.added.clear()
        if version:
            client.producer = reply
            client.sequences.clear()

    @rule(partition=PARTITION)
    def partition_goes_away(self, partition: int) -> None:
        self.logs.away.add(partition)

    @rule()
    def partitions_come_back(self) -> None:
        self.logs.away.clear()

    @rule(ms=st.sampled_from([20, 500, 61_000]))
    def time_passes(self, ms: int) -> None:
        self.bench.advance(ms)

    @rule()
    def crash(self) -> None:
        self.bench = self.bench.crash()
        self.verification.close()
        self.ask_coordinator()

    @invariant()
    def one_transaction_is_open_for_each_id(self) -> None:
        if not hasattr(self, "logs"):
            return
        for log in self.logs.logs:
            open_ones = [each for each in log.producers() if each["current_transaction_first_offset"] >= 0]
            assert len({each["producer_id"] for each in open_ones}) == len(open_ones) <= 2

    def teardown(self) -> None:
        if not hasattr(self, "logs"):
            return
        self.logs.away.clear()
        self.bench.advance(1000)
        for produce in list(self.waiting):
            self.finish(produce)
        assert not self.waiting
        self.bench.advance(150_000)
        for number, log in enumerate(self.logs.logs):
            _, end, high_watermark, stable, _ = log.offsets()
            assert stable == end == high_watermark, f"partition {number} has a transaction that nobody ends"
        for number in range(COUNT):
            seen = set(self.logs.committed(number))
            for token in seen:
                assert self.told.get(token, True), f"{token!r} was aborted and is seen"
            for token, partitions in self.taken.items():
                if self.told.get(token) and number in partitions:
                    assert token in seen, f"{token!r} was committed and is not seen"


def run(make_bench: Any, examples: int, steps: int) -> None:
    machine = type("Machine", (Verified,), {"make_bench": staticmethod(make_bench)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
        ),
    )


def test_no_transaction_is_left_behind(make_bench: Any) -> None:
    run(make_bench, 50, 40)


@pytest.mark.soak
def test_no_transaction_is_left_behind_for_long(make_bench: Any) -> None:
    run(make_bench, 3000, 80)
