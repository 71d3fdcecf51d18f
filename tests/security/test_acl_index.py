"""The index of ACLs against a model that scans them all, word for word as the reference says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import ConfigError, IllegalArgumentError
from kafkapy.security.authorizer.acl import AclAuthorizer
from kafkapy.security.authorizer.base import AclBinding, AclBindingFilter, Action, AuthorizationResult
from kafkapy.security.authorizer.masks import bit_of, pascal_name
from kafkapy.security.principal import KafkaPrincipal
from kafkapy.types import AclOperation, AclPermissionType, PatternType, ResourceType

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
OPERATIONS = [
    AclOperation.ALL,
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.ALTER_CONFIGS,
    AclOperation.DESCRIBE_CONFIGS,
]
ASKED = OPERATIONS[1:]
NAMES = ["a", "ab", "abc", "abd", "b", "*", "ba"]
PRINCIPALS = ["User:alice", "User:bob", "User:*", "Group:alice"]
HOSTS = ["*", "10.0.0.1", "10.0.0.2"]

bindings = st.builds(
    AclBinding,
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from(NAMES),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from([ALLOW, DENY]),
)


def context(principal: str, host: str) -> Any:
    return SimpleNamespace(principal=KafkaPrincipal.parse(principal), client_address=host, api_key=3)


def loaded(acls: Iterable[AclBinding], **keys: str) -> AclAuthorizer:
    """An authorizer with these ACLs, put in one by one as changes are."""
    authorizer = AclAuthorizer()
    authorizer.configure(BrokerConfig({key.replace("_", "."): value for key, value in keys.items()}))

    async def put() -> None:
        rules: dict[Any, dict[tuple[str, str], int]] = {}
        for acl in acls:
            mine = rules.setdefault(acl.pattern, {})
            key = (acl.principal, acl.host)
            mine[key] = mine.get(key, 0) | bit_of(acl.operation, acl.permission_type)
            await authorizer._changed({acl.pattern: dict(mine)})

    asyncio.run(put())
    return authorizer


def covers(acl: AclBinding, kind: ResourceType, name: str) -> bool:
    if acl.resource_type is not kind:
        return False
    if acl.pattern_type is PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, "*")


def concerns(acl: AclBinding, principal: str, host: str) -> bool:
    return acl.principal in (principal, "User:*") and acl.host in (host, "*")


def model(
    acls: set[AclBinding], principal: str, host: str, kind: ResourceType, name: str, operation: AclOperation, lax: bool
) -> bool:
    """The decision of the reference: deny first, then allow, with what an allow includes."""
    covering = [acl for acl in acls if covers(acl, kind, name)]
    if not covering:
        return lax
    mine = [acl for acl in covering if concerns(acl, principal, host)]
    if any(acl.permission_type is DENY and acl.operation in (operation, AclOperation.ALL) for acl in mine):
        return False
    allowing = {operation, AclOperation.ALL}
    if operation is AclOperation.DESCRIBE:
        allowing |= {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
    if operation is AclOperation.DESCRIBE_CONFIGS:
        allowing |= {AclOperation.ALTER_CONFIGS}
    return any(acl.permission_type is ALLOW and acl.operation in allowing for acl in mine)


@settings(max_examples=300, deadline=None)
@given(st.sets(bindings, max_size=12), st.booleans())
def test_decisions_are_those_of_the_reference(acls: set[AclBinding], lax: bool) -> None:
    authorizer = loaded(acls, allow_everyone_if_no_acl_found=str(lax).lower())
    for principal in PRINCIPALS[:2] + PRINCIPALS[3:]:
        for host in HOSTS[1:]:
            for kind in (TOPIC, GROUP):
                names = ["a", "ab", "abc", "abcd", "b", "c", "ba"]
                actions = [Action(operation, kind, name) for name in names for operation in ASKED]
                answers = authorizer.authorize(context(principal, host), actions)
                expected = [
                    model(acls, principal, host, kind, each.resource_name, each.operation, lax) for each in actions
                ]
                assert [answer is AuthorizationResult.ALLOWED for answer in answers] == expected


def any_of(
    acls: set[AclBinding], principal: str, host: str, kind: ResourceType, operation: AclOperation, lax: bool
) -> bool:
    """KIP-679: an allow that no deny dominates."""
    mine = [
        acl
        for acl in acls
        if acl.resource_type is kind
        and concerns(acl, principal, host)
        and acl.operation in (operation, AclOperation.ALL)
    ]
    denies = [acl for acl in mine if acl.permission_type is DENY]
    if any(acl.pattern_type is LITERAL and acl.resource_name == "*" for acl in denies):
        return False
    if lax:
        return True

    def dominated(allow: AclBinding) -> bool:
        if allow.pattern_type is LITERAL and allow.resource_name == "*":
            return False
        return any(
            allow.resource_name.startswith(deny.resource_name)
            if deny.pattern_type is PREFIXED
            else (allow.pattern_type is LITERAL and allow.resource_name == deny.resource_name)
            for deny in denies
        )

    return any(not dominated(acl) for acl in mine if acl.permission_type is ALLOW)


@settings(max_examples=300, deadline=None)
@given(st.sets(bindings, max_size=12), st.booleans())
def test_decisions_about_any_resource_are_those_of_the_reference(acls: set[AclBinding], lax: bool) -> None:
    authorizer = loaded(acls, allow_everyone_if_no_acl_found=str(lax).lower())
    for principal in PRINCIPALS[:2]:
        for kind in (TOPIC, GROUP):
            for operation in (AclOperation.WRITE, AclOperation.READ):
                answer = authorizer.authorize_by_resource_type(context(principal, "10.0.0.1"), operation, kind)
                assert answer == any_of(acls, principal, "10.0.0.1", kind, operation, lax)


filters = st.builds(
    AclBindingFilter,
    st.sampled_from([ResourceType.ANY, TOPIC, GROUP, ResourceType.CLUSTER]),
    st.sampled_from([None, "abcd", *NAMES]),
    st.sampled_from([PatternType.ANY, PatternType.MATCH, LITERAL, PREFIXED]),
    st.sampled_from([None, *PRINCIPALS]),
    st.sampled_from([None, *HOSTS]),
    st.sampled_from([AclOperation.ANY, *OPERATIONS]),
    st.sampled_from([AclPermissionType.ANY, ALLOW, DENY]),
)


def matches(acl: AclBinding, asked: AclBindingFilter) -> bool:
    if asked.resource_type not in (ResourceType.ANY, acl.resource_type):
        return False
    if asked.pattern_type in (LITERAL, PREFIXED) and asked.pattern_type is not acl.pattern_type:
        return False
    if asked.resource_name is not None:
        by_match = asked.pattern_type is PatternType.MATCH and covers(acl, acl.resource_type, asked.resource_name)
        if acl.resource_name != asked.resource_name and not by_match:
            return False
    return (
        asked.principal in (None, acl.principal)
        and asked.host in (None, acl.host)
        and asked.operation in (AclOperation.ANY, acl.operation)
        and asked.permission_type in (AclPermissionType.ANY, acl.permission_type)
    )


@settings(max_examples=300, deadline=None)
@given(st.sets(bindings, max_size=12), filters)
def test_filters_find_what_a_scan_finds(acls: set[AclBinding], asked: AclBindingFilter) -> None:
    found = list(loaded(acls).acls(asked))
    assert len(found) == len(set(found))
    assert set(found) == {acl for acl in acls if matches(acl, asked)}
    assert all(asked.matches_pattern(acl.pattern) and asked.matches_entry(acl.entry) for acl in found)


@settings(max_examples=100, deadline=None)
@given(st.lists(bindings, max_size=10), st.lists(bindings, max_size=10))
def test_what_is_removed_leaves_nothing(before: list[AclBinding], after: list[AclBinding]) -> None:
    authorizer = loaded(before)

    async def empty() -> None:
        await authorizer._changed({acl.pattern: {} for acl in before})

    epoch = authorizer.decisions_epoch
    asyncio.run(empty())
    assert authorizer.decisions_epoch > epoch
    assert authorizer.acl_count == 0
    assert list(authorizer.acls(AclBindingFilter())) == []
    for patterns in authorizer._index._types.values():
        assert (patterns.literal, patterns.prefixed, patterns.prefix_lengths, patterns.holders) == ({}, {}, [], {})
    assert loaded(after).acl_count == len(set(after))


@pytest.mark.parametrize(
    ("host", "address", "same"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("0:0:0:0:0:0:0:1", "::1", True),
        ("::1", "::1", True),
        ("2001:db8:0:0:0:0:0:a", "2001:db8::a", True),
        ("2001:DB8::a", "2001:db8::a", False),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("fe80:0:0:0:0:0:0:1%eth0", "fe80::1%eth0", True),
        ("*", "nonsense", True),
        ("10.0.0.1", "10.0.0.10", False),
    ],
)
def test_a_host_is_written_as_java_or_python_writes_it(host: str, address: str, same: bool) -> None:
    authorizer = loaded([AclBinding(TOPIC, "t", LITERAL, "User:alice", host, AclOperation.READ, ALLOW)])
    [answer] = authorizer.authorize(context("User:alice", address), [Action(AclOperation.READ, TOPIC, "t")])
    assert (answer is AuthorizationResult.ALLOWED) is same


def test_super_users_are_allowed_what_is_denied() -> None:
    acl = AclBinding(TOPIC, "*", LITERAL, "User:*", "*", AclOperation.ALL, DENY)
    authorizer = loaded([acl], super_users=" User:admin ;User:CN=a,O=b; ")
    for user, allowed in (("User:admin", True), ("User:CN=a,O=b", True), ("User:other", False), ("Group:admin", False)):
        [answer] = authorizer.authorize(context(user, "h"), [Action(AclOperation.READ, TOPIC, "t")])
        assert (answer is AuthorizationResult.ALLOWED) is allowed
        assert authorizer.authorize_by_resource_type(context(user, "h"), AclOperation.WRITE, TOPIC) is allowed


def test_a_super_user_that_is_none_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="'bob' is not of the form Type:name"):
        loaded([], super_users="User:alice;bob")


def test_only_literal_resources_are_decided() -> None:
    with pytest.raises(IllegalArgumentError, match="PREFIXED"):
        loaded([]).authorize(context("User:a", "h"), [Action(AclOperation.READ, TOPIC, "t", PREFIXED)])


def test_names_of_equal_numbers_are_told_apart() -> None:
    assert (pascal_name(AclOperation.READ), pascal_name(AclPermissionType.ALLOW)) == ("Read", "Allow")
    assert pascal_name(ResourceType.TRANSACTIONAL_ID) == "TransactionalId"


# --- the audit log ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("INFO", ["INFO Denied Read on t2"]),
        ("DEBUG", ["DEBUG Allowed Read on t1", "INFO Denied Read on t2"]),
        (
            5,
            [
                "DEBUG Allowed Read on t1",
                "INFO Denied Read on t2",
                "TRACE Allowed Read on t1",
                "TRACE Denied Read on t2",
            ],
        ),
    ],
)
def test_decisions_are_logged_as_kafka_does(caplog: pytest.LogCaptureFixture, level: Any, expected: list[str]) -> None:
    authorizer = loaded([AclBinding(TOPIC, "t1", LITERAL, "User:alice", "*", AclOperation.READ, ALLOW)])
    with caplog.at_level(level, "kafka.authorizer.logger"):
        asked = [Action(AclOperation.READ, TOPIC, name, reference_count=2) for name in ("t1", "t2")]
        quiet = [each._replace(log_if_allowed=False, log_if_denied=False) for each in asked]
        authorizer.authorize(context("User:alice", "10.0.0.1"), asked)
        authorizer.authorize(context("User:alice", "10.0.0.1"), quiet)
    told = [
        f"{'TRACE' if record.levelno == 5 else record.levelname} {words[4]} {words[7]} on {words[15].split(':')[-1]}"
        for record in caplog.records
        for words in [record.getMessage().split()]
    ]
    assert told == expected
    assert caplog.records[-1].getMessage() == (
        "Principal = User:alice is Denied Operation = Read from host = 10.0.0.1 on resource = Topic:LITERAL:t2 "
        "for request = Metadata with resourceRefCount = 2"
    )
