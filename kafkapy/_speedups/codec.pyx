"""The interpreter of message declarations: turns plans into bytes and bytes into instances.

The wire format, in prose (Kafka's protocol guide, KIP-482 for the flexible form):

- int8, int16, int32, int64, uint16, uint32, float64: big-endian; boolean: one byte, zero is false; uuid: 16 bytes.
- string: int16 length then UTF-8, -1 is null; compact form: unsigned varint of length + 1, 0 is null.
- bytes and records: int32 length then the bytes, -1 is null; compact form as for string.
- array: int32 element count then the elements, -1 is null; compact form as for string.
- struct: its fields in declaration order; where it may be null, one byte goes first, negative (0 in the tagged section) for null.
- flexible versions end every struct with tagged fields: unsigned varint count, then per field unsigned varint tag, unsigned
  varint size and that many bytes, in ascending order of tag. A field equal to its default is left out; a tag that the declaration
  does not know is kept as raw bytes in `_unknown_tags` and written again.

Hostile bytes: a length is compared with what is left before anything is allocated; an array count is compared with what is left
divided by the smallest encoding of an element; nesting is bounded by the declarations, which cannot refer to themselves.

Everything here runs with the GIL (control plane and clients). Produce and Fetch have decoders of their own in the data plane.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.float cimport PyFloat_AsDouble
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.object cimport Py_EQ, PyObject, PyObject_IsTrue, PyObject_RichCompareBool
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, UINT16_MAX, UINT32_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from kafkapy._speedups.message_plan cimport (
    ARRAY, BOOLEAN, BYTES, FLOAT64, INT8, INT8_SIZE, INT16, INT16_SIZE, INT32, INT32_SIZE, INT64, INT64_SIZE, RECORDS, STRING,
    STRUCT, UINT16, UINT32, UUID, UUID_SIZE, Op, Plan, plan_of,
)
from kafkapy._speedups.struct_base cimport NEW_LIST, VALUE, StructBase, fresh_default, get_slot, set_slot
from kafkapy._speedups.uuid_value cimport uuid_from, uuid_halves
from kafkapy._speedups.wire cimport (
    ByteBuffer, Cursor, buffer_free, buffer_init, cursor_init, extend, load_int16, load_int32, load_int64, load_uint32,
    read_unsigned_varint, remaining, store_int16, store_int32, store_int64, take, write_array_length, write_int8, write_raw,
    write_string, write_unsigned_varint,
)


cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    object PySequence_Fast(object sequence, const char* message)
    Py_ssize_t PySequence_Fast_GET_SIZE(object sequence)
    PyObject* PySequence_Fast_GET_ITEM(object sequence, Py_ssize_t i)
    object PyNumber_Index(object number)
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1
    object PyMemoryView_FromObject(object owner)
    Py_buffer* PyMemoryView_GET_BUFFER(object view)
    object PySequence_GetSlice(object sequence, Py_ssize_t start, Py_ssize_t end)
    ctypedef struct PyTypeObject:
        pass
    int PyObject_TypeCheck(object instance, PyTypeObject* cls)


cdef enum:
    MAX_STRING = 0x7FFF       # Kafka bounds compact strings too
    LIST_STEP = 4096          # a longer list grows with what really arrives


class DecodeError(ValueError):
    """Bytes that are not a message of the version they are said to be: truncated, a lying length, a forbidden null, bad UTF-8."""


class EncodeError(ValueError):
    """A value that its field or its message version cannot carry."""


# ----------------------------------------------------------------------------------------------------------------- decoding

cdef object refuse(Plan plan, Op* op, Reader* r, const uint8_t* at, str why):
    """Raises DecodeError for the field that starts at `at`."""
    raise DecodeError(f"{plan.cls.__qualname__} version {plan.version}: {<object>op.name} at byte {at - r.start}: {why}")


cdef object refuse_size(Plan plan, Op* op, Reader* r, const uint8_t* at, int64_t size):
    left = r.cursor.end - at
    return refuse(plan, op, r, at, f"{size} bytes are said to follow, at most {left} are there")


cdef object refuse_null(Plan plan, Op* op, Reader* r, const uint8_t* at):
    return refuse(plan, op, r, at, "null in a field that cannot be null")


cdef inline int64_t read_length(Op* op, Reader* r) noexcept:
    """Length of a string, bytes or array; -1 for null; less than -1 for a varint or a prefix that is broken or cut off."""
    cdef int64_t n
    if op.compact:
        n = <int64_t>read_unsigned_varint(&r.cursor) - 1
    else:
        at = take(&r.cursor, INT16_SIZE if op.kind == STRING else INT32_SIZE)
        if at == NULL:
            return -2
        n = load_int16(at) if op.kind == STRING else load_int32(at)
    return -2 if r.cursor.error else n


cdef object byte_view(Reader* r):
    """A memoryview of single bytes over the whole input."""
    view = PyMemoryView_FromObject(<object>r.source)
    if PyMemoryView_GET_BUFFER(view).itemsize != 1 or PyMemoryView_GET_BUFFER(view).ndim != 1:
        return view.cast("B")
    return view


cdef object decode_value(Plan plan, Op* op, Reader* r):
    cdef const uint8_t* before = r.cursor.p
    cdef const uint8_t* at
    cdef int kind = op.kind
    cdef int64_t n
    cdef double real
    cdef int64_t bits
    if kind == INT32:
        at = take(&r.cursor, INT32_SIZE)
        if at != NULL:
            return load_int32(at)
    elif kind == INT16:
        at = take(&r.cursor, INT16_SIZE)
        if at != NULL:
            return load_int16(at)
    elif kind == INT64:
        at = take(&r.cursor, INT64_SIZE)
        if at != NULL:
            return load_int64(at)
    elif kind == BOOLEAN:
        at = take(&r.cursor, INT8_SIZE)
        if at != NULL:
            return at[0] != 0
    elif kind == INT8:
        at = take(&r.cursor, INT8_SIZE)
        if at != NULL:
            return <signed char>at[0]
    elif kind == UINT16:
        at = take(&r.cursor, INT16_SIZE)
        if at != NULL:
            return <uint16_t>load_int16(at)
    elif kind == UINT32:
        at = take(&r.cursor, INT32_SIZE)
        if at != NULL:
            return load_uint32(at)
    elif kind == FLOAT64:
        at = take(&r.cursor, INT64_SIZE)
        if at != NULL:
            bits = load_int64(at)
            memcpy(&real, &bits, INT64_SIZE)
            return real
    elif kind == UUID:
        at = take(&r.cursor, UUID_SIZE)
        if at != NULL:
            return uuid_from(at)
    elif kind == STRING or kind == BYTES or kind == RECORDS:
        n = read_length(op, r)
        if n >= 0:
            if kind == STRING and n > MAX_STRING:
                return refuse(plan, op, r, before, f"a string of {n} bytes, {MAX_STRING} at most")
            at = take(&r.cursor, n)
            if at == NULL:
                return refuse_size(plan, op, r, before, n)
            if kind == STRING:
                try:
                    return PyUnicode_DecodeUTF8(<const char*>at, n, NULL)
                except UnicodeDecodeError as error:
                    raise DecodeError(f"{plan.cls.__qualname__} version {plan.version}: {<object>op.name} at byte "
                                      f"{before - r.start}: not UTF-8: {error.reason}") from None
            if kind == BYTES:
                return PyBytes_FromStringAndSize(<const char*>at, n)
            return PySequence_GetSlice(byte_view(r), at - r.start, at - r.start + n)
        if n == -1:
            return None if op.nullable else refuse_null(plan, op, r, before)
        if not r.cursor.error:
            return refuse(plan, op, r, before, f"a length of {n}")
    elif kind == ARRAY:
        n = read_length(op, r)
        if n >= 0:
            return decode_array(plan, op, r, before, n)
        if n == -1:
            return None if op.nullable else refuse_null(plan, op, r, before)
        if not r.cursor.error:
            return refuse(plan, op, r, before, f"a length of {n}")
    elif kind == STRUCT:
        if not op.nullable:
            return decode_struct(<Plan>op.plan, r)
        at = take(&r.cursor, INT8_SIZE)
        if at != NULL:
            if <signed char>at[0] < (0 if op.tag < 0 else 1):
                return None
            return decode_struct(<Plan>op.plan, r)
    left = r.cursor.end - before
    return refuse(plan, op, r, before, f"cut off, {left} bytes left")


cdef object decode_array(Plan plan, Op* op, Reader* r, const uint8_t* before, Py_ssize_t n):
    cdef Op* element = op.element
    cdef Py_ssize_t left = remaining(&r.cursor)
    cdef Py_ssize_t i
    cdef const uint8_t* at
    cdef list values
    if n > left // op.element_size:
        return refuse(plan, op, r, before, f"{n} elements are said to follow, {left} bytes are there")
    if n > LIST_STEP:
        values = []
        for i in range(n):
            values.append(decode_value(plan, element, r))
        return values
    values = PyList_New(n)
    if element.kind == INT32:
        at = take(&r.cursor, n * INT32_SIZE)
        for i in range(n):
            value = <object>load_int32(at + i * INT32_SIZE)
            Py_INCREF(value)
            PyList_SET_ITEM(values, i, value)
        return values
    for i in range(n):
        if element.kind == STRUCT and not element.nullable:
            value = decode_struct(<Plan>element.plan, r)
        else:
            value = decode_value(plan, element, r)
        Py_INCREF(value)
        PyList_SET_ITEM(values, i, value)
    return values


cdef object decode_struct(Plan plan, Reader* r):
    """A new instance from the bytes at the cursor. Raises DecodeError."""
    cdef StructBase instance = StructBase.__new__(plan.cls)
    cdef Py_ssize_t i
    cdef Op* op = plan.ops
    for i in range(plan.positional):
        set_slot(instance, op.slot, decode_value(plan, op, r))
        op += 1
    for i in range(plan.tagged + plan.absent):
        set_slot(instance, op.slot, fresh_default(op.default_kind, op.default_value))
        op += 1
    if plan.flexible:
        decode_tags(plan, instance, r)
    return instance


cdef int decode_tags(Plan plan, StructBase instance, Reader* r) except -1:
    cdef const uint8_t* before = r.cursor.p
    cdef const uint8_t* end
    cdef const uint8_t* at
    cdef uint32_t count = read_unsigned_varint(&r.cursor)
    cdef uint32_t tag
    cdef uint32_t size
    cdef Py_ssize_t i
    cdef Op* op
    cdef str name = plan.cls.__qualname__
    while count > 0 and not r.cursor.error:
        count -= 1
        tag = read_unsigned_varint(&r.cursor)
        size = read_unsigned_varint(&r.cursor)
        if r.cursor.error:
            break
        if size > remaining(&r.cursor):
            raise DecodeError(f"{name} version {plan.version}: tagged field {tag} says it has {size} bytes, "
                              f"{remaining(&r.cursor)} are there")
        op = plan.ops + plan.positional
        for i in range(plan.tagged):
            if op.tag == <int>tag:
                break
            op += 1
        else:
            op = NULL
        if op == NULL:
            at = take(&r.cursor, size)
            if instance._unknown_tags is None:
                instance._unknown_tags = {}
            instance._unknown_tags[tag] = PyBytes_FromStringAndSize(<const char*>at, size)
            continue
        # A known tagged field may not read past the size it was given, nor leave a part of it.
        end = r.cursor.end
        r.cursor.end = r.cursor.p + size
        set_slot(instance, op.slot, decode_value(plan, op, r))
        if r.cursor.p != r.cursor.end:
            raise DecodeError(f"{name} version {plan.version}: {<object>op.name} leaves {remaining(&r.cursor)} of the {size} "
                              "bytes of its tagged field unread")
        r.cursor.end = end
    if r.cursor.error:
        raise DecodeError(f"{name} version {plan.version}: tagged fields at byte {before - r.start} are cut off")
    return 0


def decode_message(object cls, object buffer, int version, bint exact=True):
    """An instance of message class `cls` from a bytes-like object. Raises DecodeError; with `exact`, also for bytes left over."""
    cdef Plan plan = plan_of(cls, version, DecodeError)
    cdef Py_buffer view
    cdef Reader r
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        cursor_init(&r.cursor, view.buf, view.len)
        r.start = r.cursor.p
        r.source = <PyObject*>buffer
        instance = decode_struct(plan, &r)
        if exact and remaining(&r.cursor):
            raise DecodeError(f"{cls.__qualname__} version {version}: {remaining(&r.cursor)} bytes are left over")
        return instance
    finally:
        PyBuffer_Release(&view)


def decode_message_from(object cls, object buffer, Py_ssize_t offset, int version):
    """(instance, offset of the byte after it) from a bytes-like object. Raises DecodeError."""
    cdef Plan plan = plan_of(cls, version, DecodeError)
    cdef Py_buffer view
    cdef Reader r
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if offset < 0 or offset > view.len:
            raise DecodeError(f"{cls.__qualname__}: offset {offset} of {view.len} bytes")
        cursor_init(&r.cursor, view.buf, view.len)
        r.start = r.cursor.p
        r.source = <PyObject*>buffer
        take(&r.cursor, offset)
        instance = decode_struct(plan, &r)
        return instance, r.cursor.p - r.start
    finally:
        PyBuffer_Release(&view)


# ----------------------------------------------------------------------------------------------------------------- encoding

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


cdef int encode_value(Plan plan, Op* op, object value, ByteBuffer* out) except -1:
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
        encode_array(plan, op, value, out)
    else:
        if op.nullable:
            if value is None:
                write_int8(out, -1 if op.tag < 0 else 0)
                return 0
            write_int8(out, 1)
        encode_struct(<Plan>op.plan, value, out)
    return 0


cdef int encode_array(Plan plan, Op* op, object value, ByteBuffer* out) except -1:
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
            encode_struct(<Plan>element.plan, item, out)
        else:
            encode_value(plan, element, item, out)
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


cdef int encode_struct(Plan plan, object instance, ByteBuffer* out) except -1:
    """Appends the instance. Raises EncodeError."""
    cdef Py_ssize_t i
    cdef Op* op = plan.ops
    if not PyObject_TypeCheck(instance, <PyTypeObject*>plan.cls):
        raise EncodeError(f"a {plan.cls.__qualname__} is needed, not {instance!r}")
    for i in range(plan.positional):
        encode_value(plan, op, field_value(plan, op, instance), out)
        op += 1
    if plan.flexible:
        encode_tags(plan, instance, out)
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


cdef int encode_tags(Plan plan, StructBase instance, ByteBuffer* out) except -1:
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
            write_tag(plan, op, value, out)
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


cdef int write_tag(Plan plan, Op* op, object value, ByteBuffer* out) except -1:
    """The size goes first but is known last: the value is written, then moved by the width of the size."""
    cdef size_t start
    cdef size_t size
    cdef size_t width
    write_unsigned_varint(out, <uint32_t>op.tag)
    start = out.size
    encode_value(plan, op, value, out)
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
    """`prefix` followed by the encoded message. Raises EncodeError."""
    cdef Plan plan = plan_of(type(message), version, EncodeError)
    cdef ByteBuffer out
    buffer_init(&out)
    try:
        write_raw(&out, PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix))
        encode_struct(plan, message, &out)
        if out.error:
            raise MemoryError
        return PyBytes_FromStringAndSize(<const char*>out.data, out.size)
    finally:
        buffer_free(&out)
