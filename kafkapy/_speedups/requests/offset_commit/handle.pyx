"""OffsetCommit (api key 8), versions 2 to 10, of groups that have a lease (see lease.pxd).

A request that does not end in an offset stored for each of its partitions is Python's (OUTCOME_PYTHON), which serves it
from the start: a body that cannot be decoded, a group without a lease, a client that may not read the group or a topic,
a member or partition that the lease does not know. The only answer here is success. A small request may be gathered
with others of its log (OUTCOME_GATHERED).

    group id            string
    generation          int32, or member epoch
    member id           string
    v7: instance id     nullable string
    v2 to v4: retention int64 ms
    topics              array
      topic             name string | v10: id uuid
      partitions        array: index int32 | offset int64 | v6: leader epoch int32 | metadata nullable string

From version 8 on the encoding is flexible. Source: Kafka's KafkaApis.handleOffsetCommitRequest.
"""

from libc.stdint cimport int32_t, uint8_t
from libcpp.string cimport string
from libcpp.unordered_set cimport unordered_set

from kafkapy._speedups.base.posix cimport atomic_load
from kafkapy._speedups.base.seeded_hash cimport SeededHash
from kafkapy._speedups.base.send cimport Send, send_again, send_free, send_lay_out, send_new, send_take_buffer
from kafkapy._speedups.base.wire cimport (
    ByteBuffer,
    Cursor,
    buffer_free,
    cursor_init,
    extend,
    read_array_length,
    read_int32,
    read_int64,
    read_string,
    remaining,
    skip_tagged_fields,
    store_int32,
    take,
    write_array_length,
    write_int8,
    write_int16,
    write_int32,
    write_raw,
    write_string,
    write_unsigned_varint,
)
from kafkapy._speedups.requests.authorization cimport (
    DECISION_ALLOWED,
    DECISION_DENIED,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    Decision,
    authorization_check,
    authorization_trim,
)
from kafkapy._speedups.requests.client_quotas cimport quota_charge_request
from kafkapy._speedups.requests.data_plane cimport (
    ASK_AUTHORIZE,
    GROUP_MEMBERS,
    OPERATION_READ,
    OUTCOME_ASK,
    OUTCOME_CLOSE,
    OUTCOME_GATHERED,
    OUTCOME_PYTHON,
    OUTCOME_REPLY,
    OUTCOME_RESUME,
    Ask,
    left_is_mine,
    outcome_clear,
)
from kafkapy._speedups.requests.offset_commit.lease cimport (
    COMMIT_PARTITIONS,
    CommitLeaseState,
    CommitRequest,
    CommittedPartition,
    CommittedTopic,
    CommitTableState,
    commit_lease_find,
    commit_lease_unref,
)
from kafkapy._speedups.requests.offset_commit.store cimport Commit, commit_store, commit_topic_name

cdef enum:
    OLDEST = 2
    LAST_WITH_RETENTION = 4
    FIRST_WITH_THROTTLE = 3
    FIRST_WITH_LEADER_EPOCH = 6
    FIRST_WITH_INSTANCE = 7
    FIRST_FLEXIBLE = 8
    FIRST_WITH_TOPIC_ID = 10
    TOPIC_ID_SIZE = 16
    SIZE_BYTES = 4
    NO_RETENTION = -1
    GATHERED_PARTITIONS = 16

cdef const char* OUT_OF_MEMORY = b"no memory for an OffsetCommit reply"

cdef cppclass CommitState:
    """A request while its authorization is asked, or others of its log are gathered."""
    Frame frame                     # a copy; the Processor owns its memory, which outlives this
    CommitLeaseState* lease         # referenced
    CommitRequest request
    unordered_set[string, SeededHash] asked
    Ask ask


# ---- the request -----------------------------------------------------------------------------------------------------

cdef bint read_partitions(Cursor* c, CommitRequest* request, int32_t count) noexcept nogil:
    cdef CommittedPartition each
    cdef bint flexible = request.version >= FIRST_FLEXIBLE
    cdef int32_t i
    each.slot = 0
    for i in range(count):
        each.partition = read_int32(c)
        each.offset = read_int64(c)
        each.leader_epoch = read_int32(c) if request.version >= FIRST_WITH_LEADER_EPOCH else -1
        each.metadata = read_string(c, flexible, &each.metadata_size)
        if flexible:
            skip_tagged_fields(c)
        if c.error:
            return False
        request.partitions.push_back(each)
    return True


