"""Leading and following: the effects of leadership changes and of follower fetches on a partition log.

Each function takes the mutex itself.
"""

from libc.stdint cimport int32_t, int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.log.layout cimport LogState

# Makes this broker (`leader_id`) the leader in `leader_epoch`. `replicas`: the other replicas of the assignment;
# `in_sync`: those of the ISR (assigned too). True when the leader epochs changed.
cdef bint lead(LogState* log, int32_t leader_id, int32_t leader_epoch, vector[int32_t]* in_sync,
               vector[int32_t]* replicas) noexcept nogil
cdef void follow(LogState* log, int32_t leader_id, int32_t leader_epoch) noexcept nogil
# Whether the assignment has that replica as a follower (Partition.getReplica).
cdef bint is_follower(LogState* log, int32_t replica_id) noexcept nogil
# See PartitionLog.follower_position. A replica outside the assignment changes nothing.
cdef void follower_fetched(LogState* log, int32_t replica_id, int64_t log_end_offset) noexcept nogil
