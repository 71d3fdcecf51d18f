"""ClientConfig: names in both spellings, values as Kafka and as kafka-python write them, and the errors."""

from __future__ import annotations

import pytest

from kafkapy.config.clients import COMMON, ClientConfig
from kafkapy.config.config_def import ConfigKey, Importance, between
from kafkapy.errors import ConfigError
from kafkapy.types import ConfigType

DEFINITION = COMMON.with_keys(
    [
        ConfigKey("partitioner.class", ConfigType.CLASS, None, None, Importance.LOW, ""),
        ConfigKey("interceptor.classes", ConfigType.LIST, [], None, Importance.LOW, ""),
        ConfigKey("retries", ConfigType.INT, 5, between(0, 2**31 - 1), Importance.LOW, ""),
        ConfigKey("acks", ConfigType.STRING, "all", None, Importance.LOW, ""),
        ConfigKey("connections.max.idle.ms", ConfigType.LONG, 300000, None, Importance.LOW, ""),
    ],
    aliases={"partitioner": "partitioner.class"},
    without_effect=["legacy_switch"],
)


def config(**values: object) -> ClientConfig:
    return ClientConfig(DEFINITION, values)


def test_defaults_are_kafkas() -> None:
    values = config()
    assert values["request.timeout.ms"] == 30000
    assert values["metadata.recovery.strategy"] == "rebootstrap"
    assert values["reconnect.backoff.max.ms"] == 1000
    assert values.given == frozenset()


def test_a_key_may_be_written_with_dots_or_underscores() -> None:
    assert config(request_timeout_ms=7)["request.timeout.ms"] == 7
    assert ClientConfig(DEFINITION, {"request.timeout.ms": "7"})["request.timeout.ms"] == 7
    assert ClientConfig(DEFINITION, None, **{"request.timeout.ms": 7}).given == {"request.timeout.ms"}


def test_an_alias_names_a_key_that_is_spelled_otherwise() -> None:
    function = print
    assert config(partitioner=function)["partitioner.class"] is function


def test_lists_are_text_or_python_values() -> None:
    assert config(bootstrap_servers="a:1, b:2")["bootstrap.servers"] == ["a:1", "b:2"]
    assert config(bootstrap_servers=["a:1"])["bootstrap.servers"] == ["a:1"]
    assert config(interceptor_classes=(int, str))["interceptor.classes"] == [int, str]
    assert config(socket_options=[(6, 1, 1)])["socket.options"] == [(6, 1, 1)]


def test_none_stands_for_the_default() -> None:
    values = config(request_timeout_ms=None, receive_buffer_bytes=None)
    assert (values["request.timeout.ms"], values["receive.buffer.bytes"]) == (30000, -1)
    assert values.given == frozenset()


def test_numbers_as_kafka_python_writes_them() -> None:
    assert config(retries=float("inf"))["retries"] == 2**31 - 1
    assert config(request_timeout_ms=2000.0)["request.timeout.ms"] == 2000
    assert config(acks=1)["acks"] == "1"


def test_a_later_definition_replaces_a_default() -> None:
    assert config()["connections.max.idle.ms"] == 300000
    assert ClientConfig(COMMON)["connections.max.idle.ms"] == 540000


def test_names_without_effect_are_accepted() -> None:
    config(api_version=(2, 6), selector=object(), legacy_switch=1, ssl_cafile="x", sasl_plain_username="y")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"request_timeou_ms": 3}, "did you mean request.timeout.ms"),
        ({"no_such_thing_at_all": 3}, "not a configuration key"),
        ({"request_timeout_ms": "soon"}, "whole number"),
        ({"request_timeout_ms": 1.5}, "whole number"),
        ({"request_timeout_ms": -1}, "at least 0"),
        ({"retries": True}, "whole number"),
        ({"request_timeout_ms": 1, "request.timeout.ms": 2}, "set twice, also as request_timeout_ms"),
        ({"client_dns_lookup": "sometimes"}, "one of use_all_dns_ips"),
        ({"bootstrap_servers": []}, "not empty"),
        ({"socks5_proxy": "socks5://x"}, "proxies are not supported"),
        ({"security_protocol": "TELNET"}, "one of PLAINTEXT"),
    ],
)
def test_errors_say_what_is_allowed(values: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ClientConfig(DEFINITION, values)


def test_a_secret_in_a_misspelt_key_is_not_shown() -> None:
    with pytest.raises(ConfigError) as error:
        config(my_password_of_sorts="hunter2")
    assert "hunter2" not in str(error.value)


def test_secrets_are_hidden_in_the_text_of_a_configuration() -> None:
    assert "hunter2" not in repr(ClientConfig(DEFINITION, {"sasl.jaas.config": "hunter2"}))


def test_a_reconnect_backoff_alone_is_constant() -> None:
    """As in CommonClientConfigs.postProcessReconnectBackoffConfigs."""
    assert config(reconnect_backoff_ms=200)["reconnect.backoff.max.ms"] == 200
    assert config(reconnect_backoff_ms=200, reconnect_backoff_max_ms=900)["reconnect.backoff.max.ms"] == 900


@pytest.mark.parametrize("key", ["sasl.plain.password", "sasl.jaas.config", "ssl.key.password"])
def test_a_copy_keeps_secrets(key: str) -> None:
    values = ClientConfig(COMMON, {"bootstrap.servers": "a:1", key: "secret"})
    assert values.replaced(client_id="x")[key].value == "secret"


def test_values_can_be_replaced_in_a_copy() -> None:
    values = config(retries=3, bootstrap_servers="a:1")
    copy = values.replaced(retries=4, client_id="x")
    assert (copy["retries"], copy["client.id"], copy["bootstrap.servers"]) == (4, "x", ["a:1"])
    assert values["retries"] == 3
