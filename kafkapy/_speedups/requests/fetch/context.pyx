"""The partitions of a Fetch: from the request, or from its session (FetchManager.newContext, KIP-227).

    session epoch 0     the request names all partitions; its session id is closed, and the reply makes a new session
                        (CONTEXT_FULL)
    session epoch -1    the same without a new session (CONTEXT_SESSIONLESS); versions 0 to 6 are always this
    other               the request changes the named session, and reads all of it (CONTEXT_INCREMENTAL)
"""

from libc.stdint cimport int16_t, int64_t

from kafkapy._speedups.base.error_codes cimport (
    ERROR_FETCH_SESSION_ID_NOT_FOUND,
    ERROR_FETCH_SESSION_TOPIC_ID_ERROR,
    ERROR_INVALID_FETCH_SESSION_EPOCH,
    ERROR_NONE,
)
from kafkapy._speedups.base.posix cimport monotonic_ns, pthread_mutex_lock, pthread_mutex_unlock
from kafkapy._speedups.requests.fetch.decode cimport fetch_partition_init, fetch_partitions_release
from kafkapy._speedups.requests.fetch.state cimport (
    CONTEXT_ERROR,
    CONTEXT_FULL,
    CONTEXT_INCREMENTAL,
    CONTEXT_SESSIONLESS,
    FetchPartition,
)
from kafkapy._speedups.requests.fetch_session cimport (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    INVALID_SESSION_ID,
    CachedPartition,
    FetchSession,
    FetchTopic,
    fetch_topic_new,
    fetch_topic_ref,
    fetch_topic_unref,
    next_session_epoch,
    session_find,
    session_forget,
    session_put,
    session_remove,
    session_touch,
    session_unref,
)
from kafkapy._speedups.requests.partition_table cimport topic_name_of

cdef enum:
    TOPIC_ID_VERSION = 13
    MAX_SESSION_PARTITIONS = 200000     # a session that grows beyond is closed: bounds the memory of one client
    NS_PER_MS = 1000000


cdef void resolve_names(DataPlaneState* plane, FetchState* state) noexcept nogil:
    """Finds names for the ids of this request; no other request shares its topics yet."""
    cdef FetchTopic* topic
    cdef size_t i
    for i in range(state.partitions.size()):
        topic = state.partitions[i].topic
        if topic.name.empty() and (i == 0 or topic != state.partitions[i - 1].topic):
            topic_name_of(plane.partitions, topic.topic_id, &topic.name)


cdef void refuse_session(FetchState* state, int16_t error) noexcept nogil:
    fetch_partitions_release(state)
    state.context = CONTEXT_ERROR
    state.error = error


cdef void take_session_partitions(DataPlaneState* plane, FetchState* state, FetchSession* session) noexcept nogil:
    """Takes all partitions of the session into this request. The caller holds the session's mutex."""
    cdef FetchPartition partition
    cdef FetchTopic* resolved
    cdef CachedPartition* cached = session.first
    fetch_partitions_release(state)
    fetch_partition_init(&partition)
    state.partitions.reserve(session.by_key.size())
    while cached != NULL:
        if cached.topic.by_id and cached.topic.name.empty():
            # Requests share topics, so a topic that has just got its name is a new object.
            resolved = fetch_topic_new(NULL, 0, cached.topic.topic_id)
            if topic_name_of(plane.partitions, resolved.topic_id, &resolved.name):
                fetch_topic_unref(cached.topic)
                cached.topic = resolved
            else:
                fetch_topic_unref(resolved)
        partition.topic = fetch_topic_ref(cached.topic)
        partition.request = cached.request
        partition.cached = cached
        state.partitions.push_back(partition)
        cached = cached.next


cdef void fetch_context_open(DataPlaneState* plane, FetchState* state) noexcept nogil:
    """Opens the context of a Fetch, as Kafka's FetchManager.newContext."""
    cdef FetchSession* session
    cdef int16_t error = ERROR_NONE
    cdef size_t size = 0
    cdef size_t i
    if state.frame.api_version >= TOPIC_ID_VERSION:
        resolve_names(plane, state)
    if state.session_epoch == INITIAL_EPOCH or state.session_epoch == FINAL_EPOCH:
        if state.session_id != INVALID_SESSION_ID:
            session_remove(plane.sessions, state.session_id, state.frame.authorization.owner)
        state.context = CONTEXT_FULL if state.session_epoch == INITIAL_EPOCH else CONTEXT_SESSIONLESS
        return
    session = session_find(plane.sessions, state.session_id, state.frame.authorization.owner)
    if session == NULL:
        refuse_session(state, ERROR_FETCH_SESSION_ID_NOT_FOUND)
        return
    pthread_mutex_lock(&session.mutex)
    if session.epoch != state.session_epoch:
        error = ERROR_INVALID_FETCH_SESSION_EPOCH
    elif session.uses_topic_ids != (state.frame.api_version >= TOPIC_ID_VERSION):
        error = ERROR_FETCH_SESSION_TOPIC_ID_ERROR
    else:
        for i in range(state.partitions.size()):
            session_put(session, state.partitions[i].topic, &state.partitions[i].request)
        for i in range(state.forgotten.size()):
            session_forget(session, state.forgotten[i].topic, state.forgotten[i].partition)
        size = session.by_key.size()
        if size == 0 or size > MAX_SESSION_PARTITIONS:
            session.epoch = FINAL_EPOCH         # no request goes on with it, not even one that found it already
        else:
            session.epoch = next_session_epoch(session.epoch)
            take_session_partitions(plane, state, session)
    pthread_mutex_unlock(&session.mutex)
    if error != ERROR_NONE:
        refuse_session(state, error)
    elif size == 0:
        session_remove(plane.sessions, state.session_id, state.frame.authorization.owner)
        state.context = CONTEXT_SESSIONLESS
    elif size > MAX_SESSION_PARTITIONS:
        session_remove(plane.sessions, state.session_id, state.frame.authorization.owner)
        refuse_session(state, ERROR_FETCH_SESSION_ID_NOT_FOUND)
    else:
        if session_touch(plane.sessions, session, <int64_t>size, monotonic_ns() // NS_PER_MS):
            state.context = CONTEXT_INCREMENTAL
            state.session = session
            return
        refuse_session(state, ERROR_FETCH_SESSION_ID_NOT_FOUND)     # its client goes on with full fetches
    session_unref(session)


cdef void fetch_context_abandon(DataPlaneState* plane, FetchState* state) noexcept nogil:
    cdef bint current
    if state.context != CONTEXT_INCREMENTAL or state.session == NULL:
        return
    pthread_mutex_lock(&state.session.mutex)
    current = state.session.epoch == next_session_epoch(state.session_epoch)
    if current:
        state.session.epoch = FINAL_EPOCH
    pthread_mutex_unlock(&state.session.mutex)
    if current:
        session_remove(plane.sessions, state.session_id, state.frame.authorization.owner)
