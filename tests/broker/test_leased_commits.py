"""OffsetCommits that network threads serve by a lease of the group coordinator."""

from __future__ import annotations

import importlib
import pkgutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from broker.commit_life import PARTITIONS, STABLE, UNSTABLE, Life, commit, join
from broker.conftest import Client, config
from waiting import wait_until

import kafkapy.broker
import kafkapy.coordinator
from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.offset_delete import OffsetDeleteRequest
from kafkapy.protocol.messages.sync_group import SyncGroupRequest

STEPS = 120
KEYS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "num.network.threads": "2",
}


def started(directory: Path, **keys: str) -> KafkaServer:
    return KafkaServer(config(directory, **{key.replace(".", "_"): value for key, value in (KEYS | keys).items()}))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """It lends."""
    # Two brokers of one process would import at once, in pytest's import hook, which Python 3.11 may not survive.
    for package in (kafkapy.broker, kafkapy.coordinator):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)
    with started(tmp_path_factory.mktemp("lends")) as server:
        yield server


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """It does not lend: network threads compress nothing."""
    with started(tmp_path_factory.mktemp("plain"), **{"offsets.topic.compression.codec": "1"}) as server:
        yield server


def ready(client: Client, group: str = "any") -> Client:
    """The client, once the broker coordinates groups."""
    asked = FindCoordinatorRequest(coordinator_keys=[group])
    wait_until(lambda: not client(asked, 4).coordinators[0].error_code, "groups are coordinated")
    wait_until(
        lambda: client(commit("probe", {("none", 0): 1}), 8).topics[0].partitions[0].error_code
        == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "the offsets of groups are loaded",
    )
    return client


def leased(server: KafkaServer) -> int:
    """Offsets that network threads have stored."""
    count: int = server.context.coordinators.group.leased_commits
    return count


def members(server: KafkaServer, group: str) -> Mapping[str, object]:
    coordinator = server.context.coordinators.group
    return coordinator.runtime.shards()[coordinator.partition_for(group)].groups[group].members


def error_of(client: Client, *args: object, version: int = 8, **named: object) -> int:
    answer = client(commit(*args, **named), version)  # type: ignore[arg-type]
    code: int = answer.topics[0].partitions[0].error_code
    return code


def lease_of(client: Client, server: KafkaServer, group: str, **named: object) -> None:
    """Commits until network threads store what the group commits."""

    def is_leased() -> bool:
        before = leased(server)
        assert error_of(client, group, {(STABLE, 0): 1}, **named) == 0
        return leased(server) > before

    wait_until(is_leased, "the group has a lease")


@pytest.fixture
def client(broker: KafkaServer, connect: Callable[..., Client]) -> Client:
    made = ready(connect())
    for name in (STABLE, UNSTABLE):
        if not made.topic_id(name).int:
            made.create_topic(name, PARTITIONS)
    return made


def joined(client: Client, group: str, session_timeout_ms: int = 30_000) -> tuple[str, int]:
    """A member alone in its group, and its generation."""
    answer = client(join(group, session_timeout_ms=session_timeout_ms), 5)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = client(join(group, answer.member_id, session_timeout_ms=session_timeout_ms), 5)
    assert answer.error_code == 0
    request = SyncGroupRequest(group_id=group, generation_id=answer.generation_id, member_id=answer.member_id)
    assert client(request, 3).error_code == 0
    return answer.member_id, answer.generation_id


@pytest.mark.parametrize("seed", range(6))
def test_the_answers_are_those_of_a_broker_without_leases(
    broker: KafkaServer, plain: KafkaServer, client: Client, connect: Callable[..., Client], seed: int
) -> None:
    other = ready(connect(plain))
    for name in (STABLE, UNSTABLE):
        if not other.topic_id(name).int:
            other.create_topic(name, PARTITIONS)
    with_leases, without = Life(client, seed), Life(other, seed)
    before = leased(broker)
    for number in range(STEPS):
        assert (number, with_leases.step()) == (number, without.step())
    assert leased(broker) > before
    assert leased(plain) == 0
    for group in with_leases.groups:
        assert with_leases.offsets(group) == without.offsets(group)


