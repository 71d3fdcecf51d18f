"""Write the Grafana dashboards of docs/monitoring/dashboards from the tables below.

    python scripts/grafana_dashboards.py

tests/monitoring/test_monitoring.py compares the files with the tables, and runs every query against a Prometheus that
scrapes brokers under load.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

DIRECTORY: Final = Path(__file__).parents[1] / "docs" / "monitoring" / "dashboards"
RATE: Final = "[$__rate_interval]"
WIDTH, HEIGHT, COLUMNS = 8, 8, 24


class Panel(NamedTuple):
    """One panel: its title, Grafana's unit, and (query, legend) pairs."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"


class Dashboard(NamedTuple):
    """One dashboard: the file's name, title, variables as (name, query of their values), and panels."""

    name: str
    title: str
    variables: tuple[tuple[str, str], ...]
    panels: tuple[Panel, ...]


def rate(metric: str, labels: str, by: str = "instance") -> str:
    """The sum of a counter's rates."""
    return f"sum by ({by}) (rate({metric}{{{labels}}}{RATE}))"


def quantile(share: float, part: str, by: str = "request") -> str:
    """A quantile of a part of the time of requests, in ms."""
    name = f"kafka_network_requestmetrics_{part}_bucket"
    return f'histogram_quantile({share}, sum by ({by}, le) (rate({name}{{instance=~"$instance"}}{RATE})))'


BROKER: Final = 'instance=~"$instance"'
TOPIC: Final = 'instance=~"$instance",topic=~"$topic",topic!=""'
GROUP: Final = 'consumergroup=~"$group"'
INSTANCES: Final = ("instance", "label_values(kafka_server_kafkaserver_brokerstate, instance)")
TOPICS: Final = ("topic", "label_values(kafka_topic_partitions, topic)")
GROUPS: Final = ("group", "label_values(kafka_consumergroup_members, consumergroup)")
METRICS: Final = "kafka_server_brokertopicmetrics"
REPLICAS: Final = "kafka_server_replicamanager"
CONTROLLER: Final = "kafka_controller_kafkacontroller"

