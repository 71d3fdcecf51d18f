"""Foreign clients under quotas: their rates over whole windows, throttle times, and neighbours without a quota.

An idle client may send at once what it may send in the windows of its rate, and so again when that burst is older than
the windows. A rate is therefore the mean over all beginnings within one such period: each burst counts as often as it
belongs there. Requests are small: by Kafka's formula N clients exceed their quota by the bytes of N requests in each
ten seconds. KAFKAPY_INTEROP_PEER=4.x measures the same on Apache Kafka. The numbers are printed (pytest -s).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from interop.conftest import PEER, make_broker
from interop.quota_clients import BATCH_BYTES, BIN_S, LARGE_BYTES, PARTITIONS, RECORDS, VALUE, batch_of
from reference.sampled_rate import ModelRate
from system.raw_client import RawClient, produce_request
from waiting import wait_until

from kafkapy import KafkaAdminClient

TESTS = Path(__file__).parents[1]
AROUND_BATCH = 90
"""Bytes of a request or response beside its batch, nearly."""
OVERHEAD = (BATCH_BYTES + AROUND_BATCH) / (RECORDS * len(VALUE))
"""Bytes that count for a byte of values."""
PRODUCERS = ("confluent-producer", "kafka-python-producer", "aiokafka-producer")
CONSUMERS = ("confluent-consumer", "kafka-python-consumer", "aiokafka-consumer", "kcat-consumer")
MEASURED_S = 60.0
MOST, LEAST = 1.05, 0.9
"""Rates over quotas: a client on a busy machine is late after each throttle time, and has less than its quota."""
QUICK = {"quota.window.num": "3"}
"""The windows of the tests of every day, in which bursts are small and soon over."""


class Measured(NamedTuple):
    """What the clients of one process, or of several, have done."""

    bins: dict[int, int]
    replies: list[tuple[float, int, int, float]]
    failures: list[str]


class Run:
    """Processes with clients."""

    def __init__(self, bootstrap: str, seconds: float) -> None:
        self._bootstrap = bootstrap
        self._seconds = seconds
        self._processes: dict[str, list[subprocess.Popen[bytes]]] = {}

    def start(self, kind: str, topic: str, client_id: str, count: int = 1, processes: int = 1) -> None:
        """Begin with clients of a kind; several calls for a client id are one measurement."""
        command = [
            sys.executable, "-m", "interop.quota_clients", kind, self._bootstrap, topic, client_id,
            str(count // processes), str(self._seconds),
        ]  # fmt: skip
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
        self._processes.setdefault(client_id, []).extend(
            subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) for _ in range(processes)
        )

    def results(self) -> dict[str, Measured]:
        """Wait for the end; by client id."""
        found: dict[str, Measured] = {}
        for client_id, processes in self._processes.items():
            whole = found[client_id] = Measured({}, [], [])
            for process in processes:
                text, _ = process.communicate(timeout=self._seconds + 300)
                assert process.returncode == 0, client_id
                part = json.loads(text)
                for number, size in part["bytes"]:
                    whole.bins[number] = whole.bins.get(number, 0) + size
                whole.replies.extend(map(tuple, part["replies"]))
                whole.failures.extend(part["failures"])
        return found

    def kill(self) -> None:
        """End what a failed test leaves."""
        for process in (each for processes in self._processes.values() for each in processes):
            process.kill()
            process.wait()


def rate_of(measured: Measured, warm_up_s: float, period_s: float, measured_s: float) -> float:
    """Bytes per second after the first burst: the mean over all beginnings within a period."""
    first = min(measured.bins) + int(warm_up_s / BIN_S)
    period, length = int(period_s / BIN_S), int(measured_s / BIN_S)
    sums = list(accumulate((measured.bins.get(first + n, 0) for n in range(period + length)), initial=0))
    return sum(sums[begin + length] - sums[begin] for begin in range(period)) / period / measured_s


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] if values else 0.0


class Place(NamedTuple):
    """A broker, and the windows of its quotas."""

    broker: Any
    admin: KafkaAdminClient
    period_s: float

    def bound(self, client_id: str, **quotas: float | None) -> None:
        self.admin.alter_client_quotas([({"client-id": client_id}, quotas)])

    def whole_s(self, measured_s: float) -> float:
        """How long clients run: warm-up, measurement, and all its beginnings."""
        return self.warm_up_s + measured_s + self.period_s + 2

    @property
    def warm_up_s(self) -> float:
        return self.period_s + 1


def place_with(directory: Path, period_s: float, **overrides: str) -> Iterator[Place]:
    with (
        make_broker(directory, **{"num.partitions": str(PARTITIONS)} | overrides) as broker,
        KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin,
    ):
        yield Place(broker, admin, period_s)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A broker with short windows."""
    yield from place_with(tmp_path_factory.mktemp("quick"), float(QUICK["quota.window.num"]), **QUICK)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A broker with Kafka's windows."""
    yield from place_with(tmp_path_factory.mktemp("usual"), 11.0)


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Iterator[Any]:
    runs: list[Run] = []

    def make(place: Place, measured_s: float) -> Run:
        runs.append(Run(place.broker.bootstrap, place.whole_s(measured_s)))
        return runs[-1]

    yield make
    for each in runs:
        each.kill()


