"""A Produce body, versions 0 to 13 (Kafka's ProduceRequest).

    v3+: transactional id nullable string
    acks                int16: 0, 1, -1
    timeout ms          int32: how long acks=-1 may wait
    topics              array
      topic             v0-12: name string | v13: topic id uuid | partitions | v9+: tagged fields
      partition         index int32 | records nullable bytes | v9+: tagged fields
    v9+: tagged fields

Strings, bytes and arrays are compact from v9 on. Nothing is copied: names and records are borrowed from the frame.
"""

from libc.stdint cimport int16_t, int32_t, uint8_t, uint64_t
from libc.string cimport memcmp, memset

from kafkapy._speedups.base.memory_reserve cimport has_room
from kafkapy._speedups.base.wire cimport (
    Cursor,
    cursor_init,
    read_array_length,
    read_bytes,
    read_int16,
    read_int32,
    read_string,
    remaining,
    skip_tagged_fields,
    take,
)
from kafkapy._speedups.protocol.data_plane_versions cimport PRODUCE_FLEXIBLE
from kafkapy._speedups.requests.named_partitions cimport NamedPartitions, named_begin, named_first, named_topic
from kafkapy._speedups.requests.produce.state cimport PARTITION_DONE, PARTITION_PENDING, ProducePartition, ProduceTopic

cdef enum:
    TRANSACTIONAL_ID_VERSION = 3
    TOPIC_ID_VERSION = 13
    TOPIC_ID_SIZE = 16
    FEW = 16                        # up to this number, entries are compared with each other
    MAX_PARTITIONS = 200000         # in one request: bounds the memory of a frame of tiny partitions


cdef bint same_topic(const ProduceTopic* one, const ProduceTopic* other) noexcept nogil:
    if one == other:
        return True
    if one.topic_id != NULL:
        return memcmp(one.topic_id, other.topic_id, TOPIC_ID_SIZE) == 0
    return one.name_size == other.name_size and memcmp(one.name, other.name, one.name_size) == 0


cdef void supersede(ProduceState* state, ProducePartition* partition) noexcept nogil:
    partition.superseded = True
    partition.stage = PARTITION_DONE
    state.repeated = True


cdef bint in_order(ProduceState* state) noexcept nogil:
    """Whether the request has one topic with ascending partitions, so no partition is there twice."""
    cdef size_t i
    for i in range(1, state.partitions.size()):
        if state.partitions[i - 1].index >= state.partitions[i].index:
            return False
    return state.topics.size() == 1


cdef void drop_repeated(ProduceState* state) noexcept nogil:
    """Drops repeated partitions. The last entry of a partition counts and is answered, as in Kafka."""
    cdef NamedPartitions named
    cdef ProducePartition* one
    cdef ProducePartition* other
    cdef ProduceTopic* topic
    cdef const uint8_t* key
    cdef uint64_t hashed
    cdef size_t size
    cdef size_t count = state.partitions.size()
    cdef size_t i
    cdef size_t j
    if count <= FEW:
        for i in range(count):
            one = &state.partitions[i]
            for j in range(i + 1, count):
                other = &state.partitions[j]
                if one.index == other.index and same_topic(&state.topics[one.topic], &state.topics[other.topic]):
                    supersede(state, one)
                    break
        return
    if in_order(state):
        return
    named_begin(&named, count)
    # From the last entry to the first.
    for i in range(state.topics.size(), 0, -1):
        topic = &state.topics[i - 1]
        key = topic.topic_id if topic.topic_id != NULL else topic.name
        size = TOPIC_ID_SIZE if topic.topic_id != NULL else <size_t>topic.name_size
        hashed = named_topic(&named, key, size)
        for j in range(topic.first + topic.count, topic.first, -1):
            one = &state.partitions[j - 1]
            if named_first(&named, key, size, hashed, one.index) != count - j:
                supersede(state, one)


