"""A ShareFetch response of a client, read on the I/O thread (see share_fetch_frame.pyx)."""

from libc.stdint cimport int16_t, int32_t, uint8_t
from libcpp.vector cimport vector

from kafkapy._speedups.clients.consumer.acquired_partition cimport AcquiredRange
from kafkapy._speedups.clients.consumer.fetch_frame cimport FetchFrame

cdef cppclass AcquiredData:
    const uint8_t* error_message        # borrowed, as the other one
    int32_t error_message_size          # -1: null
    const uint8_t* acknowledge_error_message
    int32_t acknowledge_error_message_size
    int16_t acknowledge_error_code
    vector[AcquiredRange] ranges


cdef class ShareFetchResponseFrame(FetchFrame):
    cdef readonly int lock_timeout_ms
    cdef const uint8_t* message         # of error_code
    cdef int32_t message_size
    cdef readonly str error_message
    cdef vector[AcquiredData*]* acquired
