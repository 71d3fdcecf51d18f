"""Broker keys of Apache Kafka 4.4 without effect in this broker.

They belong to streams groups, the share coordinator, the KRaft log, tiered storage and assertions of OAUTHBEARER. The
broker loads and describes them.
"""

from __future__ import annotations

from typing import Any, Final

from kafkapy.config.broker_keys import NO_EFFECT
from kafkapy.config.config_def import (
    MAX_INT,
    ConfigKey,
    Importance,
    UpdateMode,
    Validator,
    at_least,
    between,
    one_of_ignoring_case,
)
from kafkapy.types import ConfigType

BOOLEAN, STRING, INT, LONG, SHORT = (
    ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG, ConfigType.SHORT,
)  # fmt: skip
LIST, CLASS, PASSWORD = ConfigType.LIST, ConfigType.CLASS, ConfigType.PASSWORD
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
BROKER = UpdateMode.PER_BROKER
CLUSTER = UpdateMode.CLUSTER_WIDE


def _accepted(
    name: str,
    type_: ConfigType,
    default: Any,
    validator: Validator | None,
    importance: Importance,
    update_mode: UpdateMode = UpdateMode.READ_ONLY,
    internal: bool = False,
) -> ConfigKey:
    return ConfigKey(name, type_, default, validator, importance, NO_EFFECT, update_mode, internal)


