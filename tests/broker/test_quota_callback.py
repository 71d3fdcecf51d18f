"""The built-in policy of quotas: Kafka's precedence, and whom a quota is shared by."""

from __future__ import annotations

import itertools

import pytest

from kafkapy.broker.quota_callback import DefaultQuotaCallback, QuotaType
from kafkapy.config.broker import BrokerConfig
from kafkapy.metadata.quota_entities import entity_node, entity_of_node, quota_entity, quota_values
from kafkapy.security.principal import KafkaPrincipal

PRECEDENCE: list[dict[str, str | None]] = [
    {"user": "alice", "client-id": "app"},
    {"user": "alice", "client-id": None},
    {"user": "alice"},
    {"user": None, "client-id": "app"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "app"},
    {"client-id": None},
]
ALICE = KafkaPrincipal("User", "alice")


def policy() -> DefaultQuotaCallback:
    return DefaultQuotaCallback(BrokerConfig({}))


def limit(callback: DefaultQuotaCallback, principal: KafkaPrincipal = ALICE, client_id: str = "app") -> float | None:
    tags = callback.quota_metric_tags(QuotaType.PRODUCE, principal, client_id)
    return callback.quota_limit(QuotaType.PRODUCE, tags)


@pytest.mark.parametrize("present", itertools.product([False, True], repeat=len(PRECEDENCE)), ids=str)
def test_the_most_specific_entity_decides(present: tuple[bool, ...]) -> None:
    callback = policy()
    for number, (entity, is_present) in enumerate(zip(PRECEDENCE, present, strict=True), 1):
        if is_present:
            callback.update_quota(QuotaType.PRODUCE, entity, float(number))
    wanted = next((float(number) for number, each in enumerate(present, 1) if each), None)
    assert limit(callback) == wanted
    if wanted is not None:
        decides = PRECEDENCE[int(wanted) - 1]
        tags = callback.quota_metric_tags(QuotaType.PRODUCE, ALICE, "app")
        assert tags == {
            "user": "alice" if "user" in decides else "",
            "client-id": "app" if "client-id" in decides else "",
        }


def test_types_of_quotas_are_independent() -> None:
    callback = policy()
    callback.update_quota(QuotaType.FETCH, {"user": "alice", "client-id": "app"}, 5.0)
    callback.update_quota(QuotaType.PRODUCE, {"user": "alice"}, 7.0)
    assert limit(callback) == 7.0
    callback.remove_quota(QuotaType.PRODUCE, {"user": "alice"})
    assert limit(callback) is None


def test_clients_of_one_user_share_its_quota_and_others_have_none() -> None:
    callback = policy()
    callback.update_quota(QuotaType.PRODUCE, {"user": "a b%"}, 1.0)
    odd = KafkaPrincipal("User", "a b%")
    one = callback.quota_metric_tags(QuotaType.PRODUCE, odd, "one")
    assert one == callback.quota_metric_tags(QuotaType.PRODUCE, odd, "two") == {"user": "a%20b%25", "client-id": ""}
    assert limit(callback, odd) == 1.0
    assert limit(callback) is None


@pytest.mark.parametrize(
    ("entity", "node"),
    [
        ({"user": "a/b"}, ("users", "a%2Fb")),
        ({"user": None}, ("users", "<default>")),
        ({"user": "<default>"}, ("users", "%3Cdefault%3E")),
        ({"user": "a", "client-id": None}, ("users", "a/clients/<default>")),
        ({"client-id": "c d"}, ("clients", "c%20d")),
        ({"ip": "10.0.0.1"}, ("ips", "10.0.0.1")),
        ({"ip": None}, ("ips", "<default>")),
    ],
)
def test_an_entity_has_kafkas_node(entity: dict[str, str | None], node: tuple[str, str]) -> None:
    made = quota_entity(entity)
    assert entity_node(made) == node
    assert entity_of_node(*node) == made


def test_only_numbers_are_quotas() -> None:
    config = {"SCRAM-SHA-256": "salt=", "producer_byte_rate": "1024", "consumer_byte_rate": "much", "other": "1"}
    assert quota_values(config) == {"producer_byte_rate": 1024.0}
