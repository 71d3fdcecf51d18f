"""The protocol codec (see codec.pyx), for kernels that build or read messages themselves."""

from cpython.object cimport PyObject

from kafkapy._speedups.message_plan cimport Plan
from kafkapy._speedups.wire cimport ByteBuffer, Cursor


cdef struct Reader:
    Cursor cursor
    const unsigned char* start
    PyObject* source


cdef object decode_struct(Plan plan, Reader* r)
cdef int encode_struct(Plan plan, object instance, ByteBuffer* out) except -1
