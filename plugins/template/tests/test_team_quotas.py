"""The template's quotas are shared by the clients of a team."""

from __future__ import annotations

from kafkapy_template import plugin

from kafkapy.broker.quota_callback import ClientQuotaCallback, QuotaType
from kafkapy.config.broker import BrokerConfig
from kafkapy.plugins import PluginManager
from kafkapy.security.principal import KafkaPrincipal


def made() -> ClientQuotaCallback:
    plugins = PluginManager()
    plugins.register(plugin, "template")
    keys = {"client.quota.callback.class": "team_quotas", "template.team.byte.rate": "1000"}
    return plugins.create_quota_manager(BrokerConfig(keys, definition=plugins.broker_config_def()))


def limit(policy: ClientQuotaCallback, client_id: str, quota_type: QuotaType = QuotaType.PRODUCE) -> float | None:
    tags = policy.quota_metric_tags(quota_type, KafkaPrincipal("User", "a"), client_id)
    return policy.quota_limit(quota_type, tags)


def test_clients_of_a_team_share_its_quota() -> None:
    policy, user = made(), KafkaPrincipal("User", "a")
    one, other = (policy.quota_metric_tags(QuotaType.PRODUCE, user, name) for name in ("red.one", "red.two"))
    assert one == other
    assert limit(policy, "red.one") == 1000
    assert limit(policy, "red.one", QuotaType.FETCH) is None


def test_a_quota_of_the_store_replaces_the_configured_rate() -> None:
    policy = made()
    policy.update_quota(QuotaType.PRODUCE, {"client-id": "red"}, 5.0)
    assert (limit(policy, "red.one"), limit(policy, "blue.one")) == (5.0, 1000)
    policy.remove_quota(QuotaType.PRODUCE, {"client-id": "red"})
    assert limit(policy, "red.one") == 1000
