"""A policy of client quotas: the clients of a team share what their team may produce."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkapy.broker.quota_callback import ClientQuotaCallback, QuotaType

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.metadata.cache import MetadataSnapshot
    from kafkapy.security.principal import KafkaPrincipal

TEAM_RATE_KEY = "template.team.byte.rate"


class TeamQuotas(ClientQuotaCallback):
    """Bounds producers by team: a client id is `<team>.<anything>`. Other kinds of quotas have no limit.

    A quota that is set for a client id with the name of a team takes the place of the configured rate.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._rate = float(config.get_int(TEAM_RATE_KEY))
        self._rates: dict[str, float] = {}

    def quota_metric_tags(
        self, quota_type: QuotaType, principal: KafkaPrincipal, client_id: str
    ) -> Mapping[str, str]:
        """The team; these are also the labels of the quota's metrics."""
        return {"client-id": client_id.partition(".")[0]}

    def quota_limit(self, quota_type: QuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """Bytes per second of the team."""
        if quota_type is not QuotaType.PRODUCE:
            return None
        return self._rates.get(metric_tags["client-id"], self._rate)

    def update_quota(self, quota_type: QuotaType, entity: Mapping[str, str | None], value: float) -> None:
        """Follow the quotas of the metadata store."""
        team = entity.get("client-id")
        if quota_type is QuotaType.PRODUCE and team is not None:
            self._rates[team] = value

    def remove_quota(self, quota_type: QuotaType, entity: Mapping[str, str | None]) -> None:
        """The team has the configured rate again."""
        if quota_type is QuotaType.PRODUCE:
            self._rates.pop(entity.get("client-id") or "", None)

    def quota_reset_required(self, quota_type: QuotaType) -> bool:
        """Never: all changes come by the calls above."""
        return False

    def update_cluster_metadata(self, cluster: MetadataSnapshot) -> bool:
        """Topics and brokers do not matter here."""
        return False

    def close(self) -> None:
        """Nothing is held."""
