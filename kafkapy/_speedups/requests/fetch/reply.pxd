"""The reply to a Fetch."""

from libc.stdint cimport int64_t

from kafkapy._speedups.base.send cimport Send
from kafkapy._speedups.requests.data_plane cimport DataPlaneState
from kafkapy._speedups.requests.fetch.state cimport FetchState

# The bytes of the reply, from the size field on, before it changes the session: partitions of an incremental reply
# without records and errors are not counted.
cdef int64_t fetch_response_size(FetchState* state) noexcept nogil
# The whole reply frame, record bytes as file regions; without records when the client is throttled. NULL when memory is out or the reply would not fit a frame.
# Creates or updates the session. Takes over the read segments.
cdef Send* fetch_response_build(DataPlaneState* plane, FetchState* state) noexcept nogil
