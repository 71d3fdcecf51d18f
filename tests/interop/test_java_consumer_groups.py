"""Kafka's own consumer with group.protocol=consumer (KIP-848) against kafkapy, alone, beside librdkafka's and in the
place of classic ones, and what Kafka's tools say of such groups (make interop-java).
"""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from interop.conftest import JAVA, make_broker, run_java
from interop.members import ConsumerProtocolMember, Member
from interop.test_consumer_groups import GROUP_KEYS
from interop.test_groups import PARTITIONS, TIMEOUT_S, Source, read_on, wait_for, wait_for_all, wait_until_shared
from peers.apache_kafka import java

pytestmark = JAVA

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
QUIET = ("-Xmx256m", "-XX:TieredStopAtLevel=1")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    running = make_broker(tmp_path_factory.mktemp("java-consumer-groups"), **GROUP_KEYS)
    running.start()
    yield running
    running.stop()
    running.remove()


class JavaMember(Member):
    """Kafka's console consumer, which leaves when it is asked to end. Options are the consumer's properties."""

    name = "java"

    def __init__(self, version: str, broker: Any, topic: str, protocol: str = "consumer", **options: str) -> None:
        super().__init__(broker.bootstrap, topic, topic, **{"group.protocol": protocol, **options})
        properties = {"fetch.max.wait.ms": "100", "metadata.max.age.ms": "1000", **self.options}
        if protocol == "classic":
            properties |= {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}
        arguments = ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--group", topic, "--from-beginning"]
        for key, value in properties.items():
            arguments += ["--consumer-property", f"{key}={value}"]
        self._command = java(version, CONSUMER, *arguments, options=QUIET)

    def start(self) -> Member:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # run() closes it
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=self._said)
        return super().start()

    def run(self) -> None:
        with self._process as process, self._said as said:
            assert process.stdout is not None
            for line in process.stdout:
                self.values.append(line.strip())
            code = process.wait()
            said.seek(0)
            assert self._stop.is_set(), f"the consumer ended with {code}: {said.read()[-2000:].decode()}"

    def stop(self) -> None:
        self._stop.set()
        self._process.send_signal(signal.SIGTERM)
        super().stop()

    def abandon(self) -> None:
        super().abandon()
        self._process.kill()

    def kill(self) -> None:
        """End it without a word to the broker."""
        self.abandon()
        self.join()


def started(version: str, broker: Any, topic: str, protocol: str = "consumer", **options: str) -> JavaMember:
    made = JavaMember(version, broker, topic, protocol, **options)
    made.start()
    return made


def tool(version: str, broker: Any, *arguments: str, converts: bool = False) -> list[list[str]]:
    """What the group tool prints, line by line in words, less its heading. It asks for a group of the consumer
    protocol, then for a classic one, and finds none when the group `converts` in between: nothing is what it says."""
    patience = ["--timeout", "60000"]  # five seconds are the tool's own
    said = run_java(version, GROUPS, "--bootstrap-server", broker.bootstrap, *arguments, *patience, options=QUIET)
    if converts and ("does not exist" in said or "is not a consumer group" in said):
        return []
    assert "Error:" not in said, said[-1000:]
    return [line.split() for line in said.splitlines() if line.strip()]


def described(version: str, broker: Any, group: str, *how: str, converts: bool = False) -> list[list[str]]:
    lines = tool(version, broker, "--describe", "--group", group, *how, converts=converts)
    return [line for line in lines if line[0] == group]


def wait_for_state(version: str, broker: Any, group: str, ready: Callable[[list[str]], bool]) -> list[str]:
    """The line that --describe --state prints of a group, once it is as it should be."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        lines = described(version, broker, group, "--state", converts=True)
        if lines and ready(lines[0]):
            return lines[0]
        assert time.monotonic() < deadline, lines


def test_a_java_consumer_reads_and_tools_see_its_group(version: str, broker: Any, topic: str) -> None:
    source = Source(broker.bootstrap, topic)
    source.send(60)
    member = started(version, broker, topic, **{"client.id": "reader", "group.remote.assignor": "range"})
    wait_for_all(source, [member])
    state = wait_for_state(version, broker, topic, lambda line: "Stable" in line and line[-1] == "1")
    assert "range" in state
    listed = [line for line in tool(version, broker, "--list", "--type") if line[0] == topic]
    assert [line[1].lower() for line in listed] == ["consumer"]
    (one,) = described(version, broker, topic, "--members", "--verbose")
    assert "reader" in one and "/127.0.0.1" in one and str(PARTITIONS) in one
    expected = "(0,1,2,3,4,5)" if version == "3.9" else f"{topic}:0,1,2,3,4,5"  # 3.9 prints no topics
    assert expected in one
    rows = described(version, broker, topic)
    assert sorted(row[2] for row in rows) == [str(number) for number in range(PARTITIONS)]
    member.stop()
    wait_for_state(version, broker, topic, lambda line: "Empty" in line)
    assert {row[3] for row in described(version, broker, topic)} == {"10"}
    read_on(ConsumerProtocolMember, broker, topic, source)


def test_java_and_librdkafka_share_a_group(version: str, broker: Any, topic: str) -> None:
    source = Source(broker.bootstrap, topic)
    other = ConsumerProtocolMember(broker.bootstrap, topic, topic)
    other.start()
    wait_until_shared([other])
    member = started(version, broker, topic)
    wait_for(lambda: len(other.partitions) == PARTITIONS // 2, [member, other], "the partitions are not shared")
    source.send(120)
    wait_for_all(source, [member, other])
    assert len(described(version, broker, topic, "--members")) == 2
    member.kill()
    wait_until_shared([other])  # after the session timeout
    before = set(source.sent)
    source.send(60)
    wait_for(lambda: source.sent - before <= set(other.values), [other], "records are missing")
    third = started(version, broker, topic)
    wait_for(lambda: len(other.partitions) == PARTITIONS // 2, [third, other], "the partitions are not shared")
    other.stop()
    source.send(60)
    wait_for_all(source, [member, other, third])
    third.stop()


def test_java_consumers_are_upgraded_one_by_one(version: str, broker: Any, topic: str) -> None:
    source = Source(broker.bootstrap, topic)
    everybody = [started(version, broker, topic, "classic") for _ in range(2)]
    old = list(everybody)
    source.send(60)
    wait_for_all(source, everybody)
    wait_for_state(version, broker, topic, lambda line: "Stable" in line and line[-1] == "2")
    while old:
        everybody.append(started(version, broker, topic))
        wait_for_state(version, broker, topic, lambda line: "Stable" in line and line[-1] == "3")
        source.send(60)
        wait_for_all(source, everybody)
        old.pop().stop()
        wait_for_state(version, broker, topic, lambda line: "Stable" in line and line[-1] == "2")
        source.send(60)
        wait_for_all(source, everybody)
    assert "uniform" in described(version, broker, topic, "--state")[0]
    for member in everybody[2:]:
        member.stop()
    assert {row[3] for row in described(version, broker, topic)} == {"50"}


def test_the_tool_resets_and_deletes_a_group(version: str, broker: Any, topic: str) -> None:
    source = Source(broker.bootstrap, topic)
    read_on(ConsumerProtocolMember, broker, topic, source)
    reset = ["--reset-offsets", "--to-offset", "2", "--group", topic, "--topic", topic, "--execute"]
    tool(version, broker, *reset)
    assert {row[3] for row in described(version, broker, topic)} == {"2"}
    assert "successful" in " ".join(map(" ".join, tool(version, broker, "--delete", "--group", topic)))
