"""The commands of docs/cluster.md, in their order, on a cluster whose brokers come and go as the page says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from tools.conftest import CommandLine
from waiting import wait_until

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.properties import parse_properties
from kafkapy.testing.cluster import Cluster

PAGE = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text(encoding="utf-8")
SECTION = re.compile(r"^## (.*)$", re.MULTILINE)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FROM_KAFKA = "From Apache Kafka 3.9 to kafkapy, broker by broker"
"""This section needs Apache Kafka: tests/interop/test_java_cluster_page.py."""
COMMANDS = 20
"""At least so many commands are on the page."""


def blocks(language: str) -> list[tuple[str, str]]:
    """(section, text) of each block in a language."""
    parts = SECTION.split(PAGE)[1:]
    return [
        (title, text)
        for title, part in zip(parts[::2], parts[1::2], strict=True)
        for found, text in BLOCK.findall(part)
        if found == language
    ]


class Follower:
    """Follows the page on a cluster, from a directory."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.lines = 0

    def line(self, text: str) -> None:
        """Run one line, which has to work; a check is repeated until it does."""
        words = shlex.split(text)
        assert words.pop(0) == "kafkapy", text
        target = words[words.index(">") + 1] if ">" in words else None
        words = words[: words.index(">")] if ">" in words else words
        words = [str(self.directory / word) if word.endswith(".json") else word for word in words]
        kafkapy = CommandLine(self.cluster.bootstrap_servers)
        if "--verify" in words or words[:2] == ["cluster", "health"]:
            wait_until(lambda: kafkapy(*words).exit_code == 0, text)
        said = kafkapy.done(*words)
        if target is not None:
            (self.directory / target).write_text(said)
        if words[:2] == ["topics", "create"]:
            # The next command may ask a broker that hears of the topic a moment later.
            self.cluster.wait_until_in_sync([words[2]])
        self.lines += 1


def test_the_commands_work_in_their_order(tmp_path: Path) -> None:
    with Cluster(3, racks=True, auto_create_topics_enable=False) as cluster:

        def a_dead_broker() -> None:
            cluster.add_broker()
            cluster.stop_broker(3)
            cluster.wait_for_brokers()

        before: dict[str, Callable[[], object]] = {
            "Add brokers": cluster.add_broker,
            "Replace a dead broker": a_dead_broker,
        }
        after: dict[str, Callable[[], object]] = {"Remove a broker": lambda: cluster.stop_broker(4)}
        follower = Follower(cluster, tmp_path)
        found = [(title, text) for title, text in blocks("sh") if title != FROM_KAFKA]
        for number, (title, text) in enumerate(found):
            if title in before and (number == 0 or found[number - 1][0] != title):
                before[title]()
            for line in text.splitlines():
                follower.line(line)
            if title in after:
                after[title]()
        assert follower.lines >= COMMANDS
        with cluster.admin() as admin:

            def replicas() -> set[int]:
                (orders,) = admin.describe_topics(["orders"])
                return {replica for each in orders["partitions"] for replica in each["replica_nodes"]}

            wait_until(lambda: replicas() <= {1, 2, 5}, "the replicas have left the dead broker")


def test_the_program_works(capsys: pytest.CaptureFixture[str]) -> None:
    ((_, text),) = blocks("python")
    exec(compile(text, "docs/cluster.md", "exec"), {})
    assert capsys.readouterr().out.count("127.0.0.1:") == 2


def test_the_broker_accepts_the_file() -> None:
    ((_, text),) = blocks("properties")
    config = BrokerConfig(parse_properties(text, "server.properties"))
    assert (config.broker_id, config.metadata_store) == (1, "etcd")
