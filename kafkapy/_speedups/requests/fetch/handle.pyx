"""Fetch (api key 1), versions 0 to 18: decode, session, authorize, read, wait for enough bytes, reply.

Source: Kafka's KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages and DelayedFetch.

A read is a snapshot (segment, position, length) per partition, taken under the log's mutex; no record byte passes
through this code.

Of several entries for one partition the last one counts and gets one answer, as in Kafka. The Processor serves other
connections after every READS_A_TURN partitions.

A request gets its answer at once with max wait 0, no partition to read, min bytes reached, or an error or a diverging
epoch in a read. Else it parks with a waiter on every partition. A wake reads only the partitions whose end has moved,
to count bytes; the reply takes a new snapshot at the end, because the logs may have changed.

Versions 0 to 3 get message sets of v0 or v1, which a worker makes of the snapshots (conversion.pyx). One such reply
holds at most CONVERTED_MAX_BYTES of batches, or one larger first batch, because a message set stays in memory until it
is sent.

A replica id in the partition's assignment is a follower. Any other replica id gets UNKNOWN_LEADER_EPOCH when the
request has the leader epoch, else NOT_LEADER_OR_FOLLOWER (Partition.followerReplicaOrThrow), and leaves no trace.

From version 11 on a consumer may read from a follower, up to its high watermark, and the leader names a closer replica
(KIP-392, replicas.pyx). A partition of leader.replication.throttled.replicas has no records for a follower outside the
ISR while leader.replication.throttled.rate is exceeded.

A consumer over its quota gets an empty response (requests/client_quotas.pxd). Gaps: tiered storage.
"""

from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp
from posix.unistd cimport pread

