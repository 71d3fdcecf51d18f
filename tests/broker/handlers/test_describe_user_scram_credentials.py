"""DescribeUserScramCredentials as a client sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.metadata.znodes import CONFIG_USERS, sanitize
from kafkapy.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kafkapy.security.scram import ScramMechanism, credential_of_password, encode_credential
from kafkapy.types import ResourceType

SHA_256, SHA_512 = 1, 2


def describe(client: Any, users: Iterable[str] | None) -> Any:
    named = None if users is None else [DescribeUserScramCredentialsRequest.User(name=each) for each in users]
    return client(DescribeUserScramCredentialsRequest(users=named), 0)


def put(broker: KafkaServer, user: str, **keys: str) -> None:
    written = {name.replace("_", "-"): value for name, value in keys.items()}
    repository = broker.context.dynamic_config.repository
    broker.call(repository.change(CONFIG_USERS, sanitize(user), lambda config: {**config, **written}))


def credential(iterations: int = 4096) -> str:
    return encode_credential(credential_of_password(ScramMechanism.SCRAM_SHA_256, "x", iterations))


def shown(response: Any) -> dict[str, list[tuple[int, int]]]:
    assert response.error_code == ErrorCode.NONE
    return {
        each.user: [(info.mechanism, info.iterations) for info in each.credential_infos] for each in response.results
    }


def test_all_users_with_credentials_are_sorted(client: Any, broker: KafkaServer) -> None:
    put(broker, "zoe", SCRAM_SHA_512=credential(5000))
    put(broker, "a b/c", SCRAM_SHA_256=credential(4097), SCRAM_SHA_512=credential())
    put(broker, "only quotas", producer_byte_rate="1")
    for everybody in (None, ()):
        found = shown(describe(client, everybody))
        assert list(found) == sorted(found)
        assert found["a b/c"] == [(SHA_256, 4097), (SHA_512, 4096)]
        assert found["zoe"] == [(SHA_512, 5000)]
        assert "only quotas" not in found


def test_named_users_have_one_result_each_in_the_order_asked(client: Any, broker: KafkaServer, topic_name: str) -> None:
    put(broker, topic_name, SCRAM_SHA_256=credential())
    put(broker, f"{topic_name}-quota", producer_byte_rate="1")
    response = describe(client, ["twice", topic_name, "", "nobody", "twice", f"{topic_name}-quota"])
    assert [(each.user, each.error_code, each.error_message) for each in response.results] == [
        (
            "twice",
            ErrorCode.DUPLICATE_RESOURCE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: twice",
        ),
        (topic_name, ErrorCode.NONE, ""),
        ("", ErrorCode.RESOURCE_NOT_FOUND, "Username must not be empty"),
        (
            "nobody",
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to describe a user credential that does not exist: nobody",
        ),
        (
            f"{topic_name}-quota",
            ErrorCode.RESOURCE_NOT_FOUND,
            f"Attempt to describe a user credential that does not exist: {topic_name}-quota",
        ),
    ]


def test_a_text_that_is_no_credential_is_an_error_of_its_user(
    client: Any, broker: KafkaServer, topic_name: str
) -> None:
    put(broker, topic_name, SCRAM_SHA_256="SECRET")
    (result,) = describe(client, [topic_name]).results
    assert result.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "SECRET" not in result.error_message
    assert topic_name in [each.user for each in describe(client, None).results]


def test_many_users(client: Any, topic_name: str) -> None:
    response = describe(client, [f"{topic_name}-{number}" for number in range(5000)])
    assert {each.error_code for each in response.results} == {ErrorCode.RESOURCE_NOT_FOUND}
    assert len(response.results) == 5000


def test_one_who_may_not_describe_the_cluster_sees_nobody(group_client: Any, deny: Callable[..., None]) -> None:
    deny((ResourceType.CLUSTER, "kafka-cluster"))
    response = describe(group_client, None)
    assert (response.error_code, response.results) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
