"""kafka-configs for brokers, loggers, topics, groups and client metrics: what it gives on Apache Kafka, it gives here.

The same commands, good and bad, run on 4.4 and on 3.9 with ZooKeeper, and on kafkapy beside each: the same lines and
exit codes. What differs on purpose stands in ONLY_HERE and ITS_OWN with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from interop.config_command import ALL, CONFIGS, SHOWN, added, named, removed
from interop.conftest import JAVA, with_jars
from interop.differential.exchanges import Peer
from interop.tool_runner import Done, ToolRunner
from peers.apache_kafka import ApacheKafka, PeerMissingError
from peers.zookeeper import ZooKeeper
from waiting import wait_until

from kafkapy.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkapy.testing.broker_process import BrokerProcess

pytestmark = [*JAVA, pytest.mark.timeout(1200)]

TOPIC = "org.apache.kafka.tools.TopicCommand"
BROKERS, LOGGERS, TOPICS, GROUPS, METRICS = (
    ("--entity-type", kind) for kind in ("brokers", "broker-loggers", "topics", "groups", "client-metrics")
)

ONE = (*BROKERS, *named("1"))
EVERY = (*BROKERS, ALL)
LOG = (*LOGGERS, *named("1"))
T = (*TOPICS, *named("told"))
G = (*GROUPS, *named("readers"))
M = (*METRICS, *named("pushed"))
PASSWORD = "listener.name.plaintext.ssl.keystore.password=secret"
FILE = "FILE"
"""Stands for a properties file with two keys."""
STEPS: list[tuple[str, ...]] = [
    # One broker, and all.
    (*ONE, *SHOWN),
    (*EVERY, *SHOWN),
    (*BROKERS, *SHOWN),
    (*ONE, *SHOWN, "--all"),
    (*ONE, *added("log.cleaner.backoff.ms=16000", "log.retention.ms=123456789")),
    (*ONE, *SHOWN),
    (*EVERY, *added("log.cleaner.backoff.ms=17000", "log.cleanup.policy=[compact,delete]")),
    (*ONE, *SHOWN),
    (*EVERY, *SHOWN),
    (*BROKERS, *SHOWN),
    (*ONE, *added("leader.replication.throttled.rate=1000000", "listener.name.plaintext.max.connections=500")),
    (*ONE, *SHOWN),
    (*ONE, *SHOWN, "--all"),
    (*ONE, "--alter", "--add-config-file", FILE),
    (*ONE, *SHOWN),
    (*ONE, "--alter", "--add-config-file", "/no/such/file"),
    (*ONE, *added("num.io.threads=9", "num.network.threads=4", "background.threads=8")),
    (*ONE, *SHOWN),
    # What a broker refuses.
    (*ONE, *added("num.io.threads=100")),
    (*ONE, *added("num.io.threads=2")),
    (*ONE, *added("num.io.threads=0")),
    (*ONE, *added("log.dirs=/tmp")),
    (*EVERY, *added("broker.id=5")),
    (*ONE, *added("no.such.key=1")),
    (*ONE, *added("log.cleaner.threads=many")),
    (*ONE, *added("log.retention.ms=")),
    (*ONE, *added("log.retention.ms")),
    (*ONE, *added("ssl.keystore.password=secret")),
    (*EVERY, *added("listener.name.plaintext.ssl.keystore.password=secret")),
    (*ONE, *added(PASSWORD)),
    (*ONE, *SHOWN),
    (*ONE, *removed(PASSWORD.partition("=")[0])),
    (*EVERY, *added("listeners=PLAINTEXT://:1")),
    (*ONE, *added("listeners=OTHER://127.0.0.1:0")),
    (*ONE, *added("listener.security.protocol.map=PLAINTEXT:SSL")),
    (*ONE, *added("advertised.listeners=OTHER://127.0.0.1:1")),
    (*EVERY, *added("log.retention.ms=5", "log.cleaner.backoff.ms=-1")),
    (*EVERY, *added("max.connections=0")),
    (*EVERY, *SHOWN),
    (*ONE, *removed("no.such.key")),
    (*ONE, *removed("log.roll.ms")),
    (*BROKERS, *named("one"), *SHOWN),
    (*BROKERS, *named("one"), *added("log.retention.ms=5")),
    (*BROKERS, *added("log.retention.ms=5")),
    (*ONE, *added("log.retention.ms=5", "log.retention.ms=6")),
    (*ONE, *SHOWN),
    (*ONE, *added("log.roll.ms=7000000"), "--delete-config", "log.retention.ms"),
    (*ONE, *SHOWN),
    (*ONE, *removed(
        "log.cleaner.backoff.ms", "log.roll.ms", "leader.replication.throttled.rate",
        "listener.name.plaintext.max.connections", "num.io.threads", "num.network.threads", "background.threads",
    )),
    (*EVERY, *removed("log.cleaner.backoff.ms", "log.cleanup.policy", "log.retention.ms")),
    (*BROKERS, *SHOWN),
    # Loggers.
    (*LOG, *added("root=DEBUG")),
    (*LOG, *added("root=LOUD")),
    (*LOG, *added("no.such.logger=INFO")),
    (*LOG, *removed("root")),
    (*LOG, *added("root=INFO")),
    (*LOGGERS, *named("one"), *SHOWN),
    (*LOGGERS, ALL, *SHOWN),
    (*LOGGERS, *SHOWN),
    # Topics.
    (TOPIC, "--create", "--topic", "told", "--partitions", "2"),
    (*T, *SHOWN),
    (*T, *added("retention.ms=1234", "cleanup.policy=[compact,delete]")),
    (*T, *SHOWN),
    (*T, *SHOWN, "--all"),
    (*TOPICS, *SHOWN),
    (*T, *added("leader.replication.throttled.replicas=[0:1,1:1]")),
    (*T, *SHOWN),
    (*T, *added("retention.ms=soon")),
    (*T, *added("no.such.topic.key=1")),
    (*T, *added("retention.ms=5", "cleanup.policy=shred")),
    (*T, *removed("no.such.key")),
    (*T, *removed("segment.ms")),
    (*TOPICS, *named("missing"), *SHOWN),
    (*TOPICS, *named("missing"), *added("retention.ms=5")),
    (*TOPICS, *named("a/b"), *SHOWN),
    (*TOPICS, *named("a/b"), *added("retention.ms=5")),
    (*TOPICS, ALL, *added("retention.ms=5")),
    (*TOPICS, *added("retention.ms=5")),
    (*T, *removed("retention.ms", "cleanup.policy", "leader.replication.throttled.replicas")),
    (*T, *SHOWN),
    # Groups.
    (*G, *SHOWN),
    (*G, *added("consumer.session.timeout.ms=50000", "consumer.heartbeat.interval.ms=6000")),
    (*G, *SHOWN),
    (*G, *SHOWN, "--all"),
    (*GROUPS, *SHOWN),
    (*G, *added("consumer.session.timeout.ms=1")),
    (*G, *added("consumer.session.timeout.ms=many")),
    (*G, *added("no.such.group.key=1")),
    (*G, *removed("no.such.key")),
    (*GROUPS, ALL, *added("consumer.session.timeout.ms=50000")),
    (*GROUPS, *named("nobody"), *SHOWN),
    (*G, *removed("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms")),
    (*G, *SHOWN),
    # Subscriptions to clients' metrics.
    (*M, *SHOWN),
    (*M, *added("metrics=[org.apache.kafka.,b.]", "interval.ms=60000", "match=[client_id=a.*,client_software_name=x]")),
    (*M, *SHOWN),
    (*METRICS, *SHOWN),
    (*M, *added("interval.ms=5")),
    (*M, *added("match=[nobody=x]")),
    (*M, *added("match=[client_id=(]")),
    (*M, *added("no.such.metrics.key=1")),
    (*METRICS, ALL, *added("interval.ms=60000")),
    (*METRICS, *added("interval.ms=60000")),
    (*M, *removed("match")),
    (*M, *SHOWN),
    (*M, *removed("metrics", "interval.ms")),
    (*METRICS, *SHOWN),
]  # fmt: skip
"""Commands with kafka-configs, or with the tool that comes first."""
UNREAD = "A key that nobody reads is refused here; Kafka stores it."
LOCKED_OUT = "A limit that locks every client out is refused here; Kafka takes it."
ONLY_HERE = {
    ("3.9", "no.such.key=1"): UNREAD,
    ("4.x", "no.such.key=1"): UNREAD,
    ("3.9", "max.connections=0"): LOCKED_OUT,
    ("4.x", "max.connections=0"): LOCKED_OUT,
}
"""(release, end of the command) that a broker of Apache Kafka carries out and kafkapy refuses, and why."""
NOT_IN_3_9 = ("groups", "client-metrics")
"""Types of entities that brokers of 3.9 with ZooKeeper do not have."""
ITS_OWN = frozenset((
    "advertised.listeners", "broker.id", "controller.listener.names", "controller.quorum.voters",
    "listeners", "log.dirs", "metric.reporters", "metrics.listeners", "min.insync.replicas", "node.id",
    "process.roles", "group.coordinator.rebalance.protocols", "zookeeper.connect",
))  # fmt: skip
"""Keys that each broker has to have its own values for, those of Java's classes and of KRaft's eligible leaders."""


class Pair(NamedTuple):
    """Fresh brokers: kafkapy, and Apache Kafka of a release."""

    version: str
    ours: Any
    theirs: Any
    file: Path


@pytest.fixture(scope="module", params=["3.9", "4.x"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """With 3.9, both keep their metadata in a ZooKeeper."""
    version, place = with_jars(request.param), tmp_path_factory.mktemp("config-tools")
    store, keys = None, {"num.network.threads": "3", "num.io.threads": "8"}
    if version != "3.9":
        keys |= {"share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1"}
    if version == "3.9":
        try:
            store = ZooKeeper(place / "zookeeper").__enter__()
        except PeerMissingError as missing:
            pytest.skip(str(missing))
    theirs = ApacheKafka(version, place / "apache", keys, zookeeper=f"{store.connect}/apache" if store else "")
    own = {"zookeeper.connect": f"{store.connect}/kafkapy", "kafkapy.metadata.store": "zookeeper"} if store else {}
    ours = BrokerProcess(place / "kafkapy", keys | own)
    file = place / "more.properties"
    file.write_text("log.roll.ms=6000000\nlog.retention.ms=987654321\n")
    try:
        theirs.start()
        ours.start()
        yield Pair(version, ours, theirs, file)
    finally:
        ours.remove()
        theirs.remove()
        if store:
            store.__exit__(None, None, None)


_KEY = re.compile(r"\s+(\S+?)=.* sensitive=")
_ERROR = re.compile(r".*org\.apache\.kafka\.common\.errors\.(\w+): ")


def outcome(done: Done, bootstrap: str) -> tuple[int, list[str]]:
    """Exit code and lines, without addresses and Java's stacks. Of an error, its class: the words are each broker's."""
    lines = []
    for line in done.text.replace(bootstrap, "BOOTSTRAP").splitlines():
        key, error = _KEY.match(line), _ERROR.match(line)
        if key is not None and (key[1].startswith(("kafkapy.", "console.")) or key[1] in ITS_OWN):
            continue
        if line.strip() and not re.match(r"\s+(at |\.\.\. )", line):
            lines.append(error[1] if error is not None else line)
    return done.code, sorted(lines)


def test_the_tool_gives_what_it_gives_on_apache_kafka(pair: Pair) -> None:
    found: list[str] = []
    with (
        ToolRunner(pair.version, pair.ours.bootstrap) as ours,
        ToolRunner(pair.version, pair.theirs.bootstrap) as theirs,
    ):
        for words in STEPS:
            main, *step = words if words[0] == TOPIC else (CONFIGS, *words)
            if pair.version == "3.9" and (step[1] in NOT_IN_3_9 or "--all" in step):
                continue
            step = [str(pair.file) if word == FILE else word for word in step]
            refused = (pair.version, step[-1]) in ONLY_HERE
            if not refused:
                wanted = outcome(theirs(main, *step), pair.theirs.bootstrap)
                if "--alter" in step or main == TOPIC:
                    settled(pair.theirs.bootstrap)
            got = outcome(ours(main, *step), pair.ours.bootstrap)
            if refused:
                assert (got[0], "InvalidRequestException" in got[1]) == (1, True), got
            elif got != wanted:
                only = [sorted(set(one[1]) - set(other[1])) for one, other in ((got, wanted), (wanted, got))]
                found.append(f"{' '.join(step)}\n  ours   {got[0]} {only[0]}\n  theirs {wanted[0]} {only[1]}")
    assert not found, f"{len(found)} of {len(STEPS)} commands differ\n" + "\n".join(found)


def settled(bootstrap: str) -> None:
    """Return when the broker shows the same configurations several times: a change arrives a moment later."""
    peer = Peer("apache", bootstrap)
    listed = [(2, "told"), (4, "1"), (4, "")]
    resources = [DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name) for kind, name in listed]
    request = DescribeConfigsRequest(resources=resources)
    seen: list[str] = []

    def is_steady() -> bool:
        try:
            seen.append(str(peer.setup(request, 4).results))
        except ConnectionError:
            peer.close()  # by a network thread that ended
        return len(seen) >= 12 and len(set(seen[-12:])) == 1

    wait_until(is_steady, "the configurations are those of the last change")
    peer.close()
