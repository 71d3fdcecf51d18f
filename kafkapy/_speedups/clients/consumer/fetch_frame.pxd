"""A Fetch response of a client, read on the I/O thread (see fetch_frame.pyx)."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.wire cimport Cursor
from kafkapy._speedups.clients.consumer.consumer_record cimport RecordMemory
from kafkapy._speedups.clients.consumer.fetched_partition cimport PartitionData
from kafkapy._speedups.clients.io.frames cimport ResponseFrame

cdef struct EndpointData:
    int32_t node_id
    const uint8_t* host                 # borrowed, as rack
    int32_t host_size
    int32_t port
    const uint8_t* rack
    int32_t rack_size                   # -1: null


cdef class FetchFrame(ResponseFrame):
    """The common part of the responses to Fetch and ShareFetch."""
    cdef readonly int version
    cdef bint flexible
    cdef bint check_crcs
    cdef int64_t max_decompressed
    cdef uint8_t* memory                # the response, until `hand_over` takes it
    cdef bint malformed
    cdef readonly int throttle_ms
    cdef readonly int error_code
    cdef vector[PartitionData*]* read
    cdef vector[EndpointData]* endpoints
    cdef list made_endpoints

    cdef void parse_body(self, Cursor* c) noexcept nogil
    cdef void parse_endpoints(self, Cursor* c) noexcept nogil
    cdef RecordMemory hand_over(self)


cdef class FetchResponseFrame(FetchFrame):
    cdef readonly int session_id

    cdef void parse_partition(self, Cursor* c, PartitionData* data) noexcept nogil
