"""The protocol codec (see codec.pyx), for kernels that build or read messages themselves."""

from cpython.buffer cimport Py_buffer
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from kafkapy._speedups.base.wire cimport Cursor
from kafkapy._speedups.protocol.message_plan cimport Plan


cdef struct Reader:
    Cursor cursor
    const unsigned char* start
    PyObject* source
    bint bounded              # by what a broker takes from a client
    bint patient              # lets go of the GIL now and then
    int64_t elements          # of arrays, so far
    int64_t memory            # bytes that the message takes, about, so far
    int64_t yield_at          # when to let go of the GIL next


cdef void reader_init(Reader* r, Py_buffer* view, object source) noexcept


cdef object decode_struct(Plan plan, Reader* r)
