"""The console on Apache Kafka: every page of a cluster with topics, groups and transactions, and the main actions."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest
from console_site import Person, reset_fields, serving
from interop.conftest import JAVA, with_jars
from kafkapy_console.settings import Settings
from peers.apache_kafka import VERSIONS, ApacheKafka
from peers.apache_kafka import java as java_command
from waiting import wait_until

from kafkapy import KafkaConsumer, KafkaProducer
from kafkapy.admin import KafkaAdminClient

pytestmark = JAVA
PAGES = (
    "/", "/brokers/{broker}", "/brokers/{broker}/log-dirs", "/brokers/{broker}/versions", "/topics", "/topics/orders",
    "/topics/orders/records", "/topics/orders/records/0/0", "/topics/orders/configs", "/topics/orders/groups",
    "/topics/orders/configs/retention.ms", "/topics/orders/statistics", "/topics/orders/delete",
    "/topics/orders/delete-records?way=all",
    "/groups", "/groups/billing", "/groups/billing/reset?way=earliest", "/users", "/acls", "/rights?principal=ann",
    "/quotas", "/tokens", "/features", "/live.json", "/topics/orders/live.json", "/groups/billing/lag.json",
)  # fmt: skip
SINCE = {
    "/topics/orders/producers": (2, 8), "/transactions": (3, 0), "/hanging-transactions?look=1": (3, 0),
    "/reassignments": (2, 4),
}  # fmt: skip


@pytest.fixture(scope="module", params=sorted(VERSIONS))
def java(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    # One broker keeps the state of share groups alone.
    prefix = "share.coordinator.state.topic"
    alone = {f"{prefix}.replication.factor": "1", f"{prefix}.min.isr": "1"}
    data = tmp_path_factory.mktemp("java")
    with ApacheKafka(with_jars(request.param), data, overrides=alone) as broker:
        with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topics({"orders": {"num_partitions": 3, "replication_factor": 1}}, wait_for_metadata=True)
        with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            for number in range(60):
                producer.send("orders", b'{"n": %d}' % number, b"k", partition=number % 3, headers=[("h", b"1")])
        consumer = KafkaConsumer(
            "orders", bootstrap_servers=broker.bootstrap, group_id="billing", auto_offset_reset="earliest",
            enable_auto_commit=False,
        )  # fmt: skip
        with consumer:
            left = 60
            while left:
                left -= sum(map(len, consumer.poll(timeout_ms=1000).values()))
            consumer.commit()
        yield broker


@pytest.fixture
def visitor(java: ApacheKafka) -> Iterator[Person]:
    with serving(Settings(kafka={"bootstrap.servers": java.bootstrap})) as url:
        person = Person(url)
        yield person
        person.close()


def test_every_page(java: ApacheKafka, visitor: Person) -> None:
    broker = re.search(r'href="/brokers/(\d+)"', visitor.get("/"))
    assert broker
    for path in PAGES:
        page = visitor.get(path.format(broker=broker[1]))
        assert "Traceback" not in page, path
    for path in SINCE:
        response = visitor.http.get(path)
        # Older brokers have no such API: then the page says so.
        assert response.status_code in (200, 501), (path, response.text[:500])
    assert visitor.get("/topics/orders/records").count('<details class="value">') == 50
    events = visitor.events("/topics/orders/search?filter=value.n%20%3D%3D%207")
    assert events[-1] == ("end", "The search is complete: 1 hits in 60 records.")


def test_the_main_actions(visitor: Person) -> None:
    visitor.send("/create-topic", {"name": "made", "partitions": "2", "replicas": "1"}, page="/create-topic")
    visitor.send("/topics/made/produce", {"value": "v", "key": "k"}, page="/topics/made/produce")
    path = "/topics/made/configs/retention.ms"
    visitor.send(path, {"operation": "set", "value": "3600000"}, page=path)
    assert "3600000" in visitor.get("/topics/made/configs?set=1")
    reset = "/groups/billing/reset"
    visitor.send(reset, reset_fields(visitor.get(f"{reset}?way=earliest")), page=f"{reset}?way=earliest")
    assert re.search(r"<dt>Lag</dt><dd>60</dd>", visitor.get("/groups/billing"))
    visitor.send("/topics/made/delete", {"name": "made"}, page="/topics/made/delete")


def test_a_share_group_shows_members_and_lag_and_is_reset(java: ApacheKafka, visitor: Person) -> None:
    if java.version < "4.2":
        pytest.skip("share groups came with Kafka 4.2")
    main = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
    arguments = ("--bootstrap-server", java.bootstrap, "--topic", "orders", "--group", "sharers")
    reader = subprocess.Popen(java_command(java.version, main, *arguments), stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: visitor.http.get("/groups/sharers").status_code == 200, "the group is there")
        wait_until(lambda: "<dt>Members</dt><dd>1</dd>" in visitor.get("/groups/sharers"), "its member is there")
        wait_until(lambda: "Stable" in visitor.get("/groups/sharers"), "the group is stable")
        wait_until(lambda: "orders-0" in visitor.get("/groups/sharers"), "its member has the partitions")
        page = visitor.get("/groups/sharers")
        assert '<dd class="small">share</dd>' in page
        assert "Dead" not in page
        assert re.search(r"sharers</a></td><td>share</td>", visitor.get("/groups?kind=share"))
        # A new group begins at the end of the log at its first fetch: some record comes after that.
        with KafkaProducer(bootstrap_servers=java.bootstrap) as producer:

            def begun() -> bool:
                producer.send("orders", b"new", partition=0).get(timeout=60)
                return _shown(visitor, "orders-0")[0] not in ("", "–")

            wait_until(begun, "the group has a start offset")
        # The start offset that the broker keeps may be of an earlier acknowledgement: the lag is right.
        wait_until(lambda: _shown(visitor, "orders-0")[2] == "0", "the records are done")
    finally:
        reader.terminate()
        reader.wait()
    reset, deletion = "/groups/sharers/reset", "/groups/sharers/delete-offsets"
    wait_until(lambda: "1 member" not in visitor.get(reset), "the member has left")
    preview = f"{reset}?way=earliest&topic=orders&partition=0"
    fields = reset_fields(visitor.get(preview))
    start, end, lag = _shown(visitor, "orders-0")
    assert (fields["target"], lag) == ([f"orders:0:{start}:0"], "0")
    visitor.send(reset, fields, page=preview)
    assert _shown(visitor, "orders-0") == ("0", end, end)
    visitor.send(deletion, {"topic": "orders"}, page=f"{deletion}?topic=orders")
    assert "The group has no offsets." in visitor.get("/groups/sharers")


def _shown(visitor: Person, partition: str) -> tuple[str, str, str]:
    """Start offset, end of the log and lag of a partition of the share group, as its page has them."""
    row = re.search(rf"<tr><td><a [^>]*>{partition}</a></td>(.*?)</tr>", visitor.get("/groups/sharers"), re.DOTALL)
    if row is None:
        return ("", "", "")
    start, _, end, lag, *_ = re.findall(r'<td class="n">([^<]*)', row[1])
    return start, end, lag
