"""The producer's keys, and the rules between them.

Names, types, defaults and checks are those of Kafka 4.1's ProducerConfig; kafka-python's keywords work too.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping
from typing import Final

from kafkapy.config.clients import COMMON, ClientConfig, ClientConfigDef
from kafkapy.config.config_def import MAX_INT, ConfigKey, Importance, at_least, between, checked_by, non_empty, one_of
from kafkapy.errors import ConfigError
from kafkapy.types import CompressionType, ConfigType

__all__ = ["PRODUCER", "ProducerConfig"]

log = logging.getLogger("kafkapy.producer")

STRING, INT, LONG, LIST = ConfigType.STRING, ConfigType.INT, ConfigType.LONG, ConfigType.LIST
BOOLEAN, CLASS = ConfigType.BOOLEAN, ConfigType.CLASS
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
K = ConfigKey

CODECS: Final = CompressionType.config_names()
MOST_IN_FLIGHT_IDEMPOTENT: Final = 5
"""Number of a producer's batches with sequence numbers in the broker's memory."""

_ids = itertools.count(1)

# fmt: off
_KEYS: Final = [
    K("acks", STRING, "all", one_of("all", "-1", "0", "1"), LOW,
      "Acknowledgement of a record: 0 by the socket, 1 by the leader, all (-1) by all in-sync replicas."),
    K("batch.size", INT, 16384, at_least(0), MEDIUM,
      "Size of a batch in bytes before compression; a larger record gets a separate batch."),
    K("buffer.memory", LONG, 32 * 1024 * 1024, at_least(1), HIGH,
      "Bytes of records that wait to be sent; send() waits when the buffer is full (max.block.ms)."),
    K("compression.type", STRING, "none", one_of(*CODECS), HIGH, "Codec of the batches."),
    K("compression.gzip.level", INT, -1,
      checked_by(lambda level: level == -1 or 1 <= level <= 9, "-1 (the codec's choice) or between 1 and 9"), MEDIUM,
      "Level of gzip, with compression.type=gzip."),
    K("compression.lz4.level", INT, 9, between(1, 17), MEDIUM, "Level of lz4, with compression.type=lz4."),
    K("compression.zstd.level", INT, 3, between(-131072, 22), MEDIUM, "Level of zstd, with compression.type=zstd."),
    K("delivery.timeout.ms", INT, 120000, at_least(0), MEDIUM,
      "Largest time in ms from send() to a record's result, including retries."),
    K("enable.idempotence", BOOLEAN, True, None, LOW,
      "The brokers write each record exactly once and in order, despite retries. Needs acks=all, retries and at most "
      "5 requests in flight."),
    K("enable.metrics.push", BOOLEAN, True, None, LOW,
      "Whether the client pushes the metrics that brokers ask for (KIP-714). Needs the extra telemetry."),
    K("interceptor.classes", LIST, [], None, LOW,
      "Objects or classes with on_send(record), on_acknowledgement(metadata, exception) and close(), all optional."),
    K("key.serializer", CLASS, None, None, HIGH,
      "Serializer of keys: a callable, or an object with serialize(topic, headers, data). Not set: bytes."),
    K("linger.ms", LONG, 5, at_least(0), MEDIUM,
      "Time in ms that a partial batch waits for more records."),
    K("max.block.ms", LONG, 60000, at_least(0), MEDIUM,
      "Largest time in ms that send(), partitions_for() and transactional methods wait for metadata, memory or a "
      "coordinator."),
    K("max.in.flight.requests.per.connection", INT, 5, at_least(1), LOW,
      "Largest number of requests in flight on a connection. Without idempotence, more than 1 lets a retry change the "
      "order."),
    K("max.request.size", INT, 1024 * 1024, at_least(0), MEDIUM,
      "Largest request in bytes, and so the largest record, before compression."),
    K("metadata.max.idle.ms", LONG, 300000, at_least(5000), LOW,
      "Time in ms without a record until the producer forgets a topic's metadata."),
    K("partitioner.adaptive.partitioning.enable", BOOLEAN, True, None, LOW,
      "Records without a key go less to partitions whose broker is slow (KIP-794)."),
    K("partitioner.availability.timeout.ms", LONG, 0, at_least(0), LOW,
      "Time in ms without progress of a broker until records without a key avoid it; 0: never."),
    K("partitioner.class", CLASS, None, None, MEDIUM,
      "A partitioner: an object with partition(...), a callable, or a registered name (default, round_robin, "
      "uniform_sticky). None: murmur2 of the key, sticky without a key."),
    K("partitioner.ignore.keys", BOOLEAN, False, None, LOW,
      "Whether records with a key spread over the partitions like records without one."),
    K("retries", INT, MAX_INT, between(0, MAX_INT), HIGH,
      "Largest number of retries; prefer delivery.timeout.ms as the bound."),
    K("transaction.timeout.ms", INT, 60000, at_least(1), LOW,
      "Time in ms until the coordinator aborts an open transaction."),
    K("transaction.two.phase.commit.enable", BOOLEAN, False, None, LOW,
      "Whether only a client ends this producer's transactions, never the coordinator (KIP-939)."),
    K("transactional.id", STRING, None, non_empty(), LOW,
      "Name of the producer across restarts; with it the producer writes in transactions."),
    K("allow.auto.create.topics", BOOLEAN, True, None, LOW,
      "Whether metadata requests may create topics, if the brokers allow it (kafka-python's "
      "allow_auto_create_topics)."),
    K("value.serializer", CLASS, None, None, HIGH,
      "Serializer of values: a callable, or an object with serialize(topic, headers, data). Not set: bytes."),
]
# fmt: on

PRODUCER: Final[ClientConfigDef] = COMMON.with_keys(_KEYS, aliases={"partitioner": "partitioner.class"})
"""Every key of the producer."""


class ProducerConfig(ClientConfig):
    """A producer's configuration, with numeric acks and settled idempotence. Immutable."""

    def __init__(
        self,
        definition: ClientConfigDef = PRODUCER,
        configs: Mapping[str, object] | None = None,
        /,
        **keywords: object,
    ) -> None:
        """Parse and check the values. ConfigError, also for contradictions."""
        super().__init__(definition, _plain(configs or {}), **_plain(keywords))

    def _settle(self) -> None:
        super()._settle()
        values = self._values
        acks = values["acks"]
        values["acks"] = -1 if acks == "all" else int(acks)
        if "delivery.timeout.ms" not in self.given:
            # As KafkaProducer.configureDeliveryTimeout: a default gives way, what was asked for does not.
            shortest = min(values["linger.ms"] + values["request.timeout.ms"], MAX_INT)
            values["delivery.timeout.ms"] = max(values["delivery.timeout.ms"], shortest)
        elif values["delivery.timeout.ms"] < values["linger.ms"] + values["request.timeout.ms"]:
            raise ConfigError(
                "delivery.timeout.ms",
                values["delivery.timeout.ms"],
                "must be equal to or larger than linger.ms + request.timeout.ms",
            )
        self._settle_idempotence()
        two_phase = "transaction.two.phase.commit.enable"
        if values[two_phase] and values["transactional.id"] is None:
            raise ConfigError(two_phase, True, "needs transactional.id")
        if values[two_phase] and "transaction.timeout.ms" in self.given:
            raise ConfigError(two_phase, True, "excludes transaction.timeout.ms: such a transaction has no timeout")
        if not values["client.id"]:
            values["client.id"] = f"producer-{values['transactional.id'] or next(_ids)}"

    def _settle_idempotence(self) -> None:
        """Refuse contradictions with explicit idempotence.

        Default idempotence gives way to acks and retries.
        """
        values = self._values
        asked = "enable.idempotence" in self.given or values["transactional.id"] is not None
        if values["transactional.id"] is not None and not values["enable.idempotence"]:
            raise ConfigError("transactional.id", values["transactional.id"], "needs enable.idempotence")
        if not values["enable.idempotence"]:
            return
        in_flight = values["max.in.flight.requests.per.connection"]
        reason = ""
        if values["retries"] == 0:
            reason = "idempotence needs retries"
        elif values["acks"] != -1:
            reason = "idempotence needs acks=all"
        elif in_flight > MOST_IN_FLIGHT_IDEMPOTENT:
            key = "max.in.flight.requests.per.connection"
            if asked:
                raise ConfigError(key, in_flight, f"at most {MOST_IN_FLIGHT_IDEMPOTENT} with idempotence")
            reason = f"idempotence needs {key} of at most {MOST_IN_FLIGHT_IDEMPOTENT}"
        if reason:
            if asked:
                raise ConfigError("enable.idempotence", True, reason)
            log.warning("Idempotence is off: %s", reason)
            values["enable.idempotence"] = False

    @property
    def codec(self) -> int:
        """The number of compression.type in a batch's attributes."""
        return CompressionType[self._values["compression.type"].upper()].value

    @property
    def compression_level(self) -> int | None:
        """The level of the codec, or None for the codec's default."""
        level: int | None = self._values.get(f"compression.{self._values['compression.type']}.level")
        return None if level == -1 and self._values["compression.type"] == "gzip" else level


def _plain(configs: Mapping[str, object]) -> dict[str, object]:
    """Convert kafka-python's values, such as numeric acks, to Kafka's."""
    return {
        name: str(value) if name == "acks" and isinstance(value, int) and not isinstance(value, bool) else value
        for name, value in configs.items()
    }
