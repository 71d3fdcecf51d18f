"""Leading and following: the effects of leadership, of ISR changes and of follower fetches on a partition log.

Each function takes the mutex itself, unless its name ends with `_locked`.
"""

from libc.stdint cimport int32_t, int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.log.layout cimport LogState

cdef struct FollowerFetch:          # a valid Fetch of a follower
    int32_t replica_id
    int64_t log_end_offset          # its fetch offset
    int64_t log_start_offset        # its own log start; -1 when the request has none
    int64_t leader_end_offset       # the end of this log before the read
    int64_t broker_epoch            # -1 when the request has none

cdef enum FollowerStanding:         # bits
    FOLLOWER_ASSIGNED = 1
    FOLLOWER_OUTSIDE = 2            # of the committed ISR
    FOLLOWER_THROTTLED = 4          # leader.replication.throttled.replicas has the partition

cdef struct FollowerView:           # of a replica that a consumer may read from
    int32_t replica_id
    int64_t log_end_offset
    int64_t caught_up_ms

# Makes this broker (`leader_id`) the leader in `leader_epoch`. `replicas`: the other replicas of the assignment;
# `isr`: those of the ISR (assigned too), which becomes the committed and the maximal ISR. `partition_epoch` -1: not
# known. True when newer leader epochs were dropped, so that their file must be written now.
cdef bint lead(LogState* log, int32_t leader_id, int32_t leader_epoch, int32_t partition_epoch, vector[int32_t]* isr,
               vector[int32_t]* replicas) noexcept nogil
cdef void follow(LogState* log, int32_t leader_id, int32_t leader_epoch, int32_t partition_epoch) noexcept nogil
# Replaces the ISR of a leader, each without its own id. False, and nothing changes, when it does not lead in
# `leader_epoch` (-1: not checked), or knows a newer partition epoch.
cdef bint set_isr(LogState* log, int32_t leader_epoch, int32_t partition_epoch, vector[int32_t]* isr,
                  vector[int32_t]* maximal) noexcept nogil
# FollowerStanding of a replica; 0: the assignment does not have it as a follower (Partition.getReplica).
cdef int follower_standing(LogState* log, int32_t replica_id) noexcept nogil
# Notes a fetch, moves the high watermark, and posts EVENT_FOLLOWER_CAUGHT_UP. A replica outside the assignment changes
# nothing.
cdef void follower_fetched(LogState* log, const FollowerFetch* fetch) noexcept nogil
# Whether the maximal ISR has min.insync.replicas, for records that are replicated already.
cdef bint enough_in_sync_locked(LogState* log) noexcept nogil
# The followers in the committed ISR whose log has that offset or ends with it
# (ReplicaManager.findPreferredReadReplica); none when this broker does not lead.
cdef void readable_followers(LogState* log, int64_t offset, vector[FollowerView]* out) noexcept nogil
# Whether leader.replication.throttled.rate is exceeded.
cdef bint leader_quota_exceeded(LogState* log) noexcept nogil
# Counts bytes sent to a follower of a throttled partition.
cdef void leader_quota_record(LogState* log, int64_t bytes) noexcept nogil
# The time of FollowerView.caught_up_ms.
cdef int64_t replica_clock_ms(LogState* log) noexcept nogil