DASHBOARDS: Final = (
    Dashboard("overview", "Kafka overview", (INSTANCES,), (
        Panel("Live brokers", "none", (("max(kafka_brokers)", "brokers"),), "stat"),
        Panel("Active controllers", "none", ((f"sum({CONTROLLER}_activecontrollercount)", "controllers"),), "stat"),
        Panel("Offline partitions", "none", ((f"max({CONTROLLER}_offlinepartitionscount)", "partitions"),), "stat"),
        Panel("Under-replicated partitions", "none", ((f"sum({REPLICAS}_underreplicatedpartitions)", "partitions"),),
              "stat"),
        Panel("Topics", "none", ((f"max({CONTROLLER}_globaltopiccount)", "topics"),), "stat"),
        Panel("Partitions", "none", ((f"max({CONTROLLER}_globalpartitioncount)", "partitions"),), "stat"),
        Panel("Bytes in", "Bps", ((rate(f"{METRICS}_bytesin_total", f'{BROKER},topic=""'), "{{instance}}"),)),
        Panel("Bytes out", "Bps", ((rate(f"{METRICS}_bytesout_total", f'{BROKER},topic=""'), "{{instance}}"),)),
        Panel("Records in", "cps", ((rate(f"{METRICS}_messagesin_total", f'{BROKER},topic=""'), "{{instance}}"),)),
        Panel("Idle share of threads", "percentunit", (
            (f"kafka_network_socketserver_networkprocessoravgidlepercent{{{BROKER}}}", "network {{instance}}"),
            (f"kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent{{{BROKER}}}",
             "control loop {{instance}}"),
            (f"kafkapy_workerpool_avgidlepercent{{{BROKER}}}", "workers {{instance}}"))),
        Panel("Connections", "none", (
            (f"sum by (instance, listener) (kafka_server_socketservermetrics_connectioncount{{{BROKER}}})",
             "{{instance}} {{listener}}"),)),
        Panel("New connections", "cps", (
            (rate("kafka_server_socketservermetrics_connectioncreation_total", BROKER), "{{instance}}"),)),
        Panel("Size of the logs", "bytes", ((f"sum by (instance) (kafka_log_log_size{{{BROKER}}})", "{{instance}}"),)),
        Panel("Flushes, p99", "ms", (
            (f"histogram_quantile(0.99, sum by (instance, le) "
             f"(rate(kafka_log_logflushstats_logflushrateandtimems_bucket{{{BROKER}}}{RATE})))", "{{instance}}"),)),
        Panel("Resident memory", "bytes", ((f"process_resident_memory_bytes{{{BROKER}}}", "{{instance}}"),)),
        Panel("CPU", "percentunit", ((f"rate(process_cpu_seconds_total{{{BROKER}}}{RATE})", "{{instance}}"),)),
        Panel("Open files", "none", ((f"process_open_fds{{{BROKER}}}", "{{instance}}"),)),
        Panel("Control loop lag", "ms", ((f"kafkapy_controlloop_lagms{{{BROKER}}}", "{{instance}}"),)),
        Panel("Builds", "none", (("count by (version, python) (kafkapy_build_info)", "{{version}} {{python}}"),)),
    )),
    Dashboard("topics", "Kafka topics", (INSTANCES, TOPICS), (
        Panel("Bytes in", "Bps", ((rate(f"{METRICS}_bytesin_total", TOPIC, "topic"), "{{topic}}"),)),
        Panel("Bytes out", "Bps", ((rate(f"{METRICS}_bytesout_total", TOPIC, "topic"), "{{topic}}"),)),
        Panel("Records in", "cps", ((rate(f"{METRICS}_messagesin_total", TOPIC, "topic"), "{{topic}}"),)),
        Panel("Produce requests", "cps", (
            (rate(f"{METRICS}_totalproducerequests_total", TOPIC, "topic"), "{{topic}}"),
            (rate(f"{METRICS}_failedproducerequests_total", TOPIC, "topic"), "{{topic}} failed"))),
        Panel("Fetch requests", "cps", (
            (rate(f"{METRICS}_totalfetchrequests_total", TOPIC, "topic"), "{{topic}}"),
            (rate(f"{METRICS}_failedfetchrequests_total", TOPIC, "topic"), "{{topic}} failed"))),
        Panel("Bytes refused", "Bps", ((rate(f"{METRICS}_bytesrejected_total", TOPIC, "topic"), "{{topic}}"),)),
        Panel("Partitions", "none", (('max by (topic) (kafka_topic_partitions{topic=~"$topic"})', "{{topic}}"),)),
        Panel("Size", "bytes", ((f"sum by (topic) (kafka_log_log_size{{{TOPIC}}})", "{{topic}}"),)),
        Panel("Segments", "none", ((f"sum by (topic) (kafka_log_log_numlogsegments{{{TOPIC}}})", "{{topic}}"),)),
        Panel("Records held", "none", ((
            'sum by (topic) (kafka_topic_partition_current_offset{topic=~"$topic"} '
            '- kafka_topic_partition_oldest_offset{topic=~"$topic"})', "{{topic}}"),)),
        Panel("Records appended (kafka_exporter)", "cps", ((
            f'sum by (topic) (rate(kafka_topic_partition_current_offset{{topic=~"$topic"}}{RATE}))', "{{topic}}"),)),
    )),
    Dashboard("groups", "Kafka consumer groups", (GROUPS,), (
        Panel("Lag by topic", "none", (
            (f"sum by (consumergroup, topic) (kafka_consumergroup_lag_sum{{{GROUP}}})",
             "{{consumergroup}} {{topic}}"),)),
        Panel("Lag by partition", "none", (
            (f"topk(20, max by (consumergroup, topic, partition) (kafka_consumergroup_lag{{{GROUP}}}))",
             "{{consumergroup}} {{topic}} {{partition}}"),)),
        Panel("Time to catch up", "s", ((
            f"sum by (consumergroup, topic) (kafka_consumergroup_lag_sum{{{GROUP}}}) / "
            f"(sum by (consumergroup, topic) (rate(kafka_consumergroup_current_offset_sum{{{GROUP}}}{RATE})) > 0)",
            "{{consumergroup}} {{topic}}"),)),
        Panel("Records committed", "cps", ((
            f"sum by (consumergroup, topic) (rate(kafka_consumergroup_current_offset_sum{{{GROUP}}}{RATE}))",
            "{{consumergroup}} {{topic}}"),)),
        Panel("Members", "none", ((f"sum by (consumergroup) (kafka_consumergroup_members{{{GROUP}}})",
                                   "{{consumergroup}}"),)),
        Panel("Groups", "none", ((
            "sum by (protocol, state) (kafka_coordinator_group_groupmetadatamanager_numgroups)",
            "{{protocol}} {{state}}"),)),
        Panel("Rebalances", "cps", (
            (f"sum(rate(kafka_server_groupcoordinatormetrics_groupcompletedrebalance_total{RATE}))", "classic"),
            (f"sum(rate(kafka_server_groupcoordinatormetrics_consumergrouprebalance_total{RATE}))", "consumer"))),
        Panel("Offsets committed", "cps", (
            (f"sum(rate(kafka_server_groupcoordinatormetrics_offsetcommit_total{RATE}))", "commits"),)),
        Panel("Offsets held", "none", (
            ("sum(kafka_coordinator_group_groupmetadatamanager_numoffsets)", "offsets"),)),
    )),
    Dashboard("replication", "Kafka replication", (INSTANCES,), (
        Panel("Under-replicated partitions", "none", (
            (f"{REPLICAS}_underreplicatedpartitions{{{BROKER}}}", "{{instance}}"),)),
        Panel("Under min.insync.replicas", "none", (
            (f"{REPLICAS}_underminisrpartitioncount{{{BROKER}}}", "{{instance}}"),)),
        Panel("At min.insync.replicas", "none", ((f"kafka_cluster_partition_atminisr{{{BROKER}}}", "{{instance}}"),)),
        Panel("Partitions and leaders", "none", (
            (f"{REPLICAS}_partitioncount{{{BROKER}}}", "partitions {{instance}}"),
            (f"{REPLICAS}_leadercount{{{BROKER}}}", "leaders {{instance}}"))),
        Panel("ISR shrinks and expands", "cps", (
            (rate(f"{REPLICAS}_isrshrinks_total", BROKER), "shrinks {{instance}}"),
            (rate(f"{REPLICAS}_isrexpands_total", BROKER), "expands {{instance}}"))),
        Panel("Largest lag of a follower", "none", (
            (f"kafka_server_replicafetchermanager_maxlag{{{BROKER}}}", "{{instance}}"),)),
        Panel("Replicated bytes in", "Bps", (
            (rate(f"{METRICS}_replicationbytesin_total", BROKER), "{{instance}}"),)),
        Panel("Fetchers without connection", "none", (
            (f"kafka_server_replicafetchermanager_deadthreadcount{{{BROKER}}}", "{{instance}}"),)),
        Panel("Reassigning partitions", "none", (
            (f"{REPLICAS}_reassigningpartitions{{{BROKER}}}", "{{instance}}"),)),
        Panel("Leaders that are not preferred", "none", (
            ("max(kafka_controller_kafkacontroller_preferredreplicaimbalancecount)", "partitions"),)),
        Panel("In-sync replicas by topic", "none", (
            ("sum by (topic) (kafka_topic_partition_in_sync_replica) / sum by (topic) (kafka_topic_partition_replicas)",
             "{{topic}}"),)),
        Panel("Events of the controller", "cps", (
            (f"sum by (state) (rate(kafka_controller_controllerstats_events_total{RATE}))", "{{state}}"),)),
        Panel("Queues of the controller", "none", (
            ("sum(kafka_controller_controllereventmanager_eventqueuesize)", "events"),
            ("sum(kafka_controller_controllerchannelmanager_totalqueuesize)", "requests"))),
    )),
    Dashboard("requests", "Kafka requests", (INSTANCES,), (
        Panel("Requests", "cps", (
            (rate("kafka_network_requestmetrics_requests_total", BROKER, "request"), "{{request}}"),)),
        Panel("Refused requests", "cps", (
            (rate("kafka_network_requestmetrics_errors_total", BROKER, "request"), "{{request}}"),)),
        Panel("Whole time, p50", "ms", ((quantile(0.5, "totaltimems"), "{{request}}"),)),
        Panel("Whole time, p99", "ms", ((quantile(0.99, "totaltimems"), "{{request}}"),)),
        Panel("Waiting for the control loop, p99", "ms", ((quantile(0.99, "requestqueuetimems"), "{{request}}"),)),
        Panel("Working, p99", "ms", ((quantile(0.99, "localtimems"), "{{request}}"),)),
        Panel("Waiting for data or replicas, p99", "ms", ((quantile(0.99, "remotetimems"), "{{request}}"),)),
        Panel("Waiting for the network thread, p99", "ms", (
            (quantile(0.99, "responsequeuetimems"), "{{request}}"),)),
        Panel("Sending, p99", "ms", ((quantile(0.99, "responsesendtimems"), "{{request}}"),)),
        Panel("Throttled, p99", "ms", ((quantile(0.99, "throttletimems"), "{{request}}"),)),
        Panel("Mean of Produce by part", "ms", tuple(
            (f'sum(rate(kafka_network_requestmetrics_{part}_sum{{request="Produce",{BROKER}}}{RATE})) / '
             f'sum(rate(kafka_network_requestmetrics_{part}_count{{request="Produce",{BROKER}}}{RATE}))',
             part.removesuffix("timems"))
            for part in ("localtimems", "remotetimems", "responsesendtimems"))),
        Panel("Bytes of requests and responses", "Bps", (
            (rate("kafka_network_requestmetrics_requestbytes_total", BROKER, "request"), "{{request}} in"),
            (rate("kafka_network_requestmetrics_responsebytes_total", BROKER, "request"), "{{request}} out"))),
        Panel("Purgatory", "none", (
            (f"sum by (delayedOperation) (kafka_server_delayedoperationpurgatory_purgatorysize{{{BROKER}}})",
             "{{delayedOperation}}"),)),
        Panel("Queue of the control loop", "none", (
            (f"kafka_network_requestchannel_requestqueuesize{{{BROKER}}}", "{{instance}}"),)),
        Panel("Memory of requests", "bytes", (
            (f"kafka_network_socketserver_memorypoolused{{{BROKER}}}", "{{instance}}"),)),
        Panel("Fetch sessions", "none", (
            (f"kafka_server_fetchsessioncache_numincrementalfetchsessions{{{BROKER}}}", "{{instance}}"),)),
    )),
)  # fmt: skip


