"""Metrics that clients push (KIP-714): subscriptions, client instances, and the readers of what arrives."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

__all__ = ["RECEIVERS", "is_served"]

RECEIVERS: Final = "kafkapy.client.telemetry.receivers"


def is_served(config: BrokerConfig) -> bool:
    """Whether pushed metrics have readers.

    It needs the library that decodes them (extra `telemetry`).
    """
    return bool(config.get_list("metrics.listeners") or config.get_list(RECEIVERS)) and _can_decode()


def _can_decode() -> bool:
    try:
        return find_spec("opentelemetry.proto.metrics.v1") is not None
    except ModuleNotFoundError:
        return False
