"""ShareFetch and ShareAcknowledge (api keys 78, 79), versions 1 and 2: authorize, session, acknowledge, fetch, reply.

Source: Kafka's KafkaApis.handleShareFetchRequest and handleShareAcknowledgeRequest, DelayedShareFetch.

Group and topics need READ. The session comes next (context.pyx), then the acknowledgements, then the records of the
session's partitions, in the session's order: partitions with records go to its end. A fetch without records waits in
the queues of its share partitions (entries.pxd) until one of them wakes it, or max wait is over. With more than one
byte of min bytes it first counts what is readable.

The reply waits for the share coordinator, which stores the acknowledgements; records may be acquired meanwhile.

The Processor serves other connections after every TRIES_A_TURN partitions.
"""

from libc.stdint cimport INT64_MAX, int16_t, int64_t
from kafkapy._speedups.base.error_codes cimport (
    ERROR_GROUP_AUTHORIZATION_FAILED,
    ERROR_INVALID_REQUEST,
    ERROR_NONE,
    ERROR_REQUEST_TIMED_OUT,
    ERROR_SHARE_SESSION_LIMIT_REACHED,
    ERROR_TOPIC_AUTHORIZATION_FAILED,
    ERROR_UNKNOWN_TOPIC_ID,
    ERROR_UNSUPPORTED_VERSION,
)
from kafkapy._speedups.base.posix cimport atomic_count, atomic_load, monotonic_ns
from kafkapy._speedups.protocol.data_plane_versions cimport (
    SHARE_ACKNOWLEDGE_NEWEST,
    SHARE_ACKNOWLEDGE_OLDEST,
    SHARE_FETCH_NEWEST,
    SHARE_FETCH_OLDEST,
)
from kafkapy._speedups.requests.authorization cimport (
    DECISION_ALLOWED,
    DECISION_DENIED,
    DECISION_UNKNOWN,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    Decision,
    authorization_check,
    authorization_trim,
)
from kafkapy._speedups.requests.client_quotas cimport quota_fetch_limit
from kafkapy._speedups.requests.data_plane cimport (
    API_SHARE_FETCH,
    ASK_AUTHORIZE,
    OPERATION_READ,
    OUTCOME_ASK,
    OUTCOME_CLOSE,
    OUTCOME_PARKED,
    OUTCOME_REPLY,
    outcome_clear,
)
from kafkapy._speedups.requests.fetch_session cimport FetchTopic, fetch_topic_unref
from kafkapy._speedups.requests.share.acknowledge cimport share_acknowledge_part, share_take_answer
from kafkapy._speedups.requests.share.acquire cimport share_read_release, share_try
from kafkapy._speedups.requests.share.context cimport share_context_answer, share_context_close, share_context_open
from kafkapy._speedups.requests.share.decode cimport share_decode
from kafkapy._speedups.requests.share.reply cimport share_charge, share_response_build
from kafkapy._speedups.requests.share.session cimport share_session_unref
from kafkapy._speedups.requests.share.state cimport (
    STAGE_ACKNOWLEDGE,
    STAGE_FETCH,
    STAGE_GROUP,
    STAGE_REFUSED,
    STAGE_TOPICS,
    STAGE_WAIT,
    STAGE_WRITE,
    SharePart,
    ShareState,
    closes_session,
)
from kafkapy._speedups.requests.share.entries cimport (
    entry_unref,
    share_leave,
    share_settle,
    share_table,
    share_ticket_drop,
    share_wait,
)
from kafkapy._speedups.share.layout cimport ACQUIRE_BATCH_OPTIMIZED, ACQUIRE_RECORD_LIMIT

cdef enum:
    TRIES_A_TURN = 256                  # partitions, before other connections have their turn
    TRIES_A_LOOK = 8                    # at the clock
    TURN_NS = 2000000                   # of acknowledgements that are stored at once, each with a write to a log
    MAX_LOOKS = 8                       # at share partitions that change faster than a fetch looks
    MAX_WAIT_MS = 600000                # of a parked request: the default of connections.max.idle.ms
    MAX_MEMBER_ID = 36                  # bytes: a UUID as text
    NS_PER_MS = 1000000

