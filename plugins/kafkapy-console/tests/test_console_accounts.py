"""ACLs, users, quotas, tokens, and what a user may do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from console_site import Person, serving
from kafkapy_console.services.permissions import decided, rights
from kafkapy_console.settings import Settings

from kafkapy import testing
from kafkapy.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourceType,
)

ALLOW, DENY = ACLPermissionType.ALLOW, ACLPermissionType.DENY


@pytest.fixture(scope="module")
def visitor(secured: testing.Broker) -> Iterator[Person]:
    with serving(Settings(kafka={"bootstrap.servers": secured.bootstrap_servers})) as url:
        person = Person(url)
        yield person
        person.close()


def rule(
    permission: ACLPermissionType,
    operation: ACLOperation,
    name: str,
    *,
    prefix: bool = False,
    host: str = "*",
    who: str = "User:ann",
) -> ACL:
    pattern = ACLResourcePatternType.PREFIXED if prefix else ACLResourcePatternType.LITERAL
    return ACL(who, host, operation, permission, ResourcePattern(ResourceType.TOPIC, name, pattern))


RULES = [
    rule(ALLOW, ACLOperation.READ, "team.", prefix=True),
    rule(DENY, ACLOperation.READ, "team.secret"),
    rule(ALLOW, ACLOperation.ALL, "own", host="10.0.0.1"),
    rule(ALLOW, ACLOperation.WRITE, "open", who="User:*"),
    rule(ALLOW, ACLOperation.READ, "of-bob", who="User:bob"),
]


@pytest.mark.parametrize(
    ("operation", "name", "host", "allowed"),
    [
        (ACLOperation.READ, "team.orders", "1.2.3.4", True),
        (ACLOperation.DESCRIBE, "team.orders", "1.2.3.4", True),
        (ACLOperation.WRITE, "team.orders", "1.2.3.4", False),
        (ACLOperation.READ, "team.secret", "1.2.3.4", False),
        (ACLOperation.DELETE, "own", "10.0.0.1", True),
        (ACLOperation.DELETE, "own", "10.0.0.2", False),
        (ACLOperation.WRITE, "open", "1.2.3.4", True),
        (ACLOperation.READ, "of-bob", "1.2.3.4", False),
        (ACLOperation.READ, "nothing", "1.2.3.4", False),
    ],
)
def test_decisions_are_those_of_kafkas_authorizer(operation: ACLOperation, name: str, host: str, allowed: bool) -> None:
    decision = decided(RULES, "User:ann", host, operation, ResourceType.TOPIC, name)
    assert decision.allowed is allowed, decision.reason


def test_super_users_and_open_houses() -> None:
    arguments = (RULES, "User:ann", "*", ACLOperation.READ, ResourceType.TOPIC, "nothing")
    assert decided(*arguments, super_users=["User:ann"]).allowed
    assert decided(*arguments, allow_without_acl=True).allowed
    assert not decided(
        RULES, "User:eve", "*", ACLOperation.READ, ResourceType.TOPIC, "of-bob", allow_without_acl=True
    ).allowed


def test_rights_name_what_is_implied() -> None:
    (opened, own, team, secret) = rights(RULES, "User:ann")
    assert (own.name, own.allowed, own.hosts) == ("own", ["ALL"], ["10.0.0.1"])
    assert opened.allowed == ["WRITE", "DESCRIBE (implied)"]
    assert (team.prefixed, team.allowed) == (True, ["READ", "DESCRIBE (implied)"])
    assert secret.denied == ["READ"]


def test_a_rule_is_added_explained_and_deleted(visitor: Person) -> None:
    fields = {
        "principal": "ann", "permission": "ALLOW", "operation": "READ", "type": "TOPIC", "resource": "team.",
        "pattern": "PREFIXED", "host": "*",
    }  # fmt: skip
    visitor.send("/acls", fields, page="/acls")
    page = visitor.get("/acls")
    assert "User:ann" in page
    address = re.search(r'href="(/acls/delete[^"]+)"', page)
    assert address
    answer = visitor.get("/rights?principal=ann&operation=DESCRIBE&type=TOPIC&name=team.orders")
    assert "Allowed." in answer
    assert "which implies it" in answer
    assert "Refused." in visitor.get("/rights?principal=ann&operation=WRITE&type=TOPIC&name=team.orders")
    assert "may do everything" in visitor.get("/rights?principal=User:ANONYMOUS")
    deletion = address[1].replace("&amp;", "&")
    assert "get authorization errors" in visitor.get(deletion)
    visitor.send("/acls/delete", {**fields, "principal": "User:ann"}, page=deletion)
    assert "Rule deleted" in visitor.get("/acls")
    assert "principal=User%3Aann" not in visitor.get("/acls?q=team")


def test_a_user_gets_a_password_and_loses_it(visitor: Person, secured: testing.Broker) -> None:
    refused = visitor.send(
        "/users", {"user": "carl", "mechanism": "SCRAM-SHA-256", "password": "short"}, page="/users", status=400
    )
    assert "at least 8" in refused.text
    assert 'value="carl"' in refused.text, "the form keeps what was typed"
    assert "short" not in refused.text, "but no password"
    visitor.send("/users", {"user": "carl", "mechanism": "SCRAM-SHA-256", "password": "long enough"}, page="/users")
    page = visitor.get("/users")
    assert "carl" in page
    assert "SCRAM-SHA-256" in page
    fields = {"user": "carl", "mechanism": "SCRAM-SHA-256"}
    assert "This cannot be undone" in visitor.send("/users/delete", fields, page="/users", status=200).text
    assert "carl" in visitor.get("/users")
    visitor.send("/users/delete", {**fields, "confirmed": "carl"}, page="/users")
    assert "carl" not in visitor.get("/users?q=carl").replace('value="carl"', "").replace("of carl is", "")


def test_a_quota_is_set_and_removed(visitor: Person) -> None:
    visitor.send(
        "/quotas", {"user": "ann", "client": "*", "quota": "producer_byte_rate", "value": "1000000"}, page="/quotas"
    )
    page = visitor.get("/quotas")
    assert "1.0 MB/s" in page
    assert "default" in page
    rate = {"quota": "producer_byte_rate", "value": "1"}
    for fields in (rate, {**rate, "user": "a", "value": "-1"}, {**rate, "user": "a", "ip": "1.1.1.1"}):
        visitor.send("/quotas", fields, page="/quotas", status=400)
    visitor.send(
        "/quotas", {"user": "ann", "client": "*", "quota": "producer_byte_rate", "remove": "yes"}, page="/quotas"
    )
    assert "No quota is set" in visitor.get("/quotas")


def test_clusters_without_an_authorizer_say_so(person: Person) -> None:
    for path in ("/acls", "/rights?principal=ann"):
        assert 'class="banner info"' in person.get(path)


def test_a_token_is_created_shown_once_and_expired(console: Callable[..., Person]) -> None:
    with testing.Broker(
        security="SASL_PLAINTEXT", users={"ann": "ann-password"}, delegation_token_secret_key="key"
    ) as broker:
        visitor = console(kafka=broker.client_config("ann"))
        created = visitor.send("/tokens", {"hours": "2", "renewers": ""}, page="/tokens", status=200).text
        secret = re.search(r"Secret \(password\)</dt><dd><code>([^<]+)", created)
        identifier = re.search(r"Id \(user name\)</dt><dd><code>([^<]+)", created)
        assert secret
        assert identifier
        page = visitor.get("/tokens")
        assert identifier[1] in page
        assert secret[1] not in page
        visitor.send("/tokens/expire", {"token": identifier[1]}, page="/tokens")
        assert f"<code>{identifier[1]}</code>" not in visitor.get("/tokens")
