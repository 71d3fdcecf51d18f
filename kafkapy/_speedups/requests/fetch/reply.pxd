"""The reply to a Fetch."""

from kafkapy._speedups.base.send cimport Send
from kafkapy._speedups.requests.data_plane cimport DataPlaneState
from kafkapy._speedups.requests.fetch.state cimport FetchState

# Counts the reply in the client's quotas, once. Over a quota, state.throttle_ms is set and the reply has no records.
cdef void fetch_charge(FetchState* state) noexcept nogil
# The whole reply frame, record bytes as file regions; without records when the client is throttled. NULL when memory is
# out or the reply would not fit a frame. Creates or updates the session. Takes over the read segments.
cdef Send* fetch_response_build(DataPlaneState* plane, FetchState* state) noexcept nogil