cdef bint read_topics(Cursor* c, CommitRequest* request) noexcept nogil:
    cdef CommittedTopic topic
    cdef bint flexible = request.version >= FIRST_FLEXIBLE
    cdef int32_t count = read_array_length(c, flexible)
    cdef int32_t partitions, i
    if c.error or not 0 < count <= COMMIT_PARTITIONS:
        return False
    for i in range(count):
        if request.by_id:
            topic.size = TOPIC_ID_SIZE
            topic.name = take(c, TOPIC_ID_SIZE)
        else:
            topic.name = read_string(c, flexible, &topic.size)
        partitions = read_array_length(c, flexible)
        if c.error or partitions <= 0 or topic.size <= 0:
            return False
        if partitions > COMMIT_PARTITIONS - <int32_t>request.partitions.size():
            return False
        topic.count = <size_t>partitions
        request.topics.push_back(topic)
        if not read_partitions(c, request, partitions):
            return False
        if flexible:
            skip_tagged_fields(c)
    return not c.error


cdef bint decode(const Frame* frame, CommitRequest* request) noexcept nogil:
    """False: Python says what is wrong, or serves what is odd or large."""
    cdef Cursor c
    cdef bint flexible = frame.api_version >= FIRST_FLEXIBLE
    request.version = frame.api_version
    request.by_id = frame.api_version >= FIRST_WITH_TOPIC_ID
    cursor_init(&c, frame.body, frame.body_size)
    request.group = read_string(&c, flexible, &request.group_size)
    request.generation = read_int32(&c)
    request.member = read_string(&c, flexible, &request.member_size)
    request.instance = NULL
    request.instance_size = -1
    if frame.api_version >= FIRST_WITH_INSTANCE:
        request.instance = read_string(&c, flexible, &request.instance_size)
    if frame.api_version <= LAST_WITH_RETENTION and read_int64(&c) != NO_RETENTION:
        return False
    if c.error or request.group_size < 0 or request.member_size < 0 or not read_topics(&c, request):
        return False
    if flexible:
        skip_tagged_fields(&c)
    return not c.error and remaining(&c) == 0


# ---- the answer ------------------------------------------------------------------------------------------------------

cdef Send* reply(const Frame* frame, const CommitRequest* request, int32_t throttle_ms) noexcept nogil:
    """No error for each partition. NULL: no memory."""
    cdef bint flexible = frame.api_version >= FIRST_FLEXIBLE
    cdef const CommittedTopic* topic
    cdef ByteBuffer out
    cdef Send* send = send_again(&frame.left.send) if left_is_mine(frame.left) else send_new()
    cdef size_t next_one = 0, i, j
    send_lay_out(send, &out)
    extend(&out, SIZE_BYTES)
    write_int32(&out, frame.correlation_id)
    if flexible:
        write_unsigned_varint(&out, 0)
    if frame.api_version >= FIRST_WITH_THROTTLE:
        write_int32(&out, throttle_ms)
    write_array_length(&out, <int32_t>request.topics.size(), flexible)
    for i in range(request.topics.size()):
        topic = &request.topics[i]
        if request.by_id:
            write_raw(&out, topic.name, TOPIC_ID_SIZE)
        else:
            write_string(&out, topic.name, topic.size, flexible)
        write_array_length(&out, <int32_t>topic.count, flexible)
        for j in range(topic.count):
            write_int32(&out, request.partitions[next_one].partition)
            next_one += 1
            write_int16(&out, 0)
            if flexible:
                write_int8(&out, 0)
        if flexible:
            write_int8(&out, 0)
    if flexible:
        write_int8(&out, 0)
    if out.error:
        buffer_free(&out)
        send_free(send)
        return NULL
    send_take_buffer(send, &out)
    if send.pieces[0].data == NULL:
        send_free(send)
        return NULL
    store_int32(send.pieces[0].data, <int32_t>(send.size - SIZE_BYTES))
    return send


cdef void answer(CommitState* state, Outcome* outcome) noexcept nogil:
    cdef int32_t throttle_ms = 0
    if state.frame.quota != NULL:
        quota_charge_request(state.frame.quota)
        throttle_ms = <int32_t>state.frame.quota.throttle_ms
    outcome.send = reply(&state.frame, &state.request, throttle_ms)
    outcome.kind = OUTCOME_REPLY
    if outcome.send == NULL:
        outcome.kind = OUTCOME_CLOSE
        outcome.message = OUT_OF_MEMORY


# ---- from the request to the answer ----------------------------------------------------------------------------------

