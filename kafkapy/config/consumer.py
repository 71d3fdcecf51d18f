"""The keys of consumers.

Source: org.apache.kafka.clients.consumer.ConsumerConfig (4.1), and kafka-python's keys for iteration.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from kafkapy.config.clients import COMMON, ClientConfigDef
from kafkapy.config.config_def import (
    MAX_LONG,
    ConfigKey,
    Importance,
    at_least,
    checked_by,
    non_empty,
    one_of_ignoring_case,
)
from kafkapy.config.durations import is_reset
from kafkapy.types import ConfigType

__all__ = ["CONSUMER"]

STRING, INT, LONG, LIST = ConfigType.STRING, ConfigType.INT, ConfigType.LONG, ConfigType.LIST
BOOLEAN, CLASS = ConfigType.BOOLEAN, ConfigType.CLASS
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
K = ConfigKey

_is_reset = partial(is_reset, words=("latest", "earliest", "none"))


# fmt: off
_KEYS: Final = [
    K("group.id", STRING, None, non_empty(), HIGH,
      "Name of the consumer group. Without a group the consumer commits nothing, and a subscription takes all "
      "partitions of its topics."),
    K("group.instance.id", STRING, None, non_empty(), MEDIUM,
      "Name of a static member, which outlives the process (KIP-345)."),
    K("group.protocol", STRING, "classic", one_of_ignoring_case("classic", "consumer"), HIGH,
      "classic: the members assign partitions. consumer: the broker assigns them (KIP-848)."),
    K("group.remote.assignor", STRING, None, non_empty(), MEDIUM,
      "The broker's assignor for group.protocol=consumer. Not set: the broker chooses."),
    K("session.timeout.ms", INT, 45000, at_least(1), HIGH,
      "Time in ms without a heartbeat until the coordinator removes the member."),
    K("heartbeat.interval.ms", INT, 3000, at_least(1), HIGH,
      "Time in ms between two heartbeats; below session.timeout.ms, usually at most a third of it."),
    K("max.poll.interval.ms", INT, 300000, at_least(1), MEDIUM,
      "Largest time in ms between two polls; a slower member leaves the group until its next poll."),
    K("partition.assignment.strategy", LIST, ["range", "cooperative-sticky"], non_empty(), MEDIUM,
      "Assignors of this member, the preferred first: names (range, roundrobin, sticky, cooperative-sticky, a "
      "plugin's), classes or objects."),
    K("enable.auto.commit", BOOLEAN, True, None, MEDIUM,
      "Whether the consumer commits the positions of earlier polls every auto.commit.interval.ms."),
    K("auto.commit.interval.ms", INT, 5000, at_least(0), LOW, "Time in ms between two automatic commits."),
    K("default.offset.commit.callback", CLASS, None, None, LOW,
      "Callback with (offsets, None or the error) of each commit_async() without a callback, and of automatic "
      "commits."),
    K("auto.offset.reset", STRING, "latest",
      checked_by(_is_reset, "latest, earliest, none, or by_duration:<ISO 8601 duration>"), MEDIUM,
      "Start without a committed offset, or when the log no longer has the offset: latest, earliest, "
      "by_duration:PT1H (the records of the last hour, KIP-1106), or none (an error)."),
    K("isolation.level", STRING, "read_uncommitted", one_of_ignoring_case("read_uncommitted", "read_committed"),
      MEDIUM, "read_committed: the consumer returns no records of aborted and open transactions."),
    K("allow.auto.create.topics", BOOLEAN, True, None, MEDIUM,
      "Whether a metadata request may create a topic, if the broker allows it."),
    K("exclude.internal.topics", BOOLEAN, True, None, MEDIUM,
      "Whether a pattern ignores internal topics."),
    K("client.rack", STRING, "", None, LOW,
      "Rack of this client: a broker may name a replica there to read from (KIP-392)."),
    K("fetch.min.bytes", INT, 1, at_least(0), HIGH,
      "Bytes that a broker collects before it answers a fetch, for at most fetch.max.wait.ms."),
    K("fetch.max.wait.ms", INT, 500, at_least(0), LOW, "Largest time in ms that a broker waits for fetch.min.bytes."),
    K("fetch.max.bytes", INT, 50 << 20, at_least(0), MEDIUM,
      "Largest response in bytes; also the prefetched bytes in memory per broker."),
    K("max.partition.fetch.bytes", INT, 1 << 20, at_least(0), HIGH,
      "Largest number of bytes of one partition in one response. The broker still returns a larger first batch."),
    K("enable.incremental.fetch.sessions", BOOLEAN, True, None, LOW,
      "Whether brokers keep the list of partitions between fetches (KIP-227)."),
    K("max.poll.records", INT, 500, at_least(1), MEDIUM, "Largest number of records of one poll()."),
    K("check.crcs", BOOLEAN, True, None, LOW, "Whether the consumer checks the CRC-32C of each batch."),
    K("consumer.timeout.ms", LONG, MAX_LONG, None, LOW,
      "Time in ms without a record until iteration ends; negative or infinite: never (kafka-python)."),
    K("default.api.timeout.ms", INT, 60000, at_least(0), MEDIUM,
      "Time in ms for calls without a timeout."),
    K("key.deserializer", CLASS, None, None, HIGH,
      "Deserializer of keys: a callable, or an object with deserialize(topic, headers, data). Not set: bytes."),
    K("value.deserializer", CLASS, None, None, HIGH, "Deserializer of values, like key.deserializer."),
    K("enable.metrics.push", BOOLEAN, True, None, LOW,
      "Whether the client pushes the metrics that brokers ask for (KIP-714). Needs the extra telemetry."),
    K("interceptor.classes", LIST, [], None, LOW,
      "Objects or classes with on_consume(records), on_commit(offsets), close() (KIP-42)."),
    K("internal.leave.group.on.close", BOOLEAN, True, None, LOW,
      "Whether close() leaves the group.", internal=True),
]
# fmt: on

CONSUMER: Final[ClientConfigDef] = COMMON.with_keys(
    _KEYS,
    aliases={"leave.group.on.close": "internal.leave.group.on.close"},
    without_effect=("metric_group_prefix", "max_in_flight_requests_per_connection"),
)
"""The keys of a consumer, with the defaults of Kafka 4."""
