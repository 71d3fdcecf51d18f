"""Records between message format v2 and the formats v0 and v1, both ways, without the GIL.

The formats before v2 (org.apache.kafka.common.record.LegacyRecord), a message:

    offset int64 | size int32 (bytes that follow) | CRC-32 uint32 (of what follows it) | magic int8 | attributes int8 |
    v1: timestamp int64 (ms) | key int32 length + bytes | value int32 length + bytes (-1: null)

Attributes: bits 0-2 the codec, bit 3 LogAppendTime (v1). record_batch.pxd describes format v2. This module knows no
codec: the caller (kafkapy.records.legacy) decompresses the input and compresses the output. Each conversion walks its
input twice: the first walk checks it and computes the size of the output, the second writes the output, which is
allocated once.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT64_MIN, int8_t, int32_t, int64_t, uint8_t, uint32_t

from kafkapy._speedups.base.wire cimport (
    ByteBuffer,
    Cursor,
    buffer_init,
    cursor_init,
    extend,
    load_int32,
    load_int64,
    load_uint32,
    read_int32,
    remaining,
    store_int32,
    take,
    write_int32,
    write_int64,
    write_int8,
    write_raw,
)
from kafkapy._speedups.records.record_batch cimport (
    BATCH_OK,
    CODEC_MASK,
    LOG_OVERHEAD,
    MAX_RECORD_ERRORS,
    NO_TIMESTAMP,
    RecordView,
    record_read,
    record_size,
    record_write,
)

from kafkapy.errors import CorruptMessageError, MessageTooLargeError

cdef extern from * nogil:
    """
    /* Eight bytes a step over tables that are made once, when the module is loaded. */
    static uint32_t kp_crc32_tables[8][256];
    static void kp_crc32_init(void) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i;
            for (int k = 0; k < 8; k++) c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
            kp_crc32_tables[0][i] = c;
        }
        for (int t = 1; t < 8; t++)
            for (int i = 0; i < 256; i++) {
                uint32_t c = kp_crc32_tables[t - 1][i];
                kp_crc32_tables[t][i] = kp_crc32_tables[0][c & 0xFF] ^ (c >> 8);
            }
    }
    static uint32_t kp_crc32(const uint8_t* p, int64_t n) {
        uint32_t (*t)[256] = kp_crc32_tables;
        uint32_t c = 0xFFFFFFFFu;
        for (; n >= 8; n -= 8, p += 8) {
            c ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
            c = t[7][c & 0xFF] ^ t[6][(c >> 8) & 0xFF] ^ t[5][(c >> 16) & 0xFF] ^ t[4][c >> 24]
                ^ t[3][p[4]] ^ t[2][p[5]] ^ t[1][p[6]] ^ t[0][p[7]];
        }
        for (; n > 0; n--, p++) c = t[0][(c ^ *p) & 0xFF] ^ (c >> 8);
        return c ^ 0xFFFFFFFFu;
    }
    """
    void crc32_init "kp_crc32_init"()
    uint32_t crc32_of "kp_crc32"(const uint8_t* data, int64_t size)

cdef enum:
    MESSAGE_CRC_AT = LOG_OVERHEAD
    MESSAGE_MAGIC_AT = MESSAGE_CRC_AT + 4
    MESSAGE_ATTRIBUTES_AT = MESSAGE_MAGIC_AT + 1
    MESSAGE_BODY_AT = MESSAGE_ATTRIBUTES_AT + 1
    TIMESTAMP_SIZE = 8
    MIN_MESSAGE_SIZE = MESSAGE_BODY_AT + 4 + 4      # of v0, whole
    APPEND_TIME_FLAG = 0x08
    STATUS_COMPRESSED = 6                           # a compressed message where none may be

OK = <int>MESSAGE_OK
INCOMPLETE = <int>MESSAGE_INCOMPLETE
BAD_LENGTH = <int>MESSAGE_BAD_LENGTH
BAD_MAGIC = <int>MESSAGE_BAD_MAGIC
BAD_CRC = <int>MESSAGE_BAD_CRC
BAD_STRUCTURE = <int>MESSAGE_BAD_STRUCTURE
COMPRESSED = <int>STATUS_COMPRESSED

crc32_init()


cdef uint32_t crc32(const uint8_t* data, int64_t size) noexcept nogil:
    return crc32_of(data, size)


cdef MessageStatus message_parse(const uint8_t* data, int64_t available, int8_t magic, Message* out) noexcept nogil:
    cdef MessageStatus status = message_read(data, available, magic, out)
    if ((status == MESSAGE_OK or status == MESSAGE_BAD_STRUCTURE)
            and crc32_of(data + <int>MESSAGE_MAGIC_AT, out.size - MESSAGE_MAGIC_AT) != out.crc):
        return MESSAGE_BAD_CRC
    return status


cdef MessageStatus message_read(const uint8_t* data, int64_t available, int8_t magic, Message* out) noexcept nogil:
    """message_parse without the CRC check."""
    cdef Cursor c
    cdef int64_t size
    if available < LOG_OVERHEAD:
        return MESSAGE_INCOMPLETE
    out.offset = load_int64(data)
    size = <int64_t>load_int32(data + 8) + LOG_OVERHEAD
    if size < MIN_MESSAGE_SIZE:
        return MESSAGE_BAD_LENGTH
    if size > available or size > INT32_MAX:
        return MESSAGE_INCOMPLETE
    out.size = <int32_t>size
    out.crc = load_uint32(data + <int>MESSAGE_CRC_AT)
    out.magic = <int8_t>data[<int>MESSAGE_MAGIC_AT]
    out.attributes = <int8_t>data[<int>MESSAGE_ATTRIBUTES_AT]
    if out.magic != magic:
        return MESSAGE_BAD_MAGIC
    if magic == 1 and size < MIN_MESSAGE_SIZE + TIMESTAMP_SIZE:
        return MESSAGE_BAD_LENGTH
    cursor_init(&c, data + <int>MESSAGE_BODY_AT, size - MESSAGE_BODY_AT)
    out.timestamp = NO_TIMESTAMP
    if magic == 1:
        out.timestamp = load_int64(take(&c, TIMESTAMP_SIZE))
    out.key_size = read_int32(&c)
    out.key = NULL
    if out.key_size >= 0:
        out.key = take(&c, out.key_size)
    else:
        out.key_size = -1
    out.value_size = read_int32(&c)
    out.value = NULL
    if out.value_size >= 0:
        out.value = take(&c, out.value_size)
    else:
        out.value_size = -1
    return MESSAGE_OK if not c.error and remaining(&c) == 0 else MESSAGE_BAD_STRUCTURE


cdef bytes whole_buffer(ByteBuffer* buffer, int64_t size):
    """New bytes of that size, and a buffer that writes into them and must not grow. The caller fills the buffer and
    never frees it."""
    cdef bytes out
    if size > INT32_MAX:
        raise MessageTooLargeError(f"{size} bytes of records fit no batch")
    out = PyBytes_FromStringAndSize(NULL, size)
    buffer_init(buffer)
    buffer.data = <uint8_t*>PyBytes_AS_STRING(out)
    buffer.capacity = <size_t>size
    return out


# ---- v2 to v0 and v1 -------------------------------------------------------------------------------------------------

cdef struct MessageFields:
    int8_t magic
    int64_t base_offset
    int64_t base_timestamp
    bint has_append_time
    int64_t append_time
    int64_t first_offset
    bint relative


cdef int64_t message_size(const MessageFields* fields, const RecordView* record) noexcept nogil:
    return (MIN_MESSAGE_SIZE + (TIMESTAMP_SIZE if fields.magic == 1 else 0)
            + max(record.key_size, 0) + max(record.value_size, 0))


cdef bint measure_messages(const uint8_t* data, int64_t size, int32_t count, const MessageFields* fields,
                           int64_t* total, int32_t* kept, int64_t* first, int64_t* last) noexcept nogil:
    """False when the records do not add up."""
    cdef Cursor c
    cdef RecordView record
    cdef int32_t i
    total[0] = 0
    kept[0] = 0
    first[0] = -1
    cursor_init(&c, data, size)
    for i in range(count):
        if record_read(&c, &record) != BATCH_OK:
            return False
        if fields.base_offset + record.offset_delta < fields.first_offset:
            continue
        if kept[0] == 0:
            first[0] = fields.base_offset + record.offset_delta
        last[0] = fields.base_offset + record.offset_delta
        kept[0] += 1
        total[0] += message_size(fields, &record)
    return remaining(&c) == 0


cdef void write_messages(const uint8_t* data, int64_t size, int32_t count, const MessageFields* fields, int64_t first,
                         ByteBuffer* out, int64_t* max_timestamp) noexcept nogil:
    cdef Cursor c
    cdef RecordView record
    cdef int64_t offset
    cdef int64_t timestamp
    cdef uint8_t* start
    cdef uint8_t* crc_at
    cdef int32_t i
    max_timestamp[0] = NO_TIMESTAMP
    cursor_init(&c, data, size)
    for i in range(count):
        record_read(&c, &record)
        offset = fields.base_offset + record.offset_delta
        if offset < fields.first_offset:
            continue
        timestamp = fields.append_time if fields.has_append_time else fields.base_timestamp + record.timestamp_delta
        if timestamp > max_timestamp[0]:
            max_timestamp[0] = timestamp
        start = out.data + out.size
        write_int64(out, offset - first if fields.relative else offset)
        write_int32(out, <int32_t>(message_size(fields, &record) - LOG_OVERHEAD))
        crc_at = extend(out, 4)
        write_int8(out, fields.magic)
        write_int8(out, APPEND_TIME_FLAG if fields.has_append_time and fields.magic == 1 else 0)
        if fields.magic == 1:
            write_int64(out, timestamp)
        write_int32(out, record.key_size)
        if record.key_size > 0:
            write_raw(out, record.key, record.key_size)
        write_int32(out, record.value_size)
        if record.value_size > 0:
            write_raw(out, record.value, record.value_size)
        store_int32(crc_at, <int32_t>crc32_of(start + <int>MESSAGE_MAGIC_AT,
                                              out.data + out.size - start - MESSAGE_MAGIC_AT))


def from_records(records, int32_t record_count, int8_t magic, *, int64_t base_offset, int64_t base_timestamp,
                 append_time=None, int64_t first_offset=INT64_MIN, bint relative=False):
    """The records of a v2 batch (decompressed) as uncompressed messages: (messages, how many, offset of the last, max
    timestamp).

    Drops headers, and records below first_offset. append_time (ms) makes them LogAppendTime. `relative` counts
    the messages' offsets from the first one's, as inside a v1 wrapper. CorruptMessageError when the records do not add
    up to record_count.
    """
    cdef Py_buffer view
    cdef MessageFields fields
    cdef ByteBuffer buffer
    cdef int64_t total = 0
    cdef int64_t first = -1
    cdef int64_t last = -1
    cdef int64_t max_timestamp = NO_TIMESTAMP
    cdef int32_t kept = 0
    cdef bint good
    if magic != 0 and magic != 1:
        raise ValueError(f"magic {magic}: a message set is of format v0 or v1")
    fields.magic = magic
    fields.base_offset = base_offset
    fields.base_timestamp = base_timestamp
    fields.has_append_time = append_time is not None
    fields.append_time = append_time if append_time is not None else NO_TIMESTAMP
    fields.first_offset = first_offset
    fields.relative = relative
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            good = measure_messages(<const uint8_t*>view.buf, view.len, record_count, &fields, &total, &kept, &first,
                                    &last)
        if not good:
            raise CorruptMessageError(
                f"the records of the batch at offset {base_offset} do not add up to the {record_count} it claims"
            )
        out = whole_buffer(&buffer, total)
        with nogil:
            write_messages(<const uint8_t*>view.buf, view.len, record_count, &fields, first, &buffer, &max_timestamp)
    finally:
        PyBuffer_Release(&view)
    return out, kept, last, max_timestamp


# ---- v0 and v1 to v2 -------------------------------------------------------------------------------------------------

cdef void record_of(const Message* message, int64_t base_timestamp, bint has_timestamp, int32_t index,
                    RecordView* record) noexcept nogil:
    record.timestamp_delta = 0 if has_timestamp else message.timestamp - base_timestamp
    record.offset_delta = index
    record.key_size = message.key_size
    record.key = message.key
    record.value_size = message.value_size
    record.value = message.value
    record.header_count = 0
    record.headers = NULL
    record.headers_size = 0


cdef bint has_bad_timestamp(const Message* message, bint has_timestamp, bint marks_count) noexcept nogil:
    """Whether a timestamp is invalid in a way that v2 records cannot show (LogValidator.validateTimestamp)."""
    if marks_count and message.attributes & APPEND_TIME_FLAG and message.magic == 1:
        if has_timestamp or message.timestamp == NO_TIMESTAMP:
            return True
    return not has_timestamp and message.timestamp < NO_TIMESTAMP


cdef int measure_records(const uint8_t* data, int64_t size, int8_t magic, bint has_timestamp, bint marks_count,
                         int64_t* total, int32_t* count, int64_t* base_timestamp, int64_t* max_timestamp, int32_t* bad,
                         int32_t* bad_count) noexcept nogil:
    """Measures the output: a MessageStatus or STATUS_COMPRESSED. Leaves out an incomplete message at the end."""
    cdef Message message
    cdef RecordView record
    cdef int64_t at = 0
    cdef int status
    total[0] = 0
    count[0] = 0
    bad_count[0] = 0
    base_timestamp[0] = NO_TIMESTAMP
    max_timestamp[0] = NO_TIMESTAMP
    while at < size:
        status = message_parse(data + at, size - at, magic, &message)
        if status == MESSAGE_INCOMPLETE:
            break
        if status != MESSAGE_OK:
            return status
        if message.attributes & CODEC_MASK:
            return STATUS_COMPRESSED
        if count[0] == 0:
            base_timestamp[0] = message.timestamp
        if message.timestamp > max_timestamp[0]:
            max_timestamp[0] = message.timestamp
        if bad_count[0] < MAX_RECORD_ERRORS and has_bad_timestamp(&message, has_timestamp, marks_count):
            bad[bad_count[0]] = count[0]
            bad_count[0] += 1
        record_of(&message, base_timestamp[0], has_timestamp, count[0], &record)
        total[0] += record_size(&record)
        if total[0] > INT32_MAX:
            return MESSAGE_OK           # refused by its size
        count[0] += 1
        at += message.size
    return MESSAGE_OK


cdef void write_records(const uint8_t* data, int64_t size, int8_t magic, bint has_timestamp, int32_t count,
                        int64_t base_timestamp, ByteBuffer* out) noexcept nogil:
    cdef Message message
    cdef RecordView record
    cdef int64_t at = 0
    cdef int32_t i
    for i in range(count):
        message_read(data + at, size - at, magic, &message)
        record_of(&message, base_timestamp, has_timestamp, i, &record)
        record_write(out, &record)
        at += message.size


def to_records(messages, int8_t magic, *, timestamp=None, bint marks_count=True):
    """Uncompressed messages as the records of a v2 batch, their offsets counting from 0: (status, records, how many,
    base timestamp, max timestamp, indexes of records with an invalid timestamp: at most 100).

    With `timestamp` (ms) all records have that timestamp. Invalid are a timestamp below -1, and the mark of
    LogAppendTime on a message that keeps its own timestamp; marks_count False ignores the marks, as for messages inside
    a wrapper. The status is OK, BAD_LENGTH, BAD_MAGIC, BAD_CRC, BAD_STRUCTURE or COMPRESSED; with an error the records
    are empty. MessageTooLargeError above the limit of a batch.
    """
    cdef Py_buffer view
    cdef ByteBuffer buffer
    cdef int64_t total = 0
    cdef int64_t base_timestamp = NO_TIMESTAMP
    cdef int64_t max_timestamp = NO_TIMESTAMP
    cdef int32_t[MAX_RECORD_ERRORS] bad
    cdef int32_t count = 0
    cdef int32_t bad_count = 0
    cdef int32_t i
    cdef bint has_timestamp = timestamp is not None
    cdef int status
    if magic != 0 and magic != 1:
        raise ValueError(f"magic {magic}: a message set is of format v0 or v1")
    PyObject_GetBuffer(messages, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            status = measure_records(<const uint8_t*>view.buf, view.len, magic, has_timestamp, marks_count, &total,
                                     &count, &base_timestamp, &max_timestamp, bad, &bad_count)
        if status != MESSAGE_OK:
            return status, b"", 0, NO_TIMESTAMP, NO_TIMESTAMP, []
        out = whole_buffer(&buffer, total)
        with nogil:
            write_records(<const uint8_t*>view.buf, view.len, magic, has_timestamp, count, base_timestamp, &buffer)
    finally:
        PyBuffer_Release(&view)
    if has_timestamp:
        base_timestamp = max_timestamp = timestamp
    return status, out, count, base_timestamp, max_timestamp, [bad[i] for i in range(bad_count)]
