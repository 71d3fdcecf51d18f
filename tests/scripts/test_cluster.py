"""`make cluster`: brokers with a metadata store on one machine, until Ctrl-C."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import cluster
import pytest
from waiting import wait_until

from kafkapy import KafkaAdminClient
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.properties import parse_properties

ROOT = Path(__file__).parents[2]


def free_ports(offsets: list[int]) -> int:
    """A first port that is free with all these distances; below those that the system gives to others."""
    for _ in range(100):
        first = random.randrange(20_000, 30_000)
        with ExitStack() as stack:
            try:
                for offset in offsets:
                    probe = stack.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", first + offset))
            except OSError:
                continue
            return first
    raise AssertionError("no ports are free")


@contextmanager
def running(out: Path, arguments: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """The script, once it says that the cluster is up. It is killed when it has not ended by itself."""
    with out.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "scripts" / "cluster.py"), *arguments],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
    try:
        wait_until(lambda: process.poll() is not None or "The cluster is up" in out.read_text(), "the cluster is up")
        assert process.poll() is None, out.read_text()
        yield process
    finally:
        process.terminate()
        process.wait()


def brokers(admin: KafkaAdminClient) -> list[int]:
    return sorted(each["broker_id"] for each in admin.describe_cluster()["brokers"])


@pytest.mark.parametrize("store", sorted(cluster.STORES))
def test_two_brokers_serve_until_ctrl_c_and_continue_with_their_data(tmp_path: Path, store: str) -> None:
    try:
        cluster.STORES[store](tmp_path / "probe", 1)
    except cluster.StartError as missing:
        pytest.skip(str(missing))
    port = free_ports([0, 1, 1000, 1001])
    arguments = ["--brokers", "2", "--store", store, "--port", str(port), "--directory", str(tmp_path / "data")]
    for run in range(2):
        with running(tmp_path / f"out-{run}", arguments) as process:
            with KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port}") as admin:
                wait_until(lambda admin=admin: brokers(admin) == [1, 2], "a broker knows the other one")
                if run == 0:
                    admin.create_topics({"orders": {}})
                (orders,) = admin.describe_topics(["orders"])
                assert [len(each["replica_nodes"]) for each in orders["partitions"]] == [2, 2, 2]
            process.send_signal(signal.SIGINT)
            process.wait(120)
            assert process.returncode == 0, (tmp_path / f"out-{run}").read_text()


@pytest.mark.parametrize(("count", "copies", "enough"), [(1, 1, 1), (2, 2, 1), (5, 3, 2)])
def test_a_broker_accepts_its_file(tmp_path: Path, count: int, copies: int, enough: int) -> None:
    text = cluster.properties(1, 9092, tmp_path, count, {"zookeeper.connect": "127.0.0.1:2181"})
    config = BrokerConfig(parse_properties(text))
    assert config.get_int("default.replication.factor") == copies
    assert config.get_int("min.insync.replicas") == enough