cdef bint produce_decode(ProduceState* state) noexcept nogil:
    cdef int16_t version = state.frame.api_version
    cdef bint flexible = version >= PRODUCE_FLEXIBLE
    cdef ProduceTopic topic
    cdef ProducePartition partition
    cdef Cursor c
    cdef int32_t topic_count
    cdef int32_t partition_count
    cdef int32_t size
    cdef int32_t i
    cdef int32_t j
    memset(&partition.result, 0, sizeof(partition.result))
    partition.result.base_offset = -1
    partition.result.last_offset = -1
    partition.result.log_append_time_ms = -1
    partition.result.log_start_offset = -1
    partition.result.leader_id = -1
    partition.result.leader_epoch = -1
    partition.replaced = NULL
    partition.validated = False
    partition.checked = False
    partition.for_worker = False
    partition.asked_guard = 0
    partition.guard = 0
    partition.stage = PARTITION_PENDING
    partition.place = 0
    partition.superseded = False
    partition.log = NULL
    cursor_init(&c, state.frame.body, state.frame.body_size)
    state.repeated = False
    state.appended = 0
    state.transactional_id = NULL
    state.transactional_id_size = -1
    if version >= TRANSACTIONAL_ID_VERSION:
        state.transactional_id = read_string(&c, flexible, &state.transactional_id_size)
    state.acks = read_int16(&c)
    state.timeout_ms = read_int32(&c)
    topic_count = read_array_length(&c, flexible)
    if c.error or topic_count < 0 or topic_count > MAX_PARTITIONS or not has_room(0, <size_t>topic_count):
        return False
    for i in range(topic_count):
        topic.name = NULL
        topic.name_size = 0
        topic.topic_id = NULL
        if version >= TOPIC_ID_VERSION:
            topic.topic_id = take(&c, TOPIC_ID_SIZE)
        else:
            topic.name = read_string(&c, flexible, &topic.name_size)
            if topic.name_size < 0:
                return False
        partition_count = read_array_length(&c, flexible)
        if c.error or partition_count < 0 or <size_t>partition_count > MAX_PARTITIONS - state.partitions.size():
            return False
        if not has_room(state.partitions.size(), <size_t>partition_count):
            return False
        topic.first = state.partitions.size()
        topic.count = <size_t>partition_count
        for j in range(partition_count):
            partition.topic = state.topics.size()
            partition.index = read_int32(&c)
            partition.records = read_bytes(&c, flexible, &size)
            partition.records_size = size
            if flexible:
                skip_tagged_fields(&c)
            if c.error:
                return False
            state.partitions.push_back(partition)
        if flexible:
            skip_tagged_fields(&c)
        if c.error or state.topics.size() >= MAX_PARTITIONS:
            return False
        state.topics.push_back(topic)
    if flexible:
        skip_tagged_fields(&c)
    if c.error or remaining(&c):
        return False
    if state.partitions.size() > 1:
        drop_repeated(state)
    return True


def decode(int16_t version, bytes body):
    """Decodes a Produce body as the data plane does; None when the data plane would close the connection. For tests and
    for the request log.

    {"transactional_id": bytes | None, "acks": int, "timeout_ms": int, "topics": [(name or topic id as bytes, [(index,
    records | None)])]}
    """
    cdef ProduceState state
    cdef ProducePartition* partition
    cdef ProduceTopic* topic
    cdef size_t i
    cdef size_t j
    state.frame.api_version = version
    state.frame.body = <uint8_t*><const uint8_t*>body
    state.frame.body_size = len(body)
    if not produce_decode(&state):
        return None
    topics = []
    for i in range(state.topics.size()):
        topic = &state.topics[i]
        partitions = []
        for j in range(topic.first, topic.first + topic.count):
            partition = &state.partitions[j]
            records = None if partition.records_size < 0 else (<const char*>partition.records)[:partition.records_size]
            partitions.append((partition.index, records))
        if topic.topic_id != NULL:
            topics.append(((<const char*>topic.topic_id)[:TOPIC_ID_SIZE], partitions))
        else:
            topics.append(((<const char*>topic.name)[:topic.name_size], partitions))
    transactional_id = None
    if state.transactional_id_size >= 0:
        transactional_id = (<const char*>state.transactional_id)[:state.transactional_id_size]
    return {"transactional_id": transactional_id, "acks": state.acks, "timeout_ms": state.timeout_ms, "topics": topics}
