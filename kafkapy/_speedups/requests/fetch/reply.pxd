"""The reply to a Fetch."""

from kafkapy._speedups.base.send cimport Send
from kafkapy._speedups.requests.data_plane cimport DataPlaneState
from kafkapy._speedups.requests.fetch.state cimport FetchState

# The whole reply frame, record bytes as file regions; NULL when memory is out or the reply would not fit a frame.
# Creates or updates the session. Takes over the read segments.
cdef Send* fetch_response_build(DataPlaneState* plane, FetchState* state) noexcept nogil
