"""Encoding one record of a v2 batch (record_batch.pxd) into memory with enough room. Inline, for loops over records."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kafkapy._speedups.records.record_batch cimport RecordView


cdef inline int64_t varlong_size(int64_t value) noexcept nogil:
    cdef uint64_t v = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef int64_t size = 1
    while v >= 0x80:
        v >>= 7
        size += 1
    return size


cdef inline int64_t varint_size(int32_t value) noexcept nogil:
    # The zig-zag of a value does not depend on how wide it is.
    return varlong_size(value)


cdef inline uint8_t* put_varlong(uint8_t* at, int64_t value) noexcept nogil:
    """Writes the value; every put_* returns the place behind it."""
    cdef uint64_t v = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    while v >= 0x80:
        at[0] = <uint8_t>(v | 0x80)
        at += 1
        v >>= 7
    at[0] = <uint8_t>v
    return at + 1


cdef inline uint8_t* put_bytes(uint8_t* at, const uint8_t* data, int32_t size) noexcept nogil:
    """Writes a length, -1 for null, and that many bytes."""
    cdef uint64_t first, last
    at = put_varlong(at, size)
    if size <= 0:
        return at
    # Keys are short mostly: a call costs more than two words, which may overlap.
    if 8 <= size <= 16:
        memcpy(&first, data, 8)
        memcpy(&last, data + size - 8, 8)
        memcpy(at, &first, 8)
        memcpy(at + size - 8, &last, 8)
    else:
        memcpy(at, data, <size_t>size)
    return at + size


cdef inline int64_t record_body_size(const RecordView* record) noexcept nogil:
    """Bytes behind the record's length."""
    return (
        1 + varlong_size(record.timestamp_delta) + varint_size(record.offset_delta)
        + varint_size(record.key_size) + (record.key_size if record.key_size > 0 else 0)
        + varint_size(record.value_size) + (record.value_size if record.value_size > 0 else 0)
        + varint_size(record.header_count) + record.headers_size
    )


cdef inline void put_record(uint8_t* at, const RecordView* record, int64_t body_size) noexcept nogil:
    """Writes varlong_size(body_size) + body_size bytes, where body_size is record_body_size(record)."""
    at = put_varlong(at, body_size)
    at[0] = 0
    at = put_varlong(at + 1, record.timestamp_delta)
    at = put_varlong(at, record.offset_delta)
    at = put_bytes(at, record.key, record.key_size)
    at = put_bytes(at, record.value, record.value_size)
    at = put_varlong(at, record.header_count)
    if record.headers_size:
        memcpy(at, record.headers, <size_t>record.headers_size)
