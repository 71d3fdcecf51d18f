"""Configuration of a cluster of one broker; Kafka's defaults expect three."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["QUICK_START", "SINGLE_NODE"]

SINGLE_NODE: Final[Mapping[str, str]] = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
"""Internal topics have one replica, and a group does not wait for more members."""

QUICK_START: Final[Mapping[str, str]] = {
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "log.dirs": "./data/kafkapy-logs",
    **SINGLE_NODE,
}
"""The configuration of a broker without a file: as in config/server.properties, which pip does not install."""
