"""docs/monitoring: every panel, alert and rule against a real Prometheus that scrapes two brokers under load."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import signal
import socket
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

from kafkapy import KafkaConsumer, KafkaProducer
from kafkapy.testing import Cluster

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "docs" / "monitoring"
RULES = (MONITORING / "rules.yml", MONITORING / "alerts.yml")
PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
needs_prometheus = pytest.mark.skipif(
    PROMETHEUS is None or PROMTOOL is None, reason="Prometheus is not installed (scripts/system-packages test)"
)
NO_DATA = {
    "Refused requests": "no API refuses a request in this test, but the counter is there",
    "Time to catch up": "a group that has caught up commits nothing for a while",
}
"""Panels that may have no data at one moment, and why."""


def dashboards_script() -> Any:
    spec = importlib.util.spec_from_file_location("grafana_dashboards", ROOT / "scripts" / "grafana_dashboards.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def promtool(*arguments: str, given: bytes | None = None) -> str:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *arguments], input=given, capture_output=True, timeout=120)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    return said


class Prometheus:
    """A running Prometheus."""

    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self.port = port
        self.process = process

    def get(self, path: str, **parameters: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as response:
            return json.loads(response.read())["data"]

    def query(self, text: str) -> list[Any]:
        found: list[Any] = self.get("api/v1/query", query=text)["result"]
        return found

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False


class Load:
    """A producer and a group that is always a little behind, until `stop`."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.ending = threading.Event()
        self.threads = [threading.Thread(target=work) for work in (self.produce, self.consume)]
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        self.ending.set()
        for thread in self.threads:
            thread.join()

    def produce(self) -> None:
        producer = KafkaProducer(bootstrap_servers=self.servers)
        while not self.ending.wait(0.01):
            producer.send("orders", b"x" * 1000)
        producer.close()

    def consume(self) -> None:
        consumer = KafkaConsumer(
            "orders",
            bootstrap_servers=self.servers,
            group_id="billing",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=200,
            max_poll_records=5,
        )
        while not self.ending.wait(0.02):
            consumer.poll(100)
        consumer.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def addresses() -> Iterator[list[str]]:
    """The metrics listeners of two brokers under load."""
    with Cluster(2, metrics_listeners="127.0.0.1:0", log_flush_interval_messages="100") as cluster:
        cluster.create_topic("orders", 4, 2)
        load = Load(cluster.bootstrap_servers)
        found = []
        for broker in cluster.brokers.values():
            listener = broker.server.metrics_listener
            assert listener is not None
            found.append("{}:{}".format(*listener.bound[0]))
        yield found
        load.stop()


