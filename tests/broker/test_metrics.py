"""What Prometheus sees."""

from __future__ import annotations

import gc
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import localhost, shared_ca
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from waiting import wait_until

from kafkapy.broker.metric_names import METRICS, reference
from kafkapy.broker.metric_samples import encode_in_slices
from kafkapy.broker.metrics import BrokerCollector, Share, bucket_counts
from kafkapy.broker.server import KafkaServer
from kafkapy.protocol.header import encode_request
from kafkapy.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def scraped(tmp_path: Path, make_config: Any, connect: Any) -> Iterator[tuple[KafkaServer, Any, str]]:
    """A broker that serves metrics, a client of it, and the address."""
    with KafkaServer(make_config(tmp_path, metrics_listeners="127.0.0.1:0")) as server:
        assert server.metrics_listener is not None
        host, port = server.metrics_listener.bound[0]
        yield server, connect(server), f"http://{host}:{port}/metrics"


def scrape(address: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    with urllib.request.urlopen(address, timeout=10) as response:
        text = response.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape_counted(address: str, **requests: int) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What is seen when so many requests of each API count: a client may have a response a moment before."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    counts = {
        ("kafka_network_requestmetrics_totaltimems_count", (("request", api),)): requests[api] for api in requests
    }

    def all_count() -> bool:
        found.clear()
        found.update(scrape(address))
        return counts.items() <= found.items()

    wait_until(all_count, f"the requests count: {requests}")
    return found


def test_the_reference_page_is_what_the_table_says() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text() == "\n".join(reference()) + "\n"


def test_the_collector_exposes_exactly_the_table(broker: Any) -> None:
    exposed = [(family.name, family.type, family.documentation) for family in BrokerCollector(broker).collect()]
    assert exposed == [(spec.name, spec.kind, spec.doc) for spec in METRICS]


def test_labels_are_those_of_the_table(broker: Any, client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    client.produce(topic_name, [(1, b"x")])
    labels = {spec.name: set(spec.labels) for spec in METRICS}
    for family in BrokerCollector(broker).collect():
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == labels[family.name], sample


def test_traffic_is_counted_by_topic_and_by_request(scraped: Any) -> None:
    _, client, address = scraped
    client.create_topic("orders", 2)
    client.produce("orders", [(1, b"x" * 100)] * 3)
    found = scrape_counted(address, Produce=1, CreateTopics=1)
    orders = (("topic", "orders"),)
    assert found["kafka_server_brokertopicmetrics_messagesin_total", orders] == 3
    assert found["kafka_server_brokertopicmetrics_bytesin_total", orders] > 300
    assert found["kafka_server_brokertopicmetrics_totalproducerequests_total", orders] == 1
    assert found["kafka_server_replicamanager_partitioncount", ()] == 2
    assert found["kafka_server_replicamanager_leadercount", ()] == 2
    assert found["kafka_controller_kafkacontroller_activecontrollercount", ()] == 1
    assert found["kafka_server_kafkaserver_brokerstate", ()] == 3
    assert found["kafka_server_socketservermetrics_connectioncount", (("listener", "PLAINTEXT"),)] == 1
    first = (("partition", "0"), ("topic", "orders"))
    assert found["kafka_log_log_logendoffset", first] == 3
    assert found["kafka_log_log_size", first] > 300
    for request in ("Produce", "CreateTopics"):
        assert found["kafka_network_requestmetrics_requests_total", (("request", request),)] == 1
    assert ("process_resident_memory_bytes", ()) in found


def test_transactional_ids_are_counted_by_state(scraped: Any) -> None:
    _, client, address = scraped
    for name in ("one", "two"):
        client.coordinate_transactions(name)
        assert client(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000), 4).error_code == 0
    found = scrape(address)
    counted = "kafka_coordinator_transaction_transactionstatemanager_numtransactionalids"
    assert {labels: value for (name, labels), value in found.items() if name == counted} == {(("state", "Empty"),): 2}
    unfinished = "kafka_coordinator_transaction_transactionmarkerchannelmanager_unfinishedtransactions"
    assert found[unfinished, ()] == 0
    for queue in ("unknowndestinationqueuesize", "logappendretryqueuesize"):
        assert found[f"kafka_coordinator_transaction_transactionmarkerchannelmanager_{queue}", ()] == 0
    assert found["kafka_server_transaction_coordinator_metrics_partition_load_time_max", ()] >= 0


