"""A cluster of three brokers: what is under-replicated and offline, moves of replicas, levels of loggers."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest
from console_site import Person, serving
from kafkapy_console.settings import Settings
from waiting import wait_until

from kafkapy import testing


@pytest.fixture(scope="module")
def cluster() -> Iterator[testing.Cluster]:
    with testing.Cluster(3) as started:
        yield started


@pytest.fixture
def visitor(cluster: testing.Cluster) -> Iterator[Person]:
    with serving(Settings(kafka={"bootstrap.servers": cluster.bootstrap_servers})) as url:
        person = Person(url)
        yield person
        person.close()


def replicas(cluster: testing.Cluster, topic: str) -> list[int]:
    with cluster.admin() as admin:
        (found,) = admin.describe_topics([topic])
        return list(found["partitions"][0]["replica_nodes"])


def test_replicas_move_as_the_preview_shows(cluster: testing.Cluster, visitor: Person) -> None:
    cluster.create_topic("moved", partitions=1, replication_factor=1)
    (now,) = replicas(cluster, "moved")
    then = now % 3 + 1
    path = "/topics/moved/partitions/0"
    page = visitor.get(f"{path}?replicas={then}")
    assert f"Brokers {then} copy the partition" in page
    assert f"Brokers {now} delete their replica" in page
    assert "is not in the cluster" in visitor.get(f"{path}?replicas=9", 400)
    assert "one replica of a partition only" in visitor.get(f"{path}?replicas={then},{then}", 400)
    fields = {"replicas": str(then), "before": str(now)}
    visitor.send(path, fields, page=f"{path}?replicas={then}")
    wait_until(lambda: replicas(cluster, "moved") == [then], "the replica is at its new broker")
    wait_until(lambda: "No partition moves" in visitor.get("/reassignments"), "no move runs any more")
    refused = visitor.send(path, fields, page=f"{path}?replicas={now}", status=400)
    assert "have changed since the preview" in refused.text


def test_a_broker_writes_more_of_one_logger(cluster: testing.Cluster, visitor: Person) -> None:
    before = logging.getLogger("kafkapy.broker").level
    try:
        page = visitor.get("/brokers/1/loggers")
        names = re.findall(r'name="logger" value="([^"]+)"', page)
        name = next(each for each in names if each.startswith("kafkapy"))
        path = "/brokers/1/loggers"
        visitor.send(path, {"logger": name, "level": "DEBUG"}, page=path)
        assert logging.getLogger(name).getEffectiveLevel() == logging.DEBUG
        visitor.send(path, {"logger": name, "level": "LOUD"}, page=path, status=400)
        visitor.send(path, {"logger": name, "level": "INFO"}, page=path)
    finally:
        logging.getLogger("kafkapy.broker").setLevel(before)


def test_a_broker_that_stops_is_seen(cluster: testing.Cluster, visitor: Person) -> None:
    cluster.create_topic("safe", partitions=3, replication_factor=3)
    cluster.create_topic("alone", partitions=3, replication_factor=1)
    page = visitor.get("/")
    assert re.search(r"<dt>Brokers</dt><dd>3</dd>", page)
    assert page.count('<a href="/brokers/') == 3
    cluster.stop_broker(3)
    wait_until(lambda: re.search(r"<dt>Brokers</dt><dd>2</dd>", visitor.get("/")), "the page has two brokers")
    wait_until(lambda: "3 under-replicated" in visitor.get("/topics?q=safe"), "the topic has three replicas less")
    wait_until(lambda: "1 offline" in visitor.get("/topics?q=alone"), "one partition has no leader")
    assert re.search(r"alone</a></td>", visitor.get("/"))
    assert "1 partitions have no leader." in visitor.get("/topics/alone")
    page = visitor.get("/topics/alone/records")
    assert "1 partitions have no leader: their records are missing here." in page
    assert "No record is here" in page
    assert visitor.events("/topics/alone/search?filter=true")[-1][0] == "end"
    with cluster.admin() as admin:
        (topic,) = admin.describe_topics(["alone"])
    (gone,) = [each["partition_index"] for each in topic["partitions"] if each["leader_id"] < 0]
    assert f"Partition {gone} has no leader" in visitor.get(f"/topics/alone/records?partition={gone}", 400)