def produce_under_quotas(
    place: Place, run: Any, rate: float, measured_s: float, groups: dict[str, tuple[str, int]]
) -> dict[str, float]:
    """Rates over quotas, by client id, of groups of (kind, number of clients) that run at the same time."""
    running = run(place, measured_s)
    for client_id, (kind, count) in groups.items():
        place.admin.create_topics([client_id])
        place.bound(client_id, producer_byte_rate=rate)
        running.start(kind, client_id, client_id, count)
    found = running.results()
    shares = {}
    for client_id, measured in found.items():
        assert not measured.failures, (client_id, measured.failures)
        achieved = rate_of(measured, place.warm_up_s, place.period_s, measured_s) * OVERHEAD
        shares[client_id] = achieved / rate
        place.bound(client_id, producer_byte_rate=None)
    return shares


def consume_under_quotas(place: Place, run: Any, rate: float, measured_s: float, kinds: Sequence[str]) -> Any:
    """The same for one consumer of each kind."""
    topic = "consumed"
    fill(place, topic, rate * (place.whole_s(measured_s) + 2 * place.period_s))
    running = run(place, measured_s)
    for kind in kinds:
        place.bound(kind, consumer_byte_rate=rate)
        running.start(kind, topic, kind)
    shares = {}
    for kind, measured in running.results().items():
        assert not measured.failures, (kind, measured.failures)
        shares[kind] = rate_of(measured, place.warm_up_s, place.period_s, measured_s) * OVERHEAD / rate
        place.bound(kind, consumer_byte_rate=None)
    return shares


def fill(place: Place, topic: str, size: float) -> None:
    """A topic with that many bytes in its partitions together, all batches alike."""
    place.admin.create_topics([topic])
    batch = batch_of(VALUE, RECORDS)
    client = RawClient(place.broker.bootstrap)

    def sent(partition: int) -> bool:
        answer = client.call(produce_request(topic, batch, partition=partition), 8)
        return bool(answer.responses[0].partition_responses[0].error_code == 0)

    for partition in range(PARTITIONS):
        wait_until(lambda partition=partition: sent(partition), "the partition has a leader")
    assert all(sent(number % PARTITIONS) for number in range(int(size / len(batch))))
    client.close()


def told(title: str, shares: dict[str, float]) -> None:
    print(f"\n{PEER or 'kafkapy'}, {title}: " + ", ".join(f"{name} {share:.3f}" for name, share in shares.items()))