@pytest.fixture(scope="module")
def prometheus(addresses: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Scrapes them every few seconds, and has the rules."""
    directory = tmp_path_factory.mktemp("prometheus")
    configuration = {
        "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "2s"},
        "rule_files": list(map(str, RULES)),
        "scrape_configs": [{"job_name": "kafkapy", "static_configs": [{"targets": addresses}]}],
    }
    # JSON is YAML.
    (directory / "prometheus.yml").write_text(json.dumps(configuration), encoding="utf-8")
    assert PROMETHEUS is not None
    port = free_port()
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                PROMETHEUS,
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    made = Prometheus(port, process)
    try:
        wait_until(made.is_ready, "Prometheus is ready")
        wait_until(lambda: len(made.query("up == 1")) == 2, "both brokers are scraped")
        behind = "sum(kafka_consumergroup_current_offset_sum{topic='orders'}) > 0"
        wait_until(lambda: made.query(behind), "the group has committed")
        # For the rates.
        wait_until(lambda: len(made.query("count_over_time(up[1m]) > 4")) == 2, "scrapes for rates")
        yield made
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def test_the_dashboards_are_those_of_the_script() -> None:
    for path, text in dashboards_script().files():
        assert path.read_text(encoding="utf-8") == text, path.name


def test_every_metric_in_the_queries_is_exposed_or_recorded() -> None:
    from kafkapy.broker.metric_names import METRICS

    exposed = {spec.exposed_name for spec in METRICS}
    histograms = [spec.name for spec in METRICS if spec.kind == "histogram"]
    exposed |= {f"{name}_{end}" for name in histograms for end in ("bucket", "sum", "count")}
    texts = [path.read_text(encoding="utf-8") for path in (*RULES, *sorted(MONITORING.glob("dashboards/*.json")))]
    named = {name for text in texts for name in re.findall(r"\bkafka(?:py)?_\w+", text)}
    unknown = {name for name in named if name not in exposed} - {"kafka_exporter"}
    recorded = set(re.findall(r"record: (\w+)$", RULES[0].read_text(encoding="utf-8"), re.MULTILINE))
    assert unknown - recorded == set()


@needs_prometheus
def test_promtool_accepts_the_rules_and_their_tests_pass() -> None:
    promtool("check", "rules", *map(str, RULES))
    assert "SUCCESS" in promtool("test", "rules", str(MONITORING / "alerts.test.yml"))
    alerts = set(re.findall(r"alert: (\w+)", RULES[1].read_text(encoding="utf-8")))
    tested = set(re.findall(r"alertname: (\w+)", (MONITORING / "alerts.test.yml").read_text(encoding="utf-8")))
    assert alerts - tested == {"KafkaSlowProduce"}, "which the count of firing alerts covers"


@needs_prometheus
def test_promtool_reads_the_exposition(addresses: list[str]) -> None:
    for address in addresses:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as response:
            body = response.read()
        assert PROMTOOL is not None
        done = subprocess.run([PROMTOOL, "check", "metrics"], input=body, capture_output=True, timeout=60)
        complaints = [line for line in done.stderr.decode().splitlines() if not is_about_kafkas_names(line)]
        assert complaints == []


def is_about_kafkas_names(line: str) -> bool:
    """Complaints about names that dashboards know: camel case labels, units in ms, words that say a type."""
    return any(
        text in line
        for text in (
            "use base unit",
            "metric names should not contain abbreviated units",
            "label names should be written in 'snake_case' not 'camelCase'",
            'non-histogram and non-summary metrics should not have "_count" suffix',
            'non-counter metrics should not have "_total" suffix',
        )
    )


def panels() -> list[tuple[str, str, str]]:
    """(dashboard, panel, query)."""
    return [
        (dashboard.name, panel.title, query)
        for dashboard in dashboards_script().DASHBOARDS
        for panel in dashboard.panels
        for query, _ in panel.queries
    ]


@needs_prometheus
def test_every_panel_has_data(prometheus: Prometheus) -> None:
    empty = {}
    for dashboard, title, query in panels():
        text = query.replace("$__rate_interval", "30s")
        text = re.sub(r"\$(?:instance|topic|group)\b", ".*", text)
        if title in NO_DATA:
            prometheus.query(text)
            continue
        try:
            wait_until(lambda text=text: prometheus.query(text), f"{title} has data")
        except AssertionError:
            empty[dashboard, title] = text
    assert empty == {}


@needs_prometheus
def test_the_variables_of_the_dashboards_have_values(prometheus: Prometheus) -> None:
    for dashboard in dashboards_script().DASHBOARDS:
        for name, query in dashboard.variables:
            found = re.fullmatch(r"label_values\((\w+), (\w+)\)", query)
            assert found is not None
            assert prometheus.get(f"api/v1/label/{found[2]}/values", **{"match[]": found[1]}), name


@needs_prometheus
def test_every_rule_is_evaluated_and_no_alert_fires_on_a_healthy_cluster(prometheus: Prometheus) -> None:
    def evaluated() -> bool:
        rules = [rule for group in prometheus.get("api/v1/rules")["groups"] for rule in group["rules"]]
        return all(rule["health"] == "ok" for rule in rules)

    wait_until(evaluated, "every rule is evaluated")
    rules = [rule for group in prometheus.get("api/v1/rules")["groups"] for rule in group["rules"]]
    for rule in rules:
        if rule["type"] == "recording":
            wait_until(lambda rule=rule: prometheus.query(rule["name"]), f"{rule['name']} is recorded")
    alerts = [rule for rule in rules if rule["type"] == "alerting"]
    critical = {rule["name"] for rule in alerts if rule["labels"]["severity"] == "critical"}
    assert {alert["labels"]["alertname"] for alert in prometheus.get("api/v1/alerts")["alerts"]} & critical == set()
    assert prometheus.query('kafka_network_requestmetrics_totaltimems{quantile="0.99",request="Produce"}')


@needs_prometheus
def test_sums_over_brokers_count_everything_once(prometheus: Prometheus) -> None:
    def value(query: str) -> float:
        (found,) = prometheus.query(query)
        return float(found["value"][1])

    wait_until(lambda: value("sum(kafka_topic_partitions{topic='orders'})") == 4, "the topic has four partitions")
    for name, expected in (("leader_is_preferred", 4), ("replicas", 8), ("in_sync_replica", 8)):
        query = f"sum(kafka_topic_partition_{name}{{topic='orders'}})"
        wait_until(lambda query=query, expected=expected: value(query) == expected, query)
    assert value("sum(kafka_brokers)") == 2
    assert value("count(kafka_topic_partition_current_offset{topic='orders'})") == 4
