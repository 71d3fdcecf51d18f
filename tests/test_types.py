"""Value types: ids as Kafka writes them, endpoints, enum codes."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.types import (
    ConfigType,
    Endpoint,
    Node,
    SecurityProtocol,
    TopicIdPartition,
    TopicPartition,
    random_uuid,
    uuid_from_string,
    uuid_to_string,
)


@given(st.uuids())
def test_an_id_survives_its_text(value: uuid.UUID) -> None:
    text = uuid_to_string(value)
    assert len(text) == 22
    assert uuid_from_string(text) == value


def test_the_text_of_known_ids_is_kafkas() -> None:
    assert uuid_to_string(uuid.UUID(int=0)) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_to_string(uuid.UUID(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_to_string(uuid.UUID(int=2**128 - 1)) == "_____________________w"


@pytest.mark.parametrize("text", ["", "AAAA", "AAAAAAAAAAAAAAAAAAAAA!", "A" * 23, "A" * 1000, "AAAAAAAAAAAAAAAAAAAA+Q"])
def test_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="base64|bytes|long"):
        uuid_from_string(text)


def test_random_ids_never_look_like_an_option() -> None:
    ids = [random_uuid() for _ in range(2000)]
    assert len(set(ids)) == 2000
    assert not any(uuid_to_string(value).startswith("-") for value in ids)


def test_a_partition_is_written_topic_dash_number() -> None:
    assert str(TopicPartition("a-b", 3)) == "a-b-3"
    assert sorted([TopicPartition("b", 0), TopicPartition("a", 10), TopicPartition("a", 9)])[0] == ("a", 9)
    assert TopicIdPartition(uuid.UUID(int=1), "t", 2).topic_partition == TopicPartition("t", 2)


def test_an_ipv6_host_is_bracketed() -> None:
    assert str(Endpoint("SSL", "::1", 9093, SecurityProtocol.SSL)) == "SSL://[::1]:9093"
    assert str(Endpoint("PLAINTEXT", "", 0).with_port(1234)) == "PLAINTEXT://:1234"


def test_protocols_know_what_they_are_made_of() -> None:
    assert [p.name for p in SecurityProtocol if p.tls] == ["SSL", "SASL_SSL"]
    assert [p.name for p in SecurityProtocol if p.sasl] == ["SASL_PLAINTEXT", "SASL_SSL"]


def test_node_minus_one_is_no_broker() -> None:
    assert Node(-1, "", -1).is_empty
    assert not Node(0, "h", 1).is_empty


def test_config_types_have_kafkas_codes() -> None:
    assert {kind.label: kind.code for kind in ConfigType} == {
        "unknown": 0, "boolean": 1, "string": 2, "int": 3, "short": 4, "long": 5, "double": 6, "list": 7, "class": 8,
        "password": 9,
    }  # fmt: skip