cdef const char* UNSUPPORTED = b"a share group request of a version that is not served"
cdef const char* MALFORMED = b"a share group request that cannot be decoded"
cdef const char* NO_REPLY = b"a share group reply cannot be built: no memory, or more than a frame holds"


# ---- the state -------------------------------------------------------------------------------------------------------

cdef ShareState* state_new(DataPlaneState* plane, Frame* frame) noexcept nogil:
    cdef ShareState* state = new ShareState()
    state.frame = frame[0]
    state.stage = STAGE_GROUP
    state.fetches = frame.api_key == API_SHARE_FETCH
    state.error = ERROR_NONE
    state.has_group = state.has_member = False
    state.session_epoch = 0
    state.max_wait_ms = state.min_bytes = state.max_bytes = state.max_records = state.batch_size = 0
    state.acquire_mode = ACQUIRE_BATCH_OPTIMIZED
    state.renews = False
    state.acknowledges = False
    state.session = NULL
    state.ask.kind = ASK_AUTHORIZE
    state.deadline_ns = 0
    state.unwritten = 0
    state.counts = False
    state.next = 0
    state.final = False
    state.limit = state.records_left = state.accumulated = 0
    state.lock_ms = <int>atomic_load(&share_table(plane).lock_ms)
    state.quota_bytes = INT64_MAX
    state.throttle_ms = 0
    return state


cdef void leave_queues(ShareState* state) noexcept nogil:
    cdef SharePart* part
    cdef size_t i
    for i in range(state.parts.size()):
        part = &state.parts[i]
        if part.waiter.wake != NULL:
            share_leave(part.entry, &part.waiter)


cdef void settle_all(DataPlaneState* plane, ShareState* state) noexcept nogil:
    """After this fetch: the next one that waits has its turn."""
    cdef size_t i
    for i in range(state.parts.size()):
        if state.parts[i].fetched and state.parts[i].entry != NULL:
            share_settle(share_table(plane), state.parts[i].entry)


cdef void drop_tickets(ShareState* state, int16_t error) noexcept nogil:
    cdef SharePart* part
    cdef size_t i
    for i in range(state.parts.size()):
        part = &state.parts[i]
        if part.ticket.ticket > 0:
            share_ticket_drop(part.entry, &part.ticket, error)


cdef void state_free(ShareState* state) noexcept nogil:
    cdef SharePart* part
    cdef size_t i
    for i in range(state.parts.size()):
        part = &state.parts[i]
        share_read_release(part)
        entry_unref(part.entry)
        fetch_topic_unref(part.topic)
    for i in range(state.forgotten.size()):
        fetch_topic_unref(state.forgotten[i].topic)
    share_session_unref(state.session)
    del state


# ---- authorization ---------------------------------------------------------------------------------------------------

cdef bint ask(ShareState* state, Outcome* outcome) noexcept nogil:
    if state.ask.questions.empty():
        return False
    outcome.kind = OUTCOME_ASK
    outcome.ask = &state.ask
    outcome.parked = state
    return True


cdef bint authorize_group(DataPlaneState* plane, ShareState* state, Outcome* outcome) noexcept nogil:
    """False when a question must be asked first."""
    cdef Decision decision
    state.asked.clear()
    state.ask.questions.clear()
    decision = authorization_check(plane, state.frame.authorization, OPERATION_READ, RESOURCE_GROUP,
                                   state.group.data(), state.group.size(), &state.asked, &state.ask.questions)
    if decision == DECISION_UNKNOWN:
        return not ask(state, outcome)
    if decision == DECISION_DENIED:
        state.error = ERROR_GROUP_AUTHORIZATION_FAILED
    return True


