"""The states of a broker. Source: org.apache.kafka.metadata.BrokerState."""

from __future__ import annotations

from enum import Enum


class BrokerState(Enum):
    """Where a broker is in its life, with Kafka's numbers."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7
