"""The follower's Fetch request, versions 4 to 17.

    frame             size int32 | api key int16 | version int16 | correlation id int32 | client id string |
                      v12+: tagged fields (request header v2; the client id is never compact)
    body              v4-14: replica id int32 | max wait int32 (ms) | min bytes int32 | max bytes int32 |
                      isolation level int8 | v7+: session id int32, session epoch int32 | topics |
                      v7+: forgotten topics | v11+: rack id string | v12+: tagged fields: v15+: 1 replica state
                      (replica id int32, broker epoch int64, tagged fields)
      topic           v4-12: name string | v13+: topic id uuid | partitions | v12+: tagged fields
      partition       index int32 | v9+: current leader epoch int32 | fetch offset int64 |
                      v12+: last fetched epoch int32 | v5+: log start offset int64 | max bytes int32 |
                      v12+: tagged fields
      forgotten topic v7-12: name string | v13+: topic id uuid | array of int32 partitions | v12+: tagged fields

With a session (KIP-227, v7+) a request names the partitions that changed since the last one: those with another offset
or epoch, new ones, and in `forgotten topics` those that are not fetched now. A request of epoch 0 names all; without a
session each does, and begins with another topic. Source: org.apache.kafka.clients.FetchSessionHandler.
"""

from cython.operator cimport dereference as deref, preincrement as inc
from libc.stdint cimport int32_t, int64_t
from libcpp.algorithm cimport rotate, sort
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport atomic_count, atomic_load
from kafkapy._speedups.base.wire cimport (
    buffer_init,
    store_int32,
    write_array_length,
    write_int8,
    write_int16,
    write_int32,
    write_int64,
    write_raw,
    write_string,
    write_unsigned_varint,
)
from kafkapy._speedups.replica.fetch_response cimport NEWEST_FETCH
from kafkapy._speedups.replica.state cimport (
    STATE_FETCHING,
    FetchPartition,
    ForgottenPartition,
    find_partition,
    requeue,
    reset_session,
)
from kafkapy._speedups.replica.throttle cimport throttle_exceeded

cdef enum:
    FETCH_KEY = 1
    LOG_START_VERSION = 5
    SESSION_VERSION = 7
    LEADER_EPOCH_VERSION = 9
    RACK_VERSION = 11
    FLEXIBLE_VERSION = 12
    TOPIC_ID_VERSION = 13
    REPLICA_STATE_VERSION = 15
    TAG_REPLICA_STATE = 1
    REPLICA_STATE_SIZE = 4 + 8 + 1
    LOOK_NS = 1_000_000_000         # interval of the looks at all log starts


cdef bint by_topic(FetchPartition* const& a, FetchPartition* const& b) noexcept nogil:
    return a.topic < b.topic if a.topic != b.topic else a.partition < b.partition


cdef bint forgotten_by_topic(const ForgottenPartition& a, const ForgottenPartition& b) noexcept nogil:
    if a.topic_id != b.topic_id:
        return a.topic_id < b.topic_id
    return a.topic_name < b.topic_name


# ---- which partitions ------------------------------------------------------------------------------------------------


cdef bint is_wanted(FetcherState* f, FetchPartition* p, bint exceeded) noexcept nogil:
    if p.state != STATE_FETCHING or p.delayed_until_ns:
        return False
    # Replicas that have caught up are not held back (AbstractFetcherThread.shouldFollowerThrottle).
    if p.throttled and exceeded and atomic_load(&p.lag) != 0:
        if not p.held:
            p.held = True
            f.held.push_back(p)
        atomic_count(&f.left_out, 1)
        return False
    return True


cdef bint has_changed(FetchPartition* p) noexcept nogil:
    return (not p.asked or p.asked_offset != p.fetch_offset or p.asked_log_start != p.log_start_offset
            or p.asked_last_epoch != p.last_epoch)


cdef void look_at_log_starts(FetcherState* f, int64_t now_ns) noexcept nogil:
    """Retention moves log starts beside the fetches."""
    cdef unordered_map[int64_t, FetchPartition*].iterator at
    cdef FetchPartition* p
    cdef int64_t start
    if now_ns < f.next_look_ns:
        return
    f.next_look_ns = now_ns + LOOK_NS
    at = f.partitions.begin()
    while at != f.partitions.end():
        p = deref(at).second
        start = atomic_load(&p.log.log_start_offset)
        if start != p.log_start_offset:
            p.log_start_offset = start
            requeue(f, p)
        inc(at)


