"""The writing half of the protocol codec (see encoder.pyx), for kernels that build messages themselves."""

from libc.stdint cimport int64_t

from kafkapy._speedups.base.wire cimport ByteBuffer
from kafkapy._speedups.protocol.message_plan cimport Plan


cdef struct Writer:
    ByteBuffer out
    int64_t until             # time to release the GIL, or to give up; 0: never
    bint patient


cdef int encode_struct(Plan plan, object instance, Writer* w) except -1
