"""A Fetch body, versions 0 to 18 (Kafka's FetchRequest).

    v0-14: replica id   int32, -1 for consumers (v15+: in the tagged fields)
    max wait ms         int32
    min bytes           int32
    v3+: max bytes      int32; before, only each partition's own limit counts
    v4+: isolation      int8: 0 READ_UNCOMMITTED, 1 READ_COMMITTED
    v7+: session id     int32
    v7+: session epoch  int32
    topics              array
      topic             v0-12: name string | v13+: topic id uuid | partitions | v12+: tagged fields
      partition         index int32 | v9+: current leader epoch int32 | fetch offset int64 |
                        v12+: last fetched epoch int32 | v5+: log start offset int64 | partition max bytes int32 |
                        v12+: tagged fields (v17+ tag 0: replica directory id uuid, v18+ tag 1: high watermark int64;
                        both unused here)
    v7+: forgotten      array of (v7-12: name string | v13+: topic id uuid, array of int32, v12+: tagged fields)
    v11+: rack id       string
    v12+: tagged fields tag 0: cluster id nullable string (unused here),
                        v15+ tag 1: replica state (id int32, epoch int64, tagged fields)

Strings and arrays are compact from v12 on.
"""

from libc.stdint cimport INT32_MAX, int8_t, int16_t, int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset
from libcpp.vector cimport vector

from kafkapy._speedups.base.memory_reserve cimport has_room
from kafkapy._speedups.base.wire cimport (
    Cursor,
    cursor_init,
    load_int32,
    load_int64,
    read_array_length,
    read_int32,
    read_int64,
    read_string,
    read_tag_count,
    read_unsigned_varint,
    remaining,
    skip_tagged_fields,
    take,
)
from kafkapy._speedups.log.state cimport log_unref
from kafkapy._speedups.protocol.data_plane_versions cimport FETCH_FLEXIBLE
from kafkapy._speedups.requests.fetch.state cimport ForgottenPartition
from kafkapy._speedups.requests.fetch_session cimport (
    FINAL_EPOCH,
    INVALID_SESSION_ID,
    FetchTopic,
    fetch_topic_again,
    fetch_topic_new,
    fetch_topic_ref,
    fetch_topic_unref,
)
from kafkapy._speedups.requests.named_partitions cimport NamedPartitions, named_begin, named_first, named_topic

cdef enum:
    SESSION_VERSION = 7
    TOPIC_ID_VERSION = 13
    REPLICA_STATE_VERSION = 15
    TOPIC_ID_SIZE = 16
    REPLICA_STATE_TAG = 1
    MAX_PARTITIONS = 200000         # in one request: bounds the memory of a frame of tiny partitions


cdef void fetch_partition_init(FetchPartition* partition) noexcept nogil:
    partition.topic = NULL
    partition.cached = NULL
    partition.refused = False
    partition.log = NULL
    memset(&partition.read, 0, sizeof(partition.read))
    partition.standing = 0
    partition.selected = -1
    partition.preferred = -1
    partition.end_offset = -1
    partition.leader_epoch = -1
    partition.available = 0
    partition.converted = NULL
    partition.converted_size = 0
    partition.converted_end = -1


cdef void fetch_partitions_release(FetchState* state) noexcept nogil:
    cdef size_t i
    for i in range(state.partitions.size()):
        fetch_read_release(&state.partitions[i])
        fetch_topic_unref(state.partitions[i].topic)
        if state.partitions[i].log != NULL:
            log_unref(state.partitions[i].log)
    state.partitions.clear()
    for i in range(state.forgotten.size()):
        fetch_topic_unref(state.forgotten[i].topic)
    state.forgotten.clear()


cdef FetchTopic* read_topic(FetchState* state, Cursor* c) noexcept nogil:
    """Reads a new topic; NULL with the cursor's error set."""
    cdef int version = state.frame.api_version
    cdef const uint8_t* at
    cdef int32_t size = 0
    if version >= TOPIC_ID_VERSION:
        at = take(c, TOPIC_ID_SIZE)
        return new_topic(state, NULL, 0, at) if at != NULL else NULL
    at = read_string(c, version >= FETCH_FLEXIBLE, &size)
    if c.error or size < 0:
        c.error = 1
        return NULL
    return new_topic(state, at, size, NULL)


cdef FetchTopic* new_topic(FetchState* state, const uint8_t* name, size_t size, const uint8_t* topic_id) noexcept nogil:
    if state.partitions.empty():
        return fetch_topic_again(&state.last_topic, name, size, topic_id)
    return fetch_topic_new(name, size, topic_id)


