"""OffsetCommit on the network threads: groups with a lease (lease.pxd); Python serves all others."""

from kafkapy._speedups.requests.data_plane cimport DataPlaneState, Frame, Outcome

cdef void commit_handle(DataPlaneState* plane, Frame* frame, Outcome* outcome) noexcept nogil
cdef void commit_resume(DataPlaneState* plane, void* parked, bint timed_out, Outcome* outcome) noexcept nogil
cdef void commit_cancel(DataPlaneState* plane, void* parked) noexcept nogil
cdef void commit_settle(DataPlaneState* plane, void** parked, size_t count, Outcome* outcomes) noexcept nogil