cdef void release_held(FetcherState* f) noexcept nogil:
    cdef size_t i
    for i in range(f.held.size()):
        f.held[i].held = False
        requeue(f, f.held[i])
    f.held.clear()


cdef void choose_all(FetcherState* f, bint exceeded) noexcept nogil:
    cdef unordered_map[int64_t, FetchPartition*].iterator at = f.partitions.begin()
    cdef FetchPartition* p
    cdef size_t i
    for i in range(f.changed.size()):
        f.changed[i].queued = False
    f.changed.clear()
    while at != f.partitions.end():
        p = deref(at).second
        p.asked = False
        if is_wanted(f, p, exceeded):
            f.chosen.push_back(p)
        inc(at)
    sort(f.chosen.begin(), f.chosen.end(), by_topic)
    if f.chosen.size() > 1:
        # The leader stops at max bytes: other topics must come first next time.
        f.rotation = (f.rotation + 1) % <int64_t>f.chosen.size()
        i = <size_t>f.rotation
        while i < f.chosen.size() and f.chosen[i].topic == f.chosen[i - 1 if i else f.chosen.size() - 1].topic:
            i += 1
        rotate(f.chosen.begin(), f.chosen.begin() + <int64_t>(i % f.chosen.size()), f.chosen.end())


cdef void choose_changed(FetcherState* f, bint exceeded) noexcept nogil:
    cdef ForgottenPartition forgotten
    cdef FetchPartition* p
    cdef size_t i
    for i in range(f.changed.size()):
        p = f.changed[i]
        p.queued = False
        if is_wanted(f, p, exceeded):
            if has_changed(p):
                f.chosen.push_back(p)
        elif p.asked:
            p.asked = False
            f.session_size -= 1
            forgotten.topic_name = p.topic_name
            forgotten.topic_id = p.topic_id
            forgotten.partition = p.partition
            f.forgotten.push_back(forgotten)
    f.changed.clear()
    sort(f.chosen.begin(), f.chosen.end(), by_topic)


cdef bint is_asked(FetcherState* f, const ForgottenPartition* gone) noexcept nogil:
    """Whether a removed partition has come back, with another leader epoch: it stays in the session."""
    cdef FetchPartition* p
    if gone.topic_id.empty():
        p = find_partition(&f.by_name, gone.topic_name, gone.partition)
    else:
        p = find_partition(&f.by_id, gone.topic_id, gone.partition)
    return p != NULL and p.asked


cdef void drop_returned(FetcherState* f) noexcept nogil:
    cdef size_t i, kept = 0
    for i in range(f.forgotten.size()):
        if not is_asked(f, &f.forgotten[i]):
            if kept != i:
                f.forgotten[kept] = f.forgotten[i]
            kept += 1
    f.forgotten.resize(kept)
    sort(f.forgotten.begin(), f.forgotten.end(), forgotten_by_topic)


# ---- bytes -----------------------------------------------------------------------------------------------------------


cdef void write_topic(ByteBuffer* out, int version, const string& name, const string& topic_id,
                      int32_t partitions) noexcept nogil:
    if version >= TOPIC_ID_VERSION:
        write_raw(out, topic_id.data(), topic_id.size())
    else:
        write_string(out, name.data(), <int32_t>name.size(), version >= FLEXIBLE_VERSION)
    write_array_length(out, partitions, version >= FLEXIBLE_VERSION)


cdef void write_no_tags(ByteBuffer* out, int version) noexcept nogil:
    if version >= FLEXIBLE_VERSION:
        write_int8(out, 0)


cdef void write_partition(FetcherState* f, ByteBuffer* out, int version, FetchPartition* p) noexcept nogil:
    write_int32(out, p.partition)
    if version >= LEADER_EPOCH_VERSION:
        write_int32(out, p.leader_epoch)
    write_int64(out, p.fetch_offset)
    if version >= FLEXIBLE_VERSION:
        write_int32(out, p.last_epoch)
    if version >= LOG_START_VERSION:
        write_int64(out, p.log_start_offset)
    write_int32(out, f.now.partition_max_bytes)
    write_no_tags(out, version)
    p.asked_offset = p.fetch_offset
    p.asked_log_start = p.log_start_offset
    p.asked_last_epoch = p.last_epoch
    if not p.asked:
        p.asked = True
        f.session_size += 1


cdef int32_t count_topics(vector[FetchPartition*]* chosen) noexcept nogil:
    cdef int32_t topics = 0
    cdef size_t i
    for i in range(chosen.size()):
        if i == 0 or chosen[0][i].topic != chosen[0][i - 1].topic:
            topics += 1
    return topics


