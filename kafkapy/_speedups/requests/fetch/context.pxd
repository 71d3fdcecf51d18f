"""The partitions of a Fetch: from the request, or from its session."""

from kafkapy._speedups.requests.data_plane cimport DataPlaneState
from kafkapy._speedups.requests.fetch.state cimport FetchState

# After fetch_decode: sets context, session and error, names the topics that the request gives by id, and fills
# state.partitions with the partitions to read.
cdef void fetch_context_open(DataPlaneState* plane, FetchState* state) noexcept nogil
# For a request without a reply: closes its session, unless a later request goes on with it. The client then starts a
# new session.
cdef void fetch_context_abandon(DataPlaneState* plane, FetchState* state) noexcept nogil
