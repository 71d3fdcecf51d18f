"""Exactly-once queries whose processes are killed, in a Spark of their own.

Those that soak (make test-spark ARGS="-m soak") kill at every request that any of the processes sends: Python processes
about 90 times for each transaction version, or the JVM about 60 times, which takes a new one each time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kill_plan import STARVED, Fault, KillPlan
from test_exactly_once import PARTITIONS, committed, ends

from kafkapy import KafkaAdminClient, KafkaProducer
from kafkapy.testing import Broker
from kafkapy.testing.broker_process import BrokerProcess

pytest.importorskip("pyspark.sql")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(20000)]

SCRIPT = Path(__file__).with_name("exactly_once_query.py")
WARM = Path(__file__).with_name("warm")
ROWS = 400
PER_BATCH = 200
STARTS = 4
"""Most starts of a query until it has come to its end."""
STALLED_S = 900
"""Most time without a batch or a fault."""
STARVED_S = 3600
"""Most time of a query whose starts come to nothing because the machine is busy."""
DECIDED = "END_TXN"
"""The first of a commit ends the driver's transaction, which has the decision in it."""
READY = "DESCRIBE_TRANSACTIONS"
"""The last request before a decision is committed."""


class KilledQuery:
    """A query from topic to topic that is started until it has come to its end."""

    def __init__(self, bootstrap: str, source: str, sink: str, directory: Path) -> None:
        self.source, self.sink, self.bootstrap, self.rows = source, sink, bootstrap, 0
        self.output, self._directory = directory / "output", directory
        self.plan: KillPlan | None = None
        self.more: dict[str, str] = {}
        """Of its environment."""
        self.given: dict[str, Any] = {
            "bootstrap": bootstrap,
            "source": source,
            "sink": sink,
            "checkpoint": str(directory / "checkpoint"),
            "per_batch": PER_BATCH,
            "master": "local[2,4]",
        }

    def fill(self, rows: int = ROWS) -> None:
        """So many more rows in the source."""
        with KafkaProducer(bootstrap_servers=self.bootstrap) as producer:
            for number in range(self.rows, self.rows + rows):
                producer.send(self.source, b"%d" % number, partition=number % PARTITIONS)
        self.rows += rows

    def kill(self, *rounds: list[Fault]) -> KillPlan:
        """See KillPlan."""
        self.plan, self.given["plan"] = KillPlan(self._directory, rounds), str(self._directory)
        return self.plan

    def start(self) -> subprocess.Popen[bytes]:
        """A process with the query."""
        with self.output.open("wb") as output:
            return subprocess.Popen(
                [sys.executable, str(SCRIPT), json.dumps(self.given)],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(WARM), *sys.path])} | self.more,
            )

    def run_once(self) -> bool:
        """To its end, or that of the process; whether it has come to its end.

        A start that a busy machine has ended is none: there is another one.
        """
        deadline = time.monotonic() + STARVED_S
        while True:
            process = self.start()
            try:
                if self.wait(process) == 0:
                    return True
            finally:
                process.kill()
            output = self.output.read_text()
            if STARVED not in output:
                return False
            assert time.monotonic() < deadline, output[-3000:]

    def wait(self, process: subprocess.Popen[bytes]) -> int:
        """Until it ends; its exit code. It may take as long as it wants, if only it goes on."""
        before, deadline = None, 0.0
        while True:
            try:
                return process.wait(2)
            except subprocess.TimeoutExpired:
                now = self._come_to()
                if now != before:
                    before, deadline = now, time.monotonic() + STALLED_S
                assert time.monotonic() < deadline, f"the query stands still: {self.output.read_text()[-3000:]}"

    def _come_to(self) -> tuple[int, list[str]]:
        logs = (self._directory / "checkpoint" / name for name in ("offsets", "commits"))
        struck = len(self.plan.struck) if self.plan else 0
        return struck, sorted(f"{log.name} {each.name}" for log in logs if log.is_dir() for each in log.iterdir())

    def run(self) -> int:
        """To the end; how often it was started."""
        for starts in range(1, STARTS + 1):
            if self.run_once():
                return starts
        raise AssertionError(f"the query has not come to its end in {STARTS} starts: {self.output.read_text()[-3000:]}")

    def run_through(self, plan: KillPlan, rows: int) -> None:
        """To the end, when all that is planned has happened; with so many more rows whenever there are none left
        before. A start that ends otherwise than planned is an error."""
        ended = False
        while not (plan.done and ended):
            struck = len(plan.struck)
            ended = self.run_once()
            assert ended or len(plan.struck) > struck, self.output.read_text()[-3000:]
            if not plan.done and ended:
                self.fill(rows)

    def check(self) -> None:
        """Each row once, and no transaction is open."""
        assert committed(self.bootstrap, self.sink) == list(range(self.rows))


