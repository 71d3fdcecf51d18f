"""Decodes pushed metrics (MetricsData of OTLP). On the telemetry thread.

The library holds the GIL for about 0.1 us for each message in a message, and an empty message takes two bytes. So a
push is decoded in pieces, and the number of its messages is bounded by the bytes that a push may have.
"""

from __future__ import annotations

import time
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from kafkapy._speedups.protocol.protobuf import ROW, count_messages, first_field, whole_fields
from kafkapy.broker.metric_samples import REST_S

__all__ = ["DecodeError", "decode"]

PIECE: Final = 16 * 1024
"""Bytes that are decoded at once: about a millisecond at most."""
BYTES_OF_A_MESSAGE: Final = 10
"""The least that a message may take on average in a push of the largest size.

A point with two attributes is five messages of 75 bytes.
"""
DEEPEST: Final = 50
LISTS: Final = frozenset((
    "ResourceMetrics", "ScopeMetrics", "Metric", "Gauge", "Sum", "Histogram", "ExponentialHistogram", "Summary",
))  # fmt: skip
"""Messages that may be as large as a push. Growing a list of a million numbers takes the library 16 ms at once."""
LARGEST: Final = 256 * 1024
"""Bytes of other messages: points, attributes, resources."""
DELIMITED: Final = 2
FIXED: Final = (
    FieldDescriptor.TYPE_DOUBLE,
    FieldDescriptor.TYPE_FIXED64,
    FieldDescriptor.TYPE_SFIXED64,
    FieldDescriptor.TYPE_FLOAT,
    FieldDescriptor.TYPE_FIXED32,
    FieldDescriptor.TYPE_SFIXED32,
)
"""Types of numbers of 4 or 8 bytes; the others are varints."""
WIDEST: Final = 8
TEXTS: Final = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


def _shape(root: Descriptor) -> bytes:
    """The table for `count_messages`."""
    kinds = [root]
    rows = []
    for kind in kinds:
        row = bytearray(ROW)
        for number, field in kind.fields_by_number.items():
            if field.message_type is not None and number < ROW:
                if field.message_type not in kinds:
                    kinds.append(field.message_type)
                row[number] = 1 + kinds.index(field.message_type)
        rows.append(row)
    return b"".join(rows)


SHAPE: Final = _shape(MetricsData.DESCRIPTOR)


def decode(data: bytes, most_bytes: int) -> MetricsData:
    """The metrics.

    DecodeError for bytes that are no metrics, or have more messages than `most_bytes` may.
    """
    most = most_bytes // BYTES_OF_A_MESSAGE
    metrics = MetricsData()
    try:
        if count_messages(data, SHAPE, most) > most:
            raise DecodeError(f"They are more than {most} messages")
        _merge(metrics, data, 0, len(data), 0)
    except ValueError as error:
        raise DecodeError(str(error)) from None
    return metrics


def _merge(message: Any, data: bytes, start: int, end: int, depth: int) -> None:
    """Decode data[start:end] into the message."""
    if depth > DEEPEST:
        raise DecodeError(f"Messages are nested deeper than {DEEPEST}")
    while start < end:
        cut = whole_fields(data, start, end, PIECE)
        if cut - start <= PIECE:
            message.MergeFromString(data[start:cut])
        else:
            _merge_large(message, data, start, cut, depth)
        if end - start > PIECE:
            time.sleep(REST_S)
        start = cut


def _merge_large(message: Any, data: bytes, start: int, end: int, depth: int) -> None:
    """Decode one field that is larger than a piece: a message, packed numbers or a text."""
    number, wire_type, content, _ = first_field(data, start, end)
    field = message.DESCRIPTOR.fields_by_number.get(number)
    if wire_type != DELIMITED or (field is not None and field.type in TEXTS):
        message.MergeFromString(data[start:end])
    elif field is None:
        pass  # a field that this version of OTLP does not have
    elif field.message_type is None:
        _merge_packed(message, field, data, content, end)
    else:
        kind = field.message_type.name
        if kind not in LISTS and end - content > LARGEST:
            raise DecodeError(f"A {kind} has {end - content} bytes, more than {LARGEST}")
        part = getattr(message, field.name)
        if hasattr(part, "add"):
            part = part.add()
        else:
            part.SetInParent()
        _merge(part, data, content, end, depth + 1)


def _merge_packed(message: Any, field: FieldDescriptor, data: bytes, start: int, end: int) -> None:
    key = _varint(field.number << 3 | DELIMITED)
    while start < end:
        cut = min(start + PIECE + -PIECE % WIDEST, end)
        while field.type not in FIXED and cut < end and data[cut - 1] & 0x80:
            cut += 1
        message.MergeFromString(key + _varint(cut - start) + data[start:cut])
        time.sleep(REST_S)
        start = cut


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)
