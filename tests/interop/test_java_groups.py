"""Apache Kafka's own group tools and console consumer against kafkapy, and its log dump of what kafkapy wrote
(make interop-java).
"""

from __future__ import annotations

import json
import re
from typing import Any

from interop.conftest import JAVA
from interop.conftest import run_java as run
from interop.members import ConfluentMember
from interop.test_groups import PARTITIONS, Source, read_on, wait_for_all, wait_until_shared

pytestmark = JAVA

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def described(version: str, broker: Any, group: str) -> dict[int, tuple[str, str]]:
    """Partition to (committed offset, host of its owner)."""
    output = run(version, GROUPS, "--bootstrap-server", broker.bootstrap, "--describe", "--group", group)
    rows = [line.split() for line in output.splitlines() if line.startswith(group)]
    return {int(row[2]): (row[3], row[7]) for row in rows}


def test_kafkas_tools_see_move_and_delete_a_group(version: str, broker: Any, topic: str) -> None:
    source = Source(broker.bootstrap, topic)
    source.send(60)
    member = ConfluentMember(broker.bootstrap, topic, topic).start()
    wait_until_shared([member])
    wait_for_all(source, [member])
    assert {host for _, host in described(version, broker, topic).values()} == {"/127.0.0.1"}
    assert topic in run(version, GROUPS, "--bootstrap-server", broker.bootstrap, "--list")
    member.stop()
    assert described(version, broker, topic) == dict.fromkeys(range(PARTITIONS), ("10", "-"))
    reset = ["--reset-offsets", "--to-offset", "2", "--group", topic, "--topic", topic, "--execute"]
    run(version, GROUPS, "--bootstrap-server", broker.bootstrap, *reset)
    assert described(version, broker, topic) == dict.fromkeys(range(PARTITIONS), ("2", "-"))
    deleted = run(version, GROUPS, "--bootstrap-server", broker.bootstrap, "--delete", "--group", topic)
    assert "successful" in deleted


def test_a_java_consumer_reads_in_a_group_and_others_read_on(version: str, broker: Any, topic: str) -> None:
    source = Source(broker.bootstrap, topic)
    source.send(60)
    options = ["--from-beginning", "--max-messages", "60", "--timeout-ms", "60000"]
    read = run(version, CONSUMER, "--bootstrap-server", broker.bootstrap, "--topic", topic, "--group", topic, *options)
    assert {line.encode() for line in read.split()} == source.sent
    read_on(ConfluentMember, broker, topic, source)


def test_kafkas_log_dump_reads_the_records_of_a_group(version: str, broker: Any, topic: str) -> None:
    source = Source(broker.bootstrap, topic)
    source.send(60)
    member = ConfluentMember(broker.bootstrap, topic, topic).start()
    wait_until_shared([member])
    wait_for_all(source, [member])
    member.stop()
    found: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for path in broker.data_dir.glob("logs/__consumer_offsets-*/*.log"):
        if path.stat().st_size:
            dumped = run(version, "kafka.tools.DumpLogSegments", "--files", str(path), "--offsets-decoder")
            found += [
                (json.loads(key), json.loads(value))
                for key, value in re.findall(r" key: (\{.*\}) payload: (\{.*\})$", dumped, re.MULTILINE)
            ]
    mine = [(key["data"], value["data"]) for key, value in found if key["data"]["group"] == topic]
    offsets = {key["partition"]: value["offset"] for key, value in mine if "topic" in key}
    assert offsets == dict.fromkeys(range(PARTITIONS), 10)
    generations = [(value["generation"], len(value["members"])) for key, value in mine if "topic" not in key]
    # Apache Kafka also writes the group before anybody is in it: generation 0.
    assert [each for each in generations if each[0]] == [(1, 1), (2, 0)]