cdef Decision authorize(DataPlaneState* plane, const CommitLeaseState* lease, CommitState* state) noexcept nogil:
    """Whether the client may read the group and all topics. Denied also for a topic that the lease does not know."""
    cdef Decision decision
    cdef const string* name
    cdef size_t i
    state.asked.clear()
    state.ask.questions.clear()
    decision = authorization_check(plane, state.frame.authorization, OPERATION_READ, RESOURCE_GROUP,
                                   state.request.group, <size_t>state.request.group_size, &state.asked,
                                   &state.ask.questions)
    for i in range(state.request.topics.size()):
        name = commit_topic_name(lease, &state.request, &state.request.topics[i])
        if decision == DECISION_DENIED or name == NULL:
            return DECISION_DENIED
        if authorization_check(plane, state.frame.authorization, OPERATION_READ, RESOURCE_TOPIC, name.data(),
                               name.size(), &state.asked, &state.ask.questions) == DECISION_DENIED:
            return DECISION_DENIED
    return DECISION_ALLOWED


cdef void state_free(CommitState* state) noexcept nogil:
    commit_lease_unref(state.lease)
    del state


cdef void end(CommitState* state, bint stored, Outcome* outcome) noexcept nogil:
    """Answers, or leaves the request to Python. Consumes the state."""
    if stored:
        answer(state, outcome)
    else:
        outcome.kind = OUTCOME_PYTHON
    authorization_trim(state.frame.authorization)
    state_free(state)


cdef bint gathers(const CommitState* state) noexcept nogil:
    """Whether the commit may share a batch with others. Many partitions would fill it."""
    return (state.frame.gathers and state.frame.quota == NULL and not atomic_load(&state.lease.ended)
            and state.request.partitions.size() <= GATHERED_PARTITIONS)


cdef void run(DataPlaneState* plane, CommitState* state, Outcome* outcome) noexcept nogil:
    """Consumes the state, unless it asks or is gathered."""
    cdef Decision decision = authorize(plane, state.lease, state)
    cdef Commit commit
    if decision == DECISION_ALLOWED and not state.ask.questions.empty():
        state.ask.kind = ASK_AUTHORIZE
        outcome.kind = OUTCOME_ASK
        outcome.ask = &state.ask
        outcome.parked = state
        return
    if decision == DECISION_ALLOWED and gathers(state):
        outcome.kind = OUTCOME_GATHERED
        outcome.group = state.lease.log
        outcome.parked = state
        return
    commit.stored = False
    if decision == DECISION_ALLOWED:
        commit.lease = state.lease
        commit.request = &state.request
        commit_store(<CommitTableState*>plane.commits, &commit, 1)
    end(state, commit.stored, outcome)


cdef void commit_handle(DataPlaneState* plane, Frame* frame, Outcome* outcome) noexcept nogil:
    cdef CommitLeaseState* lease = NULL
    cdef CommitState* state
    outcome_clear(outcome)
    outcome.kind = OUTCOME_PYTHON
    if plane.commits == NULL or frame.api_version < OLDEST:
        return
    lease = lease_of(plane, frame)
    if lease == NULL:
        return
    state = new CommitState()
    state.frame = frame[0]
    state.lease = lease
    if decode(frame, &state.request):
        run(plane, state, outcome)
    else:
        state_free(state)


cdef CommitLeaseState* lease_of(DataPlaneState* plane, const Frame* frame) noexcept nogil:
    """The lease of the request's group: most that Python serves need no more than its name."""
    cdef Cursor c
    cdef int32_t size = -1
    cdef const uint8_t* group
    cursor_init(&c, frame.body, frame.body_size)
    group = read_string(&c, frame.api_version >= FIRST_FLEXIBLE, &size)
    if c.error or size < 0:
        return NULL
    return commit_lease_find(<CommitTableState*>plane.commits, group, size)


cdef void commit_resume(DataPlaneState* plane, void* parked, bint timed_out, Outcome* outcome) noexcept nogil:
    cdef CommitState* state = <CommitState*>parked
    outcome_clear(outcome)
    state.frame.gathers = False
    run(plane, state, outcome)


cdef void commit_settle(DataPlaneState* plane, void** parked, size_t count, Outcome* outcomes) noexcept nogil:
    cdef Commit commits[GROUP_MEMBERS]
    cdef CommitState* state
    cdef size_t i
    for i in range(count):
        state = <CommitState*>parked[i]
        commits[i].lease = state.lease
        commits[i].request = &state.request
    commit_store(<CommitTableState*>plane.commits, commits, count)
    for i in range(count):
        outcome_clear(&outcomes[i])
        if commits[i].stored:
            end(<CommitState*>parked[i], True, &outcomes[i])
        else:
            outcomes[i].kind = OUTCOME_RESUME
            outcomes[i].parked = parked[i]


cdef void commit_cancel(DataPlaneState* plane, void* parked) noexcept nogil:
    state_free(<CommitState*>parked)