def test_verifications_are_counted_and_timed(scraped: Any) -> None:
    _, client, address = scraped
    client.create_topic("verified")
    client.coordinate_transactions("verified")
    batch = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    with pytest.raises(AssertionError, match="INVALID_PRODUCER_ID_MAPPING"):
        client.produce("verified", [(1, b"x")], transactional_id="verified", **batch)
    found = scrape(address)
    assert found["kafka_server_addpartitionstotxnmanager_verificationfailure_total", ()] == 1
    assert found["kafka_server_addpartitionstotxnmanager_verificationtimems_count", ()] == 1


def test_the_parts_of_a_requests_time_are_histograms(scraped: Any) -> None:
    _, client, address = scraped
    client.create_topic("timed")
    for _ in range(5):
        client.produce("timed", [(1, b"x")])
    found = scrape_counted(address, Produce=5, CreateTopics=1)
    prefix = "kafka_network_requestmetrics_"
    for request, number in (("Produce", 5), ("CreateTopics", 1)):
        labels = ("request", request)
        for part in ("requestqueue", "local", "remote", "responsequeue", "responsesend", "throttle", "total"):
            name = f"{prefix}{part}timems"
            assert found[f"{name}_count", (labels,)] == number, name
            buckets = [
                value for (sample, found_labels), value in found.items()
                if sample == f"{name}_bucket" and labels in found_labels
            ]  # fmt: skip
            assert buckets == sorted(buckets) and buckets[-1] == number
        sums = {part: found[f"{prefix}{part}timems_sum", (labels,)] for part in ("local", "responsesend", "total")}
        assert 0 < sums["local"] < sums["total"]
        assert 0 < sums["responsesend"] < sums["total"]
        assert found[f"{prefix}throttletimems_sum", (labels,)] == 0
    assert found[f"{prefix}requestqueuetimems_sum", (("request", "Produce"),)] == 0
    assert found[f"{prefix}requestqueuetimems_sum", (("request", "CreateTopics"),)] > 0
    assert found[f"{prefix}responsequeuetimems_sum", (("request", "CreateTopics"),)] > 0


def test_a_fetch_that_waits_is_in_the_purgatory_and_has_a_remote_time(scraped: Any) -> None:
    server, client, address = scraped
    topic_id = client.create_topic("awaited")
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    request = FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=1000,
        topics=[FetchRequest.Topic(topic_id=topic_id, partitions=[partition])],
    )
    waiting = ("kafka_server_delayedoperationpurgatory_purgatorysize", (("delayedOperation", "Fetch"),))
    assert scrape(address)[waiting] == 0
    with socket.create_connection((server.endpoints[0].host, server.endpoints[0].port), 60) as consumer:
        frame = encode_request(1, 13, 1, "c", request)
        consumer.sendall(len(frame).to_bytes(4, "big") + frame)
        wait_until(lambda: scrape(address)[waiting] == 1, "the fetch waits")
        client.produce("awaited", [(1, b"x")])
        assert consumer.recv(4)
    found = scrape_counted(address, Fetch=1)
    assert found[waiting] == 0
    assert found["kafka_network_requestmetrics_remotetimems_sum", (("request", "Fetch"),)] > 0


def test_a_reply_that_takes_several_writes_has_its_whole_sending_time(scraped: Any) -> None:
    server, client, address = scraped
    topic_id = client.create_topic("large")
    for _ in range(20):
        client.produce("large", [(1, b"x" * 900_000)])
    size = 50_000_000
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=size)
    topics = [FetchRequest.Topic(topic_id=topic_id, partitions=[partition])]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=size, topics=topics)
    frame = encode_request(1, 13, 1, "c", request)
    with socket.create_connection((server.endpoints[0].host, server.endpoints[0].port), 60) as consumer:
        consumer.sendall(len(frame).to_bytes(4, "big") + frame)
        left = 4 + int.from_bytes(consumer.recv(4, socket.MSG_WAITALL), "big") - 4
        time.sleep(0.05)  # it cannot be sent meanwhile
        while left:
            left -= len(consumer.recv(min(left, 1 << 20)))
    name = "kafka_network_requestmetrics_responsesendtimems_sum"
    wait_until(lambda: scrape(address).get((name, (("request", "Fetch"),)), 0) >= 50, "the sending time is counted")


