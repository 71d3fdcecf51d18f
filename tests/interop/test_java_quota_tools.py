"""kafka-configs for users, client ids and addresses: kafkapy and Apache Kafka give the same outputs and exit codes.

The same commands, good and bad, run on 4.4 and on 3.9 with ZooKeeper, and on kafkapy beside each. What differs on
purpose stands in OTHERWISE with its reason. Automatic topics are compared too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from interop.config_command import ALL, CONFIGS, SHOWN, added, named, removed
from interop.conftest import JAVA, with_jars
from interop.differential.client_quotas import entry
from interop.differential.exchanges import Peer
from interop.tool_runner import Done, ToolRunner
from peers.apache_kafka import ApacheKafka, PeerMissingError
from peers.zookeeper import ZooKeeper
from waiting import wait_until

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kafkapy.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.testing.broker_process import BrokerProcess

pytestmark = [*JAVA, pytest.mark.timeout(1200)]

USERS, CLIENTS, IPS = (("--entity-type", kind) for kind in ("users", "clients", "ips"))

PRODUCE, FETCH, TIME, MUTATIONS, CONNECTIONS = (
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
    "connection_creation_rate",
)  # fmt: skip
STEPS: list[tuple[str, ...]] = [
    # Users.
    (*USERS, *named("alice"), *added(f"{PRODUCE}=1024", f"{FETCH}=2048")),
    (*USERS, *named("alice"), *SHOWN),
    (*USERS, *named("alice"), *added(f"{PRODUCE}=4096", f"{TIME}=150.5")),
    (*USERS, *named("alice"), *SHOWN),
    (*USERS, *named("bob"), *added(f"{MUTATIONS}=2.5")),
    (*USERS, *SHOWN),
    (*USERS, ALL, *added(f"{PRODUCE}=1000000")),
    (*USERS, ALL, *SHOWN),
    (*USERS, *SHOWN),
    (*USERS, *named("odd name/%"), *added(f"{PRODUCE}=77")),
    (*USERS, *named("odd name/%"), *SHOWN),
    # Client ids.
    (*CLIENTS, *named("app"), *added(f"{PRODUCE}=1024", f"{TIME}=0.5")),
    (*CLIENTS, *named("app"), *SHOWN),
    (*CLIENTS, ALL, *added(f"{FETCH}=9223372036854775807")),
    (*CLIENTS, ALL, *SHOWN),
    (*CLIENTS, *SHOWN),
    # Both.
    (*USERS, *named("alice"), *CLIENTS, *named("app"), *added(f"{PRODUCE}=1")),
    (*USERS, *named("alice"), *CLIENTS, *named("app"), *SHOWN),
    (*USERS, *named("alice"), *CLIENTS, ALL, *added(f"{PRODUCE}=2")),
    (*USERS, *named("alice"), *CLIENTS, *SHOWN),
    (*USERS, ALL, *CLIENTS, *named("app"), *added(f"{PRODUCE}=3")),
    (*USERS, ALL, *CLIENTS, ALL, *added(f"{PRODUCE}=4")),
    (*USERS, ALL, *CLIENTS, ALL, *SHOWN),
    (*USERS, *CLIENTS, *SHOWN),
    # Addresses.
    (*IPS, *named("10.1.2.3"), *added(f"{CONNECTIONS}=20")),
    (*IPS, *named("10.1.2.3"), *SHOWN),
    (*IPS, *named("localhost"), *added(f"{CONNECTIONS}=30")),
    (*IPS, ALL, *added(f"{CONNECTIONS}=1000")),
    (*IPS, ALL, *SHOWN),
    (*IPS, *SHOWN),
    # Nobody has it.
    (*USERS, *named("nobody"), *SHOWN),
    (*CLIENTS, *named("nobody"), *SHOWN),
    (*IPS, *named("10.9.9.9"), *SHOWN),
    # Bad values.
    (*USERS, *named("alice"), *added(f"{PRODUCE}=-1")),
    (*USERS, *named("alice"), *added(f"{PRODUCE}=0")),
    (*USERS, *named("alice"), *added(f"{PRODUCE}=1.5")),
    (*USERS, *named("alice"), *added(f"{PRODUCE}=NaN")),
    (*USERS, *named("alice"), *added(f"{TIME}=NaN")),
    (*USERS, *named("alice"), *added(f"{TIME}=Infinity")),
    (*USERS, *named("alice"), *added(f"{PRODUCE}=Infinity")),
    (*USERS, *named("alice"), *added(f"{PRODUCE}=1e30")),
    (*USERS, *named("alice"), *added(f"{PRODUCE}=much")),
    (*USERS, *named("alice"), *added(f"{PRODUCE}=")),
    (*USERS, *named("alice"), *added(PRODUCE)),
    (*IPS, *named("10.1.2.3"), *added(f"{CONNECTIONS}=-5")),
    (*IPS, *named("10.1.2.3"), *added(f"{CONNECTIONS}=1.5")),
    (*IPS, *named("10.1.2.3"), *added(f"{CONNECTIONS}=1e12")),
    (*IPS, *named("not an address"), *added(f"{CONNECTIONS}=5")),
    (*IPS, *named("no.such.host.invalid"), *added(f"{CONNECTIONS}=5")),
    # Bad keys.
    (*USERS, *named("alice"), *added("speed=1")),
    (*USERS, *named("alice"), *added(f"{CONNECTIONS}=1")),
    (*CLIENTS, *named("app"), *added("retention.ms=1")),
    (*IPS, *named("10.1.2.3"), *added(f"{PRODUCE}=1")),
    (*USERS, *named("alice"), *added(f"{FETCH}=5", "speed=1")),
    (*USERS, *named("alice"), *SHOWN),
    (*USERS, *named("alice"), *removed("speed")),
    (*USERS, *named("alice"), *removed(MUTATIONS)),
    (*CLIENTS, *named("nobody"), *removed(PRODUCE)),
    # Bad entities.
    (*IPS, *named("10.1.2.3"), *USERS, *named("alice"), *added(f"{CONNECTIONS}=5")),
    (*IPS, *USERS, *SHOWN),
    (*USERS, *named("alice"), *USERS, *named("bob"), *added(f"{PRODUCE}=5")),
    (*USERS, *named(""), *added(f"{PRODUCE}=5")),
    (*USERS, *added(f"{PRODUCE}=5")),
    (*CLIENTS, *added(f"{PRODUCE}=5")),
    # Duplicates, and both changes at once.
    (*USERS, *named("alice"), *added(f"{PRODUCE}=5", f"{PRODUCE}=6")),
    (*USERS, *named("alice"), *SHOWN),
    (*USERS, *named("alice"), *removed(PRODUCE, PRODUCE)),
    (*USERS, *named("alice"), *added(f"{PRODUCE}=7"), "--delete-config", FETCH),
    (*USERS, *named("alice"), *SHOWN),
    (*USERS, *named("alice"), *added(f"{FETCH}=7"), "--delete-config", FETCH),
    (*USERS, *named("alice"), *SHOWN),
    # Removal.
    (*USERS, *named("alice"), *removed(PRODUCE, FETCH, TIME)),
    (*USERS, *named("alice"), *SHOWN),
    (*USERS, *named("alice"), *CLIENTS, *named("app"), *removed(PRODUCE)),
    (*USERS, *named("alice"), *CLIENTS, ALL, *removed(PRODUCE)),
    (*USERS, ALL, *removed(PRODUCE)),
    (*CLIENTS, ALL, *removed(FETCH)),
    (*IPS, ALL, *removed(CONNECTIONS)),
    (*IPS, *named("10.1.2.3"), *removed(CONNECTIONS)),
    (*USERS, *CLIENTS, *SHOWN),
    (*USERS, *SHOWN),
    (*CLIENTS, *SHOWN),
    (*IPS, *SHOWN),
]  # fmt: skip
BETWEEN_RELEASES = "3.9 says this in other words than 4.4, whose words these are."
OTHERWISE: dict[tuple[str, str], str] = {
    ("3.9", f"{PRODUCE}=-1"): BETWEEN_RELEASES,
    ("3.9", f"{PRODUCE}=1.5"): BETWEEN_RELEASES,
    ("3.9", f"{PRODUCE}=Infinity"): BETWEEN_RELEASES,
    ("3.9", f"{PRODUCE}=1e30"): BETWEEN_RELEASES,
    ("3.9", f"{CONNECTIONS}=-5"): BETWEEN_RELEASES,
    ("3.9", f"{CONNECTIONS}=1.5"): BETWEEN_RELEASES,
    ("3.9", f"{CONNECTIONS}=1e12"): BETWEEN_RELEASES,
}
"""(release, end of the command) with other words on purpose, and why; the exit code is the same."""
TAKEN_BY_3_9 = (f"{PRODUCE}=0", f"{PRODUCE}=NaN", f"{TIME}=NaN", f"{TIME}=Infinity", f"{PRODUCE},{PRODUCE}")
"""Ends of commands that 3.9 carries out; 4.4 refuses them. 3.9 does not get them: they would change what follows."""


class Pair(NamedTuple):
    """Brokers without any quota: kafkapy, and Apache Kafka of a release."""

    version: str
    ours: Any
    theirs: Any


@pytest.fixture(scope="module", params=["3.9", "4.x"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    version, place = with_jars(request.param), tmp_path_factory.mktemp("quota-tools")
    store = None
    if version == "3.9":
        try:
            store = ZooKeeper(place / "zookeeper").__enter__()
        except PeerMissingError as missing:
            pytest.skip(str(missing))
    keys = {"num.partitions": "3"}
    theirs = ApacheKafka(version, place / "apache", keys, zookeeper=store.connect if store else "")
    ours = BrokerProcess(place / "kafkapy", keys)
    try:
        theirs.start()
        ours.start()
        yield Pair(version, ours, theirs)
    finally:
        ours.remove()
        theirs.remove()
        if store:
            store.__exit__(None, None, None)


def outcome(done: Done, bootstrap: str) -> tuple[int, list[str]]:
    """Exit code and lines, without the address and the places in Java's code."""
    lines = done.text.replace(bootstrap, "BOOTSTRAP").splitlines()
    lines = [line for line in lines if line.strip() and not re.match(r"\s+(at |\.\.\. )", line)]
    return done.code, sorted(_in_order(line) for line in lines)


