"""Kafka's primitive types, read and written one by one through the checked cursor of base/wire.pxd, for tools and
tests.

A plan is a string with one letter per value:

    b int8     h int16     i int32     q int64     I uint32
    u unsigned varint      U unsigned varlong      v varint (zig-zag)      V varlong (zig-zag)
    s string   S compact string            y bytes   Y compact bytes     (None for null)
    a array length         A compact array length                        (-1 for null)
    t tagged fields, skipped
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t

from kafkapy._speedups.base.wire cimport (
    ByteBuffer,
    Cursor,
    buffer_free,
    buffer_init,
    cursor_init,
    read_array_length,
    read_bytes,
    read_int16,
    read_int32,
    read_int64,
    read_int8,
    read_string,
    read_uint32,
    read_unsigned_varint,
    read_unsigned_varlong,
    read_varint,
    read_varlong,
    skip_tagged_fields,
    write_array_length,
    write_int16,
    write_int32,
    write_int64,
    write_int8,
    write_string,
    write_unsigned_varint,
    write_unsigned_varlong,
    write_varint,
    write_varlong,
)


cdef object borrowed(const uint8_t* at, int32_t length):
    return PyBytes_FromStringAndSize(<const char*>at, length) if at != NULL else None


cdef object read_one(Cursor* c, Py_UCS4 kind):
    cdef int32_t length = -1
    cdef const uint8_t* at
    if kind == u"b":
        return read_int8(c)
    if kind == u"h":
        return read_int16(c)
    if kind == u"i":
        return read_int32(c)
    if kind == u"q":
        return read_int64(c)
    if kind == u"I":
        return read_uint32(c)
    if kind == u"u":
        return read_unsigned_varint(c)
    if kind == u"U":
        return read_unsigned_varlong(c)
    if kind == u"v":
        return read_varint(c)
    if kind == u"V":
        return read_varlong(c)
    if kind == u"s" or kind == u"S":
        at = read_string(c, kind == u"S", &length)
        return borrowed(at, length)
    if kind == u"y" or kind == u"Y":
        at = read_bytes(c, kind == u"Y", &length)
        return borrowed(at, length)
    if kind == u"a" or kind == u"A":
        return read_array_length(c, kind == u"A")
    if kind == u"t":
        skip_tagged_fields(c)
        return None
    raise ValueError(f"{chr(kind)!r} stands for no primitive type")


def read(data, str plan):
    """(values, bytes consumed) for a plan. ValueError when the bytes end early, a length lies or a varint is too
    long."""
    cdef Py_buffer view
    cdef Cursor c
    cdef list values = []
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        cursor_init(&c, view.buf, view.len)
        for kind in plan:
            values.append(read_one(&c, kind))
            if c.error:
                raise ValueError(f"the bytes make no {kind!r} (value {len(values) - 1} of {plan!r})")
        return values, c.p - <const uint8_t*>view.buf
    finally:
        PyBuffer_Release(&view)


cdef int write_one(ByteBuffer* out, Py_UCS4 kind, object value) except -1:
    cdef bytes raw
    if kind == u"b":
        write_int8(out, value)
    elif kind == u"h":
        write_int16(out, value)
    elif kind == u"i":
        write_int32(out, value)
    elif kind == u"q":
        write_int64(out, value)
    elif kind == u"u":
        write_unsigned_varint(out, value)
    elif kind == u"U":
        write_unsigned_varlong(out, value)
    elif kind == u"v":
        write_varint(out, value)
    elif kind == u"V":
        write_varlong(out, value)
    elif kind == u"s" or kind == u"S":
        if value is None:
            write_string(out, NULL, -1, kind == u"S")
        else:
            if len(value) > 0x7FFF:
                raise ValueError(f"a string of {len(value)} bytes is too long")
            raw = value
            write_string(out, <const char*>raw, <int32_t>len(raw), kind == u"S")
    elif kind == u"a" or kind == u"A":
        write_array_length(out, value, kind == u"A")
    else:
        raise ValueError(f"{chr(kind)!r} stands for no primitive type that can be written")
    return 0


def write(str plan, values):
    """The bytes of the values. ValueError for a plan that does not match; OverflowError for a number its type cannot
    hold."""
    cdef ByteBuffer out
    buffer_init(&out)
    try:
        for kind, value in zip(plan, values, strict=True):
            write_one(&out, kind, value)
        if out.error:
            raise MemoryError
        return PyBytes_FromStringAndSize(<const char*>out.data, <Py_ssize_t>out.size)
    finally:
        buffer_free(&out)
