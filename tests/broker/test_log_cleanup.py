"""A running broker with short intervals: retention by time and by size, and compaction, as a client sees them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafkapy.broker.server import KafkaServer
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.records.batches import RecordBatchBuilder, iter_records
from kafkapy.types import TopicPartition

TOPICS = {
    "by-time": {"retention.ms": "1"},
    "by-size": {"retention.bytes": "5000"},
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    "kept": {},
}


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "gave up waiting"
        time.sleep(0.02)


def test_old_large_and_dirty_logs_get_smaller(tmp_path: Path, make_config: Any, connect: Any) -> None:
    keys = {
        "log.initial.task.delay.ms": "0",
        "log.retention.check.interval.ms": "50",
        "log.cleaner.backoff.ms": "50",
        "log.segment.bytes": "2000",
    }
    with KafkaServer(make_config(tmp_path, **keys)) as server:
        client = connect(server)
        configs = CreateTopicsRequest.Topic.Config
        topics = [
            CreateTopicsRequest.Topic(
                name=name, num_partitions=1, replication_factor=1,
                configs=[configs(name=key, value=value) for key, value in values.items()],
            )
            for name, values in TOPICS.items()
        ]  # fmt: skip
        created = client(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5)
        assert [topic.error_code for topic in created.topics] == [0] * len(TOPICS)
        logs = {name: server.context.log_manager.get(TopicPartition(name, 0)) for name in TOPICS}
        for name in TOPICS:
            for number in range(100):
                builder = RecordBatchBuilder()
                builder.append(time.time_ns() // 1_000_000, b"k%d" % (number % 4), b"%d" % number * 20)
                logs[name].append_as_leader(builder.build(), api_version=9)
        wait_for(lambda: logs["by-time"].log_start_offset == 100)
        wait_for(lambda: 5000 <= logs["by-size"].size < 7000)
        # The newest of each key, and what is in the active segment, which is never cleaned.
        active = logs["compacted"].segments()[-1]
        wait_for(lambda: logs["compacted"].size - active[1] < 600)
        records = []
        offset = 0
        while data := logs["compacted"].read(offset, 1 << 20, isolation=2)[0]:
            records += list(iter_records(data))
            offset = records[-1].offset + 1
        assert [record.offset for record in records if record.offset >= active[0]] == list(range(active[0], 100))
        assert len([record for record in records if record.offset < active[0]]) == 4
        assert logs["kept"].log_start_offset == 0
        assert len(list((tmp_path / "kept-0").glob("*.log"))) == len(logs["kept"].segments())
