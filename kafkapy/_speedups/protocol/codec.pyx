"""The interpreter of message declarations: turns bytes into instances; encoder.pyx turns them into bytes.

The wire format, in prose (Kafka's protocol guide, KIP-482 for the flexible form):

- int8, int16, int32, int64, uint16, uint32, float64: big-endian; boolean: one byte, zero is false; uuid: 16 bytes.
- string: int16 length then UTF-8, -1 is null; compact form: unsigned varint of length + 1, 0 is null.
- bytes and records: int32 length then the bytes, -1 is null; compact form as for string.
- array: int32 element count then the elements, -1 is null; compact form as for string.
- struct: its fields in declaration order; where it may be null, one byte goes first, negative (0 in the tagged section)
  for null.
- flexible versions end every struct with tagged fields: unsigned varint count, then per field unsigned varint tag,
  unsigned varint size and that many bytes, in ascending order of tag. A field equal to its default is left out; a tag
  that the declaration does not know is kept as raw bytes in `_unknown_tags` and written again.

Hostile bytes: a length must not exceed the remaining bytes, and an array count not the remaining bytes divided by the
smallest encoding of an element; both checks come before any allocation. The declarations, which cannot refer to
themselves, bound the nesting. Further limits hold for a request that a broker decodes (`decode_request`): MAX_ELEMENTS
in an array, MAX_TAGS in a tagged section, and MAX_MEMORY bytes for the decoded request, so that fifty million empty
structs of two bytes each on the wire cost no gigabytes.

Everything here runs with the GIL (control plane and clients). The data plane has other decoders for Produce and Fetch.
`patient` calls are for worker threads: they release the GIL every YIELD_NS for a moment, so that a message of any size
does not stall other threads.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy
from posix.unistd cimport usleep

from kafkapy._speedups.base.posix cimport monotonic_ns
from kafkapy._speedups.base.wire cimport (
    MAX_TAGS,
    cursor_init,
    load_int16,
    load_int32,
    load_int64,
    load_uint32,
    read_unsigned_varint,
    remaining,
    take,
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
    INT8_SIZE,
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
from kafkapy._speedups.protocol.struct_base cimport StructBase, fresh_default, set_slot
from kafkapy._speedups.protocol.uuid_value cimport uuid_from

from kafkapy._speedups.protocol.discard import discard


cdef extern from "Python.h":
    object PyMemoryView_FromObject(object owner)
    Py_buffer* PyMemoryView_GET_BUFFER(object view)
    object PySequence_GetSlice(object sequence, Py_ssize_t start, Py_ssize_t end)


cdef enum:
    MAX_STRING = 0x7FFF       # Kafka bounds compact strings too
    LIST_STEP = 4096          # a longer list grows with the elements that really arrive
    MAX_ELEMENTS = 1000000    # of one array of a request, as in Apache Kafka 4.4
    MAX_MEMORY = 1 << 28      # the most bytes of memory of one request
    YIELD_NS = 1000000        # the time that a patient call keeps the GIL
    YIELD_STEP = 64           # elements between two looks at the clock
    PAUSE_US = 20             # long enough for a thread that waits for the GIL to get it
    # The approximate memory of values: the object, its place in a list or a slot, the collector's header.
    OBJECT_BYTES = 48
    SLOT_BYTES = 24
    TEXT_BYTES = 64
    TAG_BYTES = 160


class DecodeError(ValueError):
    """Bytes that are no message of the given version: truncated, a false length, a forbidden null, bad UTF-8."""


# -----------------------------------------------------------------------------------------------------------------
# decoding

cdef object refuse(Plan plan, Op* op, Reader* r, const uint8_t* at, str why):
    """Raises DecodeError for the field that starts at `at`."""
    raise DecodeError(
        f"{plan.cls.__qualname__} version {plan.version}: {<object>op.name} at byte {at - r.start}: {why}"
    )


cdef object refuse_size(Plan plan, Op* op, Reader* r, const uint8_t* at, int64_t size):
    left = r.cursor.end - at
    return refuse(plan, op, r, at, f"{size} bytes are said to follow, at most {left} are there")


cdef object refuse_null(Plan plan, Op* op, Reader* r, const uint8_t* at):
    return refuse(plan, op, r, at, "null in a field that cannot be null")


cdef inline int charge(Plan plan, Op* op, Reader* r, const uint8_t* at, int64_t size) except -1:
    """Counts memory of the message against its bound."""
    r.memory += size
    if r.bounded and r.memory > MAX_MEMORY:
        refuse(plan, op, r, at, f"the request takes more than {MAX_MEMORY} bytes of memory")
    return 0


cdef inline int pause() except -1:
    """Gives other threads a chance for the GIL."""
    with nogil:
        usleep(PAUSE_US)
    return 0


cdef inline int64_t read_length(Op* op, Reader* r) noexcept:
    """Reads the length of a string, bytes or array; -1 for null; less than -1 for a broken or truncated varint or
    prefix."""
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
            charge(plan, op, r, before, TEXT_BYTES + n)
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
    if r.bounded and n > MAX_ELEMENTS:
        return refuse(plan, op, r, before, f"{n} elements, {MAX_ELEMENTS} at most")
    charge(plan, op, r, before, OBJECT_BYTES + n * (SLOT_BYTES if element.kind <= UUID else INT64_SIZE))
    r.elements += n
    if n > LIST_STEP:
        values = []
        try:
            for i in range(n):
                values.append(decode_value(plan, element, r))
                if i % YIELD_STEP == 0 and r.patient and monotonic_ns() > r.yield_at:
                    pause()
                    r.yield_at = monotonic_ns() + YIELD_NS
        except DecodeError:
            if r.patient:
                discard(values)     # the elements before the refused one may be a million
            raise
        return values
    if n and r.patient and monotonic_ns() > r.yield_at:
        pause()
        r.yield_at = monotonic_ns() + YIELD_NS
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
    """Decodes a new instance from the bytes at the cursor. Raises DecodeError."""
    cdef StructBase instance
    cdef Py_ssize_t i
    cdef Op* op = plan.ops
    r.memory += plan.memory
    if r.bounded and r.memory > MAX_MEMORY:
        raise DecodeError(
            f"{plan.cls.__qualname__} version {plan.version}: the request takes more than {MAX_MEMORY} bytes of memory"
        )
    instance = StructBase.__new__(plan.cls)
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
    if count == 0 and not r.cursor.error:
        return 0
    if r.bounded and count > MAX_TAGS:
        raise DecodeError(f"{name} version {plan.version}: {count} tagged fields, {MAX_TAGS} at most")
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
            r.memory += TAG_BYTES + size
            if r.bounded and r.memory > MAX_MEMORY:
                raise DecodeError(
                    f"{name} version {plan.version}: the request takes more than {MAX_MEMORY} bytes of memory"
                )
            if instance._unknown_tags is None:
                instance._unknown_tags = {}
            instance._unknown_tags[tag] = PyBytes_FromStringAndSize(<const char*>at, size)
            continue
        # A known tagged field may not read past its size, nor leave a part of it.
        end = r.cursor.end
        r.cursor.end = r.cursor.p + size
        set_slot(instance, op.slot, decode_value(plan, op, r))
        if r.cursor.p != r.cursor.end:
            raise DecodeError(f"{name} version {plan.version}: {<object>op.name} leaves {remaining(&r.cursor)} of the "
                              f"{size} bytes of its tagged field unread")
        r.cursor.end = end
    if r.cursor.error:
        raise DecodeError(f"{name} version {plan.version}: tagged fields at byte {before - r.start} are cut off")
    return 0


def decode_message(object cls, object buffer, int version, bint exact=True):
    """Decodes an instance of message class `cls` from a bytes-like object. Raises DecodeError; with `exact`, also for
    bytes left over."""
    cdef Reader r
    return decode_whole(cls, buffer, version, exact, &r, False, False)


def decode_request(object cls, object buffer, int version, bint exact=True, bint patient=False):
    """Decodes a client's request, as decode_message with a broker's bounds: (instance, elements of all its arrays
    together). `patient`: for worker threads; the call releases the GIL now and then."""
    cdef Reader r
    instance = decode_whole(cls, buffer, version, exact, &r, True, patient)
    return instance, r.elements


cdef object decode_whole(object cls, object buffer, int version, bint exact, Reader* r, bint bounded, bint patient):
    cdef Plan plan = plan_of(cls, version, DecodeError)
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        reader_init(r, &view, buffer)
        r.bounded = bounded
        r.patient = patient
        if patient:
            r.yield_at = monotonic_ns() + YIELD_NS
        instance = decode_struct(plan, r)
        if exact and remaining(&r.cursor):
            raise DecodeError(f"{cls.__qualname__} version {version}: {remaining(&r.cursor)} bytes are left over")
        return instance
    finally:
        PyBuffer_Release(&view)


cdef void reader_init(Reader* r, Py_buffer* view, object source) noexcept:
    cursor_init(&r.cursor, view.buf, view.len)
    r.start = r.cursor.p
    r.source = <PyObject*>source
    r.bounded = False
    r.patient = False
    r.elements = 0
    r.memory = 0
    r.yield_at = 0


def decode_message_from(object cls, object buffer, Py_ssize_t offset, int version):
    """Decodes from `offset` of a bytes-like object: (instance, offset of the byte after it). Raises DecodeError."""
    cdef Plan plan = plan_of(cls, version, DecodeError)
    cdef Py_buffer view
    cdef Reader r
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if offset < 0 or offset > view.len:
            raise DecodeError(f"{cls.__qualname__}: offset {offset} of {view.len} bytes")
        reader_init(&r, &view, buffer)
        take(&r.cursor, offset)
        instance = decode_struct(plan, &r)
        return instance, r.cursor.p - r.start
    finally:
        PyBuffer_Release(&view)
