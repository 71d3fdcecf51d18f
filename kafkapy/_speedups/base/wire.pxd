"""The checked cursor: the only pointer arithmetic over bytes from outside.

Everything on Kafka's wire and in its files is big-endian. A `Cursor` walks a byte range that it does not own. Its error
is sticky: a read past the end returns zero (or NULL) and sets `error`, and every later read fails too. So a decoder may
read a whole structure and check `error` once, as long as it acts on no value before that check.

Bounds are checked by subtraction (`n > end - p`), never by addition, so no hostile length can overflow them.

A `ByteBuffer` is the writing side: a growable malloc'ed array. Its error is sticky as well (out of memory).
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

cdef extern from * nogil:
    """
    #define kp_bswap16 __builtin_bswap16
    #define kp_bswap32 __builtin_bswap32
    #define kp_bswap64 __builtin_bswap64

    #include <stdlib.h>
    /* Out of line, so that the writers inlined everywhere stay small: the CPU's instruction cache seldom holds the code
       of a request. */
    static __attribute__((noinline, cold, unused)) void* kp_grown(void* data, size_t* capacity, size_t size,
                                                                  size_t more) {
        size_t wanted = *capacity ? *capacity * 2 : 256;
        while (wanted - size < more) wanted *= 2;
        data = realloc(data, wanted);
        if (data) *capacity = wanted;
        return data;
    }
    """
    void* grown "kp_grown"(void* data, size_t* capacity, size_t size, size_t more)
    uint16_t bswap16 "kp_bswap16"(uint16_t)
    uint32_t bswap32 "kp_bswap32"(uint32_t)
    uint64_t bswap64 "kp_bswap64"(uint64_t)


cdef struct Cursor:
    const uint8_t* p
    const uint8_t* end
    int error


cdef inline void cursor_init(Cursor* c, const void* data, Py_ssize_t size) noexcept nogil:
    c.p = <const uint8_t*>data
    c.end = c.p + (size if size > 0 else 0)
    c.error = 0


cdef inline Py_ssize_t remaining(const Cursor* c) noexcept nogil:
    return c.end - c.p


cdef inline const uint8_t* take(Cursor* c, int64_t n) noexcept nogil:
    """The next n bytes, or NULL with `error` set when fewer are left or n is negative."""
    cdef const uint8_t* start = c.p
    if c.error or n < 0 or n > c.end - c.p:
        c.error = 1
        c.p = c.end
        return NULL
    c.p += n
    return start


cdef inline int8_t read_int8(Cursor* c) noexcept nogil:
    cdef const uint8_t* at = take(c, 1)
    return <int8_t>at[0] if at != NULL else 0


cdef inline int16_t load_int16(const uint8_t* at) noexcept nogil:
    cdef uint16_t v
    memcpy(&v, at, 2)
    return <int16_t>bswap16(v)


cdef inline int32_t load_int32(const uint8_t* at) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, at, 4)
    return <int32_t>bswap32(v)


cdef inline uint32_t load_uint32(const uint8_t* at) noexcept nogil:
    return <uint32_t>load_int32(at)


cdef inline int64_t load_int64(const uint8_t* at) noexcept nogil:
    cdef uint64_t v
    memcpy(&v, at, 8)
    return <int64_t>bswap64(v)


cdef inline void store_int16(uint8_t* at, int16_t value) noexcept nogil:
    cdef uint16_t v = bswap16(<uint16_t>value)
    memcpy(at, &v, 2)


cdef inline void store_int32(uint8_t* at, int32_t value) noexcept nogil:
    cdef uint32_t v = bswap32(<uint32_t>value)
    memcpy(at, &v, 4)


cdef inline void store_int64(uint8_t* at, int64_t value) noexcept nogil:
    cdef uint64_t v = bswap64(<uint64_t>value)
    memcpy(at, &v, 8)


cdef inline int16_t read_int16(Cursor* c) noexcept nogil:
    cdef const uint8_t* at = take(c, 2)
    return load_int16(at) if at != NULL else 0


cdef inline int32_t read_int32(Cursor* c) noexcept nogil:
    cdef const uint8_t* at = take(c, 4)
    return load_int32(at) if at != NULL else 0


cdef inline uint32_t read_uint32(Cursor* c) noexcept nogil:
    return <uint32_t>read_int32(c)


cdef inline int64_t read_int64(Cursor* c) noexcept nogil:
    cdef const uint8_t* at = take(c, 8)
    return load_int64(at) if at != NULL else 0


cdef inline uint32_t read_unsigned_varint(Cursor* c) noexcept nogil:
    """LEB128 of at most 5 bytes; a longer encoding, or a value over 32 bits, is an error."""
    cdef uint32_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while shift < 35:
        if c.error or c.p >= c.end:
            c.error = 1
            c.p = c.end
            return 0
        byte = c.p[0]
        c.p += 1
        if shift == 28 and byte > 0x0F:
            break
        value |= <uint32_t>(byte & 0x7F) << shift
        if not byte & 0x80:
            return value
        shift += 7
    c.error = 1
    c.p = c.end
    return 0


cdef inline uint64_t read_unsigned_varlong(Cursor* c) noexcept nogil:
    """LEB128 of at most 10 bytes; a longer encoding, or a value over 64 bits, is an error."""
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while shift < 70:
        if c.error or c.p >= c.end:
            c.error = 1
            c.p = c.end
            return 0
        byte = c.p[0]
        c.p += 1
        if shift == 63 and byte > 1:
            break
        value |= <uint64_t>(byte & 0x7F) << shift
        if not byte & 0x80:
            return value
        shift += 7
    c.error = 1
    c.p = c.end
    return 0


cdef inline int32_t read_varint(Cursor* c) noexcept nogil:
    """A zig-zag encoded number."""
    cdef uint32_t v = read_unsigned_varint(c)
    return <int32_t>(v >> 1) ^ -<int32_t>(v & 1)


cdef inline int64_t read_varlong(Cursor* c) noexcept nogil:
    """A zig-zag encoded number."""
    cdef uint64_t v = read_unsigned_varlong(c)
    return <int64_t>(v >> 1) ^ -<int64_t>(v & 1)


cdef inline int32_t read_array_length(Cursor* c, bint compact) noexcept nogil:
    """Element count, -1 for null; more elements than bytes left is an error (every element takes at least one byte)."""
    cdef int64_t n
    if compact:
        n = <int64_t>read_unsigned_varint(c) - 1
    else:
        n = read_int32(c)
    if c.error:
        return -1
    if n < -1 or n > c.end - c.p:
        c.error = 1
        c.p = c.end
        return -1
    return <int32_t>n


cdef inline const uint8_t* read_string(Cursor* c, bint compact, int32_t* length) noexcept nogil:
    """Borrowed bytes of a (nullable) string; length -1 and NULL for null, which some callers must refuse."""
    cdef int64_t n
    if compact:
        n = <int64_t>read_unsigned_varint(c) - 1
    else:
        n = read_int16(c)
    length[0] = -1
    if c.error or n == -1:
        return NULL
    if n > 0x7FFF:
        c.error = 1
        c.p = c.end
        return NULL
    cdef const uint8_t* at = take(c, n)
    if at != NULL:
        length[0] = <int32_t>n
    return at


cdef inline const uint8_t* read_bytes(Cursor* c, bint compact, int32_t* length) noexcept nogil:
    """Borrowed bytes of (nullable) bytes or records; length -1 and NULL for null."""
    cdef int64_t n
    if compact:
        n = <int64_t>read_unsigned_varint(c) - 1
    else:
        n = read_int32(c)
    length[0] = -1
    if c.error or n == -1:
        return NULL
    cdef const uint8_t* at = take(c, n)
    if at != NULL:
        length[0] = <int32_t>n
    return at


cdef enum:
    MAX_TAGS = 10000                # of one tagged section, as Apache Kafka 4.4 has it


cdef inline uint32_t read_tag_count(Cursor* c) noexcept nogil:
    """The number of tagged fields; more than MAX_TAGS, or more than the remaining bytes can hold, is an error."""
    cdef uint32_t count = read_unsigned_varint(c)
    if count > MAX_TAGS or count > (c.end - c.p) // 2:
        c.error = 1
        c.p = c.end
        return 0
    return count


cdef inline void skip_tagged_fields(Cursor* c) noexcept nogil:
    """Skips a tagged-field section."""
    cdef uint32_t count = read_tag_count(c)
    while count > 0 and not c.error:
        read_unsigned_varint(c)
        take(c, read_unsigned_varint(c))
        count -= 1


cdef struct ByteBuffer:
    uint8_t* data
    size_t size
    size_t capacity
    int error


cdef inline void buffer_init(ByteBuffer* b) noexcept nogil:
    b.data = NULL
    b.size = 0
    b.capacity = 0
    b.error = 0


cdef inline void buffer_free(ByteBuffer* b) noexcept nogil:
    free(b.data)
    buffer_init(b)


cdef inline uint8_t* extend(ByteBuffer* b, size_t n) noexcept nogil:
    """Room for n more bytes, already counted in `size`; NULL with `error` set when memory is out. Later writes may find
    room; the error stays."""
    cdef uint8_t* data
    if n > b.capacity - b.size:
        data = <uint8_t*>grown(b.data, &b.capacity, b.size, n) if not b.error else NULL
        if data == NULL:
            b.error = 1
            return NULL
        b.data = data
    b.size += n
    return b.data + (b.size - n)


cdef inline void write_raw(ByteBuffer* b, const void* data, size_t n) noexcept nogil:
    cdef uint8_t* at
    if n:
        at = extend(b, n)
        if at != NULL:
            memcpy(at, data, n)


cdef inline void write_int8(ByteBuffer* b, int8_t value) noexcept nogil:
    cdef uint8_t* at = extend(b, 1)
    if at != NULL:
        at[0] = <uint8_t>value


cdef inline void write_int16(ByteBuffer* b, int16_t value) noexcept nogil:
    cdef uint8_t* at = extend(b, 2)
    if at != NULL:
        store_int16(at, value)


cdef inline void write_int32(ByteBuffer* b, int32_t value) noexcept nogil:
    cdef uint8_t* at = extend(b, 4)
    if at != NULL:
        store_int32(at, value)


cdef inline void write_int64(ByteBuffer* b, int64_t value) noexcept nogil:
    cdef uint8_t* at = extend(b, 8)
    if at != NULL:
        store_int64(at, value)


cdef inline void write_unsigned_varint(ByteBuffer* b, uint32_t value) noexcept nogil:
    while value >= 0x80:
        write_int8(b, <int8_t>((value & 0x7F) | 0x80))
        value >>= 7
    write_int8(b, <int8_t>value)


cdef inline void write_unsigned_varlong(ByteBuffer* b, uint64_t value) noexcept nogil:
    while value >= 0x80:
        write_int8(b, <int8_t>((value & 0x7F) | 0x80))
        value >>= 7
    write_int8(b, <int8_t>value)


cdef inline void write_varint(ByteBuffer* b, int32_t value) noexcept nogil:
    write_unsigned_varint(b, (<uint32_t>value << 1) ^ <uint32_t>(value >> 31))


cdef inline void write_varlong(ByteBuffer* b, int64_t value) noexcept nogil:
    write_unsigned_varlong(b, (<uint64_t>value << 1) ^ <uint64_t>(value >> 63))


cdef inline void write_array_length(ByteBuffer* b, int32_t n, bint compact) noexcept nogil:
    """n = -1 is null."""
    if compact:
        write_unsigned_varint(b, <uint32_t>(n + 1))
    else:
        write_int32(b, n)


cdef inline void write_string(ByteBuffer* b, const void* data, int32_t n, bint compact) noexcept nogil:
    """n = -1 is null."""
    if compact:
        write_unsigned_varint(b, <uint32_t>(n + 1))
    else:
        write_int16(b, <int16_t>n)
    if n > 0:
        write_raw(b, data, n)
