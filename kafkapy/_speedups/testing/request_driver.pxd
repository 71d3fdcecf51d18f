"""Runs Produce and Fetch without sockets; see request_driver.pyx."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

from kafkapy._speedups.requests.client_quotas cimport ConnectionBuckets, QuotaUse
from kafkapy._speedups.requests.data_plane cimport (
    AuthorizationCache,
    ConnectionEnd,
    DataPlane,
    DataPlaneApi,
    Frame,
    LeftMemory,
    Outcome,
)

cdef class RequestDriver:
    cdef readonly DataPlane plane
    cdef AuthorizationCache* authorization
    cdef ConnectionEnd end
    cdef int16_t listener_index
    cdef bint privileged
    cdef uint64_t next_token
    cdef LeftMemory left
    cdef ConnectionBuckets buckets
    cdef QuotaUse quota
    cdef void fill_frame(self, Frame* frame, int16_t api_key, int16_t api_version, int32_t correlation_id,
                         uint8_t* body, int64_t size) noexcept

cdef class Exchange:
    cdef RequestDriver driver
    cdef int16_t api_key
    cdef const DataPlaneApi* api
    cdef object client_id
    cdef uint8_t* body
    cdef int64_t body_size
    cdef Frame frame
    cdef Outcome outcome
    cdef int64_t* wake_count        # atomic. Never freed: a log wakes from any thread, also when the request it was for
                                    # is over
    cdef bint is_open               # parked or asking: outcome.parked is alive
    cdef object frame_bytes
    cdef void drop(self) noexcept
    cdef int settle(self) except -1
    cdef int check_produce(self) except -1
    cdef int check_fetch(self) except -1
