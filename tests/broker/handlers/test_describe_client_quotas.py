"""DescribeClientQuotas: what filters match, and which are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kafkapy.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest

Component = DescribeClientQuotasRequest.Component
Entry = AlterClientQuotasRequest.Entry
EXACT, DEFAULT, ANY = 0, 1, 2

ENTITIES: list[tuple[tuple[str, str | None], ...]] = [
    (("user", "d-u"),), (("user", None),), (("user", "d-u"), ("client-id", "d-c")), (("client-id", "d-c"),),
    (("client-id", None),), (("user", "d-u"), ("client-id", None)), (("ip", "10.9.9.9"),),
]  # fmt: skip


def alter(client: Any, remove: bool) -> None:
    entries = [
        Entry(
            entity=[Entry.Entity(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[
                Entry.Op(
                    key="connection_creation_rate" if entity[0][0] == "ip" else "consumer_byte_rate",
                    value=1e9,
                    remove=remove,
                )
            ],
        )
        for entity in ENTITIES
    ]
    response = client(AlterClientQuotasRequest(entries=entries, validate_only=False), 1)
    assert {each.error_code for each in response.entries} == {0}


@pytest.fixture
def quotas(client: Any) -> Iterator[Any]:
    alter(client, remove=False)
    yield client
    alter(client, remove=True)


def ask(client: Any, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1) -> Any:
    made = [Component(entity_type=kind, match_type=match_type, match=match) for kind, match_type, match in components]
    return client(DescribeClientQuotasRequest(components=made, strict=strict), version)


def found(response: Any) -> set[tuple[tuple[str, str | None], ...]]:
    assert response.error_code == 0, response.error_message
    return {tuple((part.entity_type, part.entity_name) for part in each.entity) for each in response.entries}


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("components", "strict", "numbers"),
    [
        ([], False, [0, 1, 2, 3, 4, 5, 6]),
        ([], True, []),
        ([("user", EXACT, "d-u")], False, [0, 2, 5]),
        ([("user", EXACT, "d-u")], True, [0]),
        ([("user", DEFAULT, None)], False, [1]),
        ([("user", ANY, None)], True, [0, 1]),
        ([("client-id", ANY, None)], False, [2, 3, 4, 5]),
        ([("user", EXACT, "d-u"), ("client-id", DEFAULT, None)], True, [5]),
        ([("client-id", EXACT, "d-c"), ("user", ANY, None)], False, [2]),
        ([("user", EXACT, "nobody")], False, []),
        ([("user", EXACT, "")], False, []),
        ([("ip", ANY, None)], False, [6]),
        ([("ip", EXACT, "10.9.9.9")], True, [6]),
    ],
)
def test_filters(quotas: Any, components: Any, strict: bool, numbers: list[int], version: int) -> None:
    assert found(ask(quotas, *components, strict=strict, version=version)) == {ENTITIES[number] for number in numbers}


REPEATED = "Entity type user cannot appear more than once in the filter."
IP_TEXT = (
    "Invalid entity filter component combination. "
    "IP filter component should not be used with user or clientId filter component."
)


@pytest.mark.parametrize(
    ("components", "error", "message"),
    [
        ([("", EXACT, "a")], 42, "Invalid empty entity type."),
        ([("user", EXACT, "a"), ("user", ANY, None)], 42, REPEATED),
        ([("topic", EXACT, "a")], 35, "Unsupported entity type topic"),
        ([("user", EXACT, None)], 42, "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        ([("user", DEFAULT, "a")], 42, "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
        ([("user", ANY, "a")], 42, "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
        ([("user", 3, None)], 42, "Unknown match type 3"),
        ([("user", -1, None)], 42, "Unknown match type -1"),
        ([("ip", ANY, None), ("user", ANY, None)], 42, IP_TEXT),
        ([("client-id", EXACT, "a"), ("ip", EXACT, "b")], 42, IP_TEXT),
    ],
)
def test_wrong_filters_are_refused(client: Any, components: Any, error: int, message: str) -> None:
    response = ask(client, *components)
    assert (ErrorCode(response.error_code), response.error_message, response.entries) == (error, message, None)
