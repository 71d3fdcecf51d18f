"""The acknowledgements of a ShareFetch or ShareAcknowledge."""

from libc.stdint cimport int16_t

from kafkapy._speedups.requests.data_plane cimport DataPlaneState
from kafkapy._speedups.requests.share.state cimport SharePart, ShareState

# Acknowledges the batches of a partition, all or none; part.acknowledge_error, or a ticket that waits for its write.
# `denied`: the member may not read the topic.
cdef void share_acknowledge_part(DataPlaneState* plane, ShareState* state, SharePart* part, bint denied) noexcept nogil
# After the write of its ticket.
cdef void share_take_answer(SharePart* part) noexcept nogil