def test_a_broker_that_starts_again_has_the_offsets(tmp_path: Path) -> None:
    group = "group"
    for start in range(3):
        with started(tmp_path) as server:
            endpoint = server.endpoints[0]
            client = ready(Client(endpoint.host, endpoint.port), group)
            if start == 0:
                client.create_topic(STABLE, PARTITIONS)
            else:
                assert (STABLE, 0, 100 + start - 1) in [each[:3] for each in Life(client, 0).offsets(group)[1]]  # type: ignore[index]
            lease_of(client, server, group)
            for offset in range(50, 101):
                assert error_of(client, group, {(STABLE, 0): offset + start}) == 0
            assert leased(server) >= 51
            client.close()


def commits_for(client: Client, group: str, member: str, generation: int, session_ms: int) -> list[int] | None:
    """The errors of commits over two sessions; None when this thread stood still for most of one."""
    codes, longest, began = [], 0.0, time.monotonic()
    last = began
    while last - began < 2 * session_ms / 1000:
        time.sleep(session_ms / 20_000)
        codes.append(error_of(client, group, {(STABLE, 0): 7}, member=member, generation=generation))
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    return codes if longest < session_ms / 2000 else None


def test_a_member_lives_by_its_commits_alone(broker: KafkaServer, client: Client) -> None:
    """Two sessions long nobody else than a network thread hears of the member."""
    session_ms = 4_000
    for number in range(20):
        group = f"by-commits-{number}"
        member, generation = joined(client, group, session_ms)
        lease_of(client, broker, group, member=member, generation=generation)
        codes = commits_for(client, group, member, generation, session_ms)
        if codes is not None:
            break
    else:
        pytest.fail("the machine stood still in each of 20 tries")
    assert set(codes) == {0}
    # The check alone must not keep it.
    wait_until(lambda: member not in members(broker, group), "the silent member is removed")
    unknown = error_of(client, group, {(STABLE, 0): 9}, member=member, generation=generation)
    assert unknown == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_commit_while_the_group_is_looked_at_and_changed(
    broker: KafkaServer, client: Client, connect: Callable[..., Client]
) -> None:
    """Each connection commits growing offsets of its own partition; the group's offsets never go back."""
    group, rounds = "busy", 300
    lease_of(client, broker, group)
    failures: list[object] = []

    def run(number: int, own: Client) -> None:
        for offset in range(1, rounds + 1):
            if code := error_of(own, group, {(STABLE, number): offset}):
                failures.append((number, offset, code))

    other = OffsetDeleteRequest.Topic.Partition(partition_index=0)
    topic = OffsetDeleteRequest.Topic(name=UNSTABLE, partitions=[other])
    recalls = OffsetDeleteRequest(group_id=group, topics=[topic])
    before = leased(broker)
    threads = [threading.Thread(target=run, args=(number, connect())) for number in range(PARTITIONS)]
    for thread in threads:
        thread.start()
    seen = [0] * PARTITIONS
    life = Life(client, 0)
    while any(thread.is_alive() for thread in threads):
        for name, number, offset, *_ in life.offsets(group)[1]:  # type: ignore[index]
            if name == STABLE:
                assert offset >= seen[number]
                seen[number] = offset
        # An operation that writes recalls the lease.
        client(recalls, 0)
    for thread in threads:
        thread.join()
    assert failures == []
    assert {each[1]: each[2] for each in life.offsets(group)[1]} == dict.fromkeys(range(PARTITIONS), rounds)  # type: ignore[index]
    assert leased(broker) > before


def test_offsets_of_a_deleted_topic_do_not_come_back(broker: KafkaServer, client: Client) -> None:
    group = "of-a-deleted-topic"
    client.create_topic("gone", 1)
    for offset in range(20):
        assert error_of(client, group, {("gone", 0): offset}) == 0
    life = Life(client, 0)
    assert life.offsets(group)[1] != []  # type: ignore[index]
    client(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=30_000), 4)
    wait_until(lambda: life.offsets(group)[1] == [], "the offsets are forgotten")  # type: ignore[index]
    assert error_of(client, group, {("gone", 0): 30}) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    client.create_topic("gone", 1)
    assert life.offsets(group)[1] == []  # type: ignore[index]
