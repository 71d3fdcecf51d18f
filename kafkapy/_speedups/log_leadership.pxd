"""Leading and following: what a change of leadership, and the fetches of followers, do to a partition log. Each function takes the mutex itself."""

from libc.stdint cimport int32_t, int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.partition_log cimport LogState

# This broker (`leader_id`) leads in `leader_epoch`; `in_sync` are the other replicas of the ISR. True when the leader epochs changed.
cdef bint lead(LogState* log, int32_t leader_id, int32_t leader_epoch, vector[int32_t]* in_sync) noexcept nogil
cdef void follow(LogState* log, int32_t leader_id, int32_t leader_epoch) noexcept nogil
# See log_follower_position in partition_log.pxd.
cdef void follower_fetched(LogState* log, int32_t replica_id, int64_t log_end_offset) noexcept nogil
