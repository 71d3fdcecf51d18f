"""The leader of a queue's partitions is killed with SIGKILL while workers work: they go on with another leader."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from peers.apache_kafka import PeerMissingError
from system.cluster.processes import Cluster, wait_until
from system.queue_load import KEYS, PAUSE_S, Queue

QUEUE = "jobs"
PARTITIONS = 2
REPLICATED = {key: value for key, value in KEYS.items() if key.startswith("group.share.")}


def leaders_die(directory: Path, deaths: int, seed: int) -> Counter[str]:
    """Each leader in its turn dies, and so does a worker now and then. The load goes on before the leader is back."""
    source = random.Random(seed)
    with (
        Cluster(directory, 3, "etcd", REPLICATED) as cluster,
        closing(Queue(cluster.bootstrap, directory, QUEUE, PARTITIONS, 10, source, replicas=3)) as queue,
    ):
        cluster.wait_until_in_sync([QUEUE])

        def goes_on(records: int) -> None:
            wanted = queue.workers.look() + records

            def done() -> bool:
                queue.go_on()
                return queue.workers.look() >= wanted

            wait_until(done, lambda: f"{records} more records are accepted: {queue.workers.errors()}")

        for _ in range(3):
            queue.workers.start(source.randrange(1 << 30))
        goes_on(100)
        for number in range(deaths):
            time.sleep(source.random() * 10 * PAUSE_S)
            leader = cluster.leader(QUEUE, number % PARTITIONS)
            cluster[leader].kill()
            goes_on(200)
            if source.random() < 0.5:
                queue.kill_worker()
            cluster.start_all()
            cluster.wait_until_in_sync()
            goes_on(100)
        queue.finish()
        return queue.check(leaders_move=True) + Counter({"leaders killed": deaths})


def counted(directory: Path, deaths: int, seed: int) -> Counter[str]:
    """The same; skipped where etcd is not installed."""
    try:
        return leaders_die(directory, deaths, seed)
    except PeerMissingError as missing:
        pytest.skip(str(missing))


@pytest.mark.timeout(1800)
def test_workers_go_on_when_leaders_die(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    found = counted(tmp_path, 2, seed)
    print(dict(found))
    assert found["A"] > 0


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.parametrize("seed", range(5))
def test_workers_go_on_for_long(tmp_path: Path, seed: int) -> None:
    found = counted(tmp_path, 20, seed)
    print(dict(found))
    assert found["A"] > 0
