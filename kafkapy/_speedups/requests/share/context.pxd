"""The partitions of a ShareFetch or ShareAcknowledge: those it names, and those of its session."""

from kafkapy._speedups.requests.data_plane cimport DataPlaneState
from kafkapy._speedups.requests.share.state cimport ShareState

# Opens, continues or looks up the session: sets state.session and state.error, names the topics, and completes
# state.parts with the partitions of the session.
cdef void share_context_open(DataPlaneState* plane, ShareState* state) noexcept nogil
# Ends the session of a request with the final epoch, and releases the records of its member.
cdef void share_context_close(DataPlaneState* plane, ShareState* state) noexcept nogil
# Marks the partitions that the reply names because of records, of an error, or of an error that is gone. Partitions
# with records go to the end of the session.
cdef void share_context_answer(ShareState* state) noexcept nogil