def _in_order(line: str) -> str:
    """The line with its quotas in order: that of Kafka is the order of a hash table."""
    entity, found, quotas = line.partition(" are ")
    return entity + found + ", ".join(sorted(quotas.split(", ")))


def test_the_tool_gives_what_it_gives_on_apache_kafka(pair: Pair) -> None:
    found: list[str] = []
    covered: set[tuple[str, str]] = set()
    with (
        ToolRunner(pair.version, pair.ours.bootstrap) as ours,
        ToolRunner(pair.version, pair.theirs.bootstrap) as theirs,
    ):
        for step in STEPS:
            command = " ".join(step)
            if pair.version == "3.9" and command.endswith(TAKEN_BY_3_9):
                continue
            wanted = outcome(theirs(CONFIGS, *step), pair.theirs.bootstrap)
            if "--alter" in step and pair.version != "3.9":
                settled(pair.theirs.bootstrap)
            got = outcome(ours(CONFIGS, *step), pair.ours.bootstrap)
            if got == wanted:
                continue
            key = (pair.version, step[-1])
            if key in OTHERWISE and got[0] == wanted[0]:
                covered.add(key)
            else:
                found.append(f"{command}\n  ours   {got}\n  theirs {wanted}")
    assert not found, f"{len(found)} of {len(STEPS)} commands differ\n" + "\n".join(found)
    assert covered == {key for key in OTHERWISE if key[0] == pair.version}


