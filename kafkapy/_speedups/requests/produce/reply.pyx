"""The reply to a Produce, versions 0 to 13 (Kafka's ProduceResponse).

    frame               size int32 | correlation id int32 | v9+: tagged fields (response header v1)
    responses           array of topics
      topic             v0-12: name string | v13: topic id uuid | partition responses | v9+: tagged fields
      partition         index int32 | error code int16 | base offset int64
                        v2+: log append time ms int64 (-1: CreateTime)
                        v5+: log start offset int64
                        v8+: record errors: array of (batch index int32, message nullable string, v9+: tagged fields)
                             error message nullable string
                        v9+: tagged fields, of which v10+ tag 0: current leader (id int32, epoch int32, tagged fields)
    v1+: throttle time  int32, ms
    v9+: tagged fields  of which v10+ tag 0: node endpoints (requests/data_plane.pyx)

Strings and arrays are compact from v9 on.
"""

from libc.stdint cimport int16_t, int32_t
from libc.string cimport strlen
from libcpp.vector cimport vector

from kafkapy._speedups.base.error_codes cimport ERROR_FENCED_LEADER_EPOCH, ERROR_NOT_LEADER_OR_FOLLOWER
from kafkapy._speedups.base.send cimport send_again, send_free, send_lay_out, send_new, send_take_buffer
from kafkapy._speedups.base.wire cimport (
    ByteBuffer,
    buffer_free,
    store_int32,
    write_array_length,
    write_int16,
    write_int32,
    write_int64,
    write_raw,
    write_string,
    write_unsigned_varint,
)
from kafkapy._speedups.protocol.data_plane_versions cimport PRODUCE_FLEXIBLE
from kafkapy._speedups.records.record_batch cimport RECORD_NULL_KEY
from kafkapy._speedups.requests.data_plane cimport leader_note, leaders_write, left_is_mine
from kafkapy._speedups.requests.produce.state cimport ProducePartition, ProduceTopic

cdef enum:
    FRAME_SIZE_BYTES = 4
    TOPIC_ID_SIZE = 16
    CURRENT_LEADER_TAG = 0
    CURRENT_LEADER_SIZE = 4 + 4 + 1     # id, epoch, its own empty tagged fields

cdef const char* NULL_KEY_MESSAGE = b"a record without a key on a compacted topic"
cdef const char* TIMESTAMP_MESSAGE = (b"the record's timestamp is outside message.timestamp.before.max.ms "
                                      b"and message.timestamp.after.max.ms")


cdef bint tells_leader(ProducePartition* partition, int16_t version) noexcept nogil:
    return (version >= 10 and (partition.result.leader_id >= 0 or partition.result.leader_epoch >= 0)
            and (partition.result.error == ERROR_NOT_LEADER_OR_FOLLOWER
                 or partition.result.error == ERROR_FENCED_LEADER_EPOCH))


cdef void write_partition(ProducePartition* partition, int16_t version, ByteBuffer* out) noexcept nogil:
    cdef bint flexible = version >= PRODUCE_FLEXIBLE
    cdef const char* text
    cdef int32_t i
    write_int32(out, partition.index)
    write_int16(out, partition.result.error)
    write_int64(out, partition.result.base_offset)
    if version >= 2:
        write_int64(out, partition.result.log_append_time_ms)
    if version >= 5:
        write_int64(out, partition.result.log_start_offset)
    if version >= 8:
        write_array_length(out, partition.result.record_error_count, flexible)
        for i in range(partition.result.record_error_count):
            write_int32(out, partition.result.record_errors[i].batch_index)
            if not partition.message.empty():
                write_string(out, partition.message.data(), <int32_t>partition.message.size(), flexible)
            else:
                text = TIMESTAMP_MESSAGE
                if partition.result.record_errors[i].problem == RECORD_NULL_KEY:
                    text = NULL_KEY_MESSAGE
                write_string(out, text, <int32_t>strlen(text), flexible)
            if flexible:
                write_unsigned_varint(out, 0)
        if not partition.message.empty():
            write_string(out, partition.message.data(), <int32_t>partition.message.size(), flexible)
        elif partition.result.error and partition.result.message != NULL:
            write_string(out, partition.result.message, <int32_t>strlen(partition.result.message), flexible)
        else:
            write_string(out, NULL, -1, flexible)
    if flexible:
        if tells_leader(partition, version):
            write_unsigned_varint(out, 1)
            write_unsigned_varint(out, CURRENT_LEADER_TAG)
            write_unsigned_varint(out, CURRENT_LEADER_SIZE)
            write_int32(out, partition.result.leader_id)
            write_int32(out, partition.result.leader_epoch)
        write_unsigned_varint(out, 0)   # of the leader struct, or of the partition when there is no leader


cdef int32_t partitions_answered(ProduceState* state, ProduceTopic* topic) noexcept nogil:
    """The number of partitions in the reply, without entries that a later entry repeats."""
    cdef int32_t count = 0
    cdef size_t i
    if not state.repeated:
        return <int32_t>topic.count
    for i in range(topic.first, topic.first + topic.count):
        count += not state.partitions[i].superseded
    return count


cdef int32_t topics_answered(ProduceState* state) noexcept nogil:
    cdef int32_t count = 0
    cdef size_t i
    if not state.repeated:
        return <int32_t>state.topics.size()
    for i in range(state.topics.size()):
        count += state.topics[i].count == 0 or partitions_answered(state, &state.topics[i]) > 0
    return count


cdef Send* produce_response_build(DataPlaneState* plane, ProduceState* state) noexcept nogil:
    cdef int16_t version = state.frame.api_version
    cdef bint flexible = version >= PRODUCE_FLEXIBLE
    cdef ByteBuffer out
    cdef ProduceTopic* topic
    cdef ProducePartition* partition
    cdef vector[int32_t] leaders
    cdef Send* send = send_again(&state.frame.left.send) if left_is_mine(state.frame.left) else send_new()
    cdef int32_t answered
    cdef size_t i
    cdef size_t j
    send_lay_out(send, &out)
    write_int32(&out, 0)
    write_int32(&out, state.frame.correlation_id)
    if flexible:
        write_unsigned_varint(&out, 0)
    write_array_length(&out, topics_answered(state), flexible)
    for i in range(state.topics.size()):
        topic = &state.topics[i]
        answered = partitions_answered(state, topic)
        if answered == 0 and topic.count:
            continue
        if topic.topic_id != NULL:
            write_raw(&out, topic.topic_id, TOPIC_ID_SIZE)
        else:
            write_string(&out, topic.name, topic.name_size, flexible)
        write_array_length(&out, answered, flexible)
        for j in range(topic.first, topic.first + topic.count):
            partition = &state.partitions[j]
            if partition.superseded:
                continue
            write_partition(partition, version, &out)
            if tells_leader(partition, version) and partition.result.leader_id >= 0:
                leader_note(&leaders, partition.result.leader_id)
        if flexible:
            write_unsigned_varint(&out, 0)
    if version >= 1:
        write_int32(&out, state.throttle_ms)
    if flexible:
        if leaders.size():
            leaders_write(plane, state.frame.listener_index, &leaders, &out)
        else:
            write_unsigned_varint(&out, 0)
    if out.error:
        buffer_free(&out)
        send_free(send)
        return NULL
    store_int32(out.data, <int32_t>(out.size - FRAME_SIZE_BYTES))
    send_take_buffer(send, &out)
    return send
