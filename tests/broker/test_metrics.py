"""What Prometheus sees."""

from __future__ import annotations

import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import localhost, shared_ca
from prometheus_client.parser import text_string_to_metric_families

from kafkapy.broker.metrics import METRICS, BrokerCollector, reference
from kafkapy.broker.server import KafkaServer
from kafkapy.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest

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
            assert set(sample.labels) - {"le"} == labels[family.name]


def test_traffic_is_counted_by_topic_and_by_request(scraped: Any) -> None:
    _, client, address = scraped
    client.create_topic("orders", 2)
    client.produce("orders", [(1, b"x" * 100)] * 3)
    found = scrape(address)
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
        count = found["kafka_network_requestmetrics_totaltimems_count", (("request", request),)]
        assert count == 1
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
