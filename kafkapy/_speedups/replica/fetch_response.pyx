"""The response to a follower's Fetch, versions 4 to 17.

    frame               correlation id int32 | v12+: tagged fields (response header v1)
    body                throttle time int32 (ms) | v7+: error code int16, session id int32 | responses: array of topics
      topic             v4-12: name string | v13+: topic id uuid | partitions | v12+: tagged fields
      partition         index int32 | error code int16 | high watermark int64 | last stable offset int64 |
                        v5+: log start offset int64 |
                        aborted transactions: nullable array of (producer id int64, first offset int64,
                             v12+: tagged fields) |
                        v11+: preferred read replica int32 | records nullable bytes |
                        v12+: tagged fields: 0 diverging epoch (epoch int32, end offset int64, tagged fields)
    v12+: tagged fields

Strings, arrays and bytes are compact from v12 on. A step reads one element: the header, the head of a topic, a
partition, the end of a topic, the end. A step that lacks bytes leaves nothing behind and is made again when there are
twice as many, so a response that arrives byte by byte costs no more than a few passes. A length is compared with the
rest of the frame first: one that lies ends the response at once.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kafkapy._speedups.base.wire cimport (
    Cursor,
    cursor_init,
    read_int16,
    read_int32,
    read_int64,
    read_string,
    read_tag_count,
    read_unsigned_varint,
    remaining,
    skip_tagged_fields,
    take,
)

cdef enum:
    LOG_START_VERSION = 5
    SESSION_VERSION = 7
    REPLICA_VERSION = 11
    FLEXIBLE_VERSION = 12
    TOPIC_ID_VERSION = 13
    UUID_SIZE = 16
    TAG_DIVERGING_EPOCH = 0
    LEAST_MORE = 64                 # bytes
    MOST_ELEMENT = 1024 * 1024      # bytes of an element beside its records


cdef void reader_init(FetchResponseReader* r, int version, int64_t max_records) noexcept nogil:
    r.version = version
    r.max_records = max_records
    r.stage = STAGE_HEADER
    r.broken = False
    r.topics_left = 0
    r.partitions_left = 0
    r.need = LEAST_MORE
    r.records = 0
    r.correlation_id = 0
    r.throttle_ms = 0
    r.error_code = 0
    r.session_id = 0
    r.topic.clear()
    r.topic_id.clear()


cdef bint is_flexible(FetchResponseReader* r) noexcept nogil:
    return r.version >= FLEXIBLE_VERSION


cdef int64_t read_length(FetchResponseReader* r, Cursor* c, int64_t left) noexcept nogil:
    """A count or a size, 0 for null. One that the rest of the frame cannot hold breaks the response."""
    cdef int64_t n
    if is_flexible(r):
        n = <int64_t>read_unsigned_varint(c) - 1
    else:
        n = read_int32(c)
    if c.error or n == -1:
        return 0
    if n < 0 or n > remaining(c) + left:
        r.broken = True
        return 0
    return n


cdef void step_header(FetchResponseReader* r, Cursor* c, int64_t left) noexcept nogil:
    cdef int32_t correlation_id = read_int32(c), throttle_ms, session_id = 0
    cdef int error_code = 0
    cdef int64_t topics
    if is_flexible(r):
        skip_tagged_fields(c)
    throttle_ms = read_int32(c)
    if r.version >= SESSION_VERSION:
        error_code = read_int16(c)
        session_id = read_int32(c)
    topics = read_length(r, c, left)
    if c.error or r.broken:
        return
    r.correlation_id = correlation_id
    r.throttle_ms = throttle_ms
    r.error_code = error_code
    r.session_id = session_id
    r.topics_left = <int32_t>topics
    r.stage = STAGE_TOPIC if topics > 0 else STAGE_END


cdef void step_topic(FetchResponseReader* r, Cursor* c, int64_t left) noexcept nogil:
    cdef const uint8_t* name
    cdef int32_t size = UUID_SIZE
    cdef int64_t partitions
    if r.version >= TOPIC_ID_VERSION:
        name = take(c, UUID_SIZE)
    else:
        name = read_string(c, is_flexible(r), &size)
        if name == NULL and not c.error:
            r.broken = True
    partitions = read_length(r, c, left)
    if c.error or r.broken:
        return
    if r.version >= TOPIC_ID_VERSION:
        r.topic_id.assign(<const char*>name, size)
    else:
        r.topic.assign(<const char*>name, size)
    r.partitions_left = <int32_t>partitions
    r.stage = STAGE_PARTITION if partitions > 0 else STAGE_TOPIC_END


cdef void read_diverging_epoch(FetchResponseReader* r, Cursor* c, int64_t size, FetchedData* out) noexcept nogil:
    cdef Cursor field
    cdef const uint8_t* at = take(c, size)
    if at == NULL:
        return
    cursor_init(&field, at, <Py_ssize_t>size)
    out.diverging_epoch = read_int32(&field)
    out.diverging_end_offset = read_int64(&field)
    out.diverges = out.diverging_epoch >= 0 or out.diverging_end_offset >= 0
    if field.error:
        r.broken = True


cdef void step_partition(FetchResponseReader* r, Cursor* c, int64_t left, FetchedData* out) noexcept nogil:
    cdef int64_t size, transactions
    cdef uint32_t tags, tag
    out.diverging_epoch = -1
    out.diverging_end_offset = -1
    out.diverges = False
    out.partition = read_int32(c)
    out.error_code = read_int16(c)
    out.high_watermark = read_int64(c)
    read_int64(c)                   # last stable offset
    out.log_start_offset = read_int64(c) if r.version >= LOG_START_VERSION else -1
    transactions = read_length(r, c, left)
    if r.broken:
        return
    if is_flexible(r):
        while transactions > 0 and not c.error:
            take(c, 16)
            skip_tagged_fields(c)
            transactions -= 1
    else:
        take(c, 16 * transactions)
    if r.version >= REPLICA_VERSION:
        read_int32(c)               # preferred read replica
    size = read_length(r, c, left)
    if c.error or r.broken:
        return
    if size > r.max_records:
        r.broken = True
        return
    r.records = size
    if size > remaining(c):
        r.need = size - remaining(c)
        c.error = 1
        return
    out.records = <uint8_t*>take(c, size)
    out.size = size
    if is_flexible(r):
        tags = read_tag_count(c)
        while tags > 0 and not c.error:
            tag = read_unsigned_varint(c)
            size = read_unsigned_varint(c)
            if size > remaining(c) + left:
                r.broken = True
                return
            if tag == TAG_DIVERGING_EPOCH:
                read_diverging_epoch(r, c, size, out)
            else:
                take(c, size)
            tags -= 1
    if c.error or r.broken:
        return
    r.partitions_left -= 1
    if r.partitions_left == 0:
        r.stage = STAGE_TOPIC_END


cdef void step_topic_end(FetchResponseReader* r, Cursor* c) noexcept nogil:
    if is_flexible(r):
        skip_tagged_fields(c)
    if c.error:
        return
    r.topics_left -= 1
    r.stage = STAGE_TOPIC if r.topics_left > 0 else STAGE_END


cdef ReadStatus reader_next(FetchResponseReader* r, uint8_t* data, int64_t size, int64_t left, int64_t* used,
                            FetchedData* out) noexcept nogil:
    cdef Cursor c
    cdef int stage
    used[0] = 0
    while not r.broken and r.stage != STAGE_DONE:
        stage = r.stage
        r.need = 0
        r.records = 0
        cursor_init(&c, data + used[0], <Py_ssize_t>(size - used[0]))
        if stage == STAGE_HEADER:
            step_header(r, &c, left)
        elif stage == STAGE_TOPIC:
            step_topic(r, &c, left)
        elif stage == STAGE_PARTITION:
            step_partition(r, &c, left, out)
        elif stage == STAGE_TOPIC_END:
            step_topic_end(r, &c)
        else:
            if is_flexible(r):
                skip_tagged_fields(&c)
            if not c.error:
                r.stage = STAGE_DONE
        if r.broken:
            break
        if c.error:
            if left == 0 or size - used[0] > r.records + MOST_ELEMENT:
                break
            # Of records the size is known; else twice as many bytes.
            r.need = size - used[0] + (r.need if r.need > 0 else max(size - used[0], <int64_t>LEAST_MORE))
            return READ_MORE
        used[0] = c.p - data
        if stage == STAGE_PARTITION:
            return READ_PARTITION
    if r.stage == STAGE_DONE and size == used[0] and left == 0:
        return READ_DONE
    r.broken = True
    return READ_MALFORMED
