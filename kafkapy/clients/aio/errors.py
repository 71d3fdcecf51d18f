"""What only asyncio clients raise; names as in aiokafka."""

from __future__ import annotations

from kafkapy.errors import IllegalStateError

__all__ = ["ConsumerStoppedError", "IllegalOperation", "ProducerClosed"]


class ConsumerStoppedError(IllegalStateError):
    """The consumer was stopped, or has not been started."""


class ProducerClosed(IllegalStateError):
    """The producer was stopped, or has not been started."""


class IllegalOperation(IllegalStateError):
    """The client was not configured for the call: offsets without a group, a transaction without an id."""
