"""KafkaServer: start, stop and what is there after a restart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafkapy.broker import server as broker_server
from kafkapy.broker.broker_state import BrokerState
from kafkapy.broker.meta_properties import InconsistentBrokerIdError, InconsistentClusterIdError
from kafkapy.broker.parts.part import Broker, Part
from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest
from kafkapy.records.batches import decode_records, iter_batches
from kafkapy.types import ZERO_UUID


def fetch(client: Any, topic: str) -> list[bytes | None]:
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
    topics = [FetchRequest.Topic(topic=topic, topic_id=ZERO_UUID, partitions=[partition])]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics)
    answer = client(request, 11).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.NONE
    return [record.value for batch in iter_batches(answer.records, check_crc=True) for record in decode_records(batch)]


def test_a_stopped_broker_has_marked_its_directory_clean(tmp_path: Path, make_config: Any, connect: Any) -> None:
    with KafkaServer(make_config(tmp_path)) as server:
        assert server.state is BrokerState.RUNNING
        connect(server).create_topic("orders")
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert server.state is BrokerState.NOT_RUNNING
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert "broker.id=1\n" in (tmp_path / "meta.properties").read_text()


def test_a_restart_keeps_topics_records_settings_and_identity(tmp_path: Path, make_config: Any, connect: Any) -> None:
    with KafkaServer(make_config(tmp_path)) as server:
        client = connect(server)
        topic_id = client.create_topic("orders", 2, retention_ms="1234567")
        client.produce("orders", [(1000, b"a"), (1001, b"b")])
        client.produce("orders", [(1002, b"c")])
        cluster_id = server.context.cluster_id
    with KafkaServer(make_config(tmp_path)) as server:
        client = connect(server)
        assert fetch(client, "orders") == [b"a", b"b", b"c"]
        topic = server.context.metadata_cache.topic("orders")
        assert (topic.topic_id, topic.partition_count) == (topic_id, 2)
        assert server.context.dynamic_config.topic_keys("orders") == {"retention.ms": "1234567"}
        assert server.context.cluster_id == cluster_id
        assert client.produce("orders", [(1003, b"d")]).base_offset == 3


def test_producer_ids_go_on_after_a_restart(tmp_path: Path, make_config: Any) -> None:
    ids = []
    for _ in range(3):
        with KafkaServer(make_config(tmp_path)) as server:
            ids.append(server.call(server.context.producer_ids.next_id()))
    assert len(set(ids)) == 3


def test_a_broker_without_an_id_makes_one_and_keeps_it(tmp_path: Path, make_config: Any) -> None:
    ids = []
    for _ in range(2):
        with KafkaServer(make_config(tmp_path, broker_id="-1")) as server:
            ids.append(server.context.node_id)
    assert ids[0] > 1000
    assert ids[0] == ids[1]


def test_two_brokers_cannot_have_one_directory(tmp_path: Path, make_config: Any) -> None:
    with KafkaServer(make_config(tmp_path)), pytest.raises(KafkaError, match=str(tmp_path)):
        KafkaServer(make_config(tmp_path)).start()


def test_a_taken_port_stops_the_start_and_leaves_nothing_behind(tmp_path: Path, make_config: Any) -> None:
    with KafkaServer(make_config(tmp_path / "one")) as first:
        taken = f"PLAINTEXT://127.0.0.1:{first.endpoints[0].port}"
        with pytest.raises(OSError, match="taken"):
            KafkaServer(make_config(tmp_path / "two", listeners=taken)).start()
    with KafkaServer(make_config(tmp_path / "two")) as second:
        assert second.state is BrokerState.RUNNING


def recorded(name: str, steps: list[str], *, fails: str = "") -> type[Part]:
    """A part that notes its start and its stop in `steps`, and fails in one of them."""

    def note(step: str) -> None:
        steps.append(f"{step} {name}")
        if step == fails:
            raise RuntimeError(f"{name} fails")

    class Recorded(Part):
        async def start(self, broker: Broker) -> None:
            note("start")

        async def stop(self, broker: Broker) -> None:
            note("stop")

    Recorded.name = name
    return Recorded


def test_a_part_that_fails_to_start_ends_those_before_it_the_last_one_first(
    tmp_path: Path, make_config: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    steps: list[str] = []
    names = {"a": "", "b": "stop", "c": "start", "d": ""}
    parts = tuple(recorded(name, steps, fails=fails) for name, fails in names.items())
    monkeypatch.setattr(broker_server, "PARTS", parts)
    server = KafkaServer(make_config(tmp_path))
    with pytest.raises(RuntimeError, match="c fails"):
        server.start()
    assert steps == ["start a", "start b", "start c", "stop c", "stop b", "stop a"]
    assert "Part 'b' of the broker failed to stop" in caplog.messages, "it does not keep a from stopping"
    assert server.state is BrokerState.NOT_RUNNING


def test_directories_of_another_broker_or_cluster_are_refused(tmp_path: Path, make_config: Any) -> None:
    with KafkaServer(make_config(tmp_path)):
        pass
    with pytest.raises(InconsistentBrokerIdError):
        KafkaServer(make_config(tmp_path, broker_id="2")).start()
    meta = tmp_path / "meta.properties"
    meta.write_text("version=0\nbroker.id=1\ncluster.id=WNzc7e3mQT2qdN0vVIYyZg\n")
    with pytest.raises(InconsistentClusterIdError, match="WNzc7e3mQT2qdN0vVIYyZg"):
        KafkaServer(make_config(tmp_path)).start()


def test_several_directories_and_listeners_are_used(tmp_path: Path, make_config: Any, connect: Any) -> None:
    config = make_config(
        tmp_path,
        log_dirs=f"{tmp_path / 'a'},{tmp_path / 'b'}",
        listeners="INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        inter_broker_listener_name="INSIDE",
    )
    with KafkaServer(config) as server:
        client = connect(server)
        client.create_topic("orders", 4)
        held = {path: len(list((tmp_path / path).glob("orders-*"))) for path in ("a", "b")}
        assert held == {"a": 2, "b": 2}
        assert [endpoint.listener_name for endpoint in server.endpoints] == ["INSIDE", "OUTSIDE"]
        assert len({endpoint.port for endpoint in server.endpoints}) == 2


def test_a_timestamp_is_found_after_a_restart(tmp_path: Path, make_config: Any, connect: Any) -> None:
    with KafkaServer(make_config(tmp_path)) as server:
        client = connect(server)
        client.create_topic("orders")
        client.produce("orders", [(1000, b"a"), (2000, b"b")])
    with KafkaServer(make_config(tmp_path)) as server:
        asked = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=1500)
        topic = ListOffsetsRequest.Topic(name="orders", partitions=[asked])
        response = connect(server)(ListOffsetsRequest(replica_id=-1, topics=[topic]), 5)
        assert response.topics[0].partitions[0].offset == 1


def test_a_start_imports_no_handler_and_completes_that_when_it_runs(tmp_path: Path) -> None:
    code = f"""
