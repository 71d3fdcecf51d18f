"""The keys of share consumers (KIP-932).

Source: org.apache.kafka.clients.consumer.ConsumerConfig and ShareConsumerConfig (4.4).
"""

from __future__ import annotations

from typing import Final

from kafkapy.config.clients import COMMON, ClientConfigDef
from kafkapy.config.config_def import ConfigKey, Importance, non_empty, one_of_ignoring_case
from kafkapy.config.consumer import CONSUMER
from kafkapy.errors import ConfigError
from kafkapy.types import ConfigType

__all__ = ["SHARE_CONSUMER"]

AS_A_CONSUMER: Final = (
    "allow.auto.create.topics",
    "check.crcs",
    "client.rack",
    "consumer.timeout.ms",
    "default.api.timeout.ms",
    "enable.metrics.push",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "key.deserializer",
    "max.poll.interval.ms",
    "value.deserializer",
)
"""Keys with the meaning that they have for consumers."""

OF_THE_GROUP: Final = {
    "auto.offset.reset": "share.auto.offset.reset",
    "isolation.level": "share.isolation.level",
    "session.timeout.ms": "share.session.timeout.ms",
    "heartbeat.interval.ms": "share.heartbeat.interval.ms",
}
"""Keys of a consumer that are configurations of a share group."""

# fmt: off
_KEYS: Final = [
    ConfigKey("group.id", ConfigType.STRING, None, non_empty(), Importance.HIGH, "Name of the share group. Required."),
    ConfigKey("max.poll.records", ConfigType.INT, 500, CONSUMER["max.poll.records"].validator, Importance.MEDIUM,
              "Largest number of records of one poll(), and of one acquisition with share.acquire.mode=record_limit."),
    ConfigKey("share.acknowledgement.mode", ConfigType.STRING, "implicit",
              one_of_ignoring_case("implicit", "explicit"), Importance.MEDIUM,
              "implicit: a poll, a commit or the next step of an iteration accepts the records before it. explicit: "
              "the program acknowledges every record before it polls again."),
    ConfigKey("share.acquire.mode", ConfigType.STRING, "batch_optimized",
              one_of_ignoring_case("batch_optimized", "record_limit"), Importance.MEDIUM,
              "batch_optimized: a member acquires whole batches, so more than max.poll.records may be locked for it. "
              "record_limit: never more than that (KIP-1206, Kafka 4.2)."),
]
# fmt: on


class ShareConsumerConfigDef(ClientConfigDef):
    """The keys of share consumers. Errors for keys of consumers name the group's."""

    def unknown_key(self, name: str, value: object, line: int | None = None, source: str | None = None) -> ConfigError:
        """The error for an unknown key."""
        if name in OF_THE_GROUP:
            reason = f"a share group has the configuration {OF_THE_GROUP[name]} instead (kafkapy configs set)"
            return ConfigError(name, value, reason, line, source)
        if name == "enable.auto.commit":
            reason = "a share consumer has share.acknowledgement.mode instead"
            return ConfigError(name, value, reason, line, source)
        return super().unknown_key(name, value, line, source)


SHARE_CONSUMER: Final[ClientConfigDef] = ShareConsumerConfigDef(
    {key.name: key for key in [*COMMON, *(CONSUMER[name] for name in AS_A_CONSUMER), *_KEYS]}.values(),
    COMMON.aliases,
    COMMON.without_effect,
)
"""The keys of a share consumer, with the defaults of Kafka 4.4."""
