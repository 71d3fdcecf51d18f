"""Fast reading and copying of records of format v2 with short fields, which most records have. Makes no calls.

short_record gives the same result as record_read (record_batch.pxd), or returns False and moves nothing; record_read
then decides: a record with headers, of a MiB or more, with a key or a value of 8 KiB or more, at the very end of the
bytes, or malformed.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from kafkapy._speedups.base.wire cimport Cursor
from kafkapy._speedups.records.record_batch cimport RecordView

cdef enum:
    LONGEST_VARINT = 3          # bytes of a varint that short_varint reads
    SHORTEST_BEHIND = 5         # least bytes behind the attributes of a valid record
    SMALL_COPY = 128


cdef inline int32_t zigzag(uint32_t v) noexcept nogil:
    return <int32_t>(v >> 1) ^ -<int32_t>(v & 1)


cdef inline const uint8_t* short_varint(const uint8_t* p, int32_t* value) noexcept nogil:
    """Reads a varint of up to three readable bytes; returns its end, or NULL."""
    cdef uint32_t v = p[0]
    if v < 0x80:
        value[0] = zigzag(v)
        return p + 1
    v = (v & 0x7F) | <uint32_t>p[1] << 7
    if p[1] < 0x80:
        value[0] = zigzag(v)
        return p + 2
    if p[2] >= 0x80:
        return NULL
    value[0] = zigzag((v & 0x3FFF) | <uint32_t>p[2] << 14)
    return p + 3


cdef inline const uint8_t* short_bytes(const uint8_t* p, const uint8_t* end, const uint8_t** data,
                                       int32_t* size) noexcept nogil:
    """Reads nullable bytes of less than 8 KiB; returns their end, or NULL."""
    cdef uint32_t v
    if end - p < 2:
        return NULL
    v = p[0]
    p += 1
    if v >= 0x80:
        if p[0] >= 0x80:
            return NULL
        v = (v & 0x7F) | <uint32_t>p[0] << 7
        p += 1
    size[0] = zigzag(v)
    if size[0] < 0:
        size[0] = -1
        data[0] = NULL
        return p
    if size[0] > end - p:
        return NULL
    data[0] = p
    return p + size[0]


cdef inline bint short_record(Cursor* cursor, RecordView* out) noexcept nogil:
    cdef const uint8_t* p = cursor.p
    cdef const uint8_t* end
    cdef int32_t length = 0, timestamp_delta = 0
    if cursor.error or cursor.end - p < LONGEST_VARINT:
        return False
    p = short_varint(p, &length)
    if p == NULL or length < 1 + SHORTEST_BEHIND or length > cursor.end - p:
        return False
    end = p + length
    p = short_varint(p + 1, &timestamp_delta)       # behind the attributes
    if p == NULL or end - p < LONGEST_VARINT:
        return False
    p = short_varint(p, &out.offset_delta)
    if p == NULL:
        return False
    p = short_bytes(p, end, &out.key, &out.key_size)
    if p == NULL:
        return False
    p = short_bytes(p, end, &out.value, &out.value_size)
    if p == NULL or end - p != 1 or p[0] != 0:
        return False
    out.timestamp_delta = timestamp_delta
    out.header_count = 0
    out.headers = end
    out.headers_size = 0
    out.size = end - cursor.p
    cursor.p = end
    return True


cdef inline void short_copy(uint8_t* to, const uint8_t* at, int64_t size) noexcept nogil:
    """memcpy, without a call for few bytes."""
    if size > SMALL_COPY or size <= 0:
        if size > 0:
            memcpy(to, at, size)
    elif size > 32:
        memcpy(to, at, 32)
        if size > 64:
            memcpy(to + 32, at + 32, 32)
            memcpy(to + size - 64, at + size - 64, 32)
        memcpy(to + size - 32, at + size - 32, 32)
    elif size >= 16:
        memcpy(to, at, 16)
        memcpy(to + size - 16, at + size - 16, 16)
    elif size >= 8:
        memcpy(to, at, 8)
        memcpy(to + size - 8, at + size - 8, 8)
    elif size >= 4:
        memcpy(to, at, 4)
        memcpy(to + size - 4, at + size - 4, 4)
    else:
        to[0] = at[0]
        to[size >> 1] = at[size >> 1]
        to[size - 1] = at[size - 1]
