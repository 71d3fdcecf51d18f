"""The names of options: one that is misspelt is refused with the nearest name, one that does not apply is warned about.

Names are case-insensitive. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from kafkapy.config.admin import ADMIN
from kafkapy.config.clients import ClientConfigDef, shown
from kafkapy.config.consumer import CONSUMER
from kafkapy.config.producer import PRODUCER
from kafkapy.config.suggestions import did_you_mean, nearest
from kafkapy.errors import ConfigError, IllegalArgumentError

logger = logging.getLogger("kafkapy.spark")

SOURCE: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "maxTasks",
    "rowsPerTask",
    "bytesPerTask",
    "pinStart",
    "idlePollMs",
    "offsetCommitGroup",
    "readFrom",
    "segments.path",
    "delegationToken",
    "delegationToken.mechanism",
)
"""Options of reads."""
SINK: Final = (
    "topic",
    "includeHeaders",
    "delivery",
    "transactionalIdPrefix",
    "txnAppId",
    "txnVersion",
    "onLostTransaction",
    "ignoreSinkState",
    "checkpointLocation",
    "timestampColumn",
    "taskRowsPerSecond",
    "taskBytesPerSecond",
    "delegationToken",
    "delegationToken.mechanism",
)
"""Options of writes."""
OF_SPARK: Final = ("path", "checkpointLocation", "queryName", "mode", "mergeSchema", "schema")
"""Options that Spark or its users give to any format."""
PREFIX: Final = "kafka."


class KafkaConfigs(dict[str, str]):
    """Keys of a Kafka client. Its repr hides secrets: plans, logs and errors of Spark show it, and executors get it."""

    def __repr__(self) -> str:
        return repr({name: shown(name, value) for name, value in self.items()})


def check_names(options: Iterable[str], known: Iterable[str], elsewhere: Iterable[str], what: str) -> None:
    """The names of the options of `what`, a read or a write. `elsewhere` are the names of the other.

    IllegalArgumentError for one that is close to a known name. Others are ignored, as by Spark's own connector, with a
    warning.
    """
    names = {name.lower() for name in known}
    others = {name.lower() for name in elsewhere}
    for name in options:
        lower = name.lower()
        if lower in names or lower.startswith(PREFIX):
            continue
        if lower in others:
            logger.warning("Option '%s' does not apply to a %s, and is ignored", name, what)
            continue
        if lower in map(str.lower, OF_SPARK):
            continue
        question = did_you_mean(name, [*known, "kafka.bootstrap.servers"])
        if question:
            raise IllegalArgumentError(f"There is no option '{name}'; {question}")
        logger.warning("Option '%s' is not known to a %s, and is ignored", name, what)


def kafka_configs(
    options: Mapping[str, str], definition: ClientConfigDef, refused: Mapping[str, str], client: str
) -> KafkaConfigs:
    """The options that begin with kafka., without that, by the names of a client's keys.

    A key of another client, or one that is like no key, is warned about and left out, as by Kafka's own clients.
    IllegalArgumentError for a misspelt one, for those that are refused (with the text there is for each), and where
    there are no bootstrap.servers.
    """
    configs = KafkaConfigs()
    for given, value in options.items():
        name = given.lower().removeprefix(PREFIX)
        if name == given.lower():
            continue
        try:
            key = definition.key_of(name)
        except ConfigError:
            close = [] if _is_known(name) else nearest(name, definition.names)
            if close:
                meant = " or ".join(f"{PREFIX}{each}" for each in close)
                raise IllegalArgumentError(f"There is no option '{given}'; did you mean {meant}?") from None
            logger.warning("The configuration '%s' is not a known config of the %s, and is ignored", name, client)
            continue
        configs[name if key is None else key.name] = value
    for name, message in refused.items():
        if name in configs:
            raise IllegalArgumentError(message)
    if not configs.get("bootstrap.servers"):
        raise IllegalArgumentError(f"Option 'kafka.bootstrap.servers' must be specified for configuring {client}")
    return configs


def _is_known(name: str) -> bool:
    """Whether it is a key of any client."""
    for definition in (CONSUMER, PRODUCER, ADMIN):
        try:
            definition.key_of(name)
        except ConfigError:
            continue
        return True
    return False
