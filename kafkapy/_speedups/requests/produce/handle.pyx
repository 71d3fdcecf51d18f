"""Produce (api key 0), versions 0 to 13: decode, authorize, append, wait for acks, reply.

Source: Kafka's KafkaApis.handleProduceRequest and DelayedProduce.

Versions 0 to 2 bring message sets of v0 and v1, which a worker converts before the append; Kafka 4 has dropped these
versions (KIP-896).

A request goes through three stages and can park in each:

    AUTHORIZE   all questions the connection's cache cannot answer are asked at once; nothing was appended yet
    APPEND      each partition once. A full segment, records that Python must convert, or a first batch of a transaction
                that the coordinator must confirm (KIP-890) park the request; partitions that are done stay done.
                Compressed records are checked here as long as it takes about two milliseconds for all partitions
                (INLINE_WORK); the others are checked by a worker. A request with one partition may be gathered with
                those of other connections first (group.pyx)
    WAIT        acks=-1: until the high watermark has passed every appended batch, leadership is lost, or the time is
                over

The whole body is decoded before the first append, so a frame that is cut short leaves no trace. Of several entries for
one partition the last one counts and is answered, as in Kafka. A client over its quota gets its answer at once, with
the throttle time (requests/client_quotas.pxd).
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memset
from libcpp.string cimport string
from libcpp.vector cimport vector

from kafkapy._speedups.base.error_codes cimport (
    ERROR_INVALID_RECORD,
    ERROR_KAFKA_STORAGE_ERROR,
    ERROR_NONE,
    ERROR_NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ERROR_NOT_LEADER_OR_FOLLOWER,
    ERROR_REQUEST_TIMED_OUT,
    ERROR_UNKNOWN_SERVER_ERROR,
    ERROR_UNKNOWN_TOPIC_OR_PARTITION,
)
from kafkapy._speedups.base.posix cimport (
    atomic_count,
    atomic_load,
    monotonic_ns,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    wall_clock_ms,
)
from kafkapy._speedups.base.wire cimport load_int32
from kafkapy._speedups.log.append cimport append_refused, log_append
from kafkapy._speedups.log.append_checks cimport BATCHES_SINCE_VERSION, INLINE_WORK, check_by_worker
from kafkapy._speedups.log.layout cimport (
    LOG_APPENDED,
    LOG_PARK_SEGMENT,
    LOG_PARK_VALIDATE,
    LOG_PARK_VERIFY,
    LOG_PARK_WORK,
    WAIT_FLUSHED,
    WAIT_HIGH_WATERMARK,
    WAIT_SEGMENT,
    AppendOptions,
    AppendResult,
    AppendStatus,
    LogState,
    Waiter,
)
from kafkapy._speedups.log.leadership cimport enough_in_sync_locked
from kafkapy._speedups.log.state cimport is_flushed_locked, log_remove_waiters, log_unref, log_wait, log_was_flush_due
from kafkapy._speedups.protocol.data_plane_versions cimport PRODUCE_NEWEST, PRODUCE_OLDEST
from kafkapy._speedups.records.record_batch cimport BATCH_LENGTH_AT, LEGACY_MIN_SIZE, LOG_OVERHEAD
from kafkapy._speedups.requests.authorization cimport authorization_trim
from kafkapy._speedups.requests.client_quotas cimport quota_charge_produce
from kafkapy._speedups.requests.data_plane cimport (
    API_PRODUCE,
    ASK_AUTHORIZE,
    ASK_VALIDATE,
    ASK_VERIFY,
    OUTCOME_ASK,
    OUTCOME_CLOSE,
    OUTCOME_GATHERED,
    OUTCOME_NO_REPLY,
    OUTCOME_PARKED,
    OUTCOME_REPLY,
    OUTCOME_WORKER,
    outcome_clear,
)
from kafkapy._speedups.requests.produce.decode cimport produce_decode
from kafkapy._speedups.requests.produce.lookup cimport produce_authorize, produce_is_transactional
from kafkapy._speedups.requests.produce.reply cimport produce_response_build
from kafkapy._speedups.requests.produce.state cimport (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    PARTITION_DONE,
    PARTITION_PENDING,
    PARTITION_WAITING,
    PRODUCE_APPEND,
    PRODUCE_AUTHORIZE,
    PRODUCE_WAIT,
    ProducePartition,
    ProduceState,
    fail_partition,
)

cdef extern from "<string>" namespace "std" nogil:
    string to_string(size_t value)

cdef enum:
    FIRST_THAT_ADDS = 12            # of the versions: the broker adds the partition to the transaction (KIP-890)
    APPENDS_A_TURN = 256            # partitions, before other connections have their turn
    SEGMENT_WAIT_MS = 30000         # the shortest wait of a request for a new segment, whatever its own timeout:
                                    # no append was made yet
    NS_PER_MS = 1000000
    LOOK_NS = 1000000000        # between two looks of a parked append at its log

cdef const char* UNSUPPORTED = b"a Produce request of a version that is not served"
cdef const char* MALFORMED = b"a Produce request that cannot be decoded"
cdef const char* FAILED_WITHOUT_ACKS = b"an error while serving a Produce request with acks=0"
cdef const char* OUT_OF_MEMORY = b"no memory for a Produce reply"


# ---- the state -------------------------------------------------------------------------------------------------------

cdef ProduceState* state_new(Frame* frame) noexcept nogil:
    cdef ProduceState* state = new ProduceState()
    state.frame = frame[0]
    state.stage = PRODUCE_AUTHORIZE
    state.segment_deadline_ns = 0
    state.look_ns = 0
    state.acks_deadline_ns = 0
    state.throttle_ms = 0
    state.ask.kind = ASK_AUTHORIZE
    return state


cdef void state_free(ProduceState* state) noexcept nogil:
    cdef size_t i
    for i in range(state.partitions.size()):
        if state.partitions[i].log != NULL:
            log_unref(state.partitions[i].log)
        free(state.partitions[i].replaced)
        free(state.partitions[i].result.record_errors)
    del state


cdef void remove_waiters(ProduceState* state, bint comes_again) noexcept nogil:
    """`comes_again`: the appends of pending partitions follow at once."""
    cdef size_t i
    for i in range(state.partitions.size()):
        if state.partitions[i].log != NULL and state.partitions[i].stage != PARTITION_DONE:
            log_remove_waiters(state.partitions[i].log, state.frame.wake_owner, state.frame.token, comes_again)


cdef void close_with(ProduceState* state, const char* message, Outcome* outcome) noexcept nogil:
    outcome.kind = OUTCOME_CLOSE
    outcome.message = message
    state_free(state)


cdef void finish(DataPlaneState* plane, ProduceState* state, Outcome* outcome) noexcept nogil:
    """Finishes a request whose partitions are all decided: the reply, or its substitute with acks=0."""
    cdef bint failed = False
    cdef size_t i
    for i in range(state.partitions.size()):
        if state.partitions[i].result.error != ERROR_NONE:
            failed = True
            break
    if failed:
        atomic_count(&plane.apis[<int>API_PRODUCE].errors, 1)
    authorization_trim(state.frame.authorization)
    if state.frame.quota != NULL:
        quota_charge_produce(state.frame.quota, state.acks != ACKS_NONE)
        state.throttle_ms = <int32_t>state.frame.quota.throttle_ms
    if state.acks == ACKS_NONE:
        if failed:
            close_with(state, FAILED_WITHOUT_ACKS, outcome)
            return
        outcome.kind = OUTCOME_NO_REPLY
        state_free(state)
        return
    outcome.send = produce_response_build(plane, state)
    if outcome.send == NULL:
        close_with(state, OUT_OF_MEMORY, outcome)
        return
    outcome.kind = OUTCOME_REPLY
    state_free(state)


# ---- append ----------------------------------------------------------------------------------------------------------

cdef void produce_refused(ProducePartition* partition, const AppendResult* result) noexcept nogil:
    # Takes the reason, and hides meaningless offsets. Record errors keep the log start offset, as Kafka does.
    partition.result = result[0]
    partition.result.base_offset = -1
    partition.result.last_offset = -1
    partition.result.log_append_time_ms = -1
    if partition.result.error == ERROR_NONE:
        partition.result.error = ERROR_UNKNOWN_SERVER_ERROR
    partition.stage = PARTITION_DONE


cdef void produce_appended(const ProduceState* state, ProducePartition* partition,
                           const AppendResult* result) noexcept nogil:
    partition.result = result[0]
    partition.result.error = ERROR_NONE
    partition.stage = PARTITION_DONE
    if state.acks == ACKS_ALL or (state.acks == ACKS_LEADER and log_was_flush_due(partition.log)):
        partition.stage = PARTITION_WAITING


cdef void produce_options(DataPlaneState* plane, const ProduceState* state, int64_t now_ms,
                          AppendOptions* options) noexcept nogil:
    memset(options, 0, sizeof(AppendOptions))
    options.required_acks = <int8_t>state.acks
    options.api_version = state.frame.api_version
    options.current_leader_epoch = -1
    options.now_ms = now_ms
    options.adds_partitions = state.frame.api_version >= FIRST_THAT_ADDS
    options.verify = options.adds_partitions or atomic_load(&plane.verify_transactions)


cdef bint gathers(const ProduceState* state) noexcept nogil:
    """Whether the request has one partition, whose append may share its write with those of other requests."""
    return (state.frame.gathers and state.partitions.size() == 1 and state.partitions[0].stage == PARTITION_PENDING
            and state.frame.api_version >= BATCHES_SINCE_VERSION and state.frame.quota == NULL
            and not produce_is_transactional(&state.partitions[0]))


cdef bint holds_no_message(ProduceState* state, ProducePartition* partition) noexcept nogil:
    """Whether the records are no whole message. Before version 3 such a partition is no error, and appends nothing."""
    cdef int32_t length
    if state.frame.api_version >= BATCHES_SINCE_VERSION:
        return False
    if partition.records_size < LOG_OVERHEAD:
        return True
    length = load_int32(partition.records + <int>BATCH_LENGTH_AT)
    return length >= LEGACY_MIN_SIZE and length > partition.records_size - LOG_OVERHEAD


cdef bint append_all(DataPlaneState* plane, ProduceState* state, Outcome* outcome) noexcept nogil:
    """Appends all partitions. False when the request was parked or asked a question; the outcome says which."""
    cdef ProducePartition* partition
    cdef AppendOptions options
    cdef AppendResult result
    cdef AppendStatus status
    cdef Waiter waiter
    cdef vector[size_t] parked
    cdef vector[size_t] unverified
    cdef bint wants_segment = False
    cdef int64_t wait_ms
    cdef bint wants_worker = False
    cdef int64_t work = INLINE_WORK
    cdef size_t i
    if gathers(state):
        outcome.kind = OUTCOME_GATHERED
        outcome.group = state.partitions[0].log
        outcome.parked = state
        return False
    produce_options(plane, state, wall_clock_ms(), &options)
    options.work = &work
    waiter.kind = WAIT_SEGMENT
    waiter.wake = state.frame.wake
    waiter.owner = state.frame.wake_owner
    waiter.token = state.frame.token
    state.ask.kind = ASK_VALIDATE
    state.ask.questions.clear()
    for i in range(state.appended, state.partitions.size()):
        if i - state.appended == APPENDS_A_TURN and parked.empty():
            # Other connections have their turn now.
            state.appended = i
            state.frame.wake(state.frame.wake_owner, state.frame.token)
            outcome.kind = OUTCOME_PARKED
            outcome.deadline_ns = monotonic_ns() + <int64_t>max(state.timeout_ms, <int>SEGMENT_WAIT_MS) * NS_PER_MS
            outcome.parked = state
            return False
        partition = &state.partitions[i]
        if partition.stage != PARTITION_PENDING:
            continue
        options.validated = partition.validated
        options.checked = partition.checked
        options.guard = partition.guard
        waiter.threshold = partition.place
        status = log_append(partition.log, <uint8_t*>partition.records, partition.records_size, &options, &waiter,
                            &result)
        partition.place = waiter.threshold
        if status == LOG_APPENDED:
            produce_appended(state, partition, &result)
        elif status == LOG_PARK_SEGMENT:
            wants_segment = True
            parked.push_back(i)
        elif status == LOG_PARK_WORK:
            partition.result = result
            partition.for_worker = True
            wants_worker = True
            parked.push_back(i)
        elif status == LOG_PARK_VALIDATE:
            ask_about(state, i)
            parked.push_back(i)
        elif status == LOG_PARK_VERIFY:
            partition.asked_guard = result.guard
            unverified.push_back(i)
            parked.push_back(i)
        elif result.error == ERROR_INVALID_RECORD and holds_no_message(state, partition):
            partition.stage = PARTITION_DONE
        else:
            produce_refused(partition, &result)
        if result.checked:
            partition.checked = True
    if wants_worker:
        # The other partitions look again when the worker is done.
        if wants_segment:
            remove_waiters(state, False)
        outcome.kind = OUTCOME_WORKER
        outcome.parked = state
        return False
    if state.ask.questions.empty() and unverified.size():
        # Records that need a worker come first; then the coordinator gets one question about all batches.
        state.ask.kind = ASK_VERIFY
        for i in range(unverified.size()):
            ask_about(state, unverified[i])
    if state.ask.questions.size():
        # Only the answer may resume the request now; the append after it asks for the segment again if that is still
        # missing.
        if wants_segment:
            remove_waiters(state, False)
        outcome.kind = OUTCOME_ASK
        outcome.ask = &state.ask
        outcome.parked = state
        return False
    if wants_segment:
        if state.segment_deadline_ns == 0:
            wait_ms = max(state.timeout_ms, <int>SEGMENT_WAIT_MS)
            state.segment_deadline_ns = monotonic_ns() + wait_ms * NS_PER_MS
        # A called append may hang in another log: then those that wait for it look again.
        state.look_ns = monotonic_ns() + LOOK_NS
        outcome.kind = OUTCOME_PARKED
        outcome.deadline_ns = min(state.segment_deadline_ns, state.look_ns)
        outcome.parked = state
        return False
    return True


cdef void ask_about(ProduceState* state, size_t index) noexcept nogil:
    state.ask.questions.push_back(to_string(index))


# ---- flush.messages, and acks=-1 -------------------------------------------------------------------------------------

cdef bint check_acks(ProduceState* state, ProducePartition* partition) noexcept nogil:
    """Whether the partition's acks are there. First it waits for a flush that flush.messages has made due; Kafka syncs
    in the appending thread.

    Then Kafka's Partition.checkEnoughReplicasReachOffset: done when the high watermark has passed the batch or this
    broker no longer leads.
    """
    cdef LogState* log = partition.log
    cdef int16_t error = ERROR_NONE
    cdef bint done = True, flushed
    pthread_mutex_lock(&log.mutex)
    flushed = is_flushed_locked(log, partition.result.last_offset)
    if log.offline_errno:
        error = ERROR_KAFKA_STORAGE_ERROR
    elif log.deleted:
        error = ERROR_UNKNOWN_TOPIC_OR_PARTITION
    elif flushed and state.acks == ACKS_LEADER:
        pass
    elif not log.leader:
        error = ERROR_NOT_LEADER_OR_FOLLOWER
        partition.result.leader_id = log.leader_id
        partition.result.leader_epoch = log.leader_epoch
    elif flushed and log.high_watermark >= partition.result.required_high_watermark:
        if not enough_in_sync_locked(log):
            error = ERROR_NOT_ENOUGH_REPLICAS_AFTER_APPEND
    else:
        done = False
    pthread_mutex_unlock(&log.mutex)
    if done:
        partition.result.error = error
        partition.stage = PARTITION_DONE
    return not done and not flushed


cdef bint wait_for_acks(ProduceState* state, bint timed_out, Outcome* outcome) noexcept nogil:
    """Waits for the acks. False when the request was parked.

    The request first registers the waiters and then looks at the condition: leadership lost between the append and the
    registration wakes no waiter, but the look sees it; leadership lost after the registration wakes one.
    """
    cdef ProducePartition* partition
    cdef Waiter waiter
    cdef size_t i
    cdef size_t waiting = 0
    cdef bint flushing = False
    for i in range(state.partitions.size()):
        if state.partitions[i].stage == PARTITION_WAITING:
            flushing = check_acks(state, &state.partitions[i]) or flushing
            waiting += state.partitions[i].stage == PARTITION_WAITING
    if waiting == 0:
        return True
    if timed_out or (state.timeout_ms <= 0 and not flushing):
        for i in range(state.partitions.size()):
            if state.partitions[i].stage == PARTITION_WAITING:
                fail_partition(&state.partitions[i], ERROR_REQUEST_TIMED_OUT)
        return True
    waiter.wake = state.frame.wake
    waiter.owner = state.frame.wake_owner
    waiter.token = state.frame.token
    waiting = 0
    flushing = False
    for i in range(state.partitions.size()):
        partition = &state.partitions[i]
        if partition.stage == PARTITION_WAITING:
            waiter.kind = WAIT_FLUSHED
            waiter.threshold = partition.result.last_offset
            if log_wait(partition.log, &waiter):
                waiter.kind = WAIT_HIGH_WATERMARK
                waiter.threshold = partition.result.required_high_watermark - 1
                log_wait(partition.log, &waiter)
    for i in range(state.partitions.size()):
        partition = &state.partitions[i]
        if partition.stage == PARTITION_WAITING:
            flushing = check_acks(state, partition) or flushing
            if partition.stage == PARTITION_WAITING:
                waiting += 1
            else:
                log_remove_waiters(partition.log, state.frame.wake_owner, state.frame.token, False)
    if waiting == 0:
        return True
    outcome.kind = OUTCOME_PARKED
    outcome.parked = state
    if flushing:
        # The client's timeout is for other replicas, not for this broker's disk.
        outcome.deadline_ns = monotonic_ns() + <int64_t>max(state.timeout_ms, <int>SEGMENT_WAIT_MS) * NS_PER_MS
    else:
        if state.acks_deadline_ns == 0:
            state.acks_deadline_ns = monotonic_ns() + <int64_t>state.timeout_ms * NS_PER_MS
        outcome.deadline_ns = state.acks_deadline_ns
    return False


cdef void run(DataPlaneState* plane, ProduceState* state, bint timed_out, Outcome* outcome) noexcept nogil:
    """Runs the request from its stage as far as it can go."""
    cdef size_t i
    if state.stage == PRODUCE_AUTHORIZE:
        if not produce_authorize(plane, state, outcome):
            return
        state.stage = PRODUCE_APPEND
        timed_out = False
    if state.stage == PRODUCE_APPEND:
        if not append_all(plane, state, outcome):
            if not (timed_out and outcome.kind == OUTCOME_PARKED):
                return
            remove_waiters(state, False)
            for i in range(state.partitions.size()):
                if state.partitions[i].stage == PARTITION_PENDING:
                    fail_partition(&state.partitions[i], ERROR_REQUEST_TIMED_OUT)
        produce_end_appends(plane, state, outcome)
        return
    if wait_for_acks(state, timed_out, outcome):
        finish(plane, state, outcome)


cdef void produce_end_appends(DataPlaneState* plane, ProduceState* state, Outcome* outcome) noexcept nogil:
    state.stage = PRODUCE_WAIT
    if wait_for_acks(state, False, outcome):
        finish(plane, state, outcome)


# ---- the contract with the Processor ---------------------------------------------------------------------------------

cdef void produce_handle(DataPlaneState* plane, Frame* frame, Outcome* outcome) noexcept nogil:
    cdef ProduceState* state
    outcome_clear(outcome)
    if frame.api_version < PRODUCE_OLDEST or frame.api_version > PRODUCE_NEWEST:
        outcome.message = UNSUPPORTED
        return
    state = state_new(frame)
    if not produce_decode(state):
        close_with(state, MALFORMED, outcome)
        return
    run(plane, state, False, outcome)


cdef void produce_resume(DataPlaneState* plane, void* parked, bint timed_out, Outcome* outcome) noexcept nogil:
    cdef ProduceState* state = <ProduceState*>parked
    cdef int64_t now_ns
    outcome_clear(outcome)
    state.frame.gathers = False
    remove_waiters(state, state.stage == PRODUCE_APPEND)
    if timed_out and state.stage == PRODUCE_APPEND and state.look_ns:
        # The end of a stop comes earlier.
        now_ns = monotonic_ns()
        timed_out = now_ns < state.look_ns or now_ns >= state.segment_deadline_ns
    run(plane, state, timed_out, outcome)


cdef void produce_work(void* parked) noexcept nogil:
    cdef ProduceState* state = <ProduceState*>parked
    cdef ProducePartition* partition
    cdef size_t i
    for i in range(state.partitions.size()):
        partition = &state.partitions[i]
        if not partition.for_worker:
            continue
        partition.for_worker = False
        if check_by_worker(<uint8_t*>partition.records, partition.records_size, &partition.result.rules,
                           &partition.result) == ERROR_NONE:
            partition.checked = True
        else:
            append_refused(partition.log, partition.records_size)
            produce_refused(partition, &partition.result)


cdef void produce_cancel(DataPlaneState* plane, void* parked) noexcept nogil:
    cdef ProduceState* state = <ProduceState*>parked
    remove_waiters(state, False)
    state_free(state)
