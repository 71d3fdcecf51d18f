"""uuid.UUID from and to the 16 bytes of the wire (most significant byte first), without its constructor.

uuid.UUID keeps one 128-bit integer in a slot. Its constructor checks and converts in Python; the bytes of the wire need
neither, so this module allocates instances and sets their slots.

Everything here runs with the GIL.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint64_t

from kafkapy._speedups.base.wire cimport load_int64
from kafkapy._speedups.protocol.struct_base cimport get_slot, set_slot, slot_of

from uuid import UUID, SafeUUID

from kafkapy.types import ZERO_UUID


cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        pass
    object PyType_GenericAlloc(PyTypeObject* cls, Py_ssize_t items)
    unsigned long long PyLong_AsUnsignedLongLongMask(object number) except? 0xFFFFFFFFFFFFFFFF


cdef enum:
    HALF = 8                  # bytes in each half of a uuid
    UUID_SIZE = HALF + HALF


cdef Py_ssize_t UUID_INT_SLOT = slot_of(UUID, "int")
cdef Py_ssize_t UUID_IS_SAFE_SLOT = slot_of(UUID, "is_safe")
cdef object UNKNOWN_SAFETY = SafeUUID.unknown
cdef object NONE_UUID = ZERO_UUID


cdef object uuid_from(const uint8_t* at):
    """Makes the uuid.UUID of 16 bytes; the shared ZERO_UUID for zeros."""
    cdef uint64_t high = <uint64_t>load_int64(at)
    cdef uint64_t low = <uint64_t>load_int64(at + HALF)
    cdef object number
    if high == 0 and low == 0:
        return NONE_UUID
    number = high
    number = (number << 64) | low
    made = PyType_GenericAlloc(<PyTypeObject*>UUID, 0)
    set_slot(made, UUID_INT_SLOT, number)
    set_slot(made, UUID_IS_SAFE_SLOT, UNKNOWN_SAFETY)
    return made


cdef int uuid_halves(object value, uint64_t* halves) except -1:
    """Splits a uuid.UUID or 16 bytes into two halves; 0 for any other value."""
    cdef PyObject* number
    if type(value) is UUID:
        number = get_slot(value, UUID_INT_SLOT)
        if number == NULL:
            return 0
        halves[0] = PyLong_AsUnsignedLongLongMask(<object>number >> 64)
        halves[1] = PyLong_AsUnsignedLongLongMask(<object>number)
        return 1
    if isinstance(value, bytes) and PyBytes_GET_SIZE(value) == UUID_SIZE:
        halves[0] = <uint64_t>load_int64(<const uint8_t*>PyBytes_AS_STRING(value))
        halves[1] = <uint64_t>load_int64(<const uint8_t*>PyBytes_AS_STRING(value) + HALF)
        return 1
    return 0
