"""The replies to ShareFetch and ShareAcknowledge, versions 1 and 2.

    frame               size int32 | correlation id int32 | tagged fields (response header v1)
    throttle time       int32, ms
    error               int16 | message compact nullable string
    lock timeout        int32, ms: of ShareFetch, and of ShareAcknowledge from v2 on
    responses           compact array of topics
      topic             topic id uuid | partitions compact array | tagged fields
      ShareFetch        index int32 | error int16 | message | acknowledge error int16 | message |
                        current leader (id int32, epoch int32, tagged fields) | records compact bytes |
                        acquired records compact array of (first int64, last int64, delivery count int16,
                        tagged fields) | tagged fields
      ShareAcknowledge  index int32 | error int16 | message | current leader | tagged fields
    node endpoints      compact array (requests/data_plane.pyx)
    tagged fields

A reply with an error of the whole request has nothing else, as in Kafka. Throttled clients get their records: they are
acquired already. The pause comes after the reply.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, strlen
from libcpp.vector cimport vector

from kafkapy._speedups.base.error_codes cimport (
    ERROR_FENCED_LEADER_EPOCH,
    ERROR_INVALID_RECORD_STATE,
    ERROR_INVALID_REQUEST,
    ERROR_NONE,
    ERROR_NOT_LEADER_OR_FOLLOWER,
)
from kafkapy._speedups.base.posix cimport atomic_count
from kafkapy._speedups.base.send cimport send_again, send_free, send_lay_out, send_new, send_take_buffer
from kafkapy._speedups.base.wire cimport (
    ByteBuffer,
    buffer_free,
    extend,
    store_int16,
    store_int32,
    store_int64,
    write_array_length,
    write_int32,
    write_raw,
    write_unsigned_varint,
)
from kafkapy._speedups.log.segment cimport segment_send
from kafkapy._speedups.requests.client_quotas cimport quota_charge_fetch, quota_charge_request
from kafkapy._speedups.requests.data_plane cimport leader_note, leaders_write_array, left_is_mine
from kafkapy._speedups.requests.share.state cimport SharePart

cdef enum:
    FRAME_SIZE_BYTES = 4
    MAX_FRAME_SIZE = 0x7FFFFFFF
    TOPIC_ID_SIZE = 16
    LOCK_VERSION = 2                # first ShareAcknowledge with the lock timeout
    PART_SIZE = 40                  # about, of a partition without records
    RANGE_SIZE = 19


cdef const char* NOT_ACQUIRED = b"A record is not acquired by the member: it was acknowledged, or its lock has ended."
cdef const char* NOT_IN_WINDOW = b"An offset is not among those that the share group has read and not yet done with."


cdef int16_t leader_error(const ShareState* state, const SharePart* part) noexcept nogil:
    return part.error if state.fetches else part.acknowledge_error


cdef bint tells_leader(const ShareState* state, const SharePart* part) noexcept nogil:
    cdef int16_t error = leader_error(state, part)
    return error == ERROR_NOT_LEADER_OR_FOLLOWER or error == ERROR_FENCED_LEADER_EPOCH


cdef void write_words(const SharePart* part, ByteBuffer* out) noexcept nogil:
    """Writes the message of the acknowledge error."""
    cdef const char* words = NULL
    if part.explained and part.acknowledge_error == ERROR_INVALID_RECORD_STATE:
        words = NOT_ACQUIRED
    elif part.explained and part.acknowledge_error == ERROR_INVALID_REQUEST:
        words = NOT_IN_WINDOW
    if words == NULL:
        write_unsigned_varint(out, 0)
        return
    write_unsigned_varint(out, <uint32_t>strlen(words) + 1)
    write_raw(out, words, strlen(words))


cdef void write_part(ShareState* state, SharePart* part, Send* send, ByteBuffer* out) noexcept nogil:
    cdef bint leader = tells_leader(state, part)
    cdef uint8_t* at = extend(out, 4 + 2)
    cdef size_t i
    if at == NULL:
        return
    store_int32(at, part.partition)
    store_int16(at + 4, leader_error(state, part))
    if state.fetches:
        at = extend(out, 1 + 2)
        if at == NULL:
            return
        at[0] = 0                       # no message
        store_int16(at + 1, part.acknowledge_error)
    write_words(part, out)
    at = extend(out, 4 + 4 + 1)
    if at == NULL:
        return
    store_int32(at, part.leader_id if leader else 0)
    store_int32(at + 4, part.leader_epoch if leader else 0)
    at[8] = 0
    if state.fetches:
        if part.length > 0:
            write_array_length(out, <int32_t>part.length, True)
            if not out.error:
                send_take_buffer(send, out)
                segment_send(send, part.segment, part.position, part.length)
                part.segment = NULL
        else:
            write_array_length(out, 0, True)    # Kafka allows no null here
        write_array_length(out, <int32_t>part.range_count, True)
        for i in range(part.first_range, part.first_range + part.range_count):
            at = extend(out, RANGE_SIZE)
            if at == NULL:
                return
            store_int64(at, state.ranges[i].first)
            store_int64(at + 8, state.ranges[i].last)
            store_int16(at + 16, state.ranges[i].delivery_count)
            at[18] = 0
    write_unsigned_varint(out, 0)


cdef bint same_topic(const SharePart* a, const SharePart* b) noexcept nogil:
    return a.topic == b.topic or memcmp(a.topic.topic_id, b.topic.topic_id, TOPIC_ID_SIZE) == 0


cdef void write_topics(DataPlaneState* plane, ShareState* state, Send* send, ByteBuffer* out,
                       vector[int32_t]* leaders) noexcept nogil:
    cdef vector[SharePart*] answered
    cdef int32_t topics = 0
    cdef size_t first = 0
    cdef size_t last
    cdef size_t i
    for i in range(state.parts.size()):
        if state.parts[i].answered:
            answered.push_back(&state.parts[i])
            if answered.size() == 1 or not same_topic(answered[answered.size() - 2], answered.back()):
                topics += 1
    write_array_length(out, topics, True)
    while first < answered.size():
        last = first + 1
        while last < answered.size() and same_topic(answered[last - 1], answered[last]):
            last += 1
        write_raw(out, answered[first].topic.topic_id, TOPIC_ID_SIZE)
        write_array_length(out, <int32_t>(last - first), True)
        for i in range(first, last):
            write_part(state, answered[i], send, out)
            if tells_leader(state, answered[i]) and answered[i].leader_id >= 0:
                leader_note(leaders, answered[i].leader_id)
        write_unsigned_varint(out, 0)
        first = last


cdef void count_bytes(ShareState* state) noexcept nogil:
    cdef SharePart* part
    cdef size_t i
    for i in range(state.parts.size()):
        part = &state.parts[i]
        if part.fetched and part.entry != NULL:
            atomic_count(&part.entry.log.counters.fetch_requests, 1)
            if part.error != ERROR_NONE:
                atomic_count(&part.entry.log.counters.failed_fetch_requests, 1)
            if part.length > 0:
                atomic_count(&part.entry.log.counters.bytes_out, part.length)


cdef void share_charge(ShareState* state) noexcept nogil:
    cdef int64_t size = PART_SIZE
    cdef size_t i
    if state.frame.quota == NULL:
        return
    if state.fetches:
        for i in range(state.parts.size()):
            if state.parts[i].answered:
                size += PART_SIZE + state.parts[i].length
        size += RANGE_SIZE * <int64_t>state.ranges.size()
        quota_charge_fetch(state.frame.quota, size)
    else:
        quota_charge_request(state.frame.quota)
    state.throttle_ms = <int32_t>state.frame.quota.throttle_ms


cdef Send* share_response_build(DataPlaneState* plane, ShareState* state) noexcept nogil:
    cdef bint tells_lock = state.fetches or state.frame.api_version >= LOCK_VERSION
    cdef vector[int32_t] leaders
    cdef ByteBuffer out
    cdef Send* send = send_again(&state.frame.left.send) if left_is_mine(state.frame.left) else send_new()
    cdef uint8_t* at
    send_lay_out(send, &out)
    at = extend(&out, 4 + 4 + 1 + 4 + 2 + 1)
    if at != NULL:
        store_int32(at, 0)              # the size of the frame, known at the end
        store_int32(at + 4, state.frame.correlation_id)
        at[8] = 0
        store_int32(at + 9, state.throttle_ms)
        store_int16(at + 13, state.error)
        at[15] = 0                      # no message
        if tells_lock:
            write_int32(&out, state.lock_ms if state.error == ERROR_NONE else 0)
        if state.error == ERROR_NONE:
            count_bytes(state)
            write_topics(plane, state, send, &out, &leaders)
            leaders_write_array(plane, state.frame.listener_index, &leaders, &out)
        else:
            write_array_length(&out, 0, True)
            write_array_length(&out, 0, True)
        write_unsigned_varint(&out, 0)
    if out.error or at == NULL:
        buffer_free(&out)
        send_free(send)
        return NULL
    send_take_buffer(send, &out)
    if send.size - FRAME_SIZE_BYTES > MAX_FRAME_SIZE or send.pieces[0].data == NULL:
        send_free(send)
        return NULL
    store_int32(send.pieces[0].data, <int32_t>(send.size - FRAME_SIZE_BYTES))
    return send
