"""The quotas of a broker's clients."""

from __future__ import annotations

from kafkapy.broker.client_quotas import ClientQuotas, QuotaWindows
from kafkapy.broker.parts.part import Broker, Part

__all__ = ["Quotas"]


class Quotas(Part):
    """Makes the policy of client quotas, and follows the quotas in the metadata store."""

    name = "client quotas"

    async def start(self, broker: Broker) -> None:
        """Make them. ConfigError when client.quota.callback.class names no registered policy."""
        broker.client_quotas = quotas = ClientQuotas(
            broker.plane,
            broker.plugins.create_quota_manager(broker.config),
            QuotaWindows.of_clients(broker.config),
            QuotaWindows.of_mutations(broker.config),
        )
        quotas.follow(broker.repository)
        quotas.start(broker.metadata_cache)

    async def stop(self, broker: Broker) -> None:
        """Close the policy."""
        if hasattr(broker, "client_quotas"):
            await broker.client_quotas.stop()
