"""Schemas of tests, and values with the frame of a schema registry around them."""

from __future__ import annotations

import io
import struct

import fastavro

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "int"}],
}
ORDERS = """
syntax = "proto3";
package shop;
message Order { string sku = 1; message Part { int32 n = 1; } }
"""


def framed(schema_id: int, data: bytes) -> bytes:
    """Bytes behind the id of their schema."""
    return b"\0" + struct.pack(">i", schema_id) + data


def avro(value: object) -> bytes:
    """An order in Avro's encoding."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), value)
    return stream.getvalue()
