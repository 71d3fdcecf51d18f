"""Errors about unknown topics and groups, with a suggestion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kafkapy.config.suggestions import did_you_mean
from kafkapy.errors import ErrorCode, KafkaError, TransactionalIdNotFoundError, error_for

if TYPE_CHECKING:
    from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient

__all__ = [
    "NOT_AUTHORIZED",
    "NO_SUCH_TOPIC",
    "check_groups",
    "check_transactional_ids",
    "group_problem",
    "no_group",
    "no_topic",
    "no_transactional_id",
    "topic_problem",
    "topics_by_name",
]

NO_SUCH_TOPIC = "the cluster has no such topic, kafkapy topics list shows those that it has"
NOT_AUTHORIZED = "not authorized, the client's principal needs an ACL that allows this operation on it"


def topics_by_name(admin: KafkaAdminClient, names: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    """The description of each topic. KafkaError for an unknown or denied topic."""
    wanted = list(dict.fromkeys(names))
    found = {topic["name"]: topic for topic in admin.describe_topics(wanted)}
    missing = [name for name in wanted if found[name]["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    if missing:
        raise no_topic(admin, *missing)
    for name in wanted:
        if found[name]["error_code"]:
            raise KafkaError(topic_problem(name, found[name]["error_code"]))
    return {name: found[name] for name in wanted}


def topic_problem(name: str, code: int, message: str | None = None) -> str:
    """A sentence about a topic's error."""
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return f"Topic {name}: {NOT_AUTHORIZED}."
    return f"Topic {name}: {message or error_for(code)}"


def no_topic(admin: KafkaAdminClient, *names: str) -> KafkaError:
    """The error for unknown topics."""
    if len(names) > 1:
        return KafkaError(
            f"The cluster has none of the topics {', '.join(names)}. kafkapy topics list shows its topics."
        )
    known = [topic for topic in admin.list_topics() if not topic.startswith("__")]
    question = did_you_mean(names[0], known)
    if not question:
        question = "kafkapy topics list shows its topics, kafkapy topics create creates one."
        return KafkaError(f"The cluster has no topic {names[0]}. {question}")
    return KafkaError(f"The cluster has no topic {names[0]}; {question}")


def no_group(admin: KafkaAdminClient, name: str) -> KafkaError:
    """The error for an unknown group."""
    question = did_you_mean(name, (group["group_id"] for group in admin.list_groups()))
    if not question:
        return KafkaError(f"The cluster has no group {name}. kafkapy groups list shows its groups.")
    return KafkaError(f"The cluster has no group {name}; {question}")


def check_groups(admin: KafkaAdminClient, names: Iterable[str]) -> None:
    """KafkaError for an unknown group of any type."""
    known = {group["group_id"] for group in admin.list_groups()}
    for name in names:
        if name in known:
            continue
        found = admin.describe_consumer_groups([name])[name]
        if isinstance(found, KafkaError) and found.code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            raise KafkaError(group_problem(name, found))
        raise no_group(admin, name)


def check_transactional_ids(admin: KafkaAdminClient, names: Iterable[str]) -> None:
    """KafkaError for an id that no producer has used."""
    wanted = list(names)
    try:
        admin.describe_transactions(wanted)
    except TransactionalIdNotFoundError as error:
        raise no_transactional_id(admin, wanted) or error from None


def no_transactional_id(admin: KafkaAdminClient, names: Iterable[str]) -> KafkaError | None:
    """The error for the first of the ids that the cluster does not know."""
    known = {each.transactional_id for listings in admin.list_transactions().values() for each in listings}
    missing = next((name for name in names if name not in known), None)
    if missing is None:
        return None
    question = did_you_mean(missing, known)
    if not question:
        return KafkaError(
            f"There is no transactional id {missing}. kafkapy transactions list shows those that there are."
        )
    return KafkaError(f"There is no transactional id {missing}; {question}")


def group_problem(name: str, error: KafkaError) -> str:
    """A sentence about a group's error."""
    if error.code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return f"Group {name}: {NOT_AUTHORIZED}."
    return f"Group {name}: {error}"
