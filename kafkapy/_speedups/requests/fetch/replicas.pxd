"""What a Fetch has to do with replicas: followers' positions and quota, and the replica a consumer should read from."""

from libc.stdint cimport int32_t, int64_t
from libcpp.string cimport string
from libcpp.vector cimport vector

from kafkapy._speedups.log.leadership cimport FollowerView
from kafkapy._speedups.requests.data_plane cimport DataPlaneState, Outcome, PartitionName
from kafkapy._speedups.requests.fetch.state cimport FetchPartition, FetchState

# Answers without the records that were read.
cdef void leave_records(FetchPartition* partition) noexcept nogil
# Tells the log what its follower has.
cdef void fetch_note_follower(FetchState* state, FetchPartition* partition) noexcept nogil
# Whether the follower gets nothing now (ReplicaManager.shouldLeaderThrottle): members of the ISR stay in it.
cdef bint fetch_is_throttled(FetchPartition* partition) noexcept nogil
# Counts the records of the reply for the quota.
cdef void fetch_count_throttled(FetchState* state) noexcept nogil
# Sets the preferred read replica of a consumer; True when there is one: the reply has no records then.
cdef bint fetch_select(DataPlaneState* plane, FetchState* state, FetchPartition* partition) noexcept nogil
# Asks Python's selector about the partitions that a follower could serve. False without any.
cdef bint fetch_ask_for_selection(DataPlaneState* plane, FetchState* state, Outcome* outcome) noexcept nogil

cdef struct Selection:              # a question to the selector
    PartitionName name
    int64_t fetch_offset
    int64_t leader_end_offset
    int64_t now_ms                  # of the clock of FollowerView.caught_up_ms

# The question about partition entry `index` of a parked fetch, the followers, and the consumer's rack; False: no such
# entry. Then the answer: a replica's id, or -1 for the leader.
cdef bint fetch_selection(void* parked, int32_t index, Selection* out, vector[FollowerView]* views,
                          string* rack) noexcept nogil
cdef void fetch_select_replica(void* parked, int32_t index, int32_t replica_id) noexcept nogil
