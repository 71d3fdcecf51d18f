"""Messages of formats v0 and v1 (records/message_set.pxd), of brokers and topics before Kafka 0.11, as v2 records.

    plain       a run of messages of one format and timestamp type becomes one batch, the first one's offset its base
                offset; every record keeps its own timestamp, an append time too
    wrapper     the value is a compressed message set. Offsets inside are absolute in v0; in v1 they count from 0 and
                the wrapper has the last one's. (A v1 wrapper with offset 0 comes from librdkafka before 0.11: the
                offsets inside are taken as they are.) LogAppendTime of a v1 wrapper holds for all inside. A wrapper
                inside a wrapper is an error, and so is another format.

Every message's CRC is checked. Timestamps become deltas from 0, so that v0's -1 stays -1. Nothing here takes the GIL.
"""

from libc.stdint cimport INT32_MAX, int8_t, int32_t

from kafkapy._speedups.base.wire cimport ByteBuffer, buffer_free, buffer_init, load_int32
from kafkapy._speedups.clients.consumer.fetched_batch cimport (
    FETCHED_BAD_CODEC,
    FETCHED_BAD_COMPRESSION,
    FETCHED_BAD_CRC,
    FETCHED_BAD_LENGTH,
    FETCHED_BAD_RECORDS,
    FETCHED_NO_MEMORY,
    FETCHED_READY,
    FETCHED_TOO_LARGE,
    NO_TIMESTAMP_TYPE,
    FetchedState,
)
from kafkapy._speedups.records.compression cimport (
    CODEC_LZ4_V0,
    COMPRESSION_NO_MEMORY,
    COMPRESSION_OK,
    COMPRESSION_TOO_LARGE,
    decompress_into,
)
from kafkapy._speedups.records.message_set cimport (
    MESSAGE_BAD_CRC,
    MESSAGE_BAD_LENGTH,
    MESSAGE_INCOMPLETE,
    MESSAGE_OK,
    Message,
    MessageStatus,
    message_parse,
)
from kafkapy._speedups.records.record_batch cimport (
    BATCH_LENGTH_AT,
    CODEC_LZ4,
    CODEC_MASK,
    LOG_OVERHEAD,
    TIMESTAMP_TYPE_FLAG,
    RecordView,
    record_write,
)


cdef inline int8_t timestamp_type_of(const Message* message) noexcept nogil:
    if message.magic == 0:
        return NO_TIMESTAMP_TYPE
    return 1 if message.attributes & TIMESTAMP_TYPE_FLAG else 0


cdef inline FetchedState state_of(MessageStatus status) noexcept nogil:
    if status == MESSAGE_BAD_CRC:
        return FETCHED_BAD_CRC
    if status == MESSAGE_BAD_LENGTH:
        return FETCHED_BAD_LENGTH
    return FETCHED_BAD_RECORDS


cdef bint write_message(const Message* message, int64_t offset, int64_t base_offset, ByteBuffer* out) noexcept nogil:
    """Writes a message as a record. False when the offset is too far from the batch's."""
    cdef RecordView record
    if offset < base_offset or offset - base_offset > INT32_MAX:
        return False
    record.timestamp_delta = message.timestamp
    record.offset_delta = <int32_t>(offset - base_offset)
    record.key_size = message.key_size
    record.key = message.key
    record.value_size = message.value_size
    record.value = message.value
    record.header_count = 0
    record.headers = NULL
    record.headers_size = 0
    record_write(out, &record)
    return True