def test_kafka_exporters_names_tell_offsets_replicas_members_and_lag(scraped: Any) -> None:
    _, client, address = scraped
    client.create_topic("orders", 2)
    client.produce("orders", [(1, b"x")] * 5)
    client(FindCoordinatorRequest(key="g", key_type=0), 1)
    partition = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=2, committed_metadata="")
    topics = [OffsetCommitRequest.Topic(name="orders", partitions=[partition])]
    commit = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=topics)
    wait_until(lambda: client(commit, 2).topics[0].partitions[0].error_code == 0, "the offset is committed")
    found = scrape(address)
    first, second = ((("partition", number), ("topic", "orders")) for number in "01")
    assert found["kafka_brokers", ()] == 1
    assert found["kafka_topic_partitions", (("topic", "orders"),)] == 2
    for name, values in {
        "current_offset": (5, 0),
        "oldest_offset": (0, 0),
        "leader": (1, 1),
        "leader_is_preferred": (1, 1),
        "replicas": (1, 1),
        "in_sync_replica": (1, 1),
        "under_replicated_partition": (0, 0),
    }.items():
        assert (found[f"kafka_topic_partition_{name}", first], found[f"kafka_topic_partition_{name}", second]) == values
    group = ("consumergroup", "g")
    assert found["kafka_consumergroup_members", (group,)] == 0
    assert found["kafka_consumergroup_current_offset", (group, *first)] == 2
    assert found["kafka_consumergroup_lag", (group, *first)] == 3
    assert found["kafka_consumergroup_current_offset_sum", (group, ("topic", "orders"))] == 2
    assert found["kafka_consumergroup_lag_sum", (group, ("topic", "orders"))] == 3


def test_filters_and_the_limit_bound_the_series(tmp_path: Path, make_config: Any, connect: Any) -> None:
    keys = {
        "metrics.listeners": "127.0.0.1:0",
        "kafkapy.metrics.topic.include": "^(orders|parts)",
        "kafkapy.metrics.topic.exclude": "secret$",
        "kafkapy.metrics.max.series": "13",
    }
    config = make_config(tmp_path, **{key.replace(".", "_"): value for key, value in keys.items()})
    with KafkaServer(config) as server:
        client = connect(server)
        for topic in ("orders", "orders-secret", "parts", "other"):
            client.create_topic(topic)
            client.produce(topic, [(1, b"x" * 100)])
        assert server.metrics_listener is not None
        host, port = server.metrics_listener.bound[0]
        found = scrape(f"http://{host}:{port}/metrics")
    topics = {value for _, labels in found for name, value in labels if name == "topic"}
    assert topics == {"", "orders", "parts"}
    counted = "kafka_server_brokertopicmetrics_messagesin_total"
    assert found[counted, (("topic", ""),)] == 4
    by_partition = [name for name, labels in found if "partition" in dict(labels)]
    assert len(by_partition) == 13
    assert found["kafkapy_metrics_seriesdropped", ()] == 2 * (4 + 7) - 13


def test_totals_over_topics_do_not_fall_when_a_topic_goes(scraped: Any) -> None:
    _, client, address = scraped
    counted = ("kafka_server_brokertopicmetrics_messagesin_total", (("topic", ""),))
    for topic in ("stays", "goes"):
        client.create_topic(topic)
        client.produce(topic, [(1, b"x")] * 3)
    assert scrape(address)[counted] == 6
    client(DeleteTopicsRequest(topic_names=["goes"], timeout_ms=30_000), 4)
    gone = ("kafka_topic_partitions", (("topic", "goes"),))
    wait_until(lambda: gone not in scrape(address), "the topic is gone")
    client.produce("stays", [(1, b"x")])
    assert scrape(address)[counted] == 7


def test_head_answers_without_a_body(scraped: Any) -> None:
    _, _, address = scraped
    with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=10) as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/plain")
        assert response.read() == b""
    missing = urllib.request.Request(address.replace("/metrics", "/other"), method="HEAD")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(missing, timeout=10)


