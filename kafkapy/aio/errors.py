"""The errors of `kafkapy.errors`, also under aiokafka's names.

ProducerFenced, for example, is ProducerFencedError.
"""

from __future__ import annotations

from typing import Any, Final

from kafkapy import errors
from kafkapy.clients.aio.errors import ConsumerStoppedError, IllegalOperation, ProducerClosed
from kafkapy.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError, for_code

__all__ = [
    "ConsumerStoppedError",
    "IllegalOperation",
    "KafkaConnectionError",
    "KafkaError",
    "KafkaTimeoutError",
    "ProducerClosed",
    "for_code",
]

ALIASES: Final = {
    "AuthenticationFailedError": "AuthenticationError",
    "GroupCoordinatorNotAvailableError": "CoordinatorNotAvailableError",
    "GroupLoadInProgressError": "CoordinatorLoadInProgressError",
    "InvalidMessageError": "CorruptMessageError",
    "KafkaUnavailableError": "NoBrokersAvailableError",
    "NotCoordinatorForGroupError": "NotCoordinatorError",
}
"""aiokafka's names that differ from Kafka's in more than the ending."""


def __getattr__(name: str) -> Any:
    for candidate in (name, f"{name}Error", ALIASES.get(name, "")):
        if candidate and hasattr(errors, candidate):
            return getattr(errors, candidate)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
