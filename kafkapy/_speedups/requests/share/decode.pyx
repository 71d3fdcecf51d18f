"""The bodies of ShareFetch and ShareAcknowledge, versions 1 and 2 (KIP-932, KIP-1206, KIP-1222).

    group id            compact nullable string
    member id           compact nullable string
    session epoch       int32: 0 opens a session, -1 closes it
    ShareFetch:
      max wait ms, min bytes, max bytes, max records, batch size      int32 each
      v2: acquire mode  int8: 0 whole batches, 1 never more than max records
    v2: is renew        int8: whether type 4 (renew) may be among the acknowledgements
    topics              compact array
      topic             topic id uuid | partitions compact array | tagged fields
      partition         index int32 | acknowledgement batches compact array | tagged fields
      batch             first offset int64 | last offset int64 | types compact array of int8 | tagged fields
    ShareFetch:
      forgotten         compact array of (topic id uuid, compact array of int32, tagged fields)
    tagged fields

Of repeated entries for a partition the last one counts, as in Kafka.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, uint8_t, uint64_t
from libc.string cimport memset
from libcpp.vector cimport vector

from kafkapy._speedups.base.memory_reserve cimport has_room
from kafkapy._speedups.base.wire cimport (
    Cursor,
    cursor_init,
    load_int32,
    read_array_length,
    read_int8,
    read_int32,
    read_int64,
    read_string,
    remaining,
    skip_tagged_fields,
    take,
)
from kafkapy._speedups.requests.data_plane cimport API_SHARE_FETCH
from kafkapy._speedups.requests.fetch_session cimport (
    FetchTopic,
    fetch_topic_new,
    fetch_topic_ref,
    fetch_topic_unref,
)
from kafkapy._speedups.requests.named_partitions cimport NamedPartitions, named_begin, named_first, named_topic
from kafkapy._speedups.requests.share.state cimport MAX_PARTITIONS, ForgottenShare
from kafkapy._speedups.share.layout cimport Acknowledgement

cdef enum:
    RENEW_VERSION = 2               # also the first one with an acquire mode
    TOPIC_ID_SIZE = 16


cdef void share_part_init(SharePart* part) noexcept nogil:
    part.topic = NULL
    part.partition = -1
    part.leader_id = -1
    part.leader_epoch = -1
    part.entry = NULL
    part.named = False
    part.denied = False
    part.answered = False
    part.first_batch = 0
    part.batch_count = 0
    part.acknowledge_error = 0
    part.explained = False
    memset(&part.ticket, 0, sizeof(part.ticket))
    part.fetched = False
    part.cached = NULL
    part.refused = False
    part.error = 0
    part.waits = False
    memset(&part.waiter, 0, sizeof(part.waiter))
    part.readable = 0
    part.segment = NULL
    part.position = 0
    part.length = 0
    part.first_range = 0
    part.range_count = 0


cdef bint read_name(Cursor* c, bint* present, ShareState* state, bint is_group) noexcept nogil:
    cdef int32_t size = -1
    cdef const uint8_t* at = read_string(c, True, &size)
    present[0] = size >= 0
    if size > 0:
        if is_group:
            state.group.assign(<const char*>at, <size_t>size)
        else:
            state.member.assign(<const char*>at, <size_t>size)
    return not c.error


cdef bint read_batches(ShareState* state, Cursor* c, SharePart* part) noexcept nogil:
    cdef int32_t count = read_array_length(c, True)
    cdef Acknowledgement batch
    cdef int32_t types
    cdef int32_t i
    if c.error or count < 0 or not has_room(state.batches.size(), <size_t>count):
        return False
    part.first_batch = state.batches.size()
    part.batch_count = <size_t>count
    for i in range(count):
        batch.first = read_int64(c)
        batch.last = read_int64(c)
        types = read_array_length(c, True)
        if c.error or types < 0:
            return False
        batch.types = <const int8_t*>take(c, types)
        batch.type_count = types
        skip_tagged_fields(c)
        if c.error:
            return False
        state.batches.push_back(batch)
    if count > 0:
        state.acknowledges = True
    return True


cdef bint read_partitions(ShareState* state, Cursor* c, FetchTopic* topic) noexcept nogil:
    cdef int32_t count = read_array_length(c, True)
    cdef SharePart part
    cdef int32_t i
    if c.error or count < 0 or <size_t>count > MAX_PARTITIONS - state.parts.size():
        return False
    if not has_room(state.parts.size(), <size_t>count):
        return False
    for i in range(count):
        share_part_init(&part)
        part.named = True
        part.partition = read_int32(c)
        if not read_batches(state, c, &part):
            return False
        skip_tagged_fields(c)
        if c.error:
            return False
        part.topic = fetch_topic_ref(topic)
        state.parts.push_back(part)
    return True


cdef bint read_forgotten(ShareState* state, Cursor* c, FetchTopic* topic) noexcept nogil:
    cdef int32_t count = read_array_length(c, True)
    cdef ForgottenShare forgotten
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


cdef bint read_topics(ShareState* state, Cursor* c, bint forgotten) noexcept nogil:
    cdef int32_t count = read_array_length(c, True)
    cdef FetchTopic* topic
    cdef const uint8_t* topic_id
    cdef bint good
    cdef int32_t i
    if c.error or count < 0 or count > MAX_PARTITIONS or not has_room(0, <size_t>count):
        return False
    for i in range(count):
        topic_id = take(c, TOPIC_ID_SIZE)
        if topic_id == NULL:
            return False
        topic = fetch_topic_new(NULL, 0, topic_id)
        good = read_forgotten(state, c, topic) if forgotten else read_partitions(state, c, topic)
        fetch_topic_unref(topic)
        if not good:
            return False
        skip_tagged_fields(c)
        if c.error:
            return False
    return True


cdef void drop_repeated(ShareState* state) noexcept nogil:
    """Drops repeated partitions: the batches of the last entry stand in the first one's place."""
    cdef NamedPartitions named
    cdef vector[size_t] places
    cdef vector[FetchTopic*] dropped
    cdef SharePart* part
    cdef FetchTopic* topic = NULL
    cdef uint64_t hashed = 0
    cdef size_t kept = 0
    cdef size_t first
    cdef size_t i
    named_begin(&named, state.parts.size())
    places.reserve(state.parts.size())
    for i in range(state.parts.size()):
        part = &state.parts[i]
        if part.topic != topic:
            topic = part.topic
            hashed = named_topic(&named, topic.topic_id, TOPIC_ID_SIZE)
        first = named_first(&named, topic.topic_id, TOPIC_ID_SIZE, hashed, part.partition)
        if first == i:
            places.push_back(kept)
            if kept != i:
                state.parts[kept] = state.parts[i]
            kept += 1
        else:
            places.push_back(places[first])
            state.parts[places[first]].first_batch = part.first_batch
            state.parts[places[first]].batch_count = part.batch_count
            dropped.push_back(part.topic)       # the set of names still needs it
    state.parts.resize(kept)
    for i in range(dropped.size()):
        fetch_topic_unref(dropped[i])