cdef bint authorize_topics(DataPlaneState* plane, ShareState* state, Outcome* outcome) noexcept nogil:
    cdef SharePart* part
    cdef FetchTopic* previous = NULL
    cdef Decision decision = DECISION_ALLOWED
    cdef size_t i
    state.asked.clear()
    state.ask.questions.clear()
    for i in range(state.parts.size()):
        part = &state.parts[i]
        if part.topic != previous:
            previous = part.topic
            decision = DECISION_ALLOWED         # an unknown id does not reveal a topic
            if not previous.name.empty():
                decision = authorization_check(plane, state.frame.authorization, OPERATION_READ, RESOURCE_TOPIC,
                                               previous.name.data(), previous.name.size(), &state.asked,
                                               &state.ask.questions)
        part.denied = decision == DECISION_DENIED
    return not ask(state, outcome)


cdef int16_t check(ShareState* state) noexcept nogil:
    """Checks what Kafka checks between the group's authorization and the session."""
    if not state.has_member or state.member.empty() or state.member.size() > MAX_MEMBER_ID:
        return ERROR_INVALID_REQUEST
    if state.fetches and state.renews and (state.max_wait_ms or state.min_bytes or state.max_bytes
                                           or state.max_records):
        return ERROR_INVALID_REQUEST
    if state.acquire_mode != ACQUIRE_BATCH_OPTIMIZED and state.acquire_mode != ACQUIRE_RECORD_LIMIT:
        return ERROR_INVALID_REQUEST
    return ERROR_NONE


cdef void let_others(ShareState* state, Outcome* outcome) noexcept nogil:
    """Parks the request until the Processor's next turn: other connections are served now."""
    state.frame.wake(state.frame.wake_owner, state.frame.token)
    outcome.kind = OUTCOME_PARKED
    outcome.parked = state
    outcome.deadline_ns = monotonic_ns() + <int64_t>MAX_WAIT_MS * NS_PER_MS


# ---- acknowledgements ------------------------------------------------------------------------------------------------

cdef void begin_acknowledging(DataPlaneState* plane, ShareState* state) noexcept nogil:
    state.stage = STAGE_ACKNOWLEDGE
    state.next = state.parts.size()
    if state.acknowledges or not state.fetches:
        state.next = 0
        atomic_count(&share_table(plane).counters.acknowledgements, 1)


cdef bint acknowledge_some(DataPlaneState* plane, ShareState* state, Outcome* outcome) noexcept nogil:
    """Acknowledges in at most TRIES_A_TURN partitions, and no further after TURN_NS. False when the request was parked
    before the last one."""
    cdef SharePart* part
    cdef int tries = 0
    cdef int64_t until = monotonic_ns() + TURN_NS
    while state.next < state.parts.size():
        if tries == TRIES_A_TURN or (tries % TRIES_A_LOOK == TRIES_A_LOOK - 1 and monotonic_ns() > until):
            let_others(state, outcome)
            return False
        part = &state.parts[state.next]
        state.next += 1
        if part.named:
            tries += 1
            share_acknowledge_part(plane, state, part, part.denied)
    return True


cdef bint wait_for_writes(ShareState* state, bint timed_out, Outcome* outcome) noexcept nogil:
    """False when the request was parked."""
    cdef size_t i
    if atomic_load(&state.unwritten) > 0:
        if not timed_out:
            outcome.kind = OUTCOME_PARKED
            outcome.parked = state
            outcome.deadline_ns = monotonic_ns() + <int64_t>MAX_WAIT_MS * NS_PER_MS
            return False
        drop_tickets(state, ERROR_REQUEST_TIMED_OUT)
    for i in range(state.parts.size()):
        share_take_answer(&state.parts[i])
    return True


# ---- records ---------------------------------------------------------------------------------------------------------

cdef bint wants_records(ShareState* state) noexcept nogil:
    cdef SharePart* part
    cdef size_t i
    if not state.fetches or state.renews or closes_session(state):
        return False
    for i in range(state.parts.size()):
        part = &state.parts[i]
        if not part.fetched:
            continue
        if part.topic.name.empty():
            part.refused = True
            part.error = ERROR_UNKNOWN_TOPIC_ID
        elif part.denied:
            part.refused = True
            part.error = ERROR_TOPIC_AUTHORIZATION_FAILED
    return state.max_records > 0


