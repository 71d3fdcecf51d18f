"""A cross-check of W1 and W3 with Apache Kafka's own clients: the broker's CPU while kafka-producer-perf-test and
kafka-consumer-perf-test run. The consumer needs a group coordinator; a broker without one is reported so.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure
from client import Client
from peers import KAFKAPY, PeerMissingError
from peers.apache_kafka import java

from work.session import Metrics, Session

TOOLS_VERSION = "4.x"
PARTITIONS = 12
_PRODUCED = re.compile(r"(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency")


def _run(main: str, *arguments: str, timeout_s: float = 120.0) -> str:
    """Raises RuntimeError with what the tool said."""
    cores = measure.load_cores(True)
    try:
        done = subprocess.run(
            java(TOOLS_VERSION, main, *arguments),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{main} did not end within {timeout_s:.0f} s") from None
    if done.returncode:
        raise RuntimeError(f"{main}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


def _produce(broker: Any, topic: str, records: int, folder: Path) -> Callable[[], Metrics]:
    def measured() -> Metrics:
        measure.back_pages(folder, int(records * 1000 * 1.1))
        before = measure.cpu_seconds(broker.pid)
        said = _run(
            "org.apache.kafka.tools.ProducerPerformance",
            "--topic",
            topic,
            "--num-records",
            str(records),
            "--record-size",
            "1000",
            "--throughput",
            "-1",
            "--producer-props",
            f"bootstrap.servers=127.0.0.1:{broker.port}",
            "acks=1",
            "batch.size=65536",
            "linger.ms=10",
            "enable.idempotence=false",
        )
        used = measure.cpu_seconds(broker.pid) - before
        found = [match for match in _PRODUCED.finditer(said) if int(match[1]) == records]
        if not found:
            raise RuntimeError(f"not all records were sent: {said[-300:]}")
        return {"mb_per_s": float(found[-1][3]), "cpu_s_per_gb": used / (records * 1000) * measure.GB}

    return measured


def _consume(broker: Any, topic: str, records: int) -> Callable[[], Metrics]:
    def measured() -> Metrics:
        before = measure.cpu_seconds(broker.pid)
        said = _run(
            "org.apache.kafka.tools.ConsumerPerformance",
            "--bootstrap-server",
            f"127.0.0.1:{broker.port}",
            "--topic",
            topic,
            "--messages",
            str(records),
            "--timeout",
            "20000",
            "--hide-header",
            timeout_s=60,
        )
        used = measure.cpu_seconds(broker.pid) - before
        columns = [column.strip() for column in said.strip().splitlines()[-1].split(",")]
        if len(columns) < 9 or int(float(columns[4])) < records:
            raise RuntimeError(f"not all records were read: {said[-300:]}")
        return {"mb_per_s": float(columns[8]), "cpu_s_per_gb": used / (records * 1000) * measure.GB}

    return measured


def cross_check(session: Session) -> None:
    """Throughput here is mostly the Java client's; the broker's CPU per GB is what is to agree with W1 and W3."""
    if session.smoke:
        return
    try:
        java(TOOLS_VERSION, "none")
    except PeerMissingError as error:
        session.fail("Java tools", "start", error)
        return
    records, rounds = 300_000, session.rounds
    session.rounds = min(rounds, 2)
    with session.running(with_limit=False) as all_brokers, session.folder("pages") as folder:
        brokers = {
            p.name: all_brokers[p.name]
            for p in session.brokers
            if p.name in all_brokers and (p is KAFKAPY or p.is_apache)
        }
        for name, broker in brokers.items():
            try:
                with Client(broker.port) as client:
                    client.create_topic("tools", PARTITIONS)
            except Exception as error:
                session.fail(name, "topic", error)
        calls = {name: _produce(broker, "tools", records, folder) for name, broker in brokers.items()}
        session.in_turns("kafka-producer-perf-test, 1 KB records", calls)
        calls = {name: _consume(broker, "tools", records) for name, broker in brokers.items()}
        session.in_turns("kafka-consumer-perf-test", calls, warm_up=False)
    session.rounds = rounds