def model(dashboard: Dashboard) -> dict[str, Any]:
    """The JSON model of a dashboard, for Grafana's import."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    variables: list[dict[str, Any]] = [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
    ]
    for name, query in dashboard.variables:
        variables.append(
            {
                "name": name, "type": "query", "datasource": source, "query": {"query": query, "refId": name},
                "multi": True, "includeAll": True, "allValue": ".*", "refresh": 2, "sort": 1,
                "current": {"text": "All", "value": "$__all"},
            }
        )
    panels = []
    for number, panel in enumerate(dashboard.panels):
        per_row = COLUMNS // WIDTH
        panels.append(
            {
                "id": number + 1, "title": panel.title, "type": panel.kind, "datasource": source,
                "gridPos": {"x": number % per_row * WIDTH, "y": number // per_row * HEIGHT, "w": WIDTH, "h": HEIGHT},
                "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                "targets": [
                    {"refId": chr(ord("A") + at), "expr": query, "legendFormat": legend, "datasource": source}
                    for at, (query, legend) in enumerate(panel.queries)
                ],
            }
        )
    return {
        "uid": f"kafkapy-{dashboard.name}", "title": dashboard.title, "tags": ["kafka", "kafkapy"], "editable": True,
        "schemaVersion": 39, "refresh": "30s", "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables}, "panels": panels,
    }  # fmt: skip


def files() -> Iterator[tuple[Path, str]]:
    """Each dashboard's file and content."""
    for dashboard in DASHBOARDS:
        yield DIRECTORY / f"{dashboard.name}.json", json.dumps(model(dashboard), indent=1) + "\n"


if __name__ == "__main__":
    for path, text in files():
        path.write_text(text, encoding="utf-8")
