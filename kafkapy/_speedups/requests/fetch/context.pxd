"""Which partitions a Fetch is about."""

from kafkapy._speedups.requests.data_plane cimport DataPlaneState
from kafkapy._speedups.requests.fetch.state cimport FetchState

# After fetch_decode: sets context, session and error, names the topics asked by id, and makes state.partitions what is
# to be read.
cdef void fetch_context_open(DataPlaneState* plane, FetchState* state) noexcept nogil
# The request will have no reply: its session is closed, unless a later request goes on with it. Its client, should
# there be one still, starts anew.
cdef void fetch_context_abandon(DataPlaneState* plane, FetchState* state) noexcept nogil
