"""Request and response headers, and which API versions come in at all.

    request header v0:  int16 api key | int16 api version | int32 correlation id    (ControlledShutdown v0 only)
    request header v1:  v0, then nullable string client id (int16 length)
    request header v2:  v1, then tagged fields      (flexible request versions)
    response header v0: int32 correlation id
    response header v1: v0, then tagged fields      (flexible response versions, but never ApiVersions: KIP-511)

The client id keeps its int16 length in every version. An ApiVersions request in a version this broker does not know has
header v2 as every newer one has, and is let through with a flag, so that it can be answered with UNSUPPORTED_VERSION.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkapy._speedups.base.wire cimport ByteBuffer
from kafkapy._speedups.requests.data_plane cimport API_KEY_LIMIT, DataPlaneApi, Frame

cdef enum:
    API_CONTROLLED_SHUTDOWN = 7

cdef struct ApiEntry:
    bint known
    int16_t min_version
    int16_t max_version
    int16_t first_flexible      # 0x7FFF: none
    const DataPlaneApi* served  # by the data plane; NULL: by Python

cdef cppclass ApiTableState:
    ApiEntry apis[API_KEY_LIMIT]

cdef enum HeaderStatus:
    HEADER_OK = 0
    HEADER_UNSUPPORTED_API_VERSIONS = 1
    HEADER_TRUNCATED = 2
    HEADER_UNKNOWN_API = 3
    HEADER_UNSUPPORTED_VERSION = 4

# Fills the header fields of `frame` and its body from a frame without its size. client_id and body point into `data`.
cdef HeaderStatus request_header_decode(const ApiTableState* table, uint8_t* data, int64_t size,
                                        Frame* frame) noexcept nogil
# The 4-byte size (for `body_size` bytes of body) and the response header.
cdef void response_header_write(const ApiTableState* table, const Frame* frame, int64_t body_size,
                                ByteBuffer* out) noexcept nogil

cdef class ApiTable:
    cdef ApiTableState* state
