"""The columns of a write: those that Spark's own Kafka sink takes, and `timestamp`.

Texts of errors are that sink's. Source: org.apache.spark.sql.kafka010.KafkaWriter.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafkapy.errors import IllegalArgumentError
from kafkapy_spark.sink_options import SinkOptions

HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

_TYPES: Final[dict[str, tuple[DataType, ...]]] = {
    "topic": (StringType(),),
    "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()),
    "headers": (HEADERS,),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(),),
}
"""In the order in which they are looked at."""

_MISSING: Final = {
    "topic": "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic.",
    "value": "Required attribute 'value' not found",
}


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """IllegalArgumentError unless records can be made of rows of this schema. Columns of other names are not looked
    at."""
    types: dict[str, DataType] = {}
    for field in schema.fields:
        types.setdefault(field.name, field.dataType)
    for name, wanted in _TYPES.items():
        if (name == "topic" and options.topic is not None) or (name == "timestamp" and not options.timestamp_column):
            continue
        found = types.get(name)
        if found is None:
            if name in _MISSING:
                raise IllegalArgumentError(_MISSING[name])
        elif found.simpleString() not in {each.simpleString() for each in wanted}:
            raise IllegalArgumentError(
                f"{name} attribute unsupported type {found.simpleString()}. {name} must be a(n) "
                f"{' or '.join(each.simpleString() for each in wanted)}"
            )
