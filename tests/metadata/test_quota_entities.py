"""The nodes of client quotas' entities, as Kafka writes them, and what their settings say."""

from __future__ import annotations

import pytest

from kafkapy.metadata.quota_entities import (
    CLIENT_ID,
    IP,
    USER,
    entity_node,
    entity_of_node,
    quota_entity,
    quota_values,
)


@pytest.mark.parametrize(
    ("parts", "entity_type", "node"),
    [
        ({USER: "alice"}, "users", "alice"),
        ({USER: None}, "users", "<default>"),
        ({USER: "alice", CLIENT_ID: "app"}, "users", "alice/clients/app"),
        ({USER: "alice", CLIENT_ID: None}, "users", "alice/clients/<default>"),
        ({USER: None, CLIENT_ID: "app"}, "users", "<default>/clients/app"),
        ({USER: None, CLIENT_ID: None}, "users", "<default>/clients/<default>"),
        ({USER: "CN=a b,O=x/clients/y"}, "users", "CN%3Da%20b%2CO%3Dx%2Fclients%2Fy"),
        ({USER: "a b", CLIENT_ID: "c/d"}, "users", "a%20b/clients/c%2Fd"),
        ({CLIENT_ID: "app"}, "clients", "app"),
        ({CLIENT_ID: "my app"}, "clients", "my%20app"),
        ({CLIENT_ID: None}, "clients", "<default>"),
        ({IP: "10.0.0.1"}, "ips", "10.0.0.1"),
        ({IP: "::1"}, "ips", "%3A%3A1"),
        ({IP: None}, "ips", "<default>"),
    ],
)
def test_an_entity_has_one_node_and_a_node_one_entity(
    parts: dict[str, str | None], entity_type: str, node: str
) -> None:
    entity = quota_entity(parts)
    assert entity == tuple(parts.items())
    assert entity_node(entity) == (entity_type, node)
    assert entity_of_node(entity_type, node) == entity


def test_types_have_an_order() -> None:
    assert quota_entity({CLIENT_ID: "app", USER: None}) == ((USER, None), (CLIENT_ID, "app"))


def test_a_node_of_something_else_has_no_entity() -> None:
    assert entity_of_node("topics", "orders") is None
    assert entity_of_node("brokers", "<default>") is None


def test_what_is_no_quota_or_no_number_is_left_out() -> None:
    settings = {
        "producer_byte_rate": "1024",
        "consumer_byte_rate": "many",
        "request_percentage": "12.5",
        "controller_mutation_rate": "1e3",
        "connection_creation_rate": "7",
        "SCRAM-SHA-256": "salt=eA==",
    }
    assert quota_values(settings) == {
        "producer_byte_rate": 1024.0,
        "request_percentage": 12.5,
        "controller_mutation_rate": 1000.0,
        "connection_creation_rate": 7.0,
    }
