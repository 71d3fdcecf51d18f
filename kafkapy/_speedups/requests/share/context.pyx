"""Sessions of ShareFetch and ShareAcknowledge (Kafka's SharePartitionManager.newContext and acknowledgeSessionUpdate).

    session epoch 0     ShareFetch: a new session with the named partitions, in place of an older one; acknowledgements
                        are refused (INVALID_REQUEST). ShareAcknowledge: INVALID_SHARE_SESSION_EPOCH
    session epoch -1    acknowledgements only; then the session ends and the member's records are released
    other               the next epoch of the session. ShareFetch adds the named partitions to it and removes the
                        forgotten ones; it fetches all of the session
"""

from libc.stdint cimport int64_t, uint64_t
from libcpp.string cimport string
from libcpp.vector cimport vector

from kafkapy._speedups.base.error_codes cimport (
    ERROR_INVALID_REQUEST,
    ERROR_INVALID_SHARE_SESSION_EPOCH,
    ERROR_NONE,
    ERROR_SHARE_SESSION_LIMIT_REACHED,
    ERROR_SHARE_SESSION_NOT_FOUND,
)
from kafkapy._speedups.base.posix cimport monotonic_ns, pthread_mutex_lock, pthread_mutex_unlock
from kafkapy._speedups.requests.data_plane cimport ConnectionEnd
from kafkapy._speedups.requests.fetch_session cimport (
    FINAL_EPOCH,
    CachedPartition,
    FetchPartitionRequest,
    FetchSession,
    FetchTopic,
    fetch_topic_new,
    fetch_topic_ref,
    fetch_topic_unref,
    next_session_epoch,
    session_forget,
    session_move_to_end,
    session_put,
)
from kafkapy._speedups.requests.named_partitions cimport NamedPartitions, named_begin, named_first, named_topic
from kafkapy._speedups.requests.partition_table cimport topic_name_of
from kafkapy._speedups.requests.share.decode cimport share_part_init
from kafkapy._speedups.requests.share.session cimport (
    ShareSessionPointer,
    share_connection_forget,
    share_session_find,
    share_session_open,
    share_session_remove,
    share_session_touch,
    share_sessions_take,
)
from kafkapy._speedups.requests.share.state cimport (
    INITIAL_SHARE_EPOCH,
    MAX_PARTITIONS,
    SharePart,
    closes_session,
)
from kafkapy._speedups.requests.share.entries cimport (
    RELEASES_A_TURN,
    ShareTableState,
    release_session,
    release_sessions,
    share_group_emptied,
    share_table,
)

cdef enum:
    TOPIC_ID_SIZE = 16
    NS_PER_MS = 1000000
    ANSWERED_ERROR = 1              # CachedPartition.high_watermark: the last answer had an error; else -1


cdef void connection_over(DataPlaneState* plane, ConnectionEnd* end) noexcept nogil:
    """Ends the sessions of a connection."""
    cdef ShareTableState* table = share_table(plane)
    cdef vector[ShareSessionPointer] taken
    cdef vector[string] emptied
    if table != NULL:
        share_sessions_take(&table.sessions, end, 0, 0, &taken, &emptied)
        release_sessions(table, &taken, &emptied)
    share_connection_forget(end)


cdef void resolve_names(DataPlaneState* plane, ShareState* state) noexcept nogil:
    """Finds names for the ids of this request; no other request shares its topics yet."""
    cdef FetchTopic* topic
    cdef size_t i
    for i in range(state.parts.size()):
        topic = state.parts[i].topic
        if topic.name.empty() and (i == 0 or topic != state.parts[i - 1].topic):
            topic_name_of(plane.partitions, topic.topic_id, &topic.name)


cdef void put_partitions(ShareState* state, FetchSession* session) noexcept nogil:
    """Changes the session as the request says, under its mutex."""
    cdef FetchPartitionRequest request
    cdef size_t i
    request.current_leader_epoch = -1
    request.fetch_offset = -1
    request.last_fetched_epoch = -1
    request.log_start_offset = -1
    request.max_bytes = 0
    for i in range(state.parts.size()):
        request.partition = state.parts[i].partition
        session_put(session, state.parts[i].topic, &request)
    if state.session_epoch == INITIAL_SHARE_EPOCH:
        return
    for i in range(state.forgotten.size()):
        session_forget(session, state.forgotten[i].topic, state.forgotten[i].partition)


cdef void take_partitions(DataPlaneState* plane, ShareState* state, FetchSession* session) noexcept nogil:
    """Takes all partitions of the session into this request, under the session's mutex."""
    cdef NamedPartitions named
    cdef SharePart part
    cdef CachedPartition* cached
    cdef FetchTopic* resolved
    cdef FetchTopic* topic = NULL
    cdef uint64_t hashed = 0
    cdef size_t first
    cdef size_t i
    named_begin(&named, state.parts.size() + session.by_key.size())
    for i in range(state.parts.size()):
        if state.parts[i].topic != topic:
            topic = state.parts[i].topic
            hashed = named_topic(&named, topic.topic_id, TOPIC_ID_SIZE)
        named_first(&named, topic.topic_id, TOPIC_ID_SIZE, hashed, state.parts[i].partition)
    state.parts.reserve(state.parts.size() + session.by_key.size())
    cached = session.first
    while cached != NULL:
        if cached.topic.name.empty():
            # Requests share topics, so a topic that has just got its name is a new object.
            resolved = fetch_topic_new(NULL, 0, cached.topic.topic_id)
            if topic_name_of(plane.partitions, resolved.topic_id, &resolved.name):
                fetch_topic_unref(cached.topic)
                cached.topic = resolved
            else:
                fetch_topic_unref(resolved)
        if cached.topic != topic:
            topic = cached.topic
            hashed = named_topic(&named, topic.topic_id, TOPIC_ID_SIZE)
        first = named_first(&named, topic.topic_id, TOPIC_ID_SIZE, hashed, cached.request.partition)
        state.order.push_back(min(first, state.parts.size()))
        if first < state.parts.size():
            state.parts[first].fetched = True
            state.parts[first].cached = cached
            if state.parts[first].topic.name.empty() and not cached.topic.name.empty():
                fetch_topic_unref(state.parts[first].topic)
                state.parts[first].topic = fetch_topic_ref(cached.topic)
        else:
            share_part_init(&part)
            part.topic = fetch_topic_ref(cached.topic)
            part.partition = cached.request.partition
            part.fetched = True
            part.cached = cached
            state.parts.push_back(part)
        cached = cached.next