def test_the_garbage_collector_rests_while_a_scrape_makes_its_samples() -> None:
    seen = []

    class Watching(Collector):
        def collect(self) -> Iterator[Metric]:
            for number in range(3):
                metric = Metric(f"m{number}", "", "gauge")
                metric.add_sample(f"m{number}", {}, number)
                seen.append(gc.isenabled())
                yield metric

    assert gc.isenabled()
    text = encode_in_slices(Watching(), generate_latest).decode()
    assert [line for line in text.splitlines() if not line.startswith("#")] == ["m0 0.0", "m1 1.0", "m2 2.0"]
    assert (seen, gc.isenabled()) == ([False] * 3, True)


def test_a_share_covers_the_last_minute() -> None:
    share = Share()
    assert share.over_the_window(10, 0, 0) == 1
    assert share.over_the_window(20, 10, 10) == 1
    assert share.over_the_window(80, 10, 70) == 0
    assert share.over_the_window(110, 25, 100) == pytest.approx(15 / 90)
    assert share.over_the_window(120, 1, 2) == 0.5, "threads were replaced"


def test_bucket_counts_are_cumulative() -> None:
    counts = [0] * 32
    counts[3], counts[7], counts[31] = 5, 2, 1
    assert bucket_counts(counts, 10, range(2, 10, 2)) == [10, 15, 15, 17, 18]


def test_other_paths_are_not_found(scraped: Any) -> None:
    _, _, address = scraped
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(address.replace("/metrics", "/secrets"), timeout=10)


def test_a_taken_metrics_port_stops_the_start(tmp_path: Path, make_config: Any, scraped: Any) -> None:
    _, _, address = scraped
    port = address.split(":")[2].split("/")[0]
    with pytest.raises(Exception, match=r"metrics\.listeners"):
        KafkaServer(make_config(tmp_path / "second", metrics_listeners=f"127.0.0.1:{port}")).start()


def test_groups_are_counted_by_protocol_and_state(scraped: Any) -> None:
    _, client, address = scraped
    prefix = "kafka_server_groupcoordinatormetrics_"
    assert scrape(address)[prefix + "groupcount", (("protocol", "consumer"),)] == 0
    client.create_topic("orders", 2)
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    client(FindCoordinatorRequest(key="g", key_type=0), 1)
    while client(request, 1).error_code != 0:
        pass
    after = scrape(address)
    assert after[prefix + "groupcount", (("protocol", "consumer"),)] == 1
    assert after[prefix + "groupcount", (("protocol", "classic"),)] == 0
    assert after[prefix + "consumergroupcount", (("state", "stable"),)] == 1
    assert after[prefix + "consumergrouprebalance_total", ()] == 1
    assert after[prefix + "partitioncount", (("state", "active"),)] == 50


def test_authentications_and_ciphers_are_counted_by_listener(tmp_path: Path, make_config: Any) -> None:
    keystore = tmp_path / "broker.pem"
    keystore.write_bytes(localhost().key_pem + localhost().chain_pem)
    config = make_config(
        tmp_path / "logs",
        listeners="PLAINTEXT://127.0.0.1:0,SAFE://127.0.0.1:0",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,SAFE:SSL",
        metrics_listeners="127.0.0.1:0",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(keystore),
    )
    context = ssl.create_default_context(cadata=shared_ca().der)
    with KafkaServer(config) as server:
        assert server.metrics_listener is not None
        host, port = server.metrics_listener.bound[0]
        safe = server.socket_server.bound_port("SAFE")
        with socket.create_connection(("127.0.0.1", safe), 30) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while raw.recv(1000):
                pass
        with (
            socket.create_connection(("127.0.0.1", safe), 30) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as connection,
        ):
            connection.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff")  # ApiVersions
            assert connection.recv(4)
            found = scrape(f"http://{host}:{port}/metrics")
            cipher, protocol, _ = connection.cipher() or ("", "", 0)
    prefix, listener = "kafka_server_socketservermetrics_", ("listener", "SAFE")
    assert found[f"{prefix}successfulauthentication_total", (listener,)] == 1
    assert found[f"{prefix}failedauthentication_total", (listener,)] == 1
    assert found[f"{prefix}authenticationtimeout_total", (listener,)] == 0
    labels = (("cipher", cipher), listener, ("protocol", protocol))
    assert found[f"{prefix}connections", labels] == 1
    assert (f"{prefix}failedauthentication_total", (("listener", "PLAINTEXT"),)) not in found
