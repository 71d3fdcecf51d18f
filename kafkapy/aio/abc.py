"""aiokafka's `aiokafka.abc`: what users implement."""

from __future__ import annotations

from abc import ABC, abstractmethod

from kafkapy.clients.consumer.subscription import ConsumerRebalanceListener

__all__ = ["AbstractTokenProvider", "ConsumerRebalanceListener"]


class AbstractTokenProvider(ABC):
    """Gives tokens for SASL/OAUTHBEARER."""

    @abstractmethod
    async def token(self) -> str:
        """A token that is valid now; the same one until it has to be another."""

    def extensions(self) -> dict[str, str]:
        """SASL extensions that are sent with the token (KIP-342); none by default."""
        return {}
