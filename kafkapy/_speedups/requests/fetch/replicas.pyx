"""The replicas in a Fetch (see replicas.pxd).

The leader names a preferred read replica to a consumer of version 11 and above (KIP-392). Candidates are the followers
in the committed ISR whose log has the fetch offset. RackAwareReplicaSelector is here: the most caught up candidate of
the consumer's rack, unless the leader is in that rack. Any other selector is Python's: the request asks before its
first read. Sources: ReplicaManager.findPreferredReadReplica, RackAwareReplicaSelector.
"""

from cython.operator cimport dereference
from libc.stdint cimport int16_t
from libcpp.unordered_map cimport unordered_map

from kafkapy._speedups.base.posix cimport (
    atomic_load,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    pthread_rwlock_rdlock,
    pthread_rwlock_unlock,
)
from kafkapy._speedups.log.layout cimport LogState
from kafkapy._speedups.log.leadership cimport (
    FOLLOWER_OUTSIDE,
    FOLLOWER_THROTTLED,
    FollowerFetch,
    follower_fetched,
    leader_quota_exceeded,
    leader_quota_record,
    readable_followers,
    replica_clock_ms,
)
from kafkapy._speedups.log.state cimport log_unref
from kafkapy._speedups.requests.data_plane cimport (
    ASK_SELECT,
    OUTCOME_ASK,
    SELECT_ASKED,
    NodeEndpoint,
    endpoint_key,
    name_partition,
)
from kafkapy._speedups.requests.fetch.decode cimport fetch_read_release
from kafkapy._speedups.requests.fetch.state cimport FETCH_SELECT, needs_leader
from kafkapy._speedups.requests.partition_table cimport LOOKUP_OK, partition_by_name

cdef extern from "<string>" namespace "std" nogil:
    string to_string(size_t value)


cdef void leave_records(FetchPartition* partition) noexcept nogil:
    fetch_read_release(partition)
    partition.read.length = 0
    if partition.preferred >= 0:
        partition.read.aborted_count = -1
    elif partition.read.aborted_count > 0:
        partition.read.aborted_count = 0


# ---- followers -------------------------------------------------------------------------------------------------------

cdef void fetch_note_follower(FetchState* state, FetchPartition* partition) noexcept nogil:
    cdef FollowerFetch fetch
    fetch.replica_id = state.replica_id
    fetch.log_end_offset = partition.request.fetch_offset
    fetch.log_start_offset = partition.request.log_start_offset
    fetch.leader_end_offset = partition.read.log_end_offset
    fetch.broker_epoch = state.replica_epoch
    follower_fetched(partition.log, &fetch)


cdef bint fetch_is_throttled(FetchPartition* partition) noexcept nogil:
    return (partition.standing & FOLLOWER_THROTTLED and partition.standing & FOLLOWER_OUTSIDE
            and leader_quota_exceeded(partition.log))


cdef void fetch_count_throttled(FetchState* state) noexcept nogil:
    cdef FetchPartition* partition
    cdef size_t i
    for i in range(state.partitions.size()):
        partition = &state.partitions[i]
        if partition.standing & FOLLOWER_THROTTLED and partition.read.length > 0:
            leader_quota_record(partition.log, partition.read.length)


# ---- consumers -------------------------------------------------------------------------------------------------------

cdef bint fetch_select(DataPlaneState* plane, FetchState* state, FetchPartition* partition) noexcept nogil:
    cdef vector[FollowerView] views
    if needs_leader(state) or partition.read.diverging_epoch >= 0:
        return False
    if atomic_load(&plane.replica_selector) == SELECT_ASKED:
        partition.preferred = partition.selected
    elif not state.rack.empty():
        readable_followers(partition.log, partition.request.fetch_offset, &views)
        if not views.empty():
            partition.preferred = replica_in_rack(plane, state, partition.read.leader_id, &views)
    return partition.preferred >= 0