import sys, time
from kafkapy.broker import server as broker_server
from kafkapy.broker.parts import resources
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.properties import Properties

resources.IMPORTS_AFTER_S = 0.3
keys = {{"broker.id": "0", "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": {str(tmp_path)!r},
        "kafkapy.metadata.store": "embedded"}}
raw = Properties()
for name, value in keys.items():
    raw.set(name, value)

def late():
    places = ("kafkapy.broker.handlers.", "kafkapy.coordinator.group.co")
    return [name for name, module in sys.modules.items() if module is not None and name.startswith(places)]

sys.modules["kafkapy.broker.handlers.end_txn"] = None  # cannot be imported: the others are all the same

with broker_server.KafkaServer(BrokerConfig.from_properties(raw)) as broker:
    assert late() == ["kafkapy.coordinator.group.config"], late()
    deadline = time.monotonic() + 60
    while "group" not in vars(broker.context.coordinators) and time.monotonic() < deadline:
        time.sleep(0.02)
    missing = {{f"kafkapy.broker.handlers.{{key.module}}" for key in broker.apis.served}} - set(late())
    assert missing == {{"kafkapy.broker.handlers.end_txn"}}, missing
    assert "kafkapy.coordinator.group.coordinator" in late()
"""
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert outcome.returncode == 0, outcome.stderr