cdef int64_t reply_limit(DataPlaneState* plane, ShareState* state) noexcept nogil:
    return max(min(<int64_t>min(state.max_bytes, plane.fetch_max_bytes), state.quota_bytes), <int64_t>0)


cdef void begin_tries(DataPlaneState* plane, ShareState* state, bint counts) noexcept nogil:
    state.stage = STAGE_FETCH
    state.counts = counts
    state.next = 0
    state.limit = reply_limit(plane, state)
    state.records_left = state.max_records
    state.accumulated = 0


cdef bint try_some(DataPlaneState* plane, ShareState* state, Outcome* outcome) noexcept nogil:
    """Tries the partitions, at most TRIES_A_TURN. False when the request was parked before the last one."""
    cdef SharePart* part
    cdef int tries = 0
    while state.next < state.order.size():
        if tries == TRIES_A_TURN:
            let_others(state, outcome)
            return False
        part = &state.parts[state.order[state.next]]
        state.next += 1
        if part.refused:
            continue
        if not state.counts and state.accumulated > 0 and (state.records_left <= 0 or state.limit <= 0):
            return True
        tries += 1
        share_try(plane, state, part)
        if state.counts:
            state.accumulated += part.readable
    return True


cdef bint may_wait(ShareState* state) noexcept nogil:
    cdef size_t i
    if state.final or state.max_wait_ms <= 0:
        return False
    for i in range(state.order.size()):
        if state.parts[state.order[i]].waits and not state.parts[state.order[i]].refused:
            return True
    return False


cdef bint enter_queues(DataPlaneState* plane, ShareState* state) noexcept nogil:
    """False when something has changed since a partition was tried."""
    cdef SharePart* part
    cdef size_t i
    for i in range(state.order.size()):
        part = &state.parts[state.order[i]]
        if not part.waits or part.refused:
            continue
        part.waiter.wake = state.frame.wake
        part.waiter.owner = state.frame.wake_owner
        part.waiter.token = state.frame.token
        if not share_wait(part.entry, &part.waiter):
            return False
    for i in range(state.order.size()):
        part = &state.parts[state.order[i]]
        if part.waits and not part.refused:
            share_settle(share_table(plane), part.entry)
    return True


cdef bint fetch(DataPlaneState* plane, ShareState* state, Outcome* outcome) noexcept nogil:
    """Acquires records, or waits for them. False when the request was parked."""
    cdef int64_t min_bytes = min(<int64_t>state.min_bytes, reply_limit(plane, state))
    cdef int looks = 0
    while True:
        if not try_some(plane, state, outcome):
            return False
        if state.counts:
            if state.accumulated >= min_bytes or not may_wait(state):
                begin_tries(plane, state, False)
                continue
        elif state.accumulated > 0 or not may_wait(state):
            settle_all(plane, state)
            return True
        if state.deadline_ns == 0:
            state.deadline_ns = monotonic_ns() + <int64_t>min(state.max_wait_ms, <int>MAX_WAIT_MS) * NS_PER_MS
        outcome.kind = OUTCOME_PARKED
        outcome.parked = state
        outcome.deadline_ns = state.deadline_ns
        if enter_queues(plane, state):
            state.stage = STAGE_WAIT
            return False
        leave_queues(state)
        looks += 1
        if looks == MAX_LOOKS:
            # Others are faster than this loop: the Processor's next turn looks again.
            state.stage = STAGE_WAIT
            state.frame.wake(state.frame.wake_owner, state.frame.token)
            return False
        begin_tries(plane, state, min_bytes > 1)


# ---- from stage to stage ---------------------------------------------------------------------------------------------

cdef void finish(DataPlaneState* plane, ShareState* state, Outcome* outcome) noexcept nogil:
    cdef bint failed
    cdef size_t i
    if state.error == ERROR_NONE:
        share_context_answer(state)
    failed = state.error != ERROR_NONE
    for i in range(state.parts.size()):
        if state.parts[i].error != ERROR_NONE or state.parts[i].acknowledge_error != ERROR_NONE:
            failed = True
            break
    if failed:
        atomic_count(&plane.apis[state.frame.api_key].errors, 1)
    share_charge(state)
    outcome.send = share_response_build(plane, state)
    if outcome.send == NULL:
        outcome.kind = OUTCOME_CLOSE
        outcome.message = NO_REPLY
    else:
        outcome.kind = OUTCOME_REPLY
    authorization_trim(state.frame.authorization)
    state_free(state)


