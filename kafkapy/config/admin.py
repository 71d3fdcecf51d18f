"""Configuration of the admin client: the keys of every client and these.

Source: org.apache.kafka.clients.admin.AdminClientConfig (4.1).
"""

from __future__ import annotations

from typing import Final

from kafkapy.config.clients import COMMON, K
from kafkapy.config.config_def import MAX_INT, Importance, at_least
from kafkapy.types import ConfigType

__all__ = ["ADMIN"]

ADMIN: Final = COMMON.with_keys(
    [
        K(
            "default.api.timeout.ms",
            ConfigType.INT,
            60000,
            at_least(0),
            Importance.MEDIUM,
            "Time in ms for a call without timeout_ms, including its retries.",
        ),
        K(
            "retries",
            ConfigType.INT,
            MAX_INT,
            at_least(0),
            Importance.LOW,
            "Largest number of retries of a request within the time of its call.",
        ),
    ],
    without_effect=("max_in_flight_requests_per_connection", "max.in.flight.requests.per.connection"),
)
"""The keys of the admin client, with the defaults of Kafka 4."""