cdef void write_topics(FetcherState* f, ByteBuffer* out, int version) noexcept nogil:
    cdef size_t i = 0, end
    cdef FetchPartition* p
    write_array_length(out, count_topics(&f.chosen), version >= FLEXIBLE_VERSION)
    while i < f.chosen.size():
        p = f.chosen[i]
        end = i
        while end < f.chosen.size() and f.chosen[end].topic == p.topic:
            end += 1
        write_topic(out, version, p.topic_name, p.topic_id, <int32_t>(end - i))
        while i < end:
            write_partition(f, out, version, f.chosen[i])
            i += 1
        write_no_tags(out, version)


cdef bint same_topic(const ForgottenPartition* a, const ForgottenPartition* b) noexcept nogil:
    return a.topic_id == b.topic_id and a.topic_name == b.topic_name


cdef void write_forgotten(FetcherState* f, ByteBuffer* out, int version) noexcept nogil:
    cdef size_t i = 0, end
    cdef int32_t topics = 0
    drop_returned(f)
    for end in range(f.forgotten.size()):
        if end == 0 or not same_topic(&f.forgotten[end], &f.forgotten[end - 1]):
            topics += 1
    write_array_length(out, topics, version >= FLEXIBLE_VERSION)
    while i < f.forgotten.size():
        end = i
        while end < f.forgotten.size() and same_topic(&f.forgotten[end], &f.forgotten[i]):
            end += 1
        write_topic(out, version, f.forgotten[i].topic_name, f.forgotten[i].topic_id, <int32_t>(end - i))
        while i < end:
            write_int32(out, f.forgotten[i].partition)
            i += 1
        write_no_tags(out, version)


cdef void write_request(FetcherState* f, ByteBuffer* out, int version) noexcept nogil:
    f.correlation_id = (f.correlation_id + 1) & 0x7FFFFFFF
    write_int32(out, 0)
    write_int16(out, FETCH_KEY)
    write_int16(out, <int>version)
    write_int32(out, f.correlation_id)
    write_string(out, f.client_id.data(), <int32_t>f.client_id.size(), False)
    write_no_tags(out, version)
    if version < REPLICA_STATE_VERSION:
        write_int32(out, f.now.replica_id)
    write_int32(out, f.now.max_wait_ms)
    write_int32(out, f.now.min_bytes)
    write_int32(out, f.now.max_bytes)
    write_int8(out, 0)
    if version >= SESSION_VERSION:
        write_int32(out, f.session_id)
        write_int32(out, f.session_epoch)
    write_topics(f, out, version)
    if version >= SESSION_VERSION:
        write_forgotten(f, out, version)
    if version >= RACK_VERSION:
        write_string(out, NULL, 0, version >= FLEXIBLE_VERSION)
    if version >= REPLICA_STATE_VERSION:
        write_unsigned_varint(out, 1)
        write_unsigned_varint(out, TAG_REPLICA_STATE)
        write_unsigned_varint(out, REPLICA_STATE_SIZE)
        write_int32(out, f.now.replica_id)
        write_int64(out, f.now.broker_epoch)
        write_int8(out, 0)
    else:
        write_no_tags(out, version)
    if not out.error:
        store_int32(out.data, <int32_t>(out.size - 4))


cdef bint build_request(FetcherState* f, int64_t now_ns, ByteBuffer* out) noexcept nogil:
    cdef int version = f.version if f.version < NEWEST_FETCH else NEWEST_FETCH
    cdef bint exceeded = throttle_exceeded(f.throttle, now_ns)
    buffer_init(out)
    if f.without_id > 0 and version >= TOPIC_ID_VERSION:
        version = FLEXIBLE_VERSION
    if (version >= TOPIC_ID_VERSION) != (f.session_version >= TOPIC_ID_VERSION) and f.session_epoch > 0:
        reset_session(f, f.session_id)
    f.session_version = version
    if not exceeded:
        release_held(f)
    look_at_log_starts(f, now_ns)
    f.chosen.clear()
    if f.session_epoch == 0:
        f.forgotten.clear()
        f.session_size = 0
        choose_all(f, exceeded)
    else:
        choose_changed(f, exceeded)
    if f.chosen.empty() and (f.session_epoch == 0 or (f.session_size == 0 and f.forgotten.empty())):
        return False
    write_request(f, out, version)
    f.forgotten.clear()
    f.request += 1
    return True