cdef void run(DataPlaneState* plane, ShareState* state, bint timed_out, Outcome* outcome) noexcept nogil:
    """Runs the request from its stage as far as it can go."""
    if state.stage == STAGE_REFUSED:
        finish(plane, state, outcome)
        return
    if state.stage == STAGE_GROUP:
        if not authorize_group(plane, state, outcome):
            return
        if state.error == ERROR_NONE:
            state.error = check(state)
        if state.error == ERROR_NONE:
            share_context_open(plane, state)
        if state.error == ERROR_SHARE_SESSION_LIMIT_REACHED and state.max_wait_ms > 0:
            # The answer waits, as in Kafka, or its client would ask without a pause.
            state.stage = STAGE_REFUSED
            outcome.kind = OUTCOME_PARKED
            outcome.parked = state
            outcome.deadline_ns = monotonic_ns() + <int64_t>min(state.max_wait_ms, <int>MAX_WAIT_MS) * NS_PER_MS
            return
        if state.error != ERROR_NONE:
            finish(plane, state, outcome)
            return
        state.stage = STAGE_TOPICS
    if state.stage == STAGE_TOPICS:
        if not authorize_topics(plane, state, outcome):
            return
        begin_acknowledging(plane, state)
    if state.stage == STAGE_ACKNOWLEDGE:
        if not acknowledge_some(plane, state, outcome):
            return
        if closes_session(state):
            share_context_close(plane, state)
        if wants_records(state):
            begin_tries(plane, state, state.min_bytes > 1)
        else:
            state.stage = STAGE_WRITE
        timed_out = False
    elif state.stage == STAGE_WAIT:
        leave_queues(state)
        state.final = timed_out
        begin_tries(plane, state, state.min_bytes > 1 and not timed_out)
    if state.stage == STAGE_FETCH:
        state.final = state.final or timed_out
        if not fetch(plane, state, outcome):
            return
        state.stage = STAGE_WRITE
        timed_out = False
    if wait_for_writes(state, timed_out, outcome):
        finish(plane, state, outcome)


# ---- the contract with the Processor ---------------------------------------------------------------------------------

cdef bint is_served(const Frame* frame) noexcept nogil:
    if frame.api_key == API_SHARE_FETCH:
        return SHARE_FETCH_OLDEST <= frame.api_version <= SHARE_FETCH_NEWEST
    return SHARE_ACKNOWLEDGE_OLDEST <= frame.api_version <= SHARE_ACKNOWLEDGE_NEWEST


cdef void share_handle(DataPlaneState* plane, Frame* frame, Outcome* outcome) noexcept nogil:
    cdef ShareState* state
    outcome_clear(outcome)
    if share_table(plane) == NULL or not is_served(frame):
        outcome.message = UNSUPPORTED
        return
    state = state_new(plane, frame)
    if not share_decode(state):
        outcome.message = MALFORMED
        state_free(state)
        return
    if frame.quota != NULL:
        state.quota_bytes = quota_fetch_limit(frame.quota)
    if not atomic_load(&share_table(plane).enabled):
        state.error = ERROR_UNSUPPORTED_VERSION
    elif not state.has_group:
        state.error = ERROR_INVALID_REQUEST
    if state.error != ERROR_NONE:
        finish(plane, state, outcome)
    else:
        run(plane, state, False, outcome)


cdef void share_resume(DataPlaneState* plane, void* parked, bint timed_out, Outcome* outcome) noexcept nogil:
    outcome_clear(outcome)
    run(plane, <ShareState*>parked, timed_out, outcome)


cdef void share_cancel(DataPlaneState* plane, void* parked) noexcept nogil:
    cdef ShareState* state = <ShareState*>parked
    leave_queues(state)
    drop_tickets(state, ERROR_NONE)
    settle_all(plane, state)
    state_free(state)
