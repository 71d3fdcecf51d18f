"""The errors that only asyncio clients raise; names as in aiokafka."""

from __future__ import annotations

from kafkapy.errors import IllegalStateError

__all__ = ["ConsumerStoppedError", "IllegalOperation", "ProducerClosed"]


class ConsumerStoppedError(IllegalStateError):
    """The consumer was stopped, or not started."""


class ProducerClosed(IllegalStateError):
    """The producer was stopped, or not started."""


class IllegalOperation(IllegalStateError):
    """The client's configuration forbids the call.

    Examples: offsets without a group, a transaction without an id.
    """
