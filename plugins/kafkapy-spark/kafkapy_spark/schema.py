"""The columns of a read: those of Spark's own Kafka source, or the ones among them that a schema names."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafkapy.errors import IllegalArgumentError

HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

SCHEMA: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
SCHEMA_WITH_HEADERS: Final = StructType([*SCHEMA.fields, StructField("headers", HEADERS)])

_TYPES: Final[dict[str, tuple[DataType, ...]]] = {
    each.name: (each.dataType,) for each in SCHEMA_WITH_HEADERS.fields
} | {name: (BinaryType(), StringType()) for name in ("key", "value")}


def source_schema(include_headers: bool) -> StructType:
    """What a read without a schema of the user's has."""
    return SCHEMA_WITH_HEADERS if include_headers else SCHEMA


def check_schema(schema: StructType) -> None:
    """IllegalArgumentError unless its columns are a choice of the source's, in the types that these can have."""
    if not schema.fields:
        raise IllegalArgumentError("The schema has no columns; offset bigint is the cheapest to count records with")
    for each in schema.fields:
        types = _TYPES.get(each.name)
        if types is None:
            raise IllegalArgumentError(
                f"The schema has a column {each.name}; a Kafka source has {', '.join(_TYPES)}"
            )
        if not any(_is_type(each.dataType, kind) for kind in types):
            wanted = " or ".join(kind.simpleString() for kind in types)
            raise IllegalArgumentError(
                f"The schema's column {each.name} is {each.dataType.simpleString()}; it can be {wanted}"
            )
        if not each.nullable:
            raise IllegalArgumentError(f"The schema's column {each.name} must be nullable")


def _is_type(one: DataType, other: DataType) -> bool:
    return one.simpleString() == other.simpleString()