ACCEPTED_KEYS: Final = (
    _accepted("controller.performance.always.log.threshold.ms", LONG, 2000, at_least(0), MEDIUM, internal=True),
    _accepted("controller.performance.sample.period.ms", LONG, 60000, at_least(100), MEDIUM, internal=True),
    _accepted("controller.quorum.auto.join.enable", BOOLEAN, False, None, LOW),
    _accepted("controller.quorum.fetch.max.bytes", INT, 1048576, at_least(1), LOW),
    _accepted("controller.quorum.fetch.snapshot.max.bytes", INT, 1048576, at_least(1), LOW),
    _accepted("follower.fetch.last.tiered.offset.enable", BOOLEAN, False, None, MEDIUM, CLUSTER),
    _accepted("group.consumer.assignor.offload.enable", BOOLEAN, True, None, MEDIUM, internal=True),
    _accepted("group.coordinator.background.threads", INT, 2, at_least(1), HIGH),
    _accepted("group.coordinator.cached.buffer.max.bytes", INT, 1048588, at_least(524288), MEDIUM, CLUSTER),
    _accepted("group.share.assignor.offload.enable", BOOLEAN, True, None, MEDIUM, internal=True),
    _accepted("group.share.dlq.manager.class.name",
              STRING, "org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager", None, MEDIUM, internal=True),
    _accepted("group.share.persister.class.name",
              STRING, "org.apache.kafka.server.share.persister.DefaultStatePersister", None, MEDIUM, internal=True),
    _accepted("group.streams.acceptable.recovery.lag", LONG, 10000, at_least(0), MEDIUM, internal=True),
    _accepted("group.streams.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM, CLUSTER),
    _accepted("group.streams.assignor.offload.enable", BOOLEAN, True, None, MEDIUM, internal=True),
    _accepted("group.streams.assignors", LIST, ["sticky"], None, MEDIUM),
    _accepted("group.streams.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM),
    _accepted("group.streams.initial.rebalance.delay.ms", INT, 3000, at_least(0), MEDIUM),
    _accepted("group.streams.max.assignment.interval.ms", INT, 15000, at_least(0), MEDIUM),
    _accepted("group.streams.max.heartbeat.interval.ms", INT, 15000, at_least(1), MEDIUM),
    _accepted("group.streams.max.session.timeout.ms", INT, 60000, at_least(1), MEDIUM),
    _accepted("group.streams.max.size", INT, MAX_INT, at_least(1), MEDIUM),
    _accepted("group.streams.max.standby.replicas", INT, 2, at_least(0), MEDIUM),
    _accepted("group.streams.max.warmup.replicas", INT, 20, at_least(0), MEDIUM, internal=True),
    _accepted("group.streams.min.assignment.interval.ms", INT, 0, at_least(0), MEDIUM),
    _accepted("group.streams.min.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM),
    _accepted("group.streams.min.session.timeout.ms", INT, 45000, at_least(1), MEDIUM),
    _accepted("group.streams.min.task.offset.interval.ms", INT, 15000, at_least(1), MEDIUM, internal=True),
    _accepted("group.streams.num.standby.replicas", INT, 0, at_least(0), MEDIUM),
    _accepted("group.streams.num.warmup.replicas", INT, 2, at_least(0), MEDIUM, internal=True),
    _accepted("group.streams.rack.aware.assignment.tags", LIST, [], None, LOW),
    _accepted("group.streams.session.timeout.ms", INT, 45000, at_least(1), MEDIUM),
    _accepted("group.streams.task.offset.interval.ms", INT, 60000, at_least(1), MEDIUM, internal=True),
    _accepted("group.streams.topology.description.plugin.class", CLASS, None, None, MEDIUM),
    _accepted("internal.metadata.delete.delay.millis", LONG, 60000, None, LOW, internal=True),
    _accepted("internal.metadata.log.segment.bytes", INT, None, None, LOW, internal=True),
    _accepted("internal.metadata.max.batch.size.in.bytes", INT, 8388608, None, LOW, internal=True),
    _accepted("log.remote.copy.lag.bytes", LONG, -1, at_least(-1), MEDIUM, CLUSTER),
    _accepted("log.remote.copy.lag.ms", LONG, 0, at_least(-1), MEDIUM, CLUSTER),
    _accepted("max.decompressed.message.bytes", INT, 2147483639, between(1, 2147483639), MEDIUM, CLUSTER),
    _accepted("remote.list.offsets.request.timeout.ms", LONG, 30000, at_least(1), MEDIUM, CLUSTER),
    _accepted("remote.log.index.file.cache.ttl.ms", LONG, 900000, at_least(-1), LOW, internal=True),
    _accepted("remote.log.manager.follower.thread.pool.size", INT, 2, at_least(1), MEDIUM, CLUSTER),
    _accepted("sasl.oauthbearer.assertion.algorithm", STRING, "RS256", one_of_ignoring_case("ES256", "RS256"), MEDIUM),
    _accepted("sasl.oauthbearer.assertion.claim.aud", STRING, None, None, MEDIUM),
    _accepted("sasl.oauthbearer.assertion.claim.exp.seconds", INT, 300, between(0, 86400), LOW),
    _accepted("sasl.oauthbearer.assertion.claim.iss", STRING, None, None, MEDIUM),
    _accepted("sasl.oauthbearer.assertion.claim.jti.include", BOOLEAN, False, None, MEDIUM),
    _accepted("sasl.oauthbearer.assertion.claim.nbf.seconds", INT, 60, between(0, 3600), LOW),
    _accepted("sasl.oauthbearer.assertion.claim.sub", STRING, None, None, MEDIUM),
    _accepted("sasl.oauthbearer.assertion.file", STRING, None, None, MEDIUM),
    _accepted("sasl.oauthbearer.assertion.private.key.file", STRING, None, None, MEDIUM),
    _accepted("sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD, None, None, MEDIUM),
    _accepted("sasl.oauthbearer.assertion.template.file", STRING, None, None, MEDIUM),
    _accepted("sasl.oauthbearer.client.credentials.client.id", STRING, None, None, MEDIUM),
    _accepted("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None, None, MEDIUM),
    _accepted("sasl.oauthbearer.jwt.retriever.class",
              CLASS, "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever", None, MEDIUM),
    _accepted("sasl.oauthbearer.jwt.validator.class",
              CLASS, "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator", None, MEDIUM),
    _accepted("sasl.oauthbearer.scope", STRING, None, None, MEDIUM),
    _accepted("share.coordinator.cached.buffer.max.bytes", INT, 1048588, at_least(524288), MEDIUM, CLUSTER),
    _accepted("share.coordinator.threads", INT, 1, at_least(1), MEDIUM),
    _accepted("share.fetch.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM),
)  # fmt: skip
