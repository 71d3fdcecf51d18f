"""Walks messages of protocol buffers without decoding them, and without the GIL.

A message is a run of fields. A field is a varint key (number * 8 + wire type) and a content: a varint (wire type 0),
eight bytes (1), a varint length and that many bytes (2), or four bytes (5). Groups (3 and 4) are an error: no current
message has them. The content of wire type 2 is a text, bytes, numbers or another message; only the schema tells.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from kafkapy._speedups.base.wire cimport Cursor, cursor_init, read_unsigned_varlong, remaining, take

cdef enum:
    VARINT = 0
    EIGHT_BYTES = 1
    DELIMITED = 2
    FOUR_BYTES = 5
    FIELD_NUMBERS = 32        # of a message in a shape
    DEEPEST = 100             # messages in messages, as the decoders of Google allow


ROW = FIELD_NUMBERS


cdef struct Field:
    uint64_t number
    int wire_type
    const uint8_t* content
    const uint8_t* end


cdef inline void read_field(Cursor* c, Field* field) noexcept nogil:
    """The next field. `c.error` is set when it is cut, longer than what is left, or of an unknown wire type."""
    cdef uint64_t key = read_unsigned_varlong(c)
    cdef uint64_t length
    field.number = key >> 3
    field.wire_type = key & 7
    field.content = c.p
    if field.number == 0:
        c.error = 1
    elif field.wire_type == VARINT:
        read_unsigned_varlong(c)
    elif field.wire_type == EIGHT_BYTES:
        take(c, 8)
    elif field.wire_type == FOUR_BYTES:
        take(c, 4)
    elif field.wire_type == DELIMITED:
        length = read_unsigned_varlong(c)
        field.content = c.p
        take(c, <int64_t>length)
    else:
        c.error = 1
    field.end = c.p


cdef int64_t count(const uint8_t* data, Py_ssize_t size, const uint8_t* shape, int kinds, int64_t most) noexcept nogil:
    """The number of messages in a message of kind 0, at most most + 1; -1 when they cannot be read."""
    cdef Cursor[DEEPEST] stack
    cdef int[DEEPEST] kind
    cdef int depth = 0
    cdef int64_t found = 1
    cdef Field field
    cdef int child
    cursor_init(&stack[0], data, size)
    kind[0] = 0
    while depth >= 0 and found <= most:
        if not remaining(&stack[depth]):
            depth -= 1
            continue
        read_field(&stack[depth], &field)
        if stack[depth].error:
            return -1
        if field.wire_type != DELIMITED or field.number >= FIELD_NUMBERS:
            continue
        child = shape[kind[depth] * FIELD_NUMBERS + field.number] - 1
        if child < 0:
            continue
        found += 1
        if child >= kinds or depth + 1 == DEEPEST:
            return -1
        depth += 1
        kind[depth] = child
        cursor_init(&stack[depth], field.content, field.end - field.content)
    return found


def count_messages(const uint8_t[::1] data not None, const uint8_t[::1] shape not None, int64_t most):
    """The number of messages in one of kind 0, itself too; most + 1 when there are more.

    `shape` has ROW bytes for each kind: at each field number 1 + the kind of the message there, or 0. ValueError when
    the bytes are no message, or messages are nested deeper than DEEPEST.
    """
    cdef int64_t found
    cdef int kinds = <int>(shape.shape[0] // FIELD_NUMBERS)
    if not kinds:
        raise ValueError("a shape has at least one kind")
    with nogil:
        found = count(&data[0] if data.shape[0] else NULL, data.shape[0], &shape[0], kinds, most)
    if found < 0:
        raise ValueError("not a message of protocol buffers")
    return found


cdef Cursor cursor_of(const uint8_t[::1] data, Py_ssize_t start, Py_ssize_t end) except *:
    cdef Cursor c
    if not 0 <= start < end <= data.shape[0]:
        raise ValueError(f"{start} to {end} are no bytes of {data.shape[0]}")
    cursor_init(&c, &data[start], end - start)
    return c


def whole_fields(const uint8_t[::1] data not None, Py_ssize_t start, Py_ssize_t end, Py_ssize_t most):
    """The end of as many fields from `start` as fit into `most` bytes, at least one.

    ValueError when they are no fields.
    """
    cdef Cursor c = cursor_of(data, start, end)
    cdef const uint8_t* first = c.p
    cdef const uint8_t* fitting = NULL
    cdef Field field
    with nogil:
        while remaining(&c):
            read_field(&c, &field)
            if c.error or (fitting != NULL and c.p - first > most):
                break
            fitting = c.p
    if c.error and (fitting == NULL or fitting - first <= most):
        raise ValueError("not a message of protocol buffers")
    return start + (fitting - first)


def first_field(const uint8_t[::1] data not None, Py_ssize_t start, Py_ssize_t end):
    """(number, wire type, start of the content, end of the content) of the field at `start`. ValueError."""
    cdef Cursor c = cursor_of(data, start, end)
    cdef const uint8_t* first = c.p
    cdef Field field
    read_field(&c, &field)
    if c.error:
        raise ValueError("not a message of protocol buffers")
    return field.number, field.wire_type, start + (field.content - first), start + (field.end - first)