def settled(bootstrap: str) -> None:
    """Return when the broker shows the same quotas several times: with KRaft a change arrives a moment later."""
    peer = Peer("apache", bootstrap)
    request = DescribeClientQuotasRequest(components=[], strict=False)
    seen: list[str] = []

    def is_steady() -> bool:
        seen.append(str(peer.setup(request, 1).entries))
        return len(seen) >= 12 and len(set(seen[-12:])) == 1

    wait_until(is_steady, "the quotas are those of the last change")
    peer.close()


def test_automatic_topics_count_as_on_apache_kafka(pair: Pair) -> None:
    """On 4.4. With ZooKeeper, 3.9 counts them too, but creates them all the same."""
    if pair.version == "3.9":
        pytest.skip("3.9 with ZooKeeper refuses no automatic topic")
    for name, broker in (("kafkapy", pair.ours), ("apache", pair.theirs)):
        peer = Peer(name, broker.bootstrap)

        def put(rate: float | None, peer: Peer = peer) -> None:
            changed = entry(("user", "ANONYMOUS"), ops={MUTATIONS: rate})
            assert peer.setup(AlterClientQuotasRequest(entries=[changed], validate_only=False), 1)
            if peer.is_apache:
                settled(peer.bootstrap)

        def asked(topic: str, peer: Peer = peer) -> tuple[int, int]:
            request = MetadataRequest(topics=[MetadataRequest.Topic(name=topic)], allow_auto_topic_creation=True)
            answer = peer.setup(request, 8)
            return answer.topics[0].error_code, answer.throttle_time_ms

        def there(topic: str) -> bool:
            return asked(topic)[0] == ErrorCode.NONE

        put(0.001)
        wait_until(lambda: there("automatic-1"), "the bucket holds the first topic")
        answers = {asked("automatic-2") for _ in range(100)}
        assert answers == {(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)}, peer.name
        put(None)
        wait_until(lambda: there("automatic-2"), "nothing bounds topics any more")
        peer.close()