cdef bint read_partitions(FetchState* state, Cursor* c, FetchTopic* topic) noexcept nogil:
    cdef int version = state.frame.api_version
    cdef bint flexible = version >= FETCH_FLEXIBLE
    cdef int32_t count = read_array_length(c, flexible)
    cdef FetchPartition partition
    cdef const uint8_t* at
    cdef int32_t i
    if c.error or count < 0 or <size_t>count > MAX_PARTITIONS - state.partitions.size():
        return False
    if not has_room(state.partitions.size(), <size_t>count):
        return False
    fetch_partition_init(&partition)
    partition.request.current_leader_epoch = -1
    partition.request.last_fetched_epoch = -1
    partition.request.log_start_offset = -1
    for i in range(count):
        at = take(c, 4 + 4 * (version >= 9) + 8 + 4 * (version >= 12) + 8 * (version >= 5) + 4)
        if at == NULL:
            return False
        partition.request.partition = load_int32(at)
        at += 4
        if version >= 9:
            partition.request.current_leader_epoch = load_int32(at)
            at += 4
        partition.request.fetch_offset = load_int64(at)
        at += 8
        if version >= 12:
            partition.request.last_fetched_epoch = load_int32(at)
            at += 4
        if version >= 5:
            partition.request.log_start_offset = load_int64(at)
            at += 8
        partition.request.max_bytes = load_int32(at)
        if flexible:
            skip_tagged_fields(c)
            if c.error:
                return False
        partition.topic = fetch_topic_ref(topic)
        state.partitions.push_back(partition)
    return True


cdef bint read_forgotten(FetchState* state, Cursor* c, FetchTopic* topic) noexcept nogil:
    cdef int32_t count = read_array_length(c, state.frame.api_version >= FETCH_FLEXIBLE)
    cdef ForgottenPartition forgotten
    cdef int32_t i
    if c.error or count < 0 or <size_t>count > MAX_PARTITIONS - state.forgotten.size():
        return False
    if not has_room(state.forgotten.size(), <size_t>count):
        return False
    for i in range(count):
        forgotten.partition = read_int32(c)
        if c.error:
            return False
        forgotten.topic = fetch_topic_ref(topic)
        state.forgotten.push_back(forgotten)
    return True


cdef bint read_topics(FetchState* state, Cursor* c, bint forgotten) noexcept nogil:
    """Reads the topics array, or the forgotten topics array."""
    cdef int version = state.frame.api_version
    cdef bint flexible = version >= FETCH_FLEXIBLE
    cdef int32_t count = read_array_length(c, flexible)
    cdef FetchTopic* topic
    cdef bint good
    cdef int32_t i
    if c.error or count < 0 or count > MAX_PARTITIONS or not has_room(0, <size_t>count):
        return False
    for i in range(count):
        topic = read_topic(state, c)
        if topic == NULL:
            return False
        good = read_forgotten(state, c, topic) if forgotten else read_partitions(state, c, topic)
        fetch_topic_unref(topic)
        if not good:
            return False
        if flexible:
            skip_tagged_fields(c)
        if c.error:
            return False
    return True


cdef void read_top_tags(FetchState* state, Cursor* c) noexcept nogil:
    cdef uint32_t count = read_tag_count(c)
    cdef uint32_t tag
    cdef uint32_t size
    cdef const uint8_t* at
    cdef Cursor field
    while count > 0 and not c.error:
        tag = read_unsigned_varint(c)
        size = read_unsigned_varint(c)
        at = take(c, size)
        if at != NULL and tag == REPLICA_STATE_TAG and state.frame.api_version >= REPLICA_STATE_VERSION:
            cursor_init(&field, at, size)
            state.replica_id = read_int32(&field)
            state.replica_epoch = read_int64(&field)
            skip_tagged_fields(&field)
            if field.error or remaining(&field):
                c.error = 1
        count -= 1


cdef bint in_order(FetchState* state) noexcept nogil:
    """Whether the request has one topic with ascending partitions, so no partition is there twice."""
    cdef size_t i
    for i in range(1, state.partitions.size()):
        if (state.partitions[i - 1].topic != state.partitions[i].topic
                or state.partitions[i - 1].request.partition >= state.partitions[i].request.partition):
            return False
    return True