@pytest.mark.timeout(180)
def test_clients_do_not_exceed_their_quotas(quick: Place, run: Any) -> None:
    """All at the same time. A busy machine may be slower than a quota."""
    groups = {"one": ("confluent-producer", 1), "ten": ("confluent-producer", 10)}
    kinds = ["confluent-consumer", "kafka-python-consumer"]
    with ThreadPoolExecutor() as pool:
        producing = pool.submit(produce_under_quotas, quick, run, 200_000, 6.0, groups)
        shares = consume_under_quotas(quick, run, 200_000, 6.0, kinds) | producing.result()
    assert len(shares) == 4
    told("rate over quota", shares)
    assert all(0 < share < 1.5 for share in shares.values()), shares


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_producers_have_their_quota_over_a_minute(usual: Place, run: Any) -> None:
    groups = {kind: (kind, 1) for kind in PRODUCERS} | {"ten": ("confluent-producer", 10)}
    shares = produce_under_quotas(usual, run, 1_000_000, MEASURED_S, groups)
    told("produce rate over quota", shares)
    assert all(LEAST < share < MOST for share in shares.values()), shares


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_consumers_have_their_quota_over_a_minute(usual: Place, run: Any) -> None:
    shares = consume_under_quotas(usual, run, 500_000, MEASURED_S, CONSUMERS)
    told("fetch rate over quota", shares)
    assert all(LEAST < share < MOST for share in shares.values()), shares


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_a_thousand_producers_share_a_quota_and_leave_others_alone(usual: Place, run: Any) -> None:
    rate = 5_000_000.0
    usual.admin.create_topics(["many", "free"])
    alone = Run(usual.broker.bootstrap, 10)
    alone.start("neighbour", "free", "free")
    before = alone.results()["free"]
    usual.bound("many", producer_byte_rate=rate)
    running = run(usual, MEASURED_S)
    running.start("small-raw-producer", "many", "many", count=1000, processes=4)
    running.start("neighbour", "free", "free")
    found = running.results()
    usual.bound("many", producer_byte_rate=None)
    assert not found["many"].failures and not found["free"].failures
    share = rate_of(found["many"], usual.warm_up_s, usual.period_s, MEASURED_S) / rate
    told("a thousand producers, rate over quota", {"many": share})
    for name, measured in (("alone", before), ("beside them", found["free"])):
        times = [latency for *_, latency in measured.replies]
        print(
            f"neighbour {name}: {len(times)} requests, p50 {percentile(times, 0.5):.2f} ms, "
            f"p99 {percentile(times, 0.99):.2f} ms, p99.9 {percentile(times, 0.999):.2f} ms"
        )
    assert {throttle_ms for _, _, throttle_ms, _ in found["free"].replies} == {0}
    assert LEAST < share < MOST


@pytest.mark.soak
@pytest.mark.timeout(200)
def test_throttle_times_are_those_of_kafkas_formula(usual: Place, run: Any) -> None:
    rate = 100_000.0
    usual.admin.create_topics(["formula"])
    usual.bound("formula", producer_byte_rate=rate)
    running = run(usual, 30.0)
    running.start("large-raw-producer", "formula", "formula")
    (measured,) = running.results().values()
    usual.bound("formula", producer_byte_rate=None)
    model, differences = ModelRate(), list[float]()
    for at_s, size, throttle_ms, _ in measured.replies:
        model.record(size, int(at_s * 1000))
        differences.append(throttle_ms - model.throttle_ms(rate, int(at_s * 1000)))
    throttled = sum(throttle_ms > 0 for _, _, throttle_ms, _ in measured.replies)
    print(
        f"\n{PEER or 'kafkapy'}: {throttled} of {len(differences)} replies throttled; throttle time less that of the "
        f"formula: median {percentile(differences, 0.5):.0f} ms, from {min(differences):.0f} to {max(differences):.0f}"
    )
    assert throttled > 10
    # The clocks of both sides differ by the way of the reply; a record at the edge of a window may count in the next.
    request_ms = LARGE_BYTES / rate * 1000
    assert abs(percentile(differences, 0.5)) < request_ms
    assert percentile([abs(each) for each in differences], 0.9) < 2 * request_ms
