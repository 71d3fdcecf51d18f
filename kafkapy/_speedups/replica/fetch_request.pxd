"""The follower's Fetch request (see fetch_request.pyx)."""

from libc.stdint cimport int64_t

from kafkapy._speedups.base.wire cimport ByteBuffer
from kafkapy._speedups.replica.state cimport FetcherState

# Writes the next request with its size. False: there is nothing to fetch now; `out` is empty. Notes in the partitions
# what the request asks, so it must be sent, or the session be reset.
cdef bint build_request(FetcherState* f, int64_t now_ns, ByteBuffer* out) noexcept nogil
