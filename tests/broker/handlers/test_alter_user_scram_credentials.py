"""AlterUserScramCredentials as a client sees it, and as the store has it afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.metadata.znodes import CONFIG_USERS
from kafkapy.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kafkapy.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kafkapy.security.scram import ScramMechanism, credential_of_password, encode_credential
from kafkapy.types import ResourceType

SHA_256, SHA_512 = 1, 2
Deletion = AlterUserScramCredentialsRequest.Deletion
Upsertion = AlterUserScramCredentialsRequest.Upsertion


def upsertion(user: str, mechanism: int = SHA_256, iterations: int = 4096, password: bytes = b"x") -> Upsertion:
    name = "sha512" if mechanism == SHA_512 else "sha256"
    salted = hashlib.pbkdf2_hmac(name, password, b"salt", max(iterations, 1))
    return Upsertion(name=user, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted)


def alter(client: Any, *changes: Any) -> dict[str, tuple[int, str | None]]:
    response = client(
        AlterUserScramCredentialsRequest(
            deletions=[each for each in changes if isinstance(each, Deletion)],
            upsertions=[each for each in changes if isinstance(each, Upsertion)],
        ),
        0,
    )
    assert len({each.user for each in response.results}) == len(response.results)
    return {each.user: (each.error_code, each.error_message) for each in response.results}


def described(client: Any, user: str) -> list[tuple[int, int]]:
    users = [DescribeUserScramCredentialsRequest.User(name=user)]
    (result,) = client(DescribeUserScramCredentialsRequest(users=users), 0).results
    return [(each.mechanism, each.iterations) for each in result.credential_infos]


DONE = (ErrorCode.NONE, "")


def test_credentials_are_added_replaced_and_deleted(client: Any, topic_name: str) -> None:
    user = f"{topic_name} with, special=%/characters"
    assert alter(client, upsertion(user), upsertion(user, SHA_512, 8192)) == {user: DONE}
    assert described(client, user) == [(SHA_256, 4096), (SHA_512, 8192)]
    assert alter(client, upsertion(user, SHA_256, 16384), Deletion(name=user, mechanism=SHA_512)) == {user: DONE}
    assert described(client, user) == [(SHA_256, 16384)]
    assert alter(client, Deletion(name=user, mechanism=SHA_256)) == {user: DONE}
    assert described(client, user) == []


def test_the_store_has_kafkas_text_beside_the_users_other_keys(
    client: Any, broker: KafkaServer, topic_name: str
) -> None:
    repository = broker.context.dynamic_config.repository
    broker.call(repository.change(CONFIG_USERS, topic_name, lambda config: {**config, "producer_byte_rate": "5"}))
    alter(client, upsertion(topic_name, SHA_512, password=b"secret"))
    expected = encode_credential(credential_of_password(ScramMechanism.SCRAM_SHA_512, "secret", 4096, b"salt"))
    assert broker.call(repository.fetch(CONFIG_USERS, topic_name)) == {
        "SCRAM-SHA-512": expected,
        "producer_byte_rate": "5",
    }


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (upsertion("", SHA_256), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (Deletion(name="", mechanism=SHA_256), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (upsertion("u", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsertion("u", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsertion("u", -128), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (Deletion(name="u", mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsertion("u", SHA_256, 4095), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsertion("u", SHA_512, -1), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsertion("u", SHA_256, 16385), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (
            Deletion(name="u", mechanism=SHA_256),
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
    ],
)
def test_a_change_that_is_wrong_leaves_other_users_alone(
    client: Any, topic_name: str, change: Any, error: ErrorCode, message: str
) -> None:
    assert alter(client, change, upsertion(topic_name)) == {change.name: (error, message), topic_name: DONE}


def test_one_wrong_change_of_a_user_prevents_the_others(client: Any, topic_name: str) -> None:
    gone = Deletion(name=topic_name, mechanism=SHA_512)
    for wrong in (upsertion(topic_name, 9), upsertion(topic_name, SHA_512, 1), gone):
        (result,) = alter(client, upsertion(topic_name), wrong).values()
        assert result[0] != ErrorCode.NONE
        assert described(client, topic_name) == []


def test_a_credential_may_appear_once(client: Any, topic_name: str) -> None:
    twice = (ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
    other = f"{topic_name}-other"
    for again in (upsertion(topic_name), Deletion(name=topic_name, mechanism=SHA_256)):
        assert alter(client, upsertion(topic_name), again, upsertion(other)) == {topic_name: twice, other: DONE}
        assert described(client, topic_name) == []


def test_many_users_at_once(client: Any, topic_name: str) -> None:
    users = [f"{topic_name}-{number}" for number in range(300)]
    assert alter(client, *map(upsertion, users)) == dict.fromkeys(users, DONE)
    assert described(client, users[-1]) == [(SHA_256, 4096)]


def test_nothing_is_nothing(client: Any) -> None:
    assert alter(client) == {}


def test_one_who_may_not_alter_the_cluster_changes_nothing(
    group_client: Any, deny: Callable[..., None], topic_name: str
) -> None:
    deny((ResourceType.CLUSTER, "kafka-cluster"))
    answers = alter(group_client, upsertion(f"{topic_name}b"), Deletion(name=f"{topic_name}a", mechanism=SHA_256))
    assert [(user, error) for user, (error, _) in answers.items()] == [
        (f"{topic_name}a", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (f"{topic_name}b", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ]


def test_another_broker_than_the_controller_says_so(
    client: Any, broker: KafkaServer, monkeypatch: pytest.MonkeyPatch, topic_name: str
) -> None:
    monkeypatch.setattr(type(broker.context.controller), "is_active", property(lambda self: False))
    assert alter(client, upsertion(topic_name))[topic_name][0] == ErrorCode.NOT_CONTROLLER