@pytest.fixture
def query(broker: Any, topic: Any, tmp_path: Path) -> KilledQuery:
    made = KilledQuery(broker.bootstrap_servers, topic(PARTITIONS), topic(PARTITIONS), tmp_path)
    made.fill()
    return made


@pytest.fixture
def two_phase_query(tmp_path: Path) -> Iterator[KilledQuery]:
    """The same where transactions have no timeout (KIP-939)."""
    with Broker(auto_create_topics_enable=False, transaction_two_phase_commit_enable=True) as broker:
        for name in ("in", "out"):
            broker.create_topic(name, PARTITIONS)
        made = KilledQuery(broker.bootstrap_servers, "in", "out", tmp_path)
        made.fill()
        yield made


def test_the_driver_is_killed_behind_the_commit_point(query: KilledQuery) -> None:
    plan = query.kill([Fault("commit", "java", DECIDED)])
    assert query.run() == 2
    assert plan.done
    query.check()


EVERYWHERE = {
    "python": [
        [Fault("begin", "query")],
        [Fault("commit", "query")],
        [Fault("commit", "query", DECIDED), Fault("begin", "query")],
        [Fault("commit", "error", READY), Fault("abort", "query")],
        [Fault("commit", "error", DECIDED), Fault("abort", "query")],
        [Fault("commit", "worker")],
        [Fault("task", "worker")],
    ],
    "java": [
        [Fault("begin", "java")],
        [Fault("commit", "java")],
        [Fault("commit", "java", DECIDED), Fault("begin", "java")],
        [Fault("commit", "error", READY), Fault("abort", "java")],
        [Fault("commit", "error", DECIDED), Fault("abort", "java")],
        [Fault("task", "java")],
    ],
}
"""Every request and place of every phase: of a batch, of one that goes on where a driver has died behind its commit
point, and of an abort on both sides of that point. Python's processes die, or the JVM with all of them."""


@pytest.mark.soak
@pytest.mark.parametrize("victims", sorted(EVERYWHERE))
@pytest.mark.parametrize("protocol", [pytest.param(0, id="v1"), pytest.param(2, id="v2")])
@pytest.mark.parametrize("broker_has", ["timeouts", "two_phases"])
def test_the_driver_dies_at_every_request(
    request: pytest.FixtureRequest, broker_has: str, victims: str, protocol: int
) -> None:
    """One query that is killed at one request after the other, of both transaction versions, and with KIP-939."""
    query: KilledQuery = request.getfixturevalue("two_phase_query" if broker_has == "two_phases" else "query")
    plan = query.kill(*EVERYWHERE[victims])
    query.given |= {"protocol": protocol, "again": True, "per_batch": PER_BATCH // 20}
    if victims == "python":
        # The JVM lives on, and forks its workers from the same daemons again and again.
        query.more = {"KAFKAPY_WARM_DAEMONS": "1"}
    query.run_through(plan, ROWS)
    query.check()
    struck = plan.struck
    for number, faults in enumerate(EVERYWHERE[victims]):
        found = [each for each in struck if (each["round"], each["fault"]) == (number, len(faults) - 1)]
        assert [each["number"] for each in found] == list(range(len(found)))
        assert {each["place"] for each in found} >= REQUESTS[faults[-1].where], faults


REQUESTS = {
    "begin": {"INIT_PRODUCER_ID", "LIST_OFFSETS", "LIST_TRANSACTIONS", "end"},
    "commit": {"DESCRIBE_TRANSACTIONS", "PRODUCE", "END_TXN", "LIST_TRANSACTIONS", "end"},
    "abort": {"INIT_PRODUCER_ID", "END_TXN", "LIST_TRANSACTIONS", "end"},
    "task": {"DESCRIBE_TRANSACTIONS", "INIT_PRODUCER_ID", "PRODUCE", "end"},
}
"""Some of each phase."""


@pytest.mark.soak
@pytest.mark.parametrize("master", ["local[2,4]", "local-cluster[2,1,1024]"])
@pytest.mark.parametrize("victim", ["worker", "error"])
def test_a_task_dies_when_it_has_sent_its_records(query: KilledQuery, victim: str, master: str) -> None:
    query.given["master"] = master
    plan = query.kill([Fault("task", victim, "records")])
    assert query.run() == 1
    assert plan.done
    query.check()


@pytest.mark.soak
def test_an_executor_is_killed(query: KilledQuery) -> None:
    query.given["master"] = "local-cluster[2,1,1024]"
    plan = query.kill([Fault("task", "java", "records")])
    assert query.run() == 1
    assert plan.done
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
    query.wait(first)
    query.wait(second)
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
        query.fill()
        process = query.start()
        _wait_for_records(broker.bootstrap, "out")
        timer = broker.kill_after(after_s)
        timer.join()
        broker.start()
        query.wait(process)
        query.run()
        query.check()


def _wait_for_records(bootstrap: str, topic: str) -> None:
    while not sum(ends(bootstrap, topic).values()):
        time.sleep(0.05)
