"""The writing half of the protocol codec: encodes instances of message declarations by their plans.

codec.pyx describes the wire format. `patient` calls are for worker threads: they release the GIL every YIELD_NS for a
moment, so that a message of any size does not stall other threads.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.float cimport PyFloat_AsDouble
from cpython.object cimport Py_EQ, PyObject, PyObject_IsTrue, PyObject_RichCompareBool
from libc.stdint cimport (
    INT32_MAX, INT64_MAX, INT64_MIN, UINT16_MAX, UINT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
)
from libc.string cimport memcpy, memmove
from posix.unistd cimport usleep

from kafkapy._speedups.base.posix cimport monotonic_ns
from kafkapy._speedups.base.wire cimport (
    ByteBuffer,
    buffer_free,
    buffer_init,
    extend,
    store_int16,
    store_int32,
    store_int64,
    write_array_length,
    write_int8,
    write_raw,
    write_string,
    write_unsigned_varint,
)
from kafkapy._speedups.protocol.message_plan cimport (
    ARRAY,
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT16,
    INT16_SIZE,
    INT32,
    INT32_SIZE,
    INT64,
    INT64_SIZE,
    INT8,
    RECORDS,
    STRING,
    STRUCT,
    UINT16,
    UINT32,
    UUID,
    UUID_SIZE,
    Op,
    Plan,
    plan_of,
)
from kafkapy._speedups.protocol.struct_base cimport NEW_LIST, VALUE, StructBase, fresh_default, get_slot
from kafkapy._speedups.protocol.uuid_value cimport uuid_halves


cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    object PySequence_Fast(object sequence, const char* message)
    Py_ssize_t PySequence_Fast_GET_SIZE(object sequence)
    PyObject* PySequence_Fast_GET_ITEM(object sequence, Py_ssize_t i)
    object PyNumber_Index(object number)
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1
    ctypedef struct PyTypeObject:
        pass
    int PyObject_TypeCheck(object instance, PyTypeObject* cls)


cdef enum:
    MAX_STRING = 0x7FFF       # Kafka bounds compact strings too
    MAX_RESPONSE = 1 << 28    # bytes
    YIELD_NS = 1000000        # the time that a patient call keeps the GIL
    YIELD_STEP = 64           # elements between two looks at the clock
    PAUSE_US = 20             # long enough for a thread that waits for the GIL to get it


class EncodeError(ValueError):
    """A value that does not fit its field or its message version."""


class Late(Exception):
    """Encoding takes too long for a thread that serves other requests. Never leaves this module."""


cdef inline int pause() except -1:
    """Gives other threads a chance for the GIL."""
    with nogil:
        usleep(PAUSE_US)
    return 0


cdef int complain(Plan plan, Op* op, str why) except -1:
    raise EncodeError(f"{plan.cls.__qualname__} version {plan.version}: {<object>op.name}: {why}")


cdef int64_t integer(Plan plan, Op* op, object value, int64_t low, int64_t high) except? -1:
    cdef int overflow = 0
    cdef long long number
    try:
        number = PyLong_AsLongLongAndOverflow(PyNumber_Index(value), &overflow)
    except TypeError:
        return complain(plan, op, f"an integer is needed, not {value!r}")
    if overflow or number < low or number > high:
        return complain(plan, op, f"{value} is outside {low} to {high}")
    return number


cdef inline uint8_t* room(ByteBuffer* out, size_t n) except NULL:
    cdef uint8_t* at = extend(out, n)
    if at == NULL:
        raise MemoryError
    return at


cdef int encode_value(Plan plan, Op* op, object value, Writer* w) except -1:
    cdef ByteBuffer* out = &w.out
    cdef int kind = op.kind
    cdef uint8_t* at
    cdef const char* text
    cdef Py_ssize_t size
    cdef double real
    cdef int64_t bits
    cdef Py_buffer view
    cdef uint64_t halves[2]
    if kind == INT32:
        bits = integer(plan, op, value, -<int64_t>INT32_MAX - 1, INT32_MAX)
        store_int32(room(out, INT32_SIZE), <int32_t>bits)
    elif kind == STRING:
        if value is None:
            if not op.nullable:
                complain(plan, op, "null in a field that cannot be null")
            write_string(out, NULL, -1, op.compact)
            return 0
        if not isinstance(value, str):
            complain(plan, op, f"a string is needed, not {value!r}")
        try:
            text = PyUnicode_AsUTF8AndSize(value, &size)
        except UnicodeEncodeError:
            return complain(plan, op, "the string has lone surrogates, which UTF-8 cannot carry")
        if size > MAX_STRING:
            complain(plan, op, f"a string of {size} bytes, {MAX_STRING} at most")
        write_string(out, text, <int32_t>size, op.compact)
    elif kind == INT16:
        bits = integer(plan, op, value, -0x8000, 0x7FFF)
        store_int16(room(out, INT16_SIZE), <short>bits)
    elif kind == INT64:
        bits = integer(plan, op, value, INT64_MIN, INT64_MAX)
        store_int64(room(out, INT64_SIZE), bits)
    elif kind == BOOLEAN:
        write_int8(out, 1 if PyObject_IsTrue(value) else 0)
    elif kind == INT8:
        bits = integer(plan, op, value, -0x80, 0x7F)
        write_int8(out, <signed char>bits)
    elif kind == UINT16:
        bits = integer(plan, op, value, 0, UINT16_MAX)
        store_int16(room(out, INT16_SIZE), <short>bits)
    elif kind == UINT32:
        bits = integer(plan, op, value, 0, UINT32_MAX)
        store_int32(room(out, INT32_SIZE), <int32_t>bits)
    elif kind == FLOAT64:
        try:
            real = PyFloat_AsDouble(value)
        except TypeError:
            return complain(plan, op, f"a number is needed, not {value!r}")
        memcpy(&bits, &real, INT64_SIZE)
        store_int64(room(out, INT64_SIZE), bits)
    elif kind == UUID:
        if not uuid_halves(value, halves):
            return complain(plan, op, f"a uuid.UUID is needed, not {value!r}")
        at = room(out, UUID_SIZE)
        store_int64(at, <int64_t>halves[0])
        store_int64(at + INT64_SIZE, <int64_t>halves[1])
    elif kind == BYTES or kind == RECORDS:
        if value is None:
            if not op.nullable:
                complain(plan, op, "null in a field that cannot be null")
            write_array_length(out, -1, op.compact)
            return 0
        try:
            PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
        except (TypeError, BufferError):
            return complain(plan, op, f"a bytes-like object is needed, not {value!r}")
        try:
            if view.len >= INT32_MAX:
                complain(plan, op, f"{view.len} bytes are too many")
            write_array_length(out, <int32_t>view.len, op.compact)
            write_raw(out, view.buf, view.len)
        finally:
            PyBuffer_Release(&view)
    elif kind == ARRAY:
        encode_array(plan, op, value, w)
    else:
        if op.nullable:
            if value is None:
                write_int8(out, -1 if op.tag < 0 else 0)
                return 0
            write_int8(out, 1)
        encode_struct(<Plan>op.plan, value, w)
    return 0


cdef int encode_array(Plan plan, Op* op, object value, Writer* w) except -1:
    cdef ByteBuffer* out = &w.out
    cdef Op* element = op.element
    cdef Py_ssize_t size
    cdef Py_ssize_t i
    if value is None:
        if not op.nullable:
            complain(plan, op, "null in a field that cannot be null")
        write_array_length(out, -1, op.compact)
        return 0
    if isinstance(value, (str, bytes, dict)):
        complain(plan, op, f"a list is needed, not {value!r}")
    try:
        values = PySequence_Fast(value, "not a list")
    except TypeError:
        return complain(plan, op, f"a list is needed, not {value!r}")
    size = PySequence_Fast_GET_SIZE(values)
    if size >= INT32_MAX:
        complain(plan, op, f"{size} elements are too many")
    write_array_length(out, <int32_t>size, op.compact)
    for i in range(size):
        # Converting an element may run Python code (__index__) that shortens the list.
        if i >= PySequence_Fast_GET_SIZE(values):
            complain(plan, op, "the list changed while it was encoded")
        item = <object>PySequence_Fast_GET_ITEM(values, i)
        if element.kind == STRUCT and not element.nullable:
            encode_struct(<Plan>element.plan, item, w)
        else:
            encode_value(plan, element, item, w)
        if w.until and i % YIELD_STEP == 0 and monotonic_ns() > w.until:
            time_is_up(plan, w)
    if w.until and size and monotonic_ns() > w.until:
        time_is_up(plan, w)
    return 0


cdef int time_is_up(Plan plan, Writer* w) except -1:
    """Gives other threads the GIL, or gives up."""
    if w.out.size > MAX_RESPONSE:
        raise EncodeError(
            f"{plan.cls.__qualname__} version {plan.version}: a response of more than {MAX_RESPONSE} bytes"
        )
    if not w.patient:
        raise Late
    pause()
    w.until = monotonic_ns() + YIELD_NS
    return 0


cdef inline int is_default(Op* op, object value) except -1:
    cdef uint64_t halves[2]
    if op.default_kind == VALUE:
        if <PyObject*>value == op.default_value:
            return 1
        if op.kind == UUID:
            return uuid_halves(value, halves) and halves[0] == 0 and halves[1] == 0
        return PyObject_RichCompareBool(value, <object>op.default_value, Py_EQ)
    if op.default_kind == NEW_LIST:
        return value is not None and len(value) == 0
    return value == fresh_default(op.default_kind, op.default_value)


cdef inline object field_value(Plan plan, Op* op, object instance):
    cdef PyObject* value = get_slot(instance, op.slot)
    if value == NULL:
        complain(plan, op, "the attribute was deleted")
    return <object>value


cdef int encode_struct(Plan plan, object instance, Writer* w) except -1:
    """Appends the instance. Raises EncodeError."""
    cdef Py_ssize_t i
    cdef Op* op = plan.ops
    if not PyObject_TypeCheck(instance, <PyTypeObject*>plan.cls):
        raise EncodeError(f"a {plan.cls.__qualname__} is needed, not {instance!r}")
    for i in range(plan.positional):
        encode_value(plan, op, field_value(plan, op, instance), w)
        op += 1
    if plan.flexible:
        encode_tags(plan, instance, w)
    elif (<StructBase>instance)._unknown_tags:
        raise EncodeError(f"{plan.cls.__qualname__} version {plan.version} has no tagged fields")
    op = plan.ops + plan.positional + plan.tagged
    for i in range(plan.absent):
        if not op.ignorable:
            value = field_value(plan, op, instance)
            if not is_default(op, value):
                complain(plan, op, f"this version has no such field, so it cannot carry {value!r}")
        op += 1
    return 0


cdef int encode_tags(Plan plan, StructBase instance, Writer* w) except -1:
    cdef ByteBuffer* out = &w.out
    cdef Op* first = plan.ops + plan.positional
    cdef Op* op
    cdef Py_ssize_t i
    cdef uint32_t count = 0
    cdef object unknown = instance._unknown_tags
    if plan.tagged == 0 and not unknown:
        write_int8(out, 0)
        return 0
    for i in range(plan.tagged):
        op = first + i
        if not is_default(op, field_value(plan, op, instance)):
            count += 1
    pending = sorted(unknown) if unknown else []
    write_unsigned_varint(out, count + <uint32_t>len(pending))
    done = 0
    for i in range(plan.tagged):
        op = first + i
        while done < len(pending) and pending[done] <= op.tag:
            if pending[done] == op.tag:
                complain(plan, op, f"tag {op.tag} is in _unknown_tags too")
            write_unknown_tag(pending[done], unknown, out)
            done += 1
        value = field_value(plan, op, instance)
        if not is_default(op, value):
            write_tag(plan, op, value, w)
    while done < len(pending):
        write_unknown_tag(pending[done], unknown, out)
        done += 1
    return 0


cdef int write_unknown_tag(object tag, object unknown, ByteBuffer* out) except -1:
    cdef bytes raw = bytes(unknown[tag])
    if not 0 <= tag <= INT32_MAX:
        raise EncodeError(f"{tag} is not a tag")
    write_unsigned_varint(out, tag)
    write_unsigned_varint(out, <uint32_t>len(raw))
    write_raw(out, PyBytes_AS_STRING(raw), len(raw))
    return 0


cdef int write_tag(Plan plan, Op* op, object value, Writer* w) except -1:
    """Writes a tagged field. The size goes first but is known last: the value is written, then moved by the width of
    the size."""
    cdef ByteBuffer* out = &w.out
    cdef size_t start
    cdef size_t size
    cdef size_t width
    write_unsigned_varint(out, <uint32_t>op.tag)
    start = out.size
    encode_value(plan, op, value, w)
    size = out.size - start
    write_unsigned_varint(out, <uint32_t>size)
    if out.error:
        raise MemoryError
    width = out.size - start - size
    memmove(out.data + start + width, out.data + start, size)
    out.size = start
    write_unsigned_varint(out, <uint32_t>size)
    out.size += size
    return 0


def encode_message(object message, int version, bytes prefix=b""):
    """Encodes the message behind `prefix`. Raises EncodeError."""
    cdef Writer w
    w.until = 0
    w.patient = False
    return encode_whole(message, version, prefix, &w)


def encode_response(object message, int version, bint patient=False):
    """Encodes the message; None when that takes longer than YIELD_NS without `patient`, which is for worker threads:
    the call then releases the GIL now and then. Raises EncodeError, also for more than MAX_RESPONSE bytes."""
    cdef Writer w
    w.until = monotonic_ns() + YIELD_NS
    w.patient = patient
    try:
        return encode_whole(message, version, b"", &w)
    except Late:
        return None


cdef bytes encode_whole(object message, int version, bytes prefix, Writer* w):
    cdef Plan plan = plan_of(type(message), version, EncodeError)
    cdef bytes encoded
    cdef char* into
    buffer_init(&w.out)
    try:
        write_raw(&w.out, PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix))
        encode_struct(plan, message, w)
        if w.out.error:
            raise MemoryError
        if not w.patient:
            return PyBytes_FromStringAndSize(<const char*>w.out.data, w.out.size)
        encoded = PyBytes_FromStringAndSize(NULL, w.out.size)
        into = PyBytes_AS_STRING(encoded)
        with nogil:
            memcpy(into, w.out.data, w.out.size)
        return encoded
    finally:
        buffer_free(&w.out)
