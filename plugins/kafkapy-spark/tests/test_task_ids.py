"""Transactional ids of tasks: whose they are, and when one is used again."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys

from exactly_once_faults import Cluster
from kafkapy_spark.task_ids import MAX_SINKS, PATTERN, TaskIds
from sink_rows import Rows
from sink_rows import cluster as cluster

from kafkapy.clients.producer.transactional_requests import PreparedTxnState


def driver(epoch: int, producer_id: int = 1) -> PreparedTxnState:
    return PreparedTxnState(producer_id, epoch, 2)


def lent(ids: TaskIds, epoch: int, producer_id: int = 1, *, reuse: bool = True) -> str:
    with ids.lent("s", driver(epoch, producer_id), reuse=reuse) as name:
        return name


def test_attempts_of_one_plan_have_different_ids() -> None:
    """Whatever attempt of whatever attempt of the stage it is."""
    ids = TaskIds()
    names = [lent(ids, 3) for _ in range(100)]
    assert len(set(names)) == 100
    assert all(re.fullmatch(PATTERN, name) for name in names)


def test_an_id_is_used_again_under_a_newer_driver() -> None:
    ids = TaskIds()
    seen = {lent(ids, epoch) for epoch in range(1000) for _ in range(3)}
    assert len(seen) == 3
    other = {lent(ids, 5000, producer_id=2), lent(ids, 5000, producer_id=2)}
    assert len(other) == 2 and not seen & other, "another producer id is neither older nor newer"


def test_an_id_is_not_used_again() -> None:
    """Under an older driver, whose transactions may be decided on; while a task has it; where it is asked for."""
    ids = TaskIds()
    first = lent(ids, 5)
    assert lent(ids, 4) != first
    assert lent(ids, 5) != first
    assert lent(ids, 6, reuse=False) not in (first, lent(ids, 5))
    with ids.lent("s", driver(7)) as held:
        others = {lent(ids, epoch) for epoch in range(8, 20)}
        assert held not in others
    assert lent(ids, 6) != held


def test_ids_of_many_sinks() -> None:
    """Those of each sink are its own; a sink that was forgotten gets new ones."""
    ids = TaskIds()
    first = lent(ids, 1)
    for number in range(MAX_SINKS + 1):
        with ids.lent(f"other-{number}", driver(1)) as name:
            assert name.endswith("-0")
    assert len(ids._sinks) == MAX_SINKS
    assert lent(ids, 2) == first, "the process's first id of the sink"


def test_a_process_has_ids_of_its_own() -> None:
    """One that was forked from a process with ids, too."""
    script = """
import os, sys
from kafkapy.clients.producer.transactional_requests import PreparedTxnState
from kafkapy_spark.task_ids import task_ids
def name():
    with task_ids.lent("s", PreparedTxnState(1, 1, 2)) as found:
        return found
print(name(), flush=True)
if os.fork() == 0:
    print(name(), flush=True)
    os._exit(0)
os.wait()
print(name(), flush=True)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=True, text=True)
    first, forked, second = ran.stdout.split()
    assert first.partition("-")[0] == second.partition("-")[0] != forked.partition("-")[0]


def test_a_stage_that_is_tried_again(cluster: Cluster, protocol: int) -> None:
    """Spark numbers the attempts of its tasks like those of its first try. The results of that count all the same, at
    whatever time the second try begins."""
    rows = Rows(cluster)
    plan = rows.plan()
    first = rows.task(plan, 0, [b"of the first try"])
    rows.task(plan, 0, [b"of the second"])
    commits = rows.query.driver()
    decide = commits.control.decide

    async def decide_late(*arguments: object) -> object:
        await asyncio.get_running_loop().run_in_executor(None, lambda: rows.task(plan, 0, [b"of the third"]))
        return await decide(*arguments)  # type: ignore[arg-type]

    commits.control.decide = decide_late  # type: ignore[method-assign, assignment]
    cluster.run(commits.commit([first]))
    assert rows.seen() == [b"of the first try"]
