"""Clusters of kafkapy and of one release of Apache Kafka on one ZooKeeper, and what their tests look at."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from interop.conftest import with_jars
from interop.tool_runner import ToolRunner
from peers.apache_kafka import PeerMissingError, java
from system.cluster.processes import Cluster, JavaMember, Member, wait_until

from kafkapy.admin import ConfigResource, KafkaAdminClient

RELEASES = ["2.8", "3.6", "3.9"]
"""Each runs at its own inter.broker.protocol.version."""
TOOLS = "3.9"
"""The release whose tools look at all clusters."""
TOPICS = "org.apache.kafka.tools.TopicCommand"
VERIFY = ("org.apache.kafka.tools.ReplicaVerificationTool", "--topics-include")
VERIFY_BEFORE = {"2.8": ("kafka.tools.ReplicaVerificationTool", "--topic-white-list")}
"""Main class and option of Kafka's verification tool, which sends the newest Fetch version of its release whatever the
brokers know."""
IBP = "inter.broker.protocol.version"
ROUNDS = 60
"""Any live broker may win an election, and two that start quickly may hand the office to each other many times."""


@contextmanager
def mixed_cluster(
    directory: Path,
    release: str,
    java: tuple[int, ...],
    *,
    count: int = 3,
    version: str = "",
    overrides: Mapping[str, str] | None = None,
    prepare: Callable[[Member | JavaMember], None] | None = None,
) -> Iterator[Cluster]:
    """So many brokers on one ZooKeeper, those in `java` of that release of Apache Kafka.

    `version`: the inter.broker.protocol.version, that of the release without it; `prepare`: see Cluster.
    """
    with_jars(release)
    with_jars(TOOLS)
    # A Java broker on a busy machine stands still for seconds.
    defaults = {"zookeeper.session.timeout.ms": "10000", "zookeeper.connection.timeout.ms": "60000"}
    keys = defaults | {IBP: version or release} | dict(overrides or {})
    try:
        made = Cluster(directory, count, java=java, release=release, overrides=keys, prepare=prepare)
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    with made:
        yield made


OURS, JAVA_KIND = "Member", "JavaMember"
"""The kinds of brokers, as `kinds` names them."""


def kinds(cluster: Cluster) -> dict[str, int]:
    """One broker of each kind."""
    return {type(member).__name__: member.broker_id for member in cluster.members.values()}


def make_controller(cluster: Cluster, broker_id: int) -> None:
    """Restart controllers until the broker is one."""
    for _ in range(ROUNDS):
        present = cluster.controller()
        if present == broker_id:
            return
        cluster[present].stop()
        wait_until(lambda present=present: cluster.controller() != present, "another controller is elected")
        cluster[present].start()
        cluster.wait_for_brokers()
    raise AssertionError(f"broker {broker_id} never became the controller")


def topic_config(cluster: Cluster, broker_id: int, topic: str, key: str) -> str:
    """A key of a topic's configuration as one broker has it."""
    with KafkaAdminClient(bootstrap_servers=cluster[broker_id].bootstrap) as admin:
        found = admin.describe_configs([ConfigResource("topic", topic)], config_filter="all")
    return str(found["topic"][topic][key]["value"])


def check_descriptions(cluster: Cluster) -> str:
    """kafka-topics --describe of all topics tells the same from all live brokers; what it tells.

    The order of the topics is of no account: the tool has them in a hash map.
    """
    told: dict[int, list[str]] = {}
    with ToolRunner(TOOLS, "") as tools:

        def alike() -> bool:
            for member in cluster.live:
                tools.bootstrap = member.bootstrap
                told[member.broker_id] = sorted(tools.done(TOPICS, "--describe").splitlines())
            first, *others = told.values()
            return all(each == first for each in others)

        def differences() -> str:
            lines = set.union(*map(set, told.values()))
            return "\n".join(
                f"{line}: only of {[broker for broker, each in told.items() if line in each]}"
                for line in sorted(lines)
                if any(line not in each for each in told.values())
            )

        wait_until(alike, lambda: f"all brokers describe the topics alike: {differences()}")
    return "\n".join(next(iter(told.values())))


def check_replicas(cluster: Cluster, topic: str) -> None:
    """Kafka's verification tool finds no lag and no difference."""
    main, option = VERIFY_BEFORE.get(cluster.release, VERIFY)
    command = java(
        cluster.release, main, "--broker-list", cluster.bootstrap, option, topic, "--time", "-2",
        "--report-interval-ms", "1000",
    )  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as tool:
        lines: list[str] = []
        assert tool.stdout is not None
        reader = threading.Thread(target=lambda: lines.extend(tool.stdout), daemon=True)  # type: ignore[arg-type]
        reader.start()
        try:
            wait_until(
                lambda: any("max lag is 0 " in line for line in list(lines)),
                lambda: f"the tool finds the replicas equal: {lines[-5:]}",
            )
        finally:
            tool.kill()
    assert not any("differ" in line.lower() or "mismatch" in line.lower() for line in lines), lines
