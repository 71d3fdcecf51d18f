"""No request costs more than its size explains, and none keeps others waiting: looked at for every API that is served.

Work is counted as CPU time of the broker's threads, which another process on the machine hardly changes, and the least
of some tries counts.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from system.largest_bodies import FEW, NAME, Body, Entries, bodies
from system.raw_client import RawClient, batch, framed
from waiting import wait_until

from kafkapy.broker.handlers import BETWEEN_BROKERS, served_apis
from kafkapy.coordinator.share.state import ShareKey
from kafkapy.network.api_table import DATA_PLANE_APIS
from kafkapy.protocol.header import encode_request
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.protocol.registry import ApiKeys
from kafkapy.protocol.schema import Request
from kafkapy.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.alone

CLIENT = "bounds"
RECORDS = batch(b"v")
GROWTH = 4
GROWN = 20_000
WORST_RATIO = 6
SOME = 10_000
WORST_RATIO_ANYWHERE = 8
"""On a machine that is busy with others too. A loop over all entries for each of them makes it 16."""
LITTLE_NS = 30_000_000
"""Below that the ratio says nothing: a request of SOME entries that takes less is cheap."""
RESTING_NS = 500_000
"""In 5 ms: a thread at work uses more, even beside many others."""
TRIES = 6
LONGEST_HOLD_NS = 50_000_000
"""CPU time of the control loop while another client's request waits."""
LONGEST_HOLD_ANYWHERE_NS = 150_000_000
QUIET_WAIT_S = 0.05
RESPONSE_HEADER = 5
"""Bytes of the flexible one, without tagged fields."""
SERVED = served_apis(in_cluster=False, with_zookeeper=False, telemetry=False)
KEYS = [*SERVED, *DATA_PLANE_APIS]
PLUGIN = Path(__file__).parent / "shared_store_plugin"
"""Its metadata store makes a broker serve the APIs between brokers too."""
BROKER_ID = 1
REGISTERED = re.compile(r"is registered with epoch (\d+)")
CONTROLS = re.compile(r"is the controller, with epoch (\d+)")


class Broker:
    """A broker process with one topic, and what its threads have used."""

    def __init__(self, process: BrokerProcess) -> None:
        self.process = process
        self._made = 0
        with self.client() as client:
            topic = CreateTopicsRequest.Topic(name=NAME, num_partitions=FEW, replication_factor=1)
            client.call(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 4)
            found = client.call(MetadataRequest(topics=[MetadataRequest.Topic(name=NAME)]), 10)
            self.topic_id: UUID = found.topics[0].topic_id
            share_key = ShareKey(NAME, self.topic_id, 0).text
            asked = FindCoordinatorRequest(coordinator_keys=[share_key], key_type=2)
            wait_until(lambda: not client.call(asked, 6).coordinators[0].error_code, "share-partitions are coordinated")
            for kind in (0, 1):
                # What only the first request for a group or a transaction pays for is made now.
                deadline = time.monotonic() + 60
                while client.call(FindCoordinatorRequest(key=NAME, key_type=kind), 1).error_code:
                    assert time.monotonic() < deadline
                    time.sleep(0.01)

    @contextmanager
    def client(self) -> Iterator[Client]:
        client = Client(self.process.bootstrap)
        try:
            yield client
        finally:
            client.close()

    def frame(self, body: Body, count: int) -> bytes:
        """The request with so many entries, framed."""
        self._made += 1
        request = body.made(count, self.topic_id, RECORDS, f"unique-{self._made}")
        if request.API_KEY in BETWEEN_BROKERS:
            self._accredit(request)
        return request_frame(request, body.version)

    def _accredit(self, request: Any) -> None:
        """Give the request the ids and epochs without which it would be refused unread."""
        log = self.process.log_path.read_text()
        registered, controls = REGISTERED.search(log), CONTROLS.search(log)
        assert registered is not None and controls is not None
        epochs = {"broker_epoch": int(registered[1]), "controller_epoch": int(controls[1])}
        for name, value in {"broker_id": BROKER_ID, "controller_id": BROKER_ID, **epochs}.items():
            if hasattr(request, name):
                setattr(request, name, value)

    def cpu_ns(self) -> int:
        """Of all threads together."""
        used = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            try:
                used += int((task / "schedstat").read_text().split()[0])
            except OSError:
                continue  # it has ended
        return used

    def control_loop_cpu_ns(self) -> int:
        """Of the thread that the control loop runs on: the process's first."""
        return int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/schedstat").read_text().split()[0])


