"""The replies to ShareFetch and ShareAcknowledge."""

from kafkapy._speedups.base.send cimport Send
from kafkapy._speedups.requests.data_plane cimport DataPlaneState
from kafkapy._speedups.requests.share.state cimport ShareState

# The whole reply frame, record bytes as file regions. NULL when memory is out or the reply would not fit a frame. Takes
# over the segments.
cdef Send* share_response_build(DataPlaneState* plane, ShareState* state) noexcept nogil
# Counts the reply in the client's quotas; sets state.throttle_ms.
cdef void share_charge(ShareState* state) noexcept nogil