cdef void open_new(DataPlaneState* plane, ShareState* state) noexcept nogil:
    cdef ShareTableState* table = share_table(plane)
    cdef int64_t now_ms = monotonic_ns() // NS_PER_MS
    if state.acknowledges:
        state.error = ERROR_INVALID_REQUEST
        return
    if state.frame.end != NULL:
        state.frame.end.call = connection_over
    state.session = share_session_open(&table.sessions, state.group, state.member, state.frame.authorization.owner,
                                       state.frame.end, now_ms)
    if state.session == NULL:
        state.error = ERROR_SHARE_SESSION_LIMIT_REACHED
        return
    pthread_mutex_lock(&state.session.partitions.mutex)
    put_partitions(state, state.session.partitions)
    take_partitions(plane, state, state.session.partitions)
    pthread_mutex_unlock(&state.session.partitions.mutex)
    note_size(plane, state, ERROR_SHARE_SESSION_LIMIT_REACHED, now_ms)


cdef void note_size(DataPlaneState* plane, ShareState* state, int error, int64_t now_ms) noexcept nogil:
    """A session that grows beyond its bounds is closed, and its records are released, as its client must hear."""
    cdef int64_t size
    pthread_mutex_lock(&state.session.partitions.mutex)
    size = <int64_t>state.session.partitions.by_key.size()
    pthread_mutex_unlock(&state.session.partitions.mutex)
    if size <= MAX_PARTITIONS and share_session_touch(&share_table(plane).sessions, state.session, size, now_ms):
        return
    share_context_close(plane, state)
    state.error = <short>error


cdef void share_context_open(DataPlaneState* plane, ShareState* state) noexcept nogil:
    cdef ShareTableState* table = share_table(plane)
    cdef FetchSession* partitions
    resolve_names(plane, state)
    if state.session_epoch == INITIAL_SHARE_EPOCH:
        if state.fetches:
            open_new(plane, state)
        else:
            state.error = ERROR_INVALID_SHARE_SESSION_EPOCH
        return
    state.session = share_session_find(&table.sessions, state.group, state.member, state.frame.authorization.owner)
    if state.session == NULL:
        state.error = ERROR_SHARE_SESSION_NOT_FOUND
        return
    if closes_session(state):
        return
    partitions = state.session.partitions
    pthread_mutex_lock(&partitions.mutex)
    if partitions.epoch == FINAL_EPOCH:
        state.error = ERROR_SHARE_SESSION_NOT_FOUND
    elif partitions.epoch != state.session_epoch:
        state.error = ERROR_INVALID_SHARE_SESSION_EPOCH
    else:
        partitions.epoch = next_session_epoch(partitions.epoch)
        if state.fetches:
            put_partitions(state, partitions)
            if partitions.by_key.size() <= MAX_PARTITIONS:
                take_partitions(plane, state, partitions)
    pthread_mutex_unlock(&partitions.mutex)
    if state.error == ERROR_NONE:
        note_size(plane, state, ERROR_SHARE_SESSION_NOT_FOUND, monotonic_ns() // NS_PER_MS)


cdef void share_context_close(DataPlaneState* plane, ShareState* state) noexcept nogil:
    cdef ShareTableState* table = share_table(plane)
    cdef size_t at_once = RELEASES_A_TURN
    cdef bint emptied = False
    cdef bint removed = share_session_remove(&table.sessions, state.session, &emptied)
    if not removed:
        return
    release_session(table, state.session, &at_once)
    if emptied:
        share_group_emptied(table, state.group)


cdef void share_context_answer(ShareState* state) noexcept nogil:
    cdef FetchSession* session
    cdef SharePart* part
    cdef bint current
    cdef size_t i
    if state.session == NULL or not state.fetches or closes_session(state):
        return
    session = state.session.partitions
    pthread_mutex_lock(&session.mutex)
    current = session.epoch == next_session_epoch(state.session_epoch)
    for i in range(state.parts.size()):
        part = &state.parts[i]
        if not part.fetched:
            continue
        if part.length > 0 or part.error != ERROR_NONE:
            part.answered = True
        if not current:
            continue                # the cached partitions may be gone
        if part.cached.high_watermark == ANSWERED_ERROR:
            part.answered = True
        part.cached.high_watermark = ANSWERED_ERROR if part.error != ERROR_NONE else -1
        if part.length > 0:
            session_move_to_end(session, part.cached)
    pthread_mutex_unlock(&session.mutex)