cdef int64_t messages_convert(const uint8_t* data, int64_t available, int64_t max_bytes, FetchedBatch* entry,
                              vector[Slab]* slabs) noexcept nogil:
    cdef Message message
    cdef Slab slab
    cdef ByteBuffer out
    cdef int64_t at = 0
    cdef MessageStatus status = message_parse(data, available, entry.magic, &message)
    if status == MESSAGE_INCOMPLETE:
        return 0
    entry.timestamp_type = timestamp_type_of(&message)
    if status != MESSAGE_OK:
        entry.state = state_of(status)
        # A malformed message with a valid length is skipped whole.
        if entry.state == FETCHED_BAD_LENGTH:
            return available
        return load_int32(data + <int>BATCH_LENGTH_AT) + LOG_OVERHEAD
    entry.next_offset = message.offset + 1
    buffer_init(&out)
    if message.attributes & CODEC_MASK:
        at = message.size
        entry.append_time = message.timestamp
        entry.has_append_time = entry.timestamp_type == 1
        entry.state = open_wrapper(&message, max_bytes, entry, &out)
    else:
        while (status == MESSAGE_OK and not message.attributes & CODEC_MASK
               and timestamp_type_of(&message) == entry.timestamp_type):
            if not write_message(&message, message.offset, entry.base_offset, &out):
                break
            entry.record_count += 1
            entry.next_offset = message.offset + 1
            at += message.size
            status = message_parse(data + at, available - at, entry.magic, &message)
        entry.state = FETCHED_READY
    if out.error:
        entry.state = FETCHED_NO_MEMORY
    if entry.state != FETCHED_READY:
        buffer_free(&out)
        return at
    entry.records = out.data
    entry.size = out.size
    slab.data = out.data
    slab.size = out.size
    slab.capacity = out.size
    entry.slab = <int32_t>slabs.size()
    slabs.push_back(slab)
    return at


cdef FetchedState open_wrapper(const Message* wrapper, int64_t max_bytes, FetchedBatch* entry,
                               ByteBuffer* out) noexcept nogil:
    cdef ByteBuffer opened
    cdef FetchedState state
    cdef int codec = wrapper.attributes & CODEC_MASK
    cdef int status
    if codec > CODEC_LZ4:
        return FETCHED_BAD_CODEC
    if codec == CODEC_LZ4 and wrapper.magic == 0:
        codec = CODEC_LZ4_V0
    buffer_init(&opened)
    status = decompress_into(codec, wrapper.value, wrapper.value_size, max_bytes, &opened)
    if status == COMPRESSION_OK:
        state = rewrite_inside(opened.data, opened.size, wrapper, entry, out)
    elif status == COMPRESSION_TOO_LARGE:
        state = FETCHED_TOO_LARGE
    elif status == COMPRESSION_NO_MEMORY:
        state = FETCHED_NO_MEMORY
    else:
        state = FETCHED_BAD_COMPRESSION
    buffer_free(&opened)
    return state


cdef FetchedState rewrite_inside(const uint8_t* data, int64_t size, const Message* wrapper, FetchedBatch* entry,
                                 ByteBuffer* out) noexcept nogil:
    """Reads the messages inside a wrapper twice: once for the last offset, once to write the records."""
    cdef Message message
    cdef MessageStatus status
    cdef int64_t at = 0
    cdef int64_t base = 0
    cdef int64_t end = 0
    cdef int64_t first = -1
    cdef int64_t last = -1
    while True:
        status = message_parse(data + end, size - end, wrapper.magic, &message)
        if status == MESSAGE_INCOMPLETE:
            break
        if status != MESSAGE_OK:
            return state_of(status) if status != MESSAGE_BAD_LENGTH else FETCHED_BAD_RECORDS
        if message.attributes & CODEC_MASK:
            return FETCHED_BAD_RECORDS
        if end == 0:
            first = message.offset
        last = message.offset
        end += message.size
    if end == 0:
        return FETCHED_BAD_RECORDS
    if wrapper.magic == 1 and wrapper.offset != 0:
        base = wrapper.offset - last
        if base < 0:
            return FETCHED_BAD_RECORDS
    entry.base_offset = base + first
    entry.next_offset = base + last + 1
    while at < end:
        message_parse(data + at, end - at, wrapper.magic, &message)
        if not write_message(&message, base + message.offset, entry.base_offset, out):
            return FETCHED_BAD_RECORDS
        entry.record_count += 1
        at += message.size
    return FETCHED_READY
