"""aiokafka's `aiokafka.abc`: base classes for users."""

from __future__ import annotations

from abc import ABC, abstractmethod

from kafkapy.clients.consumer.subscription import ConsumerRebalanceListener

__all__ = ["AbstractTokenProvider", "ConsumerRebalanceListener"]


class AbstractTokenProvider(ABC):
    """Provides tokens for SASL/OAUTHBEARER."""

    @abstractmethod
    async def token(self) -> str:
        """A valid token; the same one until it expires."""

    def extensions(self) -> dict[str, str]:
        """SASL extensions sent with the token (KIP-342); none by default."""
        return {}