class Client(RawClient):
    """One connection that sends what it is given."""

    def exchange(self, frame: bytes) -> bytes:
        """The response's frame."""
        self.socket.sendall(frame)
        answer = self.receive_frame()
        assert answer, "the broker closed the connection"
        return answer


def request_frame(request: Request, version: int) -> bytes:
    return framed(encode_request(request.API_KEY, version, 7, CLIENT, request))


OVERRIDES = {
    "broker.id": str(BROKER_ID),
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "num.network.threads": "1",
    "log.retention.check.interval.ms": "3600000",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with BrokerProcess(overrides=OVERRIDES) as process:
        yield Broker(process)


@pytest.fixture(scope="module")
def member() -> Iterator[Broker]:
    """A broker that serves requests of brokers. They change what it knows: it is for them alone."""
    environment = {"PYTHONPATH": os.pathsep.join([str(PLUGIN), os.environ.get("PYTHONPATH", "")])}
    overrides = {**OVERRIDES, "kafkapy.metadata.store": "shared-alone"}
    with BrokerProcess(overrides=overrides, environment=environment) as process:
        yield Broker(process)


def is_served(body: Body) -> bool:
    """Whether the broker has that version."""
    served = SERVED.get(body.request.API_KEY) or DATA_PLANE_APIS[body.request.API_KEY]
    return body.version in served.versions


def cost_ns(broker: Broker, client: Client, frame: bytes) -> int:
    """With what the broker does after the answer: letting go of what a request has made is work too."""
    before = rested_ns(broker)
    client.exchange(frame)
    return rested_ns(broker) - before


def rested_ns(broker: Broker) -> int:
    """What the broker has used once it does nothing any more; it has a second for that."""
    used = broker.cpu_ns()
    for _ in range(200):
        time.sleep(0.005)
        later = broker.cpu_ns()
        if later - used < RESTING_NS:
            return later
        used = later
    return used


def superlinear(broker: Broker, client: Client, body: Body, count: int, worst_ratio: int) -> str | None:
    """What a request of a quarter of the entries and the whole one cost, when that grows too fast: the cheapest of some
    tries, as everything else that the broker does meanwhile only adds to it.
    """
    small = large = 1 << 62
    for _ in range(TRIES):
        large = min(large, cost_ns(broker, client, broker.frame(body, count)))
        if large < LITTLE_NS:
            return None
        small = min(small, cost_ns(broker, client, broker.frame(body, count // GROWTH)))
        if large <= worst_ratio * small:
            return None
    return f"{small / 1e6:.1f} ms, then {large / 1e6:.1f} ms"


def too_long_held(broker: Broker, client: Client, body: Body, count: int, limit_ns: int) -> str | None:
    """How long the control loop serves nobody else, when that is too long: the shortest of some tries."""
    longest = 1 << 62
    for _ in range(TRIES):
        frame = broker.frame(body, count)
        waits, _ = asked(broker, client, frame, broker.control_loop_cpu_ns)
        longest = min(longest, int(max(waits)))
        if longest <= limit_ns:
            return None
    return f"{longest / 1e6:.0f} ms"


@pytest.mark.parametrize("key", sorted(KEYS), ids=lambda key: ApiKeys(key).title)
def test_large_requests_of_each_api_are_served_in_proportion_and_beside_others(broker: Broker, key: int) -> None:
    """Of the newest version, with the same entry or entries that differ, and bounds that hold on any machine."""
    assert unbounded(broker, key, by_the_loop=key in SERVED) == {}


@pytest.mark.parametrize("key", sorted(BETWEEN_BROKERS), ids=lambda key: ApiKeys(key).title)
def test_large_requests_of_brokers_are_served_in_proportion_and_beside_others(member: Broker, key: int) -> None:
    assert unbounded(member, key, by_the_loop=True) == {}


def unbounded(broker: Broker, key: int, by_the_loop: bool) -> dict[str, tuple[str | None, str | None]]:
    """The requests that cost too much, or hold the loop for too long."""
    bad = {}
    with broker.client() as client:
        for body in bodies([key], all_versions=False):
            if body.entries not in (Entries.SAME, Entries.DISTINCT):
                continue
            grows = superlinear(broker, client, body, SOME, WORST_RATIO_ANYWHERE)
            holds = too_long_held(broker, client, body, SOME, LONGEST_HOLD_ANYWHERE_NS) if by_the_loop else None
            if grows or holds:
                bad[str(body)] = (grows, holds)
    return bad


@pytest.mark.soak
@pytest.mark.parametrize("key", sorted(KEYS), ids=lambda key: ApiKeys(key).title)
def test_four_times_the_entries_cost_at_most_six_times_the_work(broker: Broker, key: int) -> None:
    bad = {}
    with broker.client() as client:
        for body in filter(is_served, bodies([key], all_versions=True)):
            if grows := superlinear(broker, client, body, GROWN, WORST_RATIO):
                bad[str(body)] = grows
    assert bad == {}


@pytest.mark.soak
@pytest.mark.parametrize("key", sorted(SERVED), ids=lambda key: ApiKeys(key).title)
def test_no_request_holds_the_control_loop(broker: Broker, key: int) -> None:
    """While a large request is served, the loop uses little CPU time before another client is answered."""
    assert holding(broker, key) == {}


@pytest.mark.soak
@pytest.mark.parametrize("key", sorted(BETWEEN_BROKERS), ids=lambda key: ApiKeys(key).title)
def test_no_request_of_a_broker_holds_the_control_loop(member: Broker, key: int) -> None:
    assert holding(member, key) == {}


def holding(broker: Broker, key: int) -> dict[str, str]:
    """The requests that hold the loop for too long."""
    held = {}
    with broker.client() as client:
        for body in bodies([key], all_versions=False):
            if holds := too_long_held(broker, client, body, GROWN, LONGEST_HOLD_NS):
                held[str(body)] = holds
    return held


def asked(broker: Broker, client: Client, frame: bytes, clock: Any) -> tuple[list[float], bytes]:
    """How much the clock moves from another client's ApiVersions to its answer, while the frame is served; its answer.

    What the hypervisor takes from a virtual machine counts as CPU time of whoever ran: one try says little.
    """
    waits = [0.0]
    done = threading.Event()
    small = request_frame(ApiVersionsRequest(), 0)

    def ask() -> None:
        with broker.client() as other:
            while not done.is_set():
                before = clock()
                other.exchange(small)
                waits.append(clock() - before)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        time.sleep(0.005)
        answer = client.exchange(frame)
    finally:
        done.set()
        thread.join()
    return waits, answer


@pytest.mark.soak
def test_another_client_waits_at_most_50_ms(broker: Broker) -> None:
    """On a quiet machine. What is late is tried again at the end."""
    late = [body for body in bodies(KEYS, all_versions=True) if is_served(body) and waits_for(broker, body) is not None]
    assert {str(body): wait for body in late if (wait := waits_for(broker, body)) is not None} == {}


def waits_for(broker: Broker, body: Body) -> str | None:
    """How long another client waits beside a request, the shortest of some tries, when that is too long."""
    waits = []
    for _ in range(TRIES):
        frame = broker.frame(body, 25_000 if body.entries is Entries.LONG else 100_000)
        try:
            with broker.client() as client:
                waits.append(max(asked(broker, client, frame, time.perf_counter)[0]))
        except TimeoutError:
            return "the request has no answer"
        if waits[-1] <= QUIET_WAIT_S:
            return None
    return f"{min(waits) * 1000:.0f} ms"


def test_half_a_million_times_one_partition_is_refused_once_while_others_are_served(broker: Broker) -> None:
    partition = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.Topic(name=NAME, partitions=[partition] * 500_000)]
    )
    frame = request_frame(request, 6)
    longest = 1 << 62
    with broker.client() as client:
        for _ in range(TRIES):
            waits, answer = asked(broker, client, frame, broker.control_loop_cpu_ns)
            (topic,) = ListOffsetsResponse.decode(answer[RESPONSE_HEADER:], 6).topics
            assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(0, 42)]
            longest = min(longest, int(max(waits)))
            if longest < LONGEST_HOLD_ANYWHERE_NS:
                break
    assert longest < LONGEST_HOLD_ANYWHERE_NS


@pytest.mark.soak
def test_a_million_unknown_topics_are_each_refused(broker: Broker) -> None:
    names = [f"{i:07}" for i in range(1_000_000)]
    request = DeleteTopicsRequest(topic_names=names, timeout_ms=1000)
    with broker.client() as client:
        client.socket.settimeout(300)
        answer = client.call(request, 4)
    assert len(answer.responses) == len(names)
    assert {each.error_code for each in answer.responses} == {3}


def test_a_request_of_more_elements_than_kafka_takes_closes_its_connection_only(broker: Broker) -> None:
    request = DeleteTopicsRequest(topic_names=[""] * 1_000_001, timeout_ms=1000)
    with broker.client() as client, pytest.raises((EOFError, ConnectionError, AssertionError)):
        client.call(request, 4)
    with broker.client() as client:
        assert client.call(ApiVersionsRequest(), 0)