cdef bint share_decode(ShareState* state) noexcept nogil:
    cdef int version = state.frame.api_version
    cdef bint fetches = state.frame.api_key == API_SHARE_FETCH
    cdef const uint8_t* at
    cdef Cursor c
    cursor_init(&c, state.frame.body, state.frame.body_size)
    if not read_name(&c, &state.has_group, state, True) or not read_name(&c, &state.has_member, state, False):
        return False
    state.session_epoch = read_int32(&c)
    if fetches:
        at = take(&c, 20)
        if at == NULL:
            return False
        state.max_wait_ms = load_int32(at)
        state.min_bytes = load_int32(at + 4)
        state.max_bytes = load_int32(at + 8)
        state.max_records = load_int32(at + 12)
        state.batch_size = load_int32(at + 16)
        if version >= RENEW_VERSION:
            state.acquire_mode = read_int8(&c)
    if version >= RENEW_VERSION:
        state.renews = read_int8(&c) != 0
    if c.error or not read_topics(state, &c, False):
        return False
    if fetches and not read_topics(state, &c, True):
        return False
    skip_tagged_fields(&c)
    if c.error or remaining(&c):
        return False
    if state.parts.size() > 1:
        drop_repeated(state)
    return True


def decode(int16_t api_key, int16_t version, bytes body):
    """Decodes a body as the data plane does; None when the data plane would close the connection. For tests.

    A dict of the request's fields; partitions are (topic id, partition, [(first, last, types), ...]), forgotten ones
    (topic id, partition).
    """
    cdef ShareState* state = new ShareState()
    cdef SharePart* part
    cdef Acknowledgement* batch
    cdef size_t i
    cdef size_t j
    state.frame.api_key = api_key
    state.frame.api_version = version
    state.frame.body = <uint8_t*><const uint8_t*>body
    state.frame.body_size = len(body)
    state.max_wait_ms = state.min_bytes = state.max_bytes = state.max_records = state.batch_size = 0
    state.acquire_mode = 0
    state.renews = False
    state.acknowledges = False
    try:
        if not share_decode(state):
            return None
        partitions = []
        for i in range(state.parts.size()):
            part = &state.parts[i]
            batches = []
            for j in range(part.first_batch, part.first_batch + part.batch_count):
                batch = &state.batches[j]
                batches.append((batch.first, batch.last, [batch.types[k] for k in range(batch.type_count)]))
            partitions.append(((<const char*>part.topic.topic_id)[:TOPIC_ID_SIZE], part.partition, batches))
        return {
            "group_id": <bytes>state.group if state.has_group else None,
            "member_id": <bytes>state.member if state.has_member else None,
            "session_epoch": state.session_epoch,
            "max_wait_ms": state.max_wait_ms,
            "min_bytes": state.min_bytes,
            "max_bytes": state.max_bytes,
            "max_records": state.max_records,
            "batch_size": state.batch_size,
            "acquire_mode": state.acquire_mode,
            "renews": bool(state.renews),
            "partitions": partitions,
            "forgotten": [
                ((<const char*>state.forgotten[i].topic.topic_id)[:TOPIC_ID_SIZE], state.forgotten[i].partition)
                for i in range(state.forgotten.size())
            ],
        }
    finally:
        for i in range(state.parts.size()):
            fetch_topic_unref(state.parts[i].topic)
        for i in range(state.forgotten.size()):
            fetch_topic_unref(state.forgotten[i].topic)
        del state