cdef bint is_in_rack(DataPlaneState* plane, int16_t listener_index, int32_t node_id, const string& rack) noexcept nogil:
    """The caller holds endpoints_lock."""
    cdef unordered_map[int64_t, NodeEndpoint].iterator found = plane.endpoints.find(
        endpoint_key(listener_index, node_id))
    return (found != plane.endpoints.end() and dereference(found).second.has_rack
            and dereference(found).second.rack == rack)


cdef bint is_better(const FollowerView* one, const FollowerView* other) noexcept nogil:
    if one.log_end_offset != other.log_end_offset:
        return one.log_end_offset > other.log_end_offset
    if one.caught_up_ms != other.caught_up_ms:
        return one.caught_up_ms > other.caught_up_ms
    return one.replica_id > other.replica_id


cdef int32_t replica_in_rack(DataPlaneState* plane, FetchState* state, int32_t leader_id,
                             vector[FollowerView]* views) noexcept nogil:
    cdef const FollowerView* best = NULL
    cdef size_t i
    pthread_rwlock_rdlock(&plane.endpoints_lock)
    if not is_in_rack(plane, state.frame.listener_index, leader_id, state.rack):
        for i in range(views.size()):
            if (is_in_rack(plane, state.frame.listener_index, views[0][i].replica_id, state.rack)
                    and (best == NULL or is_better(&views[0][i], best))):
                best = &views[0][i]
    pthread_rwlock_unlock(&plane.endpoints_lock)
    return best.replica_id if best != NULL else -1


cdef bint fetch_ask_for_selection(DataPlaneState* plane, FetchState* state, Outcome* outcome) noexcept nogil:
    cdef FetchPartition* partition
    cdef LogState* log
    cdef vector[FollowerView] views
    cdef size_t i
    state.ask.questions.clear()
    state.ask.kind = ASK_SELECT
    for i in range(state.partitions.size()):
        partition = &state.partitions[i]
        partition.selected = -1
        if partition.refused:
            continue
        if partition.log != NULL:
            log_unref(partition.log)
            partition.log = NULL
        log = NULL
        if partition_by_name(plane.partitions, <const unsigned char*>partition.topic.name.data(),
                             partition.topic.name.size(), partition.request.partition, &log) != LOOKUP_OK:
            continue
        partition.log = log
        views.clear()
        readable_followers(log, partition.request.fetch_offset, &views)
        if not views.empty():
            state.ask.questions.push_back(to_string(i))
    if state.ask.questions.empty():
        return False
    state.stage = FETCH_SELECT
    outcome.kind = OUTCOME_ASK
    outcome.ask = &state.ask
    outcome.parked = state
    return True


cdef FetchPartition* selecting_partition(void* parked, int32_t index) noexcept nogil:
    cdef FetchState* state = <FetchState*>parked
    if (state.stage != FETCH_SELECT or index < 0 or <size_t>index >= state.partitions.size()
            or state.partitions[index].refused or state.partitions[index].log == NULL):
        return NULL
    return &state.partitions[index]


cdef bint fetch_selection(void* parked, int32_t index, Selection* out, vector[FollowerView]* views,
                          string* rack) noexcept nogil:
    cdef FetchPartition* partition = selecting_partition(parked, index)
    if partition == NULL:
        return False
    readable_followers(partition.log, partition.request.fetch_offset, views)
    pthread_mutex_lock(&partition.log.mutex)
    out.leader_end_offset = partition.log.log_end_offset
    pthread_mutex_unlock(&partition.log.mutex)
    out.fetch_offset = partition.request.fetch_offset
    out.now_ms = replica_clock_ms(partition.log)
    rack[0] = (<FetchState*>parked).rack
    return name_partition(partition.log, &out.name)


cdef void fetch_select_replica(void* parked, int32_t index, int32_t replica_id) noexcept nogil:
    cdef FetchPartition* partition = selecting_partition(parked, index)
    if partition != NULL:
        partition.selected = replica_id