from kafkapy._speedups.base.blocking cimport NetworkThread, blocking_begin, blocking_end
from kafkapy._speedups.base.error_codes cimport (
    ERROR_INCONSISTENT_TOPIC_ID,
    ERROR_NONE,
    ERROR_NOT_LEADER_OR_FOLLOWER,
    ERROR_OFFSET_OUT_OF_RANGE,
    ERROR_TOPIC_AUTHORIZATION_FAILED,
    ERROR_UNKNOWN_LEADER_EPOCH,
    ERROR_UNKNOWN_TOPIC_ID,
    ERROR_UNKNOWN_TOPIC_OR_PARTITION,
    ERROR_UNSUPPORTED_COMPRESSION_TYPE,
)
from kafkapy._speedups.base.posix cimport (
    atomic_count,
    atomic_load,
    monotonic_ns,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kafkapy._speedups.base.wire cimport load_int32
from kafkapy._speedups.log.layout cimport (
    READ_COMMITTED,
    READ_LOG_END,
    WAIT_AT_FOLLOWER,
    WAIT_HIGH_WATERMARK,
    WAIT_LAST_STABLE_OFFSET,
    WAIT_LOG_END,
    FetchIsolation,
    LogState,
    ReadResult,
    Waiter,
)
from kafkapy._speedups.log.leadership cimport follower_standing
from kafkapy._speedups.log.read cimport read_batches
from kafkapy._speedups.log.state cimport log_remove_waiters, log_unref, log_wait
from kafkapy._speedups.protocol.data_plane_versions cimport FETCH_NEWEST, FETCH_OLDEST
from kafkapy._speedups.records.record_batch cimport BATCH_LENGTH_AT, CODEC_ZSTD, LOG_OVERHEAD
from kafkapy._speedups.requests.authorization cimport (
    DECISION_ALLOWED,
    DECISION_DENIED,
    RESOURCE_CLUSTER,
    RESOURCE_TOPIC,
    Decision,
    authorization_check,
    authorization_trim,
)
from kafkapy._speedups.requests.client_quotas cimport quota_fetch_limit
from kafkapy._speedups.requests.data_plane cimport (
    API_FETCH,
    ASK_AUTHORIZE,
    OPERATION_CLUSTER_ACTION,
    OPERATION_READ,
    OUTCOME_ASK,
    OUTCOME_CLOSE,
    OUTCOME_PARKED,
    OUTCOME_REPLY,
    SELECT_ASKED,
    SELECT_LEADER,
    left_is_mine,
    outcome_clear,
)
from kafkapy._speedups.requests.fetch.context cimport fetch_context_abandon, fetch_context_open
from kafkapy._speedups.requests.fetch.conversion cimport (
    CONVERTED_BELOW,
    MAX_WAIT_MS,
    fetch_ask_for_conversion,
    fetch_read_on,
)
from kafkapy._speedups.requests.fetch.decode cimport fetch_decode, fetch_partitions_release, fetch_read_release
from kafkapy._speedups.requests.fetch.replicas cimport (
    fetch_ask_for_selection,
    fetch_count_throttled,
    fetch_is_throttled,
    fetch_note_follower,
    fetch_select,
    leave_records,
)
from kafkapy._speedups.requests.fetch.reply cimport fetch_charge, fetch_response_build
from kafkapy._speedups.requests.fetch.state cimport (
    CONTEXT_SESSIONLESS,
    FETCH_ANSWER,
    FETCH_AUTHORIZE,
    FETCH_CONVERT,
    FETCH_READ,
    FETCH_SELECT,
    FETCH_WAIT,
    FetchPartition,
    FetchStage,
    FetchState,
    from_follower,
    isolation_of,
    needs_leader,
)
from kafkapy._speedups.requests.fetch_session cimport FetchTopic, fetch_topic_unref, session_unref
from kafkapy._speedups.requests.partition_table cimport (
    LOOKUP_NOT_HOSTED,
    LOOKUP_OK,
    LeaderHint,
    LookupStatus,
    partition_by_name,
    partition_leader,
)

cdef enum:
    HARD_LIMIT_BELOW = 3                # older versions: a partition's max bytes holds for its first batch too (KIP-74)
    CONVERTED_MAX_BYTES = 1048576
    ZSTD_VERSION = 10                   # first version whose clients know the codec (KIP-110)
    TOPIC_ID_SIZE = 16
    MAX_REGISTRATIONS = 8
    KEPT_PARTITIONS = 64
    READS_A_TURN = 256                  # partitions, before other connections have their turn
    NS_PER_MS = 1000000

cdef const char* UNSUPPORTED = b"a Fetch request of a version that is not served"
cdef const char* MALFORMED = b"a Fetch request that cannot be decoded"
cdef const char* NO_REPLY = b"a Fetch reply cannot be built: no memory, or more than a frame holds"


# ---- the state -------------------------------------------------------------------------------------------------------

cdef FetchState* state_new(Frame* frame) noexcept nogil:
    cdef FetchState* state = <FetchState*>frame.left.fetch
    if state == NULL:
        state = new FetchState()
        state.last_topic = NULL
    else:
        frame.left.fetch = NULL
    state.frame = frame[0]
    state.stage = FETCH_AUTHORIZE
    state.context = CONTEXT_SESSIONLESS
    state.error = ERROR_NONE
    state.session = NULL
    state.assigned = False
    state.sessionless = False
    state.ask.kind = ASK_AUTHORIZE
    state.deadline_ns = 0
    state.quota_bytes = INT64_MAX
    state.charged = False
    state.throttle_ms = 0
    return state


cdef void state_free(FetchState* state) noexcept nogil:
    fetch_partitions_release(state)
    if state.session != NULL:
        session_unref(state.session)
    fetch_topic_unref(state.last_topic)
    del state


cdef void state_keep(FetchState* state) noexcept nogil:
    """Frees the state, but keeps its memory for the next request. Only in the thread that runs the Processor."""
    if (not left_is_mine(state.frame.left) or state.frame.left.fetch != NULL
            or state.partitions.capacity() > KEPT_PARTITIONS or state.forgotten.capacity() > KEPT_PARTITIONS):
        state_free(state)
        return
    fetch_partitions_release(state)
    if state.session != NULL:
        session_unref(state.session)
    state.ordered.clear()
    if not state.asked.empty():
        state.asked.clear()
    state.ask.questions.clear()
    state.waiting.clear()
    state.waits_for.clear()
    state.frame.left.fetch = state


cdef void fetch_forget_kept(void* kept) noexcept nogil:
    cdef FetchState* state = <FetchState*>kept
    if state != NULL:
        fetch_topic_unref(state.last_topic)
        del state


cdef void remove_waiters(FetchState* state) noexcept nogil:
    cdef size_t i
    for i in range(state.waiting.size()):
        log_remove_waiters(state.waiting[i], state.frame.wake_owner, state.frame.token, False)


# ---- authorization and look-up ---------------------------------------------------------------------------------------

cdef void no_data(ReadResult* read, int16_t error) noexcept nogil:
    """Fills in Kafka's answer for an unreadable partition. A known leader stays."""
    read.error = error
    read.length = 0
    read.high_watermark = -1
    read.last_stable_offset = -1
    read.log_start_offset = -1
    read.diverging_epoch = -1
    read.diverging_end_offset = -1
    read.aborted_count = -1


cdef void refuse(FetchPartition* partition, int16_t error) noexcept nogil:
    partition.refused = True
    partition.read.leader_id = -1
    partition.read.leader_epoch = -1
    no_data(&partition.read, error)
    partition.read.aborted_count = 0


cdef bint authorize(DataPlaneState* plane, FetchState* state, Outcome* outcome) noexcept nogil:
    """Refuses partitions that the client may not read, or that are unknown. False when questions must be asked
    first."""
    cdef FetchPartition* partition
    cdef FetchTopic* previous = NULL
    cdef Decision decision = DECISION_ALLOWED
    cdef bint follower = from_follower(state)
    cdef size_t i
    if state.partitions.empty():
        return True
    state.asked.clear()
    state.ask.questions.clear()
    if follower:
        decision = authorization_check(plane, state.frame.authorization, OPERATION_CLUSTER_ACTION, RESOURCE_CLUSTER,
                                       NULL, 0, &state.asked, &state.ask.questions)
    for i in range(state.partitions.size()):
        partition = &state.partitions[i]
        if not follower and partition.topic != previous:
            previous = partition.topic
            decision = DECISION_ALLOWED         # an unknown id does not reveal a topic
            if not (previous.by_id and previous.name.empty()):
                decision = authorization_check(plane, state.frame.authorization, OPERATION_READ, RESOURCE_TOPIC,
                                               previous.name.data(),
                                               previous.name.size(), &state.asked, &state.ask.questions)
        if decision == DECISION_DENIED:
            refuse(partition, ERROR_TOPIC_AUTHORIZATION_FAILED)
        elif partition.topic.by_id and partition.topic.name.empty():
            refuse(partition, ERROR_UNKNOWN_TOPIC_ID)
        else:
            partition.refused = False
    if state.ask.questions.size():
        outcome.kind = OUTCOME_ASK
        outcome.ask = &state.ask
        outcome.parked = state
        return False
    return True


# ---- reading ---------------------------------------------------------------------------------------------------------

cdef LookupStatus look_up(DataPlaneState* plane, FetchPartition* partition) noexcept nogil:
    """Looks up the log: a reference, or NULL. No waiter of this request may be registered."""
    if partition.log != NULL:
        log_unref(partition.log)
        partition.log = NULL
    return partition_by_name(plane.partitions, <const uint8_t*>partition.topic.name.data(), partition.topic.name.size(),
                             partition.request.partition, &partition.log)


cdef bint other_topic(LogState* log, FetchTopic* topic) noexcept nogil:
    """Whether the name now belongs to a topic with another id than the request's."""
    cdef int i
    if not topic.by_id or memcmp(log.topic_id, topic.topic_id, TOPIC_ID_SIZE) == 0:
        return False
    for i in range(TOPIC_ID_SIZE):
        if log.topic_id[i]:
            return True
    return False                                # the log was made before topics had ids


cdef bint is_zstd(LogState* log) noexcept nogil:
    pthread_mutex_lock(&log.mutex)
    cdef bint zstd = log.config.compression_codec == CODEC_ZSTD
    pthread_mutex_unlock(&log.mutex)
    return zstd


cdef int64_t reply_limit(DataPlaneState* plane, FetchState* state) noexcept nogil:
    cdef int64_t limit = min(<int64_t>min(state.max_bytes, plane.fetch_max_bytes), state.quota_bytes)
    if state.frame.api_version < CONVERTED_BELOW:
        limit = min(limit, <int64_t>CONVERTED_MAX_BYTES)
    return max(limit, <int64_t>0)


cdef size_t first_to_read(FetchState* state) noexcept nogil:
    """Returns the first partition to read. Clients before version 3 have no limit for the whole reply and do not rotate
    their partitions: the broker begins with another partition each time."""
    if state.frame.api_version >= HARD_LIMIT_BELOW or state.partitions.empty():
        return 0
    return (<uint32_t>state.frame.correlation_id * <uint32_t>2654435761 >> 7) % state.partitions.size()


cdef bint first_batch_is_cut(ReadResult* read) noexcept nogil:
    """Whether max bytes cut the first batch in two, so that no client can use it (Kafka's firstEntryIncomplete)."""
    cdef uint8_t head[12]
    cdef NetworkThread* thread
    cdef ssize_t got
    if read.length < LOG_OVERHEAD:
        return True
    thread = blocking_begin(&read.segment.slow)
    got = pread(read.segment.fd, head, LOG_OVERHEAD, read.position)
    blocking_end(thread)
    if got != LOG_OVERHEAD:
        return True
    return <int64_t>load_int32(head + <int>BATCH_LENGTH_AT) + LOG_OVERHEAD > read.length


cdef bint may_be_cut(FetchState* state, FetchPartition* partition, int32_t max_bytes) noexcept nogil:
    """Whether the reply may cut the first batch. Before version 3 a client must see that its own limit cuts the first
    batch: only then it asks for more."""
    return state.frame.api_version < HARD_LIMIT_BELOW and max_bytes == max(partition.request.max_bytes, 0)


cdef void read_partition(DataPlaneState* plane, FetchState* state, FetchPartition* partition, int32_t max_bytes,
                         bint min_one_batch, bint first_time) noexcept nogil:
    cdef LookupStatus status
    cdef LeaderHint hint
    cdef bint knows_epoch
    cdef ReadResult* read = &partition.read
    fetch_read_release(partition)
    partition.preferred = -1
    read.leader_id = -1
    read.leader_epoch = -1
    status = look_up(plane, partition)
    if status == LOOKUP_NOT_HOSTED:
        hint = partition_leader(plane.partitions, <const uint8_t*>partition.topic.name.data(),
                                partition.topic.name.size(), partition.request.partition)
        read.leader_id = hint.leader_id
        read.leader_epoch = hint.leader_epoch
        no_data(read, ERROR_NOT_LEADER_OR_FOLLOWER)
        return
    if status != LOOKUP_OK:
        if first_time:
            refuse(partition, ERROR_UNKNOWN_TOPIC_OR_PARTITION)
        else:
            no_data(read, ERROR_UNKNOWN_TOPIC_OR_PARTITION)
        return
    if other_topic(partition.log, partition.topic):
        no_data(read, ERROR_INCONSISTENT_TOPIC_ID)
        return
    if state.frame.api_version < ZSTD_VERSION and is_zstd(partition.log):
        no_data(read, ERROR_UNSUPPORTED_COMPRESSION_TYPE)
        return
    if may_be_cut(state, partition, max_bytes):
        min_one_batch = False
    read_batches(partition.log, partition.request.fetch_offset, max_bytes, min_one_batch, isolation_of(state),
                 partition.request.current_leader_epoch, partition.request.last_fetched_epoch, needs_leader(state),
                 read)
    if from_follower(state) and (read.error == ERROR_NONE or read.error == ERROR_OFFSET_OUT_OF_RANGE):
        partition.standing = follower_standing(partition.log, state.replica_id)
        if not partition.standing:
            fetch_read_release(partition)
            knows_epoch = partition.request.current_leader_epoch >= 0
            no_data(read, ERROR_UNKNOWN_LEADER_EPOCH if knows_epoch else ERROR_NOT_LEADER_OR_FOLLOWER)
            state.sessionless = True
            return
        state.assigned = True
    if read.error != ERROR_NONE:
        fetch_read_release(partition)
        no_data(read, read.error)
        return
    if state.frame.api_version < HARD_LIMIT_BELOW:
        read.length = min(read.length, <int64_t>max(partition.request.max_bytes, 0))
    if (read.length > 0 and not min_one_batch and read.length == max_bytes
        and not may_be_cut(state, partition, max_bytes)
            and first_batch_is_cut(read)):
        leave_records(partition)
    if from_follower(state):
        if first_time and read.diverging_epoch < 0:
            fetch_note_follower(state, partition)
        if fetch_is_throttled(partition):
            leave_records(partition)
    elif atomic_load(&plane.replica_selector) != SELECT_LEADER and fetch_select(plane, state, partition):
        leave_records(partition)


cdef int64_t readable_end(FetchState* state, const ReadResult* read) noexcept nogil:
    cdef FetchIsolation isolation = isolation_of(state)
    if isolation == READ_LOG_END:
        return read.log_end_offset
    return read.last_stable_offset if isolation == READ_COMMITTED else read.high_watermark


cdef bint on_older_segment(FetchPartition* partition) noexcept nogil:
    """Whether more bytes follow in a newer segment than one read can give: the reply is due, whatever min bytes says
    (Kafka's case F)."""
    cdef LogState* log = partition.log
    cdef bint older
    if partition.read.segment == NULL:
        return False
    pthread_mutex_lock(&log.mutex)
    older = (log.segments.size() > 0 and log.segments.back() != partition.read.segment
             and partition.end_offset > log.segments.back().base_offset)
    pthread_mutex_unlock(&log.mutex)
    return older


cdef void begin_reading(DataPlaneState* plane, FetchState* state, FetchStage stage) noexcept nogil:
    """Starts the reads. No waiter is registered now, so the request may release its earlier logs."""
    state.stage = stage
    state.waiting.clear()
    state.waits_for.clear()
    state.next = 0
    state.limit = reply_limit(plane, state)
    state.accumulated = 0
    state.min_one_batch = True
    state.must_answer = False
    state.anything = False


cdef bint read_some(DataPlaneState* plane, FetchState* state, Outcome* outcome) noexcept nogil:
    """Takes the snapshots of partitions (Kafka's readFromLog), at most READS_A_TURN. True after the last partition;
    else the request is parked."""
    cdef FetchPartition* partition
    cdef int64_t min_bytes = min(<int64_t>state.min_bytes, reply_limit(plane, state))
    cdef bint first_time = state.stage == FETCH_READ and state.deadline_ns == 0
    cdef int32_t max_bytes
    cdef size_t first = first_to_read(state)
    cdef size_t last = min(state.partitions.size(), state.next + <size_t>READS_A_TURN)
    cdef size_t i
    for i in range(state.next, last):
        partition = &state.partitions[(first + i) % state.partitions.size()]
        if partition.refused:
            continue
        max_bytes = <int32_t>min(<int64_t>max(partition.request.max_bytes, 0), state.limit)
        read_partition(plane, state, partition, max_bytes, state.min_one_batch, first_time)
        if partition.refused:
            continue
        state.anything = True
        if partition.read.error != ERROR_NONE or partition.read.diverging_epoch >= 0 or partition.preferred >= 0:
            state.must_answer = True
            continue
        partition.end_offset = readable_end(state, &partition.read)
        partition.leader_epoch = partition.read.leader_epoch
        partition.available = partition.read.length
        if partition.read.length > 0:
            state.min_one_batch = False
            state.limit = max(state.limit - partition.read.length, 0)
            state.accumulated += partition.read.length
            if state.accumulated < min_bytes and on_older_segment(partition):
                state.must_answer = True
    state.next = last
    if last == state.partitions.size():
        return True
    # Other connections have their turn now.
    state.frame.wake(state.frame.wake_owner, state.frame.token)
    outcome.kind = OUTCOME_PARKED
    outcome.parked = state
    outcome.deadline_ns = monotonic_ns() + <int64_t>MAX_WAIT_MS * NS_PER_MS
    return False


cdef bint is_answer(DataPlaneState* plane, FetchState* state) noexcept nogil:
    """Whether the bytes that were read are an answer even before max wait is over."""
    return (state.must_answer or not state.anything or state.max_wait_ms <= 0
            or state.accumulated >= min(<int64_t>state.min_bytes, reply_limit(plane, state)))


# ---- waiting ---------------------------------------------------------------------------------------------------------

cdef bint partition_changed(FetchState* state, FetchPartition* partition, bint* answer) noexcept nogil:
    """Whether the readable end moved since bytes were counted. `answer` is set when the log has changed since the read:
    offline, deleted, another leader epoch, or truncated below the fetch offset (Kafka's cases A to F)."""
    cdef LogState* log = partition.log
    cdef FetchIsolation isolation = isolation_of(state)
    cdef int64_t end
    pthread_mutex_lock(&log.mutex)
    if isolation == READ_LOG_END:
        end = log.log_end_offset
    elif isolation == READ_COMMITTED:
        end = log.last_stable_offset
    else:
        end = log.high_watermark
    if (log.offline_errno or log.deleted or (needs_leader(state) and not log.leader)
        or log.leader_epoch != partition.leader_epoch or end < partition.end_offset
            or partition.request.fetch_offset < log.log_start_offset):
        answer[0] = True
    pthread_mutex_unlock(&log.mutex)
    return end != partition.end_offset


cdef bint enough(FetchState* state, int64_t min_bytes) noexcept nogil:
    """Whether min bytes are there; counts again where the end moved (Kafka's DelayedFetch.tryComplete)."""
    cdef FetchPartition* partition
    cdef ReadResult read
    cdef int64_t accumulated = 0
    cdef bint answer = False
    cdef size_t i
    for i in range(state.partitions.size()):
        partition = &state.partitions[i]
        if partition.refused:
            continue
        if partition_changed(state, partition, &answer) and not answer:
            fetch_read_release(partition)
            read_batches(partition.log, partition.request.fetch_offset, max(partition.request.max_bytes, 0), True,
                         isolation_of(state), partition.request.current_leader_epoch,
                         partition.request.last_fetched_epoch, needs_leader(state), &partition.read)
            if partition.read.error != ERROR_NONE or partition.read.diverging_epoch >= 0:
                answer = True
            else:
                partition.end_offset = readable_end(state, &partition.read)
                partition.available = partition.read.length
                if fetch_is_throttled(partition):
                    partition.available = 0
                else:
                    answer = on_older_segment(partition)
            fetch_read_release(partition)
            partition.read.length = 0
        if answer:
            return True
        accumulated += partition.available
    return accumulated >= min_bytes


cdef bint register_waiters(FetchState* state) noexcept nogil:
    """Registers waiters. True when a condition holds already. Each waiter waits for more than the counted bytes, so no
    change in between is missed."""
    cdef FetchIsolation isolation = isolation_of(state)
    cdef Waiter waiter
    cdef bint holds = False
    cdef size_t i
    if isolation == READ_LOG_END:
        waiter.kind = WAIT_LOG_END
    elif isolation == READ_COMMITTED:
        waiter.kind = WAIT_LAST_STABLE_OFFSET
    else:
        waiter.kind = WAIT_HIGH_WATERMARK
    if not needs_leader(state):
        waiter.kind |= WAIT_AT_FOLLOWER
    waiter.wake = state.frame.wake
    waiter.owner = state.frame.wake_owner
    waiter.token = state.frame.token
    for i in range(state.waiting.size()):
        waiter.threshold = state.partitions[state.waits_for[i]].end_offset
        if log_wait(state.waiting[i], &waiter):
            holds = True
    return holds


cdef bint park(DataPlaneState* plane, FetchState* state, Outcome* outcome) noexcept nogil:
    """Parks the request; False when it need not wait any more.

    The request registers first and looks then: if leadership is lost, or a log deleted, between the read and the
    registration, no waiter is woken, but the look sees it.
    """
    cdef int64_t min_bytes = min(<int64_t>state.min_bytes, reply_limit(plane, state))
    cdef bint holds
    cdef int turn
    outcome.kind = OUTCOME_PARKED
    outcome.parked = state
    outcome.deadline_ns = state.deadline_ns
    for turn in range(MAX_REGISTRATIONS):
        holds = register_waiters(state)
        if enough(state, min_bytes):
            remove_waiters(state)
            return False
        if not holds:
            return True
        remove_waiters(state)
    # Producers are faster than this loop: the Processor's next turn looks again.
    register_waiters(state)
    state.frame.wake(state.frame.wake_owner, state.frame.token)
    return True


cdef void finish(DataPlaneState* plane, FetchState* state, Outcome* outcome) noexcept nogil:
    cdef bint failed = state.error != ERROR_NONE
    cdef size_t i
    if from_follower(state):
        fetch_count_throttled(state)
    fetch_charge(state)
    outcome.send = fetch_response_build(plane, state)
    for i in range(state.partitions.size()):
        if state.partitions[i].read.error != ERROR_NONE:
            failed = True
            break
    if failed or state.error != ERROR_NONE:
        atomic_count(&plane.apis[<int>API_FETCH].errors, 1)
    if outcome.send == NULL:
        outcome.kind = OUTCOME_CLOSE
        outcome.message = NO_REPLY
    else:
        outcome.kind = OUTCOME_REPLY
    authorization_trim(state.frame.authorization)
    state_keep(state)


# ---- from stage to stage ---------------------------------------------------------------------------------------------

cdef void run(DataPlaneState* plane, FetchState* state, bint timed_out, Outcome* outcome) noexcept nogil:
    """Runs the request from its stage as far as it can go."""
    if state.stage == FETCH_CONVERT:
        if not fetch_read_on(state):
            finish(plane, state, outcome)
            return
        begin_reading(plane, state, FETCH_READ)
    if state.stage == FETCH_AUTHORIZE:
        if not authorize(plane, state, outcome):
            return
        if (atomic_load(&plane.replica_selector) == SELECT_ASKED and not needs_leader(state)
                and fetch_ask_for_selection(plane, state, outcome)):
            return
        begin_reading(plane, state, FETCH_READ)
    if state.stage == FETCH_SELECT:
        begin_reading(plane, state, FETCH_READ)
    if state.stage == FETCH_READ:
        if not read_some(plane, state, outcome):
            return
        if not is_answer(plane, state):
            state.stage = FETCH_WAIT
            if state.deadline_ns == 0:
                state.deadline_ns = monotonic_ns() + <int64_t>min(state.max_wait_ms, <int>MAX_WAIT_MS) * NS_PER_MS
            if park_without_snapshot(plane, state, outcome):
                return
            begin_reading(plane, state, FETCH_ANSWER)
    elif state.stage == FETCH_WAIT:
        if not timed_out and park(plane, state, outcome):
            return
        begin_reading(plane, state, FETCH_ANSWER)
    if state.stage == FETCH_ANSWER and not read_some(plane, state, outcome):
        return
    if state.frame.api_version < CONVERTED_BELOW:
        fetch_charge(state)     # by the size before the conversion
    if state.frame.api_version >= CONVERTED_BELOW or state.throttle_ms or not fetch_ask_for_conversion(state, outcome):
        finish(plane, state, outcome)


cdef bint park_without_snapshot(DataPlaneState* plane, FetchState* state, Outcome* outcome) noexcept nogil:
    """Parks the request without its snapshot. This reply does not send the found bytes, and a parked reference would
    keep their segments from a delete."""
    cdef FetchPartition* partition
    cdef size_t i
    for i in range(state.partitions.size()):
        partition = &state.partitions[i]
        fetch_read_release(partition)
        partition.read.length = 0
        if not partition.refused:
            state.waiting.push_back(partition.log)
            state.waits_for.push_back(i)
    return park(plane, state, outcome)


# ---- the contract with the Processor ---------------------------------------------------------------------------------

cdef void fetch_handle(DataPlaneState* plane, Frame* frame, Outcome* outcome) noexcept nogil:
    cdef FetchState* state
    outcome_clear(outcome)
    if frame.api_version < FETCH_OLDEST or frame.api_version > FETCH_NEWEST:
        outcome.message = UNSUPPORTED
        return
    state = state_new(frame)
    if not fetch_decode(state):
        outcome.message = MALFORMED
        state_free(state)
        return
    if frame.quota != NULL and not from_follower(state):
        state.quota_bytes = quota_fetch_limit(frame.quota)
    fetch_context_open(plane, state)
    run(plane, state, False, outcome)


cdef void fetch_resume(DataPlaneState* plane, void* parked, bint timed_out, Outcome* outcome) noexcept nogil:
    cdef FetchState* state = <FetchState*>parked
    outcome_clear(outcome)
    remove_waiters(state)
    run(plane, state, timed_out, outcome)


cdef void fetch_cancel(DataPlaneState* plane, void* parked) noexcept nogil:
    cdef FetchState* state = <FetchState*>parked
    remove_waiters(state)
    fetch_context_abandon(plane, state)
    state_free(state)
