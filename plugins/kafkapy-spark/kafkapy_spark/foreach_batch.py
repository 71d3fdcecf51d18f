"""Writes of a streaming query that Spark does not let go to a Python sink: those in update mode.

    query = counts.writeStream.outputMode("update").foreachBatch(
        kafkapy_spark.foreach_batch({"kafka.bootstrap.servers": "localhost:9092", "topic": "counts"})
    ).start()

Imports no pyspark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_VERSION: Final = "txnVersion"
_KNOWN: Final = "ignoreSinkState"


def foreach_batch(options: Mapping[str, Any]) -> WriteBatch:
    """What `foreachBatch` takes: every micro-batch is written with format("kafkapy") and these options.

    With txnAppId (and delivery=exactly-once) the number of the micro-batch is its txnVersion, and ignoreSinkState is
    false unless it is given, as for a streaming query.
    """
    return WriteBatch({name: str(value) for name, value in options.items()})


@dataclass(frozen=True)
class WriteBatch:
    """A function of a micro-batch and its number."""

    options: dict[str, str]

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Writes it. Errors are those of `save`, and fail the query."""
        options = dict(self.options)
        given = {name.lower() for name in options}
        if "txnappid" in given and _VERSION.lower() not in given:
            options[_VERSION] = str(batch_id)
            if _KNOWN.lower() not in given:
                options[_KNOWN] = "false"
        batch.write.format("kafkapy").mode("append").options(**options).save()
