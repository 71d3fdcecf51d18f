"""The reply to a Fetch, versions 0 to 18 (Kafka's FetchResponse), and its effect on the session (KIP-227).

    frame               size int32 | correlation id int32 | v12+: tagged fields (response header v1)
    v1+: throttle time  int32, ms
    v7+: error code     int16 | session id int32
    responses           array of topics
      topic             v0-12: name string | v13+: topic id uuid | partitions | v12+: tagged fields
      partition         index int32 | error code int16 | high watermark int64 |
                        v4+: last stable offset int64 | v5+: log start offset int64 |
                        v4+: aborted transactions: nullable array of (producer id int64, first offset int64,
                             v12+: tagged fields) |
                        v11+: preferred read replica int32 | records bytes |
                        v12+: tagged fields, tag 0: diverging epoch (epoch int32, end offset int64, tagged fields),
                                       v16+ tag 1: current leader (id int32, epoch int32, tagged fields)
    v12+: tagged fields of which v16+ tag 0: node endpoints (requests/data_plane.pyx)

Strings, arrays and bytes are compact from v12 on. Record bytes are file regions between pieces of memory; in v0-3
message sets of a worker. As in Kafka, read partitions come first, in the order of the request, then partitions refused
before a read; neighbours of one topic share its entry.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.error_codes cimport (
    ERROR_FENCED_LEADER_EPOCH,
    ERROR_INVALID_FETCH_SESSION_EPOCH,
    ERROR_KAFKA_STORAGE_ERROR,
    ERROR_NONE,
    ERROR_NOT_LEADER_OR_FOLLOWER,
)
from kafkapy._speedups.base.posix cimport atomic_count, monotonic_ns, pthread_mutex_lock, pthread_mutex_unlock
from kafkapy._speedups.base.send cimport send_again, send_free, send_lay_out, send_new, send_take_buffer
from kafkapy._speedups.base.wire cimport (
    ByteBuffer,
    buffer_free,
    buffer_init,
    extend,
    store_int16,
    store_int32,
    store_int64,
    write_array_length,
    write_int16,
    write_int32,
    write_int64,
    write_raw,
    write_string,
    write_unsigned_varint,
)
from kafkapy._speedups.log.segment cimport segment_send
from kafkapy._speedups.protocol.data_plane_versions cimport FETCH_FLEXIBLE
from kafkapy._speedups.requests.client_quotas cimport quota_charge_exempt, quota_charge_fetch
from kafkapy._speedups.requests.data_plane cimport leader_note, leaders_write, left_is_mine
from kafkapy._speedups.requests.fetch.conversion cimport CONVERTED_BELOW
from kafkapy._speedups.requests.fetch.state cimport CONTEXT_FULL, CONTEXT_INCREMENTAL, FetchPartition, from_follower
from kafkapy._speedups.requests.fetch_session cimport (
    FINAL_EPOCH,
    INVALID_SESSION_ID,
    CachedPartition,
    FetchSession,
    FetchTopic,
    fetch_topic_same,
    next_session_epoch,
    session_admit,
    session_move_to_end,
    session_new,
    session_put,
    session_remove,
)

cdef enum:
    LOG_START_VERSION = 5
    SESSION_VERSION = 7
    TOPIC_ID_VERSION = 13
    LEADER_VERSION = 16
    FRAME_SIZE_BYTES = 4
    MAX_FRAME_SIZE = 0x7FFFFFFF
    TOPIC_ID_SIZE = 16
    DIVERGING_EPOCH_TAG = 0
    DIVERGING_EPOCH_SIZE = 4 + 8 + 1
    CURRENT_LEADER_TAG = 1
    CURRENT_LEADER_SIZE = 4 + 4 + 1
    NS_PER_MS = 1000000


# ---- the session -----------------------------------------------------------------------------------------------------

cdef bint must_answer(FetchPartition* partition) noexcept nogil:
    """Whether an incremental reply names this partition (Kafka's CachedPartition.maybeUpdateResponseData). Remembers
    the answer's values."""
    cdef CachedPartition* cached = partition.cached
    cdef bint answer = (partition.read.length > 0 or partition.read.diverging_epoch >= 0
                        or partition.preferred >= 0)
    if cached.high_watermark != partition.read.high_watermark:
        cached.high_watermark = partition.read.high_watermark
        answer = True
    if cached.local_log_start_offset != partition.read.log_start_offset:
        cached.local_log_start_offset = partition.read.log_start_offset
        answer = True
    if partition.read.error != ERROR_NONE:
        cached.high_watermark = -1          # so that a reply names the partition again when the error is gone
        answer = True
    return answer


cdef void answer_incremental(DataPlaneState* plane, FetchState* state, vector[FetchPartition*]* ordered) noexcept nogil:
    """Keeps the partitions that the reply names, and moves partitions with data to the end. If another request took the
    session meanwhile, this one gets an error.

    The reply closes a session (session id 0) that holds more than a session may; its client then names all partitions
    each time.
    """
    cdef FetchSession* session = state.session
    cdef bint closed = False
    cdef size_t kept = 0
    cdef size_t i
    pthread_mutex_lock(&session.mutex)
    if session.epoch != next_session_epoch(state.session_epoch):
        state.error = ERROR_INVALID_FETCH_SESSION_EPOCH
        ordered.clear()
    else:
        for i in range(ordered.size()):
            if must_answer(ordered[0][i]):
                if ordered[0][i].read.length > 0:
                    session_move_to_end(session, ordered[0][i].cached)
                ordered[0][kept] = ordered[0][i]
                kept += 1
        ordered.resize(kept)
        if state.sessionless:
            session.epoch = FINAL_EPOCH     # no request goes on with it, not even one that found it already
            closed = True
    pthread_mutex_unlock(&session.mutex)
    if closed:
        session_remove(plane.sessions, state.session_id, state.frame.authorization.owner)
        state.session_id = INVALID_SESSION_ID


cdef void create_session(DataPlaneState* plane, FetchState* state, vector[FetchPartition*]* ordered) noexcept nogil:
    cdef int64_t now_ms = monotonic_ns() // NS_PER_MS
    cdef FetchSession* session = session_new(state.assigned, state.frame.api_version >= TOPIC_ID_VERSION,
                                             state.frame.authorization.owner, now_ms)
    cdef CachedPartition* cached
    cdef size_t i
    for i in range(ordered.size()):
        cached = session_put(session, ordered[0][i].topic, &ordered[0][i].request)
        cached.high_watermark = ordered[0][i].read.high_watermark
        cached.local_log_start_offset = ordered[0][i].read.log_start_offset
    state.session_id = session_admit(plane.sessions, session, now_ms)


# ---- the bytes -------------------------------------------------------------------------------------------------------

cdef bint tells_leader(FetchPartition* partition, int16_t version) noexcept nogil:
    return (version >= LEADER_VERSION and (partition.read.leader_id >= 0 or partition.read.leader_epoch >= 0)
            and (partition.read.error == ERROR_NOT_LEADER_OR_FOLLOWER
                 or partition.read.error == ERROR_FENCED_LEADER_EPOCH))


cdef int16_t error_for_version(int16_t error, int16_t version) noexcept nogil:
    """Replaces KAFKA_STORAGE_ERROR for clients before v6, which may not know it and would give up."""
    return ERROR_NOT_LEADER_OR_FOLLOWER if error == ERROR_KAFKA_STORAGE_ERROR and version <= 5 else error


cdef void write_tags(FetchPartition* partition, int16_t version, ByteBuffer* out) noexcept nogil:
    cdef bint diverging = partition.read.diverging_epoch >= 0
    cdef bint leader = tells_leader(partition, version)
    write_unsigned_varint(out, <unsigned int>diverging + <unsigned int>leader)
    if diverging:
        write_unsigned_varint(out, DIVERGING_EPOCH_TAG)
        write_unsigned_varint(out, DIVERGING_EPOCH_SIZE)
        write_int32(out, partition.read.diverging_epoch)
        write_int64(out, partition.read.diverging_end_offset)
        write_unsigned_varint(out, 0)
    if leader:
        write_unsigned_varint(out, CURRENT_LEADER_TAG)
        write_unsigned_varint(out, CURRENT_LEADER_SIZE)
        write_int32(out, partition.read.leader_id)
        write_int32(out, partition.read.leader_epoch)
        write_unsigned_varint(out, 0)


cdef void write_partition(FetchPartition* partition, int16_t version, Send* send, ByteBuffer* out) noexcept nogil:
    cdef bint flexible = version >= FETCH_FLEXIBLE
    cdef bint tells_start = version >= LOG_START_VERSION
    cdef ByteBuffer converted
    cdef int32_t i
    cdef uint8_t* at
    if version >= CONVERTED_BELOW:
        # Writes the fields of every partition at once.
        at = extend(out, 4 + 2 + 8 + 8 + 8 * tells_start)
        if at == NULL:
            return
        store_int32(at, partition.request.partition)
        store_int16(at + 4, error_for_version(partition.read.error, version))
        store_int64(at + 6, partition.read.high_watermark)
        store_int64(at + 14, partition.read.last_stable_offset)
        if tells_start:
            store_int64(at + 22, partition.read.log_start_offset)
    else:
        write_int32(out, partition.request.partition)
        write_int16(out, error_for_version(partition.read.error, version))
        write_int64(out, partition.read.high_watermark)
        write_int32(out, <int32_t>partition.converted_size)
        if partition.converted != NULL and not out.error:
            buffer_init(&converted)
            converted.data = partition.converted
            converted.size = <size_t>partition.converted_size
            partition.converted = NULL
            send_take_buffer(send, out)
            send_take_buffer(send, &converted)
        return
    write_array_length(out, partition.read.aborted_count, flexible)
    for i in range(partition.read.aborted_count):
        write_int64(out, partition.read.aborted[i].producer_id)
        write_int64(out, partition.read.aborted[i].first_offset)
        if flexible:
            write_unsigned_varint(out, 0)
    if version >= 11:
        write_int32(out, partition.preferred)
    write_array_length(out, <int32_t>partition.read.length, flexible)
    if partition.read.length > 0 and not out.error:
        send_take_buffer(send, out)
        segment_send(send, partition.read.segment, partition.read.position, partition.read.length)
        partition.read.segment = NULL
    if flexible:
        write_tags(partition, version, out)


cdef int64_t answered_bytes(FetchState* state, FetchPartition* partition) noexcept nogil:
    return partition.read.length if state.frame.api_version >= CONVERTED_BELOW else partition.converted_size


cdef void count_fetches(FetchState* state, vector[FetchPartition*]* answered) noexcept nogil:
    """Counts the fetches once per reply, however many reads a parked fetch took. `bytes_out` counts bytes to consumers,
    as Kafka's BytesOutPerSec."""
    cdef FetchPartition* partition
    cdef size_t i
    for i in range(state.partitions.size()):
        partition = &state.partitions[i]
        if partition.log != NULL and not partition.refused:
            atomic_count(&partition.log.counters.fetch_requests, 1)
            if partition.read.error != ERROR_NONE:
                atomic_count(&partition.log.counters.failed_fetch_requests, 1)
    if state.replica_id >= 0:
        return
    for i in range(answered.size()):
        if answered[0][i].log != NULL and answered_bytes(state, answered[0][i]) > 0:
            atomic_count(&answered[0][i].log.counters.bytes_out, answered_bytes(state, answered[0][i]))


cdef size_t head_size(int16_t version) noexcept nogil:
    return (4 + 4 + (version >= FETCH_FLEXIBLE) + 4 * (version >= 1)
            + (2 + 4) * (version >= SESSION_VERSION))


cdef int64_t response_size(FetchState* state) noexcept nogil:
    """The bytes of the reply, from its size on, before it changes the session: partitions of an incremental reply
    without records and errors are not counted."""
    cdef int16_t version = state.frame.api_version
    cdef bint flexible = version >= FETCH_FLEXIBLE
    cdef int64_t length_size = 2 if flexible else 4     # of most arrays and records
    cdef int64_t partition_size = (4 + 2 + 8 + length_size + 8 * (version >= 4) + 8 * (version >= LOG_START_VERSION)
                                   + length_size * (version >= 4) + 4 * (version >= 11) + flexible)
    cdef int64_t size = <int64_t>head_size(version) + length_size + flexible
    cdef FetchPartition* partition
    cdef FetchTopic* topic = NULL
    cdef size_t i
    for i in range(state.partitions.size()):
        partition = &state.partitions[i]
        if (state.context == CONTEXT_INCREMENTAL and partition.read.length <= 0
                and partition.read.error == ERROR_NONE):
            continue
        if partition.topic != topic:
            topic = partition.topic
            size += length_size + flexible
            size += TOPIC_ID_SIZE if version >= TOPIC_ID_VERSION else <int64_t>topic.name.size() + length_size // 2
        size += partition_size + max(partition.read.length, <int64_t>0)
        size += max(partition.read.aborted_count, <int32_t>0) * (16 + flexible)
    return size


cdef void fetch_charge(FetchState* state) noexcept nogil:
    if state.frame.quota == NULL or state.charged:
        return
    state.charged = True
    if from_follower(state):
        quota_charge_exempt(state.frame.quota)
        return
    quota_charge_fetch(state.frame.quota, response_size(state))
    state.throttle_ms = <int32_t>state.frame.quota.throttle_ms


cdef void throttle_session(FetchState* state) noexcept nogil:
    """Answers without records: an incremental request only has its epoch checked, any other makes no session (Kafka's
    FetchContext.getThrottledResponse)."""
    if state.context != CONTEXT_INCREMENTAL:
        state.session_id = INVALID_SESSION_ID
        return
    pthread_mutex_lock(&state.session.mutex)
    if state.session.epoch != next_session_epoch(state.session_epoch):
        state.error = ERROR_INVALID_FETCH_SESSION_EPOCH
    pthread_mutex_unlock(&state.session.mutex)


cdef void write_head(FetchState* state, ByteBuffer* out) noexcept nogil:
    cdef int16_t version = state.frame.api_version
    cdef uint8_t* at = extend(out, head_size(version))
    if at == NULL:
        return
    store_int32(at, 0)                  # the size of the frame, known at the end
    store_int32(at + 4, state.frame.correlation_id)
    at += 8
    if version >= FETCH_FLEXIBLE:
        at[0] = 0
        at += 1
    if version >= 1:
        store_int32(at, state.throttle_ms)
        at += 4
    if version >= SESSION_VERSION:
        store_int16(at, state.error)
        store_int32(at + 2, state.session_id)


cdef Send* fetch_response_build(DataPlaneState* plane, FetchState* state) noexcept nogil:
    cdef int16_t version = state.frame.api_version
    cdef bint flexible = version >= FETCH_FLEXIBLE
    cdef vector[FetchPartition*]* ordered = &state.ordered
    cdef vector[int32_t] leaders
    cdef ByteBuffer out
    cdef Send* send
    cdef FetchPartition* partition
    cdef int32_t topics = 0
    cdef size_t first
    cdef size_t last
    cdef size_t i
    ordered.clear()
    for i in range(state.partitions.size()):
        if not state.partitions[i].refused:
            ordered.push_back(&state.partitions[i])
    for i in range(state.partitions.size()):
        if state.partitions[i].refused:
            ordered.push_back(&state.partitions[i])
            state.sessionless = True
    if state.throttle_ms > 0:
        ordered.clear()
        throttle_session(state)
    elif state.context == CONTEXT_INCREMENTAL:
        answer_incremental(plane, state, ordered)
    elif state.context == CONTEXT_FULL and not state.sessionless:
        create_session(plane, state, ordered)
    else:
        state.session_id = INVALID_SESSION_ID
    count_fetches(state, ordered)
    for i in range(ordered.size()):
        if i == 0 or not fetch_topic_same(ordered[0][i].topic, ordered[0][i - 1].topic):
            topics += 1
    send = send_again(&state.frame.left.send) if left_is_mine(state.frame.left) else send_new()
    send_lay_out(send, &out)
    write_head(state, &out)
    write_array_length(&out, topics, flexible)
    first = 0
    while first < ordered.size():
        last = first + 1
        while last < ordered.size() and fetch_topic_same(ordered[0][last].topic, ordered[0][first].topic):
            last += 1
        partition = ordered[0][first]
        if version >= TOPIC_ID_VERSION:
            write_raw(&out, partition.topic.topic_id, TOPIC_ID_SIZE)
        else:
            write_string(&out, partition.topic.name.data(), <int32_t>partition.topic.name.size(), flexible)
        write_array_length(&out, <int32_t>(last - first), flexible)
        for i in range(first, last):
            partition = ordered[0][i]
            write_partition(partition, version, send, &out)
            if tells_leader(partition, version) and partition.read.leader_id >= 0:
                leader_note(&leaders, partition.read.leader_id)
        if flexible:
            write_unsigned_varint(&out, 0)
        first = last
    if flexible:
        if leaders.size():
            leaders_write(plane, state.frame.listener_index, &leaders, &out)
        else:
            write_unsigned_varint(&out, 0)
    if out.error:
        buffer_free(&out)
        send_free(send)
        return NULL
    send_take_buffer(send, &out)
    if send.size - FRAME_SIZE_BYTES > MAX_FRAME_SIZE or send.pieces[0].data == NULL:
        send_free(send)
        return NULL
    store_int32(send.pieces[0].data, <int32_t>(send.size - FRAME_SIZE_BYTES))
    return send
