"""The options of the sink: those of Spark's own Kafka sink, with its names and refusals, and a few of ours.

Names are case-insensitive. Source: org.apache.spark.sql.kafka010.KafkaSourceProvider. Imports neither pyspark nor
pyarrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from kafkapy.config.producer import PRODUCER, ProducerConfig
from kafkapy.errors import IllegalArgumentError
from kafkapy_spark.delegation_tokens import DriverConfigs, TokenOptions
from kafkapy_spark.option_names import SINK, SOURCE, KafkaConfigs, check_names, kafka_configs
from kafkapy_spark.option_values import boolean, one_of, option, positive_number, whole_number
from kafkapy_spark.throttle import Rate

Delivery = Literal["at-least-once", "exactly-once"]
OnLostTransaction = Literal["fail", "replay"]
OnKnown = Literal["refuse", "write", "skip"]
"""ignoreSinkState=false, true, skip. Versions of a batch write (txnVersion) are skipped unless it is given."""

EXACTLY_ONCE: Final = "exactly-once"
TIMEOUT: Final = "transaction.timeout.ms"
TWO_PHASES: Final = "transaction.two.phase.commit.enable"
"""Keys of the producer. Without both, transactions have no timeout where the brokers allow that (KIP-939)."""
_DELIVERIES: Final[tuple[Delivery, ...]] = ("at-least-once", "exactly-once")
_ON_LOST: Final[tuple[OnLostTransaction, ...]] = ("fail", "replay")

_REFUSED: Final = {
    "key.serializer": "Kafka option 'key.serializer' is not supported as keys are serialized with ByteArraySerializer.",
    "value.serializer": "Kafka option 'value.serializer' is not supported as value are serialized with "
    "ByteArraySerializer.",
    "interceptor.classes": "Kafka option 'interceptor.classes' is not supported as records are sent without an object "
    "for each of them",
    "transactional.id": "Kafka option 'transactional.id' is not supported. Use the options 'delivery' and "
    "'transactionalIdPrefix': every task has a transactional id of its own",
}

_OF_TRANSACTIONS: Final = ("transactionalIdPrefix", "txnAppId", "txnVersion", "onLostTransaction", "ignoreSinkState")
"""Options that say nothing at least once: refused there, rather than let somebody rely on them."""


@dataclass(frozen=True)
class SinkOptions:
    """How records are written. See `parse` for errors."""

    kafka: dict[str, str]
    """Keys of the producer, without the prefix kafka."""
    topic: str | None = None
    """Goes before the column topic."""
    delivery: Delivery = "at-least-once"
    transactional_id_prefix: str | None = None
    """The sink's name in transactional ids; None: it follows from the checkpoint."""
    txn_app_id: str | None = None
    txn_version: int | None = None
    """A batch write of the same application is not repeated unless its version is higher."""
    on_lost_transaction: OnLostTransaction = "fail"
    on_known: OnKnown = "refuse"
    """What becomes of batches that the sink has seen already, but with other rows: the option ignoreSinkState."""
    checkpoint_location: str | None = None
    timestamp_column: bool = True
    """A column timestamp is the records' time; else it is not looked at, as by Spark's own sink."""
    task_rate: Rate = field(default_factory=Rate)
    """Most that each task writes."""
    token: TokenOptions | None = None
    """Tasks log in by a delegation token; None: as `kafka` says."""

    @property
    def needs_two_phases(self) -> bool:
        """Whether a write fails where the brokers do not allow transactions without a timeout."""
        return boolean(self.kafka.get(TWO_PHASES, "false"))

    @property
    def wants_two_phases(self) -> bool:
        """Whether transactions are to have no timeout, if the brokers allow that."""
        return self.needs_two_phases or not self.kafka.keys() & {TIMEOUT, TWO_PHASES}

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
        """From the options of a DataFrameWriter or DataStreamWriter.

        IllegalArgumentError for what is refused; ConfigError for Kafka keys and values that a producer does not take.
        """
        check_names(given, SINK, SOURCE, "write")
        options = {name.lower(): value for name, value in given.items()}
        kafka = _producer_configs(options)
        token = TokenOptions.parse(options, kafka)
        out = cls(
            kafka=kafka if token is None else DriverConfigs(kafka),
            token=token,
            topic=option(options, "topic", str, None),
            delivery=option(options, "delivery", one_of(*_DELIVERIES), "at-least-once"),
            transactional_id_prefix=option(options, "transactionalIdPrefix", str, None),
            txn_app_id=option(options, "txnAppId", str, None),
            txn_version=option(options, "txnVersion", whole_number, None),
            on_lost_transaction=option(options, "onLostTransaction", one_of(*_ON_LOST), "fail"),
            on_known=option(options, "ignoreSinkState", _on_known, "refuse" if streaming else "skip"),
            checkpoint_location=option(options, "checkpointLocation", str, None),
            timestamp_column=option(options, "timestampColumn", boolean, True),
            task_rate=Rate(
                option(options, "taskRowsPerSecond", positive_number, None),
                option(options, "taskBytesPerSecond", positive_number, None),
            ),
        )
        if out.delivery != EXACTLY_ONCE:
            if TWO_PHASES in out.kafka:
                raise IllegalArgumentError(f"Option 'kafka.{TWO_PHASES}' needs delivery to be {EXACTLY_ONCE}")
            for name in _OF_TRANSACTIONS:
                if name.lower() in options:
                    raise IllegalArgumentError(f"Option '{name}' needs the option delivery to be {EXACTLY_ONCE}")
        if (out.txn_app_id is None) != (out.txn_version is None):
            raise IllegalArgumentError("The options txnAppId and txnVersion go together: one of them is missing")
        if streaming and out.txn_app_id is not None:
            raise IllegalArgumentError(
                "The options txnAppId and txnVersion are not supported in streaming queries, which have batch numbers"
            )
        return out


def _on_known(text: str) -> OnKnown:
    meanings: dict[str, OnKnown] = {"false": "refuse", "true": "write", "skip": "skip"}
    return meanings[one_of(*meanings)(text)]


def _producer_configs(options: Mapping[str, str]) -> KafkaConfigs:
    configs = kafka_configs(options, PRODUCER, _REFUSED, "Kafka producer")
    # Each task has a transactional id, which a producer needs for some of the keys.
    ProducerConfig(PRODUCER, {**configs, "transactional.id": "task"} if TWO_PHASES in configs else configs)
    return configs
