"""Data directories go from Apache Kafka to kafkapy and back, and Kafka's tools read our files (make interop-java).

With ZooKeeper (3.9) both brokers share the cluster's metadata, so the second one is just started on the first one's
directories. With KRaft the topics are made on the second broker and the partitions' files are put into its directory,
as docs/moving-data.md says.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from interop.conftest import JAVA
from interop.log_corpus import (
    Observed,
    append_more,
    create_topics,
    observe,
    use_coordinators,
    wait_until_compacted,
    write_corpus,
)
from peers.apache_kafka import ApacheKafka, PeerMissingError, jars, java
from peers.zookeeper import ZooKeeper
from reference.kafka_dump_log import complaints, from_kafka, from_kafkapy, log_files

from kafkapy.testing.broker_process import BrokerProcess

pytestmark = JAVA

KEYS = {
    "log.cleaner.backoff.ms": "300",
    "log.initial.task.delay.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "300",
    "zookeeper.session.timeout.ms": "3000",
}
SESSION_S = 4.0
"""A broker that was killed is registered in ZooKeeper until its session ends."""
CHECKPOINTS = (
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        jars("3.9")
        server = ZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    with server:
        yield server.connect


def end(broker: Any, how: str) -> None:
    if how == "kill":
        broker.kill()
    else:
        assert broker.stop() in (0, 143)


def check_dumps(version: str, logs: Path, *options: str, names: str = "*-[0-9]*") -> None:
    """kafka-dump-log finds no fault in the files, and says of them what `kafkapy dump-log` says."""
    directories = [path for path in sorted(logs.glob(names)) if not path.name.startswith("__cluster_metadata")]
    used = [path for path in directories if any(each.stat().st_size for each in path.glob("*.log"))]
    assert used
    files = [file for path in used for file in log_files(path)]
    command = java(version, "kafka.tools.DumpLogSegments", *options, "--files", ",".join(map(str, files)))
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-2000:]
    # Compaction leaves holes, here and in the topics of the coordinators.
    assert not complaints(done.stdout + done.stderr, compacted=True)
    if options != ("--deep-iteration",):
        return
    theirs, (ours, problems) = from_kafka(done.stdout), from_kafkapy(files)
    assert not problems
    for path, facts in theirs.items():
        assert ours[path] == facts, path


def same(before: Observed, after: Observed) -> None:
    """What clients saw of the first broker they see of the second."""
    assert after.watermarks == before.watermarks
    assert after.group_offsets == before.group_offsets
    for where in before.records:
        # Not one big comparison: a failure names the partition.
        assert after.records[where] == before.records[where], where
        assert after.committed_records[where] == before.committed_records[where], where


def goes_on(before: Observed, after: Observed) -> None:
    """The old records, and behind them what append_more wrote."""
    for where, records in before.records.items():
        assert after.records[where][: len(records)] == records, where
        assert [each.value for each in after.records[where][len(records) :]] == [b"after the move"] * 10, where
        assert [each.value for each in after.committed_records[where][-10:]] == [b"after the move"] * 10, where
    assert b"open" not in {each.value for each in after.committed_records[("corpus-open", 0)]}


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("first", ["kafkapy", "kafka"])
def test_brokers_take_turns_on_a_directory_with_zookeeper(tmp_path: Path, zookeeper: str, first: str, how: str) -> None:
    connect = f"{zookeeper}/{first}-{how}"
    keys = KEYS | {"log.dirs": str(tmp_path / "data")}
    ours = BrokerProcess(tmp_path / "kafkapy", keys | {"zookeeper.connect": connect})
    theirs = ApacheKafka("3.9", tmp_path / "kafka", keys, zookeeper=connect)
    one, two = (ours, theirs) if first == "kafkapy" else (theirs, ours)
    try:
        one.start()
        write_corpus(one.bootstrap)
        wait_until_compacted(one.bootstrap)
        written = observe(one.bootstrap)
        end(one, how)
        if how == "stop":
            check_dumps("3.9", tmp_path / "data", "--deep-iteration")
        time.sleep(SESSION_S if how == "kill" else 0)

        two.start()
        same(written, observe(two.bootstrap))
        append_more(two.bootstrap)
        longer = observe(two.bootstrap)
        goes_on(written, longer)
        end(two, how)
        time.sleep(SESSION_S if how == "kill" else 0)

        one.start()
        same(longer, observe(one.bootstrap))
        append_more(one.bootstrap)
        goes_on(longer, observe(one.bootstrap))
        end(one, "stop")
        check_dumps("3.9", tmp_path / "data", "--deep-iteration")
    finally:
        one.kill()
        two.kill()


def move(source: Path, target: Path) -> None:
    """The partitions of one log directory into another one that has partitions of the same names, with ids of its own.
    Both brokers are stopped. docs/moving-data.md has the same for a shell."""
    for directory in sorted(source.glob("*-[0-9]*")):
        new = target / directory.name
        if not new.is_dir() or directory.name.startswith("__cluster_metadata"):
            continue
        for path in new.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        for path in directory.iterdir():
            if path.name != "partition.metadata":
                shutil.copy2(path, new / path.name)
    for name in CHECKPOINTS:
        (target / name).unlink(missing_ok=True)
        if (source / name).exists():
            shutil.copy2(source / name, target / name)
    if not (source / ".kafka_cleanshutdown").exists():
        (target / ".kafka_cleanshutdown").unlink()


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("first", ["kafkapy", "kafka"])
def test_partitions_move_to_a_broker_with_other_metadata(tmp_path: Path, version: str, first: str, how: str) -> None:
    def kafkapy() -> Any:
        return BrokerProcess(tmp_path / "kafkapy", KEYS)

    def kafka() -> Any:
        return ApacheKafka(version, tmp_path / "kafka", KEYS)

    make_one, make_two = (kafkapy, kafka) if first == "kafkapy" else (kafka, kafkapy)
    written = _move_between(make_one, make_two, how, version)
    assert len(written.records) == len(written.group_offsets)


def _move_between(make_one: Callable[[], Any], make_two: Callable[[], Any], how: str, version: str) -> Observed:
    one, two = make_one(), make_two()
    try:
        one.start()
        write_corpus(one.bootstrap)
        wait_until_compacted(one.bootstrap)
        written = observe(one.bootstrap)
        end(one, how)
        two.start()
        create_topics(two.bootstrap)
        use_coordinators(two.bootstrap)
        end(two, "stop")
        move(one.data_dir / "logs", two.data_dir / "logs")
        two.start()
        same(written, observe(two.bootstrap))
        append_more(two.bootstrap)
        goes_on(written, observe(two.bootstrap))
        end(two, "stop")
        check_dumps(version, two.data_dir / "logs", "--deep-iteration")
        return written
    finally:
        one.kill()
        two.kill()


def test_kafka_dump_log_reads_what_we_wrote(tmp_path: Path, version: str) -> None:
    broker = BrokerProcess(tmp_path, KEYS)
    try:
        broker.start()
        write_corpus(broker.bootstrap)
        wait_until_compacted(broker.bootstrap)
        end(broker, "stop")
        logs = tmp_path / "logs"
        check_dumps(version, logs, "--deep-iteration")
        check_dumps(version, logs, "--index-sanity-check")
        check_dumps(version, logs, "--verify-index-only")
        check_dumps(version, logs, "--offsets-decoder", names="__consumer_offsets-*")
        check_dumps(version, logs, "--transaction-log-decoder", names="__transaction_state-*")
    finally:
        broker.kill()
