"""AlterClientQuotas as a client sees it, and as the store has it afterwards."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kafkapy.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest

Entry = AlterClientQuotasRequest.Entry
Parts = dict[str, str | None]


def entry(parts: Parts, **values: float | None) -> Entry:
    return Entry(
        entity=[Entry.Entity(entity_type=kind, entity_name=name) for kind, name in parts.items()],
        ops=[Entry.Op(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )


def alter(client: Any, *entries: Entry, version: int = 1, validate_only: bool = False) -> list[tuple[int, str | None]]:
    response = client(AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only), version)
    return [(each.error_code, each.error_message) for each in response.entries]


def described(client: Any, parts: Parts, version: int = 1) -> dict[str, float]:
    components = [
        DescribeClientQuotasRequest.Component(entity_type=kind, match_type=1 if name is None else 0, match=name)
        for kind, name in parts.items()
    ]
    response = client(DescribeClientQuotasRequest(components=components, strict=True), version)
    assert response.error_code == 0, response.error_message
    return {value.key: value.value for each in response.entries for value in each.values}


OK = [(ErrorCode.NONE, None)]


def refused(message: str) -> list[tuple[int, str | None]]:
    return [(ErrorCode.INVALID_REQUEST, message)]


ENTITIES: list[Parts] = [
    {"user": "u"}, {"user": "odd / %"}, {"client-id": "c"}, {"user": "u", "client-id": "c"},
    {"user": "u", "client-id": None}, {"user": None, "client-id": "c"}, {"user": None}, {"client-id": None},
]  # fmt: skip


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("parts", ENTITIES, ids=str)
def test_quotas_of_users_and_client_ids_are_set_changed_and_removed(client: Any, parts: Parts, version: int) -> None:
    wanted: dict[str, float | None] = {"producer_byte_rate": 1e9, "request_percentage": 12.5}
    assert alter(client, entry(parts, **wanted), version=version) == OK
    assert described(client, parts, version) == wanted
    assert alter(client, entry(parts, producer_byte_rate=2e9, request_percentage=None), version=version) == OK
    assert described(client, parts, version) == {"producer_byte_rate": 2e9}
    assert alter(client, entry(parts, producer_byte_rate=None), version=version) == OK
    assert described(client, parts, version) == {}
    assert alter(client, entry(parts, producer_byte_rate=None), version=version) == OK


@pytest.mark.parametrize("ip", ["10.1.2.3", "::1", "localhost", None])
def test_connection_rates_of_addresses(client: Any, ip: str | None) -> None:
    assert alter(client, entry({"ip": ip}, connection_creation_rate=1000)) == OK
    assert described(client, {"ip": ip}) == {"connection_creation_rate": 1000}
    assert alter(client, entry({"ip": ip}, connection_creation_rate=None)) == OK
    assert described(client, {"ip": ip}) == {}


RATE = "producer_byte_rate"


def test_the_largest_rate_is_that_of_a_java_long(client: Any) -> None:
    parts: Parts = {"client-id": "largest"}
    assert alter(client, entry(parts, producer_byte_rate=float(2**63 - 1))) == OK
    assert described(client, parts) == {RATE: float(2**63 - 1)}
    assert alter(client, entry(parts, producer_byte_rate=None)) == OK


@pytest.mark.parametrize(
    ("parts", "values", "message"),
    [
        ({}, {RATE: 1.0}, "Invalid empty client quota entity"),
        ({"users": "a"}, {RATE: 1.0}, "Unhandled client quota entity type: users"),
        ({"user": ""}, {RATE: 1.0}, "Empty user not supported"),
        ({"client-id": ""}, {RATE: 1.0}, "Empty client-id not supported"),
        (
            {"user": "a", "ip": "10.0.0.1"},
            {RATE: 1.0},
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        ({"user": "a"}, {"no_such_rate": 1.0}, "Invalid configuration key no_such_rate"),
        ({"user": "a"}, {"SCRAM-SHA-256": 1.0}, "Invalid configuration key SCRAM-SHA-256"),
        ({"user": "a"}, {"connection_creation_rate": 1.0}, "Invalid configuration key connection_creation_rate"),
        ({"ip": "10.0.0.1"}, {RATE: 1.0}, f"Invalid configuration key {RATE}"),
        ({"user": "a"}, {RATE: -1.0}, f"Quota {RATE} must be greater than 0"),
        ({"user": "a"}, {RATE: math.nan}, f"Quota {RATE} must be a finite number"),
        ({"user": "a"}, {"request_percentage": math.inf}, "Quota request_percentage must be a finite number"),
        ({"user": "a"}, {RATE: 1.5}, f"{RATE} cannot be a fractional value."),
        ({"user": "a"}, {RATE: 1e30}, f"Proposed value for {RATE} is too large for a LONG."),
        ({"user": "a"}, {RATE: math.inf}, f"Quota {RATE} must be a finite number"),
        (
            {"ip": "10.0.0.1"},
            {"connection_creation_rate": 2.0**31},
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        (
            {"ip": "no such host"},
            {"connection_creation_rate": 1.0},
            "no such host is not a valid IP or resolvable host.",
        ),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_wrong_alterations_are_refused(
    client: Any, parts: Parts, values: dict[str, float], message: str, validate_only: bool
) -> None:
    assert alter(client, entry(parts, **values), validate_only=validate_only) == refused(message)


def test_a_duplicate_key_or_entity_changes_nothing(client: Any) -> None:
    parts: Parts = {"user": "twice"}
    doubled = entry(parts, producer_byte_rate=5.0)
    doubled.ops += doubled.ops
    ignored = "Ignoring duplicate entity ClientQuotaEntity(entries={user=twice})"
    assert alter(client, doubled) == refused(ignored)
    one, other = entry(parts, producer_byte_rate=5.0), entry(parts, consumer_byte_rate=5.0)
    assert alter(client, one, other) == refused(ignored)
    assert described(client, parts) == {}


def test_entities_are_independent_of_each_other(client: Any) -> None:
    good, bad = entry({"user": "good"}, producer_byte_rate=5e9), entry({"user": "bad"}, producer_byte_rate=-5.0)
    assert [code for code, _ in alter(client, bad, good)] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert described(client, {"user": "good"}) == {"producer_byte_rate": 5e9}
    mixed = entry({"user": "good"}, producer_byte_rate=None, consumer_byte_rate=-1.0)
    assert alter(client, mixed) == refused("Quota consumer_byte_rate must be greater than 0")
    assert described(client, {"user": "good"}) == {"producer_byte_rate": 5e9}
    assert alter(client, entry({"user": "good"}, producer_byte_rate=None)) == OK


def test_validate_only_writes_nothing(client: Any) -> None:
    assert alter(client, entry({"user": "checked"}, producer_byte_rate=5e9), validate_only=True) == OK
    assert described(client, {"user": "checked"}) == {}


def test_many_entities_in_one_request(client: Any) -> None:
    users = [f"many-{number}" for number in range(350)]
    results = alter(client, *(entry({"user": user}, producer_byte_rate=1e9) for user in users))
    assert results == OK * len(users)
    assert described(client, {"user": users[0]}) == described(client, {"user": users[-1]}) == {RATE: 1e9}
    assert alter(client, *(entry({"user": user}, producer_byte_rate=None) for user in users)) == OK * len(users)
    assert described(client, {"user": users[0]}) == {}
