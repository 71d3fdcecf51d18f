"""Keys of Apache Kafka 3.9 that Apache Kafka 4.4 does not have.

The broker accepts them, so that files and scripts of 3.x continue to work. DescribeConfigs shows such a key, like an
internal key, only when it is set or requested by name.
"""

from __future__ import annotations

from typing import Final

_REMOVED_FAMILIES: Final = ("zookeeper.", "authorizer.zookeeper.", "password.encoder.")
_REMOVED: Final = frozenset((
    "auto.include.jmx.reporter", "broker.id.generation.enable", "control.plane.listener.name",
    "controlled.shutdown.max.retries", "controlled.shutdown.retry.backoff.ms", "delegation.token.master.key",
    "eligible.leader.replicas.enable", "group.coordinator.new.enable", "group.share.enable", "group.share.max.groups",
    "inter.broker.protocol.version", "leader.imbalance.per.broker.percentage", "log.message.downconversion.enable",
    "log.message.format.version", "log.message.timestamp.difference.max.ms", "metadata.log.segment.min.bytes",
    "offsets.commit.required.acks", "reserved.broker.max.id", "sasl.oauthbearer.header.urlencode",
))  # fmt: skip

PURELY_DYNAMIC: Final = frozenset((
    "follower.replication.throttled.rate", "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
))  # fmt: skip
"""Keys that a broker of Apache Kafka gets by dynamic changes only, and describes only while they are set."""

LISTED_NOWHERE: Final = PURELY_DYNAMIC | {"allow.everyone.if.no.acl.found", "super.users"}
"""Broker keys outside Kafka's table of keys: keys of an authorizer, and purely dynamic keys."""

TOPIC_REMOVED: Final = frozenset((
    "message.downconversion.enable", "message.format.version", "message.timestamp.difference.max.ms",
))  # fmt: skip
"""Topic keys that Kafka 4 has removed."""


def is_removed(name: str) -> bool:
    """Whether Kafka 4.4 has removed the broker key."""
    return name in _REMOVED or name.startswith(_REMOVED_FAMILIES)


def is_listed(name: str) -> bool:
    """Whether Kafka 4.4 lists the broker key when it is not set."""
    return name not in LISTED_NOWHERE and not is_removed(name)
