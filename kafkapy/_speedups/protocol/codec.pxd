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
    bint bounded              # applies a broker's limits on requests
    bint patient              # releases the GIL now and then
    int64_t elements          # of arrays, so far
    int64_t memory            # estimated bytes of the message so far
    int64_t yield_at          # time of the next release of the GIL


cdef void reader_init(Reader* r, Py_buffer* view, object source) noexcept


cdef object decode_struct(Plan plan, Reader* r)
