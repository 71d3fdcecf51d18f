"""Exactly-once queries whose processes are killed at numbered steps, in a Spark of their own.

Those that soak (make test-spark ARGS="-m soak") start a Spark more than a hundred times.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from test_exactly_once import PARTITIONS, committed, ends

from kafkapy import KafkaAdminClient, KafkaProducer
from kafkapy.testing.broker_process import BrokerProcess

pytest.importorskip("pyspark.sql")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(1900)]

SCRIPT = Path(__file__).with_name("exactly_once_query.py")
ROWS = 400
PER_BATCH = 200
STARTS = 4
"""Most starts of a query until it has come to its end."""
START_S = 900
"""Most time for one of them."""


class KilledQuery:
    """A query from topic to topic that is started until it has come to its end."""

    def __init__(self, bootstrap: str, source: str, sink: str, directory: Path) -> None:
        self.sink, self.bootstrap, self.flag = sink, bootstrap, directory / "flag"
        self.given: dict[str, Any] = {
            "bootstrap": bootstrap,
            "source": source,
            "sink": sink,
            "checkpoint": str(directory / "checkpoint"),
            "per_batch": PER_BATCH,
            "master": "local[2,4]",
        }
        with KafkaProducer(bootstrap_servers=bootstrap) as producer:
            for number in range(ROWS):
                producer.send(source, b"%d" % number, partition=number % PARTITIONS)

    def fault(self, where: str, victim: str, number: int = 0, *, answered: bool = False) -> None:
        """See exactly_once_query."""
        self.given["fault"] = {
            "where": where,
            "victim": victim,
            "number": number,
            "answered": answered,
            "flag": str(self.flag),
        }

    def start(self) -> subprocess.Popen[bytes]:
        """A process with the query."""
        return subprocess.Popen(
            [sys.executable, str(SCRIPT), json.dumps(self.given)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def run(self) -> int:
        """To the end; how often it was started."""
        for starts in range(1, STARTS + 1):
            process = self.start()
            try:
                if process.wait(START_S) == 0:
                    return starts
            finally:
                process.kill()
        raise AssertionError(f"the query has not come to its end in {STARTS} starts")

    def check(self) -> None:
        """Each row once, and no transaction is open."""
        assert committed(self.bootstrap, self.sink) == list(range(ROWS))


@pytest.fixture
def query(broker: Any, topic: Any, tmp_path: Path) -> KilledQuery:
    return KilledQuery(broker.bootstrap_servers, topic(PARTITIONS), topic(PARTITIONS), tmp_path)


def test_the_driver_is_killed_behind_the_commit_point(query: KilledQuery) -> None:
    """The fifth request of the process that commits is the EndTxn of the decision."""
    query.fault("commit", "java", 4, answered=True)
    assert query.run() >= 2
    assert query.flag.exists()
    query.check()


@pytest.mark.soak
@pytest.mark.parametrize("victim", ["java", "worker", "error"])
@pytest.mark.parametrize("number", range(9))
@pytest.mark.parametrize("where", ["begin", "commit"])
def test_the_driver_dies_at_every_request(query: KilledQuery, where: str, number: int, victim: str) -> None:
    """The whole driver, or the Python process of it; or Spark gets an error, and calls abort()."""
    query.fault(where, victim, number)
    query.run()
    query.check()


@pytest.mark.soak
@pytest.mark.parametrize("master", ["local[2,4]", "local-cluster[2,1,1024]"])
@pytest.mark.parametrize("victim", ["worker", "error"])
def test_a_task_dies_when_it_has_sent_its_records(query: KilledQuery, victim: str, master: str) -> None:
    query.given["master"] = master
    query.fault("task", victim)
    assert query.run() == 1
    assert query.flag.exists()
    query.check()


@pytest.mark.soak
def test_an_executor_is_killed(query: KilledQuery) -> None:
    query.given["master"] = "local-cluster[2,1,1024]"
    query.fault("task", "java")
    assert query.run() == 1
    assert query.flag.exists()
    query.check()


@pytest.mark.soak
def test_each_task_succeeds_at_its_fourth_attempt(query: KilledQuery) -> None:
    query.given["failures"] = 3
    assert query.run() == 1
    query.check()


@pytest.mark.soak
def test_two_drivers_on_one_checkpoint(query: KilledQuery) -> None:
    """One of them fails, or both do, and are started again."""
    first, second = query.start(), query.start()
    assert first.wait(START_S) is not None and second.wait(START_S) is not None
    query.run()
    query.check()


@pytest.mark.soak
@pytest.mark.parametrize("after_s", [0.5, 1.0, 2.0])
def test_the_broker_is_killed_while_a_query_runs(tmp_path: Path, after_s: float) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
            topics = {name: {"num_partitions": PARTITIONS, "replication_factor": 1} for name in ("in", "out")}
            admin.create_topics(topics)
        query = KilledQuery(broker.bootstrap, "in", "out", tmp_path)
        query.given["per_batch"] = 20
        process = query.start()
        _wait_for_records(broker.bootstrap, "out")
        timer = broker.kill_after(after_s)
        timer.join()
        broker.start()
        assert process.wait(START_S) is not None
        query.run()
        query.check()


def _wait_for_records(bootstrap: str, topic: str) -> None:
    while not sum(ends(bootstrap, topic).values()):
        time.sleep(0.05)
