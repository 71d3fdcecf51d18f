"""The broker's configuration: Kafka's keys and defaults, listeners, precedence, and keys that contradict each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkapy.config.broker import BROKER_CONFIG_DEF, BrokerConfig
from kafkapy.config.config_def import UpdateMode
from kafkapy.config.properties import parse_properties
from kafkapy.errors import ConfigError
from kafkapy.types import ConfigSource, Endpoint, SecurityProtocol


def config(**keys: str) -> BrokerConfig:
    """A configuration from keyword arguments: log_dirs for log.dirs."""
    return BrokerConfig({name.replace("_", "."): value for name, value in keys.items()})


def refusal(values: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(values)
    return str(caught.value)


# --- keys ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", BROKER_CONFIG_DEF, ids=lambda key: key.name)
def test_each_default_is_a_value_its_key_allows(key) -> None:
    assert key.parse(key.default) == key.default
    assert key.doc.endswith(".")


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("num.network.threads", 3),
        ("num.io.threads", 8),
        ("socket.request.max.bytes", 104857600),
        ("message.max.bytes", 1048588),
        ("log.segment.bytes", 1073741824),
        ("log.retention.hours", 168),
        ("auto.create.topics.enable", True),
        ("num.partitions", 1),
        ("default.replication.factor", 1),
        ("offsets.topic.num.partitions", 50),
        ("group.initial.rebalance.delay.ms", 3000),
        ("transaction.max.timeout.ms", 900000),
        ("connections.max.idle.ms", 600000),
        ("fetch.max.bytes", 57671680),
        ("queued.max.request.bytes", -1),
        ("log.cleaner.dedupe.buffer.size", 134217728),
        ("replica.lag.time.max.ms", 30000),
    ],
)
def test_defaults_are_kafkas(name: str, default: object) -> None:
    assert BrokerConfig({})[name] == default


def test_the_shipped_file_is_accepted() -> None:
    shipped = BrokerConfig.load(str(Path(__file__).parents[2] / "config" / "server.properties"))
    assert shipped.listeners == (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)
    assert shipped.broker_id == 0
    assert not Path(shipped.log_dirs[0]).is_absolute()


def test_an_unknown_key_names_its_line_and_a_close_key() -> None:
    with pytest.raises(ConfigError, match=r"num\.patitions.*did you mean num\.partitions.*server\.properties, line 2"):
        BrokerConfig(parse_properties("# x\nnum.patitions=3", "server.properties"))


@pytest.mark.parametrize(
    "key",
    ["log.retention.hour", "listener", "broker_id", "retention.ms", "auto.create.topic.enable",
     "default.replication.factors", "listener.name.sasl_ssl.ssl.keystore.locaton"],
)  # fmt: skip
def test_a_misspelt_key_stops_the_start(key: str) -> None:
    assert "did you mean" in refusal({key: "1"})


@pytest.mark.parametrize(
    "key",
    ["confluent.license.topic.replication.factor", "cruise.control.metrics.reporter.bootstrap.servers",
     "kafka.http.metrics.port", "opa.authorizer.url", "my.company.password", "port",
     "listener.name.sasl_ssl.opa.authorizer.url"],
)  # fmt: skip
def test_a_key_that_is_like_no_other_is_left_alone(key: str) -> None:
    subject = BrokerConfig(parse_properties(f"{key}=hunter2\nnum.partitions=3", "f"))
    assert (subject.unknown_keys, subject["num.partitions"], subject[key]) == ([key], 3, "hunter2")
    assert key not in {entry.name for entry in subject.describe()}
    assert "hunter2" not in repr(subject.plain())
    with pytest.raises(ConfigError, match="not a configuration key"):
        subject.with_dynamic({key: "1"})


def test_a_bad_override_is_blamed_on_the_command_line() -> None:
    properties = parse_properties("num.partitions=3", "f").override(["num.partitions=0"])
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(properties)
    assert str(caught.value) == "Invalid value '0' for configuration num.partitions: must be at least 1"


def test_passwords_never_show() -> None:
    subject = config(ssl_key_password="hunter2")
    assert subject.get_password("ssl.key.password").value == "hunter2"
    assert "hunter2" not in repr(subject.plain()) + repr(subject.describe())
    assert "hunter2" not in refusal({"ssl.key.passwort": "hunter2"})


# --- listeners ----------------------------------------------------------------------------------------------------


def test_listeners_have_names_hosts_ports_and_protocols() -> None:
    subject = BrokerConfig(
        {
            "listeners": "internal://127.0.0.1:0, PLAINTEXT://[::1]:9092,EXTERNAL://:9094",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT,EXTERNAL:SASL_SSL",
            "advertised.listeners": "PLAINTEXT://broker:19092,EXTERNAL://example.org:9094",
        }
    )
    assert subject.listeners == (
        Endpoint("INTERNAL", "127.0.0.1", 0),
        Endpoint("PLAINTEXT", "::1", 9092),
        Endpoint("EXTERNAL", "", 9094, SecurityProtocol.SASL_SSL),
    )
    assert [str(endpoint) for endpoint in subject.advertised_listeners] == [
        "PLAINTEXT://broker:19092",
        "EXTERNAL://example.org:9094",
    ]
    assert subject.inter_broker_listener_name == "PLAINTEXT"


def test_what_is_advertised_takes_the_bound_port_and_a_host_name() -> None:
    subject = config(listeners="PLAINTEXT://:0")
    [endpoint] = subject.advertise([Endpoint("PLAINTEXT", "", 40001)])
    assert endpoint.port == 40001
    assert endpoint.host


@pytest.mark.parametrize(
    ("listeners", "reason"),
    [
        ("", "not empty"),
        ("127.0.0.1:9092", "NAME://host:port"),
        ("PLAINTEXT://127.0.0.1", "NAME://host:port"),
        ("PLAINTEXT://127.0.0.1:70000", "not between 0 and 65535"),
        ("PLAINTEXT://127.0.0.1:-1", "not between 0 and 65535"),
        ("PLAINTEXT://a b:1", "NAME://host:port"),
        ("MINE://127.0.0.1:9092", "no security protocol is defined for listener MINE"),
        ("PLAINTEXT://a:1,PLAINTEXT://a:2", "different name"),
        ("PLAINTEXT://a:1,SSL://b:1", "different port"),
        ("PLAINTEXT://0.0.0.0:9092", "cannot be advertised"),
    ],
)
def test_bad_listeners_are_refused(listeners: str, reason: str) -> None:
    assert reason in refusal({"listeners": listeners})


def test_ipv4_and_ipv6_may_share_a_port_and_free_ports_are_not_compared() -> None:
    assert len(config(listeners="PLAINTEXT://127.0.0.1:9092,SSL://[::1]:9092").listeners) == 2
    assert len(config(listeners="PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0").listeners) == 2


def test_advertised_listeners_must_exist() -> None:
    assert "may only name listeners" in refusal(
        {"listeners": "PLAINTEXT://127.0.0.1:1", "advertised.listeners": "SSL://h:1"}
    )


def test_all_interfaces_need_an_advertised_address() -> None:
    subject = BrokerConfig({"listeners": "PLAINTEXT://0.0.0.0:9092", "advertised.listeners": "PLAINTEXT://h:9092"})
    assert subject.listeners[0].host == "0.0.0.0"


def test_a_kraft_file_is_accepted_and_its_controller_listener_left_out() -> None:
    subject = BrokerConfig(
        {
            "process.roles": "broker,controller",
            "node.id": "3000",
            "controller.quorum.voters": "3000@localhost:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "advertised.listeners": "PLAINTEXT://localhost:9092",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
        }
    )
    assert [endpoint.listener_name for endpoint in subject.listeners] == ["PLAINTEXT"]
    assert subject.broker_id == 3000


# --- keys for one listener ----------------------------------------------------------------------------------------


def test_a_listener_prefix_goes_over_the_plain_key() -> None:
    subject = BrokerConfig(
        {
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": "secret",
        }
    )
    assert subject.for_listener("SASL_SSL", "sasl.enabled.mechanisms") == ["SCRAM-SHA-256", "PLAIN"]
    assert subject.for_listener("OTHER", "sasl.enabled.mechanisms") == ["PLAIN"]
    assert subject.for_listener("SASL_SSL", "sasl.jaas.config", "PLAIN").value == "secret"
    assert subject.for_listener("SASL_SSL", "sasl.jaas.config") is None


# --- keys that depend on each other -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, 168 * 3_600_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.minutes": "-1"}, -1),
        ({"log.retention.ms": "-1"}, -1),
    ],
)
def test_the_finest_unit_of_retention_wins(values: dict[str, str], expected: int) -> None:
    assert BrokerConfig(values).log_retention_ms == expected


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"broker.id": "-2"}, "broker.id"),
        ({"broker.id": "1001"}, "broker.id"),
        ({"broker.id": "1", "node.id": "2"}, "node.id"),
        ({"broker.id.generation.enable": "false"}, "node.id"),
        ({"log.retention.ms": "0"}, "log.retention.ms"),
        ({"log.roll.ms": "0"}, "log.roll.ms"),
        ({"log.dirs": ""}, "log.dirs"),
        ({"log.dirs": "a,b,a"}, "log.dirs"),
        ({"replica.fetch.wait.max.ms": "40000"}, "replica.socket.timeout.ms"),
        ({"queued.max.request.bytes": "1000"}, "queued.max.request.bytes"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip"),
        ({"max.connections.per.ip.overrides": "10.0.0.1"}, "max.connections.per.ip.overrides"),
        ({"max.connections.per.ip.overrides": "10.0.0.1:many"}, "max.connections.per.ip.overrides"),
        ({"connections.max.idle.ms": "50"}, "connection.failed.authentication.delay.ms"),
        ({"log.cleaner.threads": "200"}, "log.cleaner.dedupe.buffer.size"),
        ({"log.cleaner.io.buffer.load.factor": "-1"}, "log.cleaner.io.buffer.load.factor"),
        ({"log.cleaner.io.buffer.load.factor": "0"}, "log.cleaner.io.buffer.load.factor"),
        ({"log.cleaner.io.buffer.load.factor": "1"}, "log.cleaner.io.buffer.load.factor"),
        ({"log.cleaner.io.buffer.load.factor": "nan"}, "log.cleaner.io.buffer.load.factor"),
        ({"inter.broker.listener.name": "NONE"}, "inter.broker.listener.name"),
        ({"security.inter.broker.protocol": "SSL"}, "security.inter.broker.protocol"),
        ({"control.plane.listener.name": "PLAINTEXT"}, "control.plane.listener.name"),
        ({"controller.listener.names": "CONTROLLER"}, "controller.listener.names"),
        ({"kafkapy.metadata.store": "zookeeper"}, "zookeeper.connect"),
        ({"listener.security.protocol.map": "PLAINTEXT:TLS"}, "listener.security.protocol.map"),
        ({"metrics.listeners": "9404"}, "metrics.listeners"),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "group.coordinator.rebalance.protocols"),
        (
            {"listeners": "SASL_PLAINTEXT://h:1", "security.inter.broker.protocol": "SASL_PLAINTEXT",
             "sasl.enabled.mechanisms": "PLAIN"},
            "sasl.mechanism.inter.broker.protocol",
        ),
    ],
)  # fmt: skip
def test_contradictions_are_refused_by_the_key_to_change(values: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(values)
    assert caught.value.key == key


def test_overrides_per_ip_are_numbers_by_host() -> None:
    subject = config(max_connections_per_ip="0", max_connections_per_ip_overrides="10.0.0.1:5, localhost:7")
    assert subject.max_connections_per_ip_overrides == {"10.0.0.1": 5, "localhost": 7}


def test_the_log_directories_are_those_of_log_dirs_else_log_dir() -> None:
    assert BrokerConfig({}).log_dirs == ("/tmp/kafka-logs",)
    assert BrokerConfig({"log.dir": "/a"}).log_dirs == ("/a",)
    assert BrokerConfig({"log.dir": "/a", "log.dirs": "/b, /c"}).log_dirs == ("/b", "/c")


def test_zookeeper_is_chosen_by_its_address() -> None:
    assert BrokerConfig({}).metadata_store == "embedded"
    assert config(zookeeper_connect="zk:2181").metadata_store == "zookeeper"
    assert config(zookeeper_connect="zk:2181", kafkapy_metadata_store="embedded").metadata_store == "embedded"


# --- layers and DescribeConfigs -----------------------------------------------------------------------------------


def test_dynamic_values_go_over_the_file_and_broker_over_cluster() -> None:
    static = config(log_segment_bytes="1000", num_partitions="4")
    changed = static.with_dynamic({"log.segment.bytes": "3000"}, {"log.segment.bytes": "2000", "log.retention.ms": "7"})
    assert (changed["log.segment.bytes"], changed.log_retention_ms, changed["num.partitions"]) == (3000, 7, 4)
    assert static["log.segment.bytes"] == 1000
    [entry] = changed.describe(["log.segment.bytes"])
    assert [(synonym.source, synonym.value) for synonym in entry.synonyms] == [
        (ConfigSource.DYNAMIC_BROKER_CONFIG, "3000"),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, "2000"),
        (ConfigSource.STATIC_BROKER_CONFIG, "1000"),
        (ConfigSource.DEFAULT_CONFIG, "1073741824"),
    ]
    assert entry.source is ConfigSource.DYNAMIC_BROKER_CONFIG
    assert not entry.read_only


def test_a_read_only_key_cannot_be_changed_at_run_time() -> None:
    with pytest.raises(ConfigError, match="while the broker runs"):
        BrokerConfig({}).with_dynamic({"num.partitions": "3"})


def test_entries_of_all_keys_have_sources_types_and_no_secrets() -> None:
    entries = {entry.name: entry for entry in config(num_partitions="4", ssl_key_password="x").describe()}
    assert entries["num.partitions"].source is ConfigSource.STATIC_BROKER_CONFIG
    assert entries["num.partitions"].read_only
    assert entries["num.io.threads"].is_default
    assert entries["ssl.key.password"].sensitive
    assert entries["ssl.key.password"].value is None
    assert all(synonym.value is None for synonym in entries["ssl.key.password"].synonyms)
    assert entries["log.retention.hours"].value == "168"
    assert "unstable.api.versions.enable" not in entries


@pytest.mark.parametrize(
    ("static", "key", "synonyms"),
    [
        ({}, "log.retention.ms", []),
        ({}, "log.retention.minutes", []),
        ({}, "log.retention.hours", ["log.retention.hours=168"]),
        ({"log.retention.ms": "5"}, "log.retention.hours", ["log.retention.hours=168"]),
        ({"log.retention.minutes": "5"}, "log.retention.ms", []),
        ({}, "log.flush.interval.ms", []),
        ({}, "log.flush.scheduler.interval.ms", ["log.flush.scheduler.interval.ms=9223372036854775807"]),
        ({"log.flush.interval.ms": "5"}, "log.flush.scheduler.interval.ms",
         ["log.flush.scheduler.interval.ms=9223372036854775807"]),
        ({}, "log.roll.ms", []),
        ({"log.roll.hours": "2"}, "log.roll.hours", ["log.roll.hours=2", "log.roll.hours=168"]),
    ],
)  # fmt: skip
def test_synonyms_begin_with_the_key_itself(static: dict[str, str], key: str, synonyms: list[str]) -> None:
    (entry,) = BrokerConfig(static).describe([key])
    assert [f"{each.name}={each.value}" for each in entry.synonyms] == synonyms


def test_keys_that_kafka_4_has_no_more_are_listed_where_they_are_set() -> None:
    removed = {"zookeeper.connect", "log.message.format.version", "password.encoder.iterations", "super.users"}
    assert not removed & {entry.name for entry in BrokerConfig({}).describe()}
    assert removed & {entry.name for entry in config(super_users="User:a").describe()} == {"super.users"}
    assert {entry.name for entry in BrokerConfig({}).describe(list(removed))} == removed


def test_update_modes_are_kafkas() -> None:
    modes = {key.name: key.update_mode for key in BROKER_CONFIG_DEF}
    assert modes["log.retention.ms"] is UpdateMode.CLUSTER_WIDE
    assert modes["log.retention.hours"] is UpdateMode.READ_ONLY
    assert modes["listeners"] is UpdateMode.PER_BROKER
    assert modes["num.network.threads"] is UpdateMode.CLUSTER_WIDE
    assert modes["ssl.keystore.location"] is UpdateMode.PER_BROKER
    assert modes["socket.request.max.bytes"] is UpdateMode.READ_ONLY