cdef void drop_repeated(FetchState* state) noexcept nogil:
    """Drops repeated partitions. The last entry of a partition counts, and its answer stands in the first one's place,
    as in Kafka."""
    cdef NamedPartitions named
    cdef vector[size_t] places
    cdef vector[FetchTopic*] dropped
    cdef FetchPartition* partition
    cdef FetchTopic* topic = NULL
    cdef const uint8_t* key = NULL
    cdef uint64_t hashed = 0
    cdef size_t size = 0
    cdef size_t kept = 0
    cdef size_t first
    cdef size_t i
    if in_order(state):
        return
    named_begin(&named, state.partitions.size())
    places.reserve(state.partitions.size())
    for i in range(state.partitions.size()):
        partition = &state.partitions[i]
        if i == 0 or partition.topic != topic:
            topic = partition.topic
            if topic.by_id:
                key = topic.topic_id
                size = TOPIC_ID_SIZE
            else:
                key = <const uint8_t*>topic.name.data()
                size = topic.name.size()
            hashed = named_topic(&named, key, size)
        first = named_first(&named, key, size, hashed, partition.request.partition)
        if first == i:
            places.push_back(kept)
            if kept != i:
                state.partitions[kept] = state.partitions[i]
            kept += 1
        else:
            places.push_back(places[first])
            state.partitions[places[first]].request = partition.request
            dropped.push_back(partition.topic)     # the reply still needs its name
    state.partitions.resize(kept)
    for i in range(dropped.size()):
        fetch_topic_unref(dropped[i])


cdef bint fetch_decode(FetchState* state) noexcept nogil:
    cdef int version = state.frame.api_version
    cdef bint flexible = version >= FETCH_FLEXIBLE
    cdef int32_t size = 0
    cdef int32_t fixed = (4 * (version < REPLICA_STATE_VERSION) + 8 + 4 * (version >= 3) + (version >= 4)
                          + 8 * (version >= SESSION_VERSION))
    cdef const uint8_t* at
    cdef Cursor c
    cursor_init(&c, state.frame.body, state.frame.body_size)
    at = take(&c, fixed)
    if at == NULL:
        return False
    state.replica_id = -1
    state.replica_epoch = -1
    if not state.rack.empty():
        state.rack.clear()
    if version < REPLICA_STATE_VERSION:
        state.replica_id = load_int32(at)
        at += 4
    state.max_wait_ms = load_int32(at)
    state.min_bytes = load_int32(at + 4)
    at += 8
    state.max_bytes = <int32_t>INT32_MAX
    if version >= 3:
        state.max_bytes = load_int32(at)
        at += 4
    state.isolation_level = 0
    if version >= 4:
        state.isolation_level = <int8_t>at[0]
        at += 1
    state.session_id = INVALID_SESSION_ID
    state.session_epoch = FINAL_EPOCH
    if version >= SESSION_VERSION:
        state.session_id = load_int32(at)
        state.session_epoch = load_int32(at + 4)
    if not read_topics(state, &c, False):
        return False
    if version >= SESSION_VERSION and not read_topics(state, &c, True):
        return False
    if version >= 11:
        at = read_string(&c, flexible, &size)
        if c.error or size < 0:
            return False
        if size > 0:
            state.rack.assign(<const char*>at, <size_t>size)
    if flexible:
        read_top_tags(state, &c)
    if state.isolation_level != 0 and state.isolation_level != 1:
        return False
    if c.error or remaining(&c):
        return False
    if state.partitions.size() > 1:
        drop_repeated(state)
    return True


def decode(int16_t version, bytes body):
    """Decodes a Fetch body as the data plane does; None when the data plane would close the connection. For tests and
    for the request log.

    A dict of the request's fields; topics are (name or topic id as bytes, partition, current leader epoch, fetch
    offset, last fetched epoch, log start offset, max bytes), forgotten ones (name or topic id, partition).
    """
    cdef FetchState state
    cdef FetchPartition* partition
    cdef size_t i
    state.last_topic = NULL
    state.frame.api_version = version
    state.frame.body = <uint8_t*><const uint8_t*>body
    state.frame.body_size = len(body)
    try:
        if not fetch_decode(&state):
            return None
        partitions = []
        for i in range(state.partitions.size()):
            partition = &state.partitions[i]
            partitions.append((
                topic_key(partition.topic),
                partition.request.partition,
                partition.request.current_leader_epoch,
                partition.request.fetch_offset,
                partition.request.last_fetched_epoch,
                partition.request.log_start_offset,
                partition.request.max_bytes,
            ))
        return {
            "replica_id": state.replica_id,
            "replica_epoch": state.replica_epoch,
            "max_wait_ms": state.max_wait_ms,
            "min_bytes": state.min_bytes,
            "max_bytes": state.max_bytes,
            "isolation_level": state.isolation_level,
            "rack_id": <bytes>state.rack,
            "session_id": state.session_id,
            "session_epoch": state.session_epoch,
            "partitions": partitions,
            "forgotten": [(topic_key(state.forgotten[i].topic), state.forgotten[i].partition)
                          for i in range(state.forgotten.size())],
        }
    finally:
        fetch_partitions_release(&state)
        fetch_topic_unref(state.last_topic)


cdef bytes topic_key(FetchTopic* topic):
    if topic.by_id:
        return (<const char*>topic.topic_id)[:TOPIC_ID_SIZE]
    return topic.name.data()[:topic.name.size()]
