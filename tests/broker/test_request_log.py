"""kafka.request.logger: Produce and Fetch, which the data plane serves, are seen in it as other requests are."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy.broker import loggers
from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.protocol.header import encode_request
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.types import ZERO_UUID, CompressionType

LOGGER = "kafka.request.logger"
BROKER_LOGGER = 8


class Lines(logging.Handler):
    """Keeps the records of Produce and Fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "api", "") in ("Produce", "Fetch"):
            self.records.append(record)

    def wait(self, condition: Callable[[list[Any]], bool]) -> list[Any]:
        deadline = time.monotonic() + 10
        while not condition(self.records):
            assert time.monotonic() < deadline, self.records
            time.sleep(0.005)
        return self.records


@pytest.fixture
def lines() -> Iterator[Lines]:
    logger = logging.getLogger(LOGGER)
    handler = Lines()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    loggers.unset_level(LOGGER)


def set_level(client: Any, level: str) -> None:
    alter = IncrementalAlterConfigsRequest.Resource
    config = alter.Config(name=LOGGER, config_operation=0, value=level)
    resource = alter(resource_type=BROKER_LOGGER, resource_name="1", configs=[config])
    answer = client(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == ErrorCode.NONE


def fetch(client: Any, topic: str, offset: int, max_wait_ms: int = 0) -> None:
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
    topics = [FetchRequest.Topic(topic=topic, topic_id=ZERO_UUID, partitions=[partition])]
    client(FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=topics), 11)


@pytest.fixture
def server(tmp_path: Path, make_config: Any) -> Iterator[KafkaServer]:
    with KafkaServer(make_config(tmp_path)) as running:
        yield running


def test_a_level_changed_by_a_client_takes_effect_at_once(server: KafkaServer, connect: Any, lines: Lines) -> None:
    client = connect(server)
    client.create_topic("t")
    plane = server.socket_server.request_channel.plane
    client.produce("t", [(1, b"unseen")])
    set_level(client, "DEBUG")
    assert plane.request_log_level == 1
    client.produce("t", [(1, b"seen")])
    fetch(client, "t", 0)
    fetch(client, "t", 2, max_wait_ms=30)
    set_level(client, "INFO")
    assert plane.request_log_level == 0
    client.produce("t", [(1, b"unseen")])
    produced, fetched, waited = lines.wait(lambda records: len(records) >= 3)
    assert produced.api == "Produce" and fetched.api == waited.api == "Fetch"
    assert fetched.version == 11 and fetched.correlation == produced.correlation + 1
    assert produced.client == "test" and produced.address == "127.0.0.1" and produced.listener == "PLAINTEXT"
    assert produced.principal == "User:ANONYMOUS" and produced.connection == fetched.connection
    assert produced.request_bytes > 80 and produced.response_bytes > 40
    assert fetched.response_bytes > 150  # two batches
    assert float(waited.remote_ms) >= 29 and float(waited.total_ms) >= float(waited.remote_ms) + float(waited.local_ms)
    assert float(produced.total_ms) >= float(produced.local_ms) > 0
    assert not hasattr(produced, "request")


def test_at_trace_a_line_has_the_decoded_request(server: KafkaServer, connect: Any, lines: Lines) -> None:
    client = connect(server)
    client.create_topic("t")
    set_level(client, "TRACE")
    client.produce("t", [(1, b"small")])
    fetch(client, "t", 0)
    client.produce("t", [(1, b"x" * 20_000)])
    produced, fetched, large = lines.wait(lambda records: len(records) >= 3)
    assert isinstance(produced.request, ProduceRequest)
    assert produced.request.topic_data[0].name == "t"
    assert b"small" in bytes(produced.request.topic_data[0].partition_data[0].records)
    assert isinstance(fetched.request, FetchRequest) and fetched.request.topics[0].topic == "t"
    assert large.request.endswith("bytes, not decoded")


def test_a_request_without_a_reply_is_logged(server: KafkaServer, connect: Any, lines: Lines) -> None:
    client = connect(server)
    client.create_topic("t")
    set_level(client, "DEBUG")
    builder = RecordBatchBuilder()
    builder.append(1, None, b"value", [])
    data = ProduceRequest.Topic.Partition(index=0, records=builder.build(CompressionType.NONE))
    request = ProduceRequest(
        acks=0, timeout_ms=1000, topic_data=[ProduceRequest.Topic(name="t", partition_data=[data])]
    )
    client.send_frame(encode_request(request.API_KEY, 7, 77, None, request))
    record = lines.wait(bool)[0]
    assert (record.correlation, record.client, record.response_bytes) == (77, None, 0)


def test_a_stopped_broker_follows_the_level_no_more(tmp_path: Path, make_config: Any) -> None:
    before = list(loggers.on_change)
    with KafkaServer(make_config(tmp_path)):
        assert len(loggers.on_change) == len(before) + 1
    assert loggers.on_change == before
