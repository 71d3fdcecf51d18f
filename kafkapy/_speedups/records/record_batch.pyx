"""Record batches of message format v2: parse and check headers, check records, patch the broker's fields.

record_batch.pxd describes the format. The data plane calls the `cdef` functions: they touch only the given bytes,
allocate nothing and never take the GIL. The Python functions at the end are the same checks for tests and tools.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.string cimport memset

from kafkapy._speedups.base.crc32c cimport crc32c_of
from kafkapy._speedups.base.wire cimport (
    cursor_init,
    extend,
    load_int16,
    load_int32,
    load_int64,
    load_uint32,
    read_int8,
    read_varint,
    read_varlong,
    remaining,
    store_int16,
    store_int32,
    store_int64,
    take,
)
from kafkapy._speedups.records.record_encoding cimport put_record, record_body_size, varlong_size

cdef enum:
    INT32_MAX = 0x7FFFFFFF

STATUS_NAMES = {
    BATCH_OK: "OK",
    BATCH_INCOMPLETE: "INCOMPLETE",
    BATCH_BAD_LENGTH: "BAD_LENGTH",
    BATCH_BAD_MAGIC: "BAD_MAGIC",
    BATCH_BAD_CRC: "BAD_CRC",
    BATCH_BAD_STRUCTURE: "BAD_STRUCTURE",
}
CODECS = {"none": CODEC_NONE, "gzip": CODEC_GZIP, "snappy": CODEC_SNAPPY, "lz4": CODEC_LZ4, "zstd": CODEC_ZSTD}
OK = BATCH_OK
INCOMPLETE = BATCH_INCOMPLETE
BAD_LENGTH = BATCH_BAD_LENGTH
BAD_MAGIC = BATCH_BAD_MAGIC
BAD_CRC = BATCH_BAD_CRC
BAD_STRUCTURE = BATCH_BAD_STRUCTURE
NULL_KEY = RECORD_NULL_KEY
BAD_TIMESTAMP = RECORD_BAD_TIMESTAMP
HEADER_SIZE = BATCH_HEADER_SIZE


cdef BatchStatus batch_header_parse(const uint8_t* data, int64_t available, BatchHeader* out) noexcept nogil:
    cdef int64_t length, size
    cdef int8_t magic
    memset(out, 0, sizeof(BatchHeader))
    if available < LOG_OVERHEAD:
        return BATCH_INCOMPLETE
    length = load_int32(data + BATCH_LENGTH_AT)
    size = length + LOG_OVERHEAD
    if length < LEGACY_MIN_SIZE or size > INT32_MAX:
        return BATCH_BAD_LENGTH
    if available <= MAGIC_AT:
        return BATCH_INCOMPLETE
    magic = <int8_t>data[MAGIC_AT]
    if magic != MAGIC_V2:
        out.base_offset = load_int64(data + BASE_OFFSET_AT)
        out.size = <int32_t>size
        out.magic = magic
        return BATCH_BAD_MAGIC
    if size < BATCH_HEADER_SIZE:
        return BATCH_BAD_LENGTH
    if available < BATCH_HEADER_SIZE:
        return BATCH_INCOMPLETE
    out.base_offset = load_int64(data + BASE_OFFSET_AT)
    out.size = <int32_t>size
    out.leader_epoch = load_int32(data + LEADER_EPOCH_AT)
    out.magic = magic
    out.crc = load_uint32(data + CRC_AT)
    out.attributes = load_int16(data + ATTRIBUTES_AT)
    out.last_offset_delta = load_int32(data + LAST_OFFSET_DELTA_AT)
    out.base_timestamp = load_int64(data + BASE_TIMESTAMP_AT)
    out.max_timestamp = load_int64(data + MAX_TIMESTAMP_AT)
    out.producer_id = load_int64(data + PRODUCER_ID_AT)
    out.producer_epoch = load_int16(data + PRODUCER_EPOCH_AT)
    out.base_sequence = load_int32(data + BASE_SEQUENCE_AT)
    out.record_count = load_int32(data + RECORD_COUNT_AT)
    return BATCH_OK if available >= size else BATCH_INCOMPLETE


cdef BatchStatus batch_check_crc(const uint8_t* data, int64_t size) noexcept nogil:
    if size < BATCH_HEADER_SIZE:
        return BATCH_BAD_CRC
    if crc32c_of(0, data + ATTRIBUTES_AT, size - ATTRIBUTES_AT) != load_uint32(data + CRC_AT):
        return BATCH_BAD_CRC
    return BATCH_OK


cdef void batch_stamp(uint8_t* data, int64_t base_offset, int32_t leader_epoch) noexcept nogil:
    store_int64(data + BASE_OFFSET_AT, base_offset)
    store_int32(data + LEADER_EPOCH_AT, leader_epoch)


cdef void batch_refresh_crc(uint8_t* data, int64_t size) noexcept nogil:
    store_int32(data + CRC_AT, <int32_t>crc32c_of(0, data + ATTRIBUTES_AT, size - ATTRIBUTES_AT))


cdef void batch_stamp_append_time(uint8_t* data, int64_t size, int64_t append_time_ms) noexcept nogil:
    store_int16(data + ATTRIBUTES_AT, load_int16(data + ATTRIBUTES_AT) | TIMESTAMP_TYPE_FLAG)
    store_int64(data + MAX_TIMESTAMP_AT, append_time_ms)
    batch_refresh_crc(data, size)


cdef void batch_stamp_max_timestamp(uint8_t* data, int64_t size, int64_t max_timestamp) noexcept nogil:
    if load_int64(data + MAX_TIMESTAMP_AT) != max_timestamp:
        store_int64(data + MAX_TIMESTAMP_AT, max_timestamp)
        batch_refresh_crc(data, size)


cdef void batch_header_write(uint8_t* data, const BatchHeader* header) noexcept nogil:
    store_int64(data + BASE_OFFSET_AT, header.base_offset)
    store_int32(data + BATCH_LENGTH_AT, header.size - LOG_OVERHEAD)
    store_int32(data + LEADER_EPOCH_AT, header.leader_epoch)
    data[MAGIC_AT] = MAGIC_V2
    store_int32(data + CRC_AT, <int32_t>header.crc)
    store_int16(data + ATTRIBUTES_AT, header.attributes)
    store_int32(data + LAST_OFFSET_DELTA_AT, header.last_offset_delta)
    store_int64(data + BASE_TIMESTAMP_AT, header.base_timestamp)
    store_int64(data + MAX_TIMESTAMP_AT, header.max_timestamp)
    store_int64(data + PRODUCER_ID_AT, header.producer_id)
    store_int16(data + PRODUCER_EPOCH_AT, header.producer_epoch)
    store_int32(data + BASE_SEQUENCE_AT, header.base_sequence)
    store_int32(data + RECORD_COUNT_AT, header.record_count)


cdef BatchStatus record_read(Cursor* cursor, RecordView* out) noexcept nogil:
    cdef const uint8_t* start = cursor.p
    cdef const uint8_t* body
    cdef Cursor c
    cdef int32_t length, i
    length = read_varint(cursor)
    body = take(cursor, length)
    if body == NULL:
        return BATCH_BAD_STRUCTURE
    # A cursor over this record alone: nothing in it can reach into the next.
    cursor_init(&c, body, length)
    read_int8(&c)
    out.timestamp_delta = read_varlong(&c)
    out.offset_delta = read_varint(&c)
    out.key_size = read_varint(&c)
    out.key = NULL
    if out.key_size >= 0:
        out.key = take(&c, out.key_size)
    else:
        out.key_size = -1
    out.value_size = read_varint(&c)
    out.value = NULL
    if out.value_size >= 0:
        out.value = take(&c, out.value_size)
    else:
        out.value_size = -1
    out.header_count = read_varint(&c)
    if c.error or out.header_count < 0 or out.header_count > remaining(&c) // MIN_HEADER_SIZE:
        return BATCH_BAD_STRUCTURE
    out.headers = c.p
    for i in range(out.header_count):
        if take(&c, read_varint(&c)) == NULL:
            return BATCH_BAD_STRUCTURE
        length = read_varint(&c)
        if length >= 0:
            take(&c, length)
        if c.error:
            return BATCH_BAD_STRUCTURE
    out.headers_size = c.p - out.headers
    out.size = cursor.p - start
    return BATCH_OK if remaining(&c) == 0 else BATCH_BAD_STRUCTURE


cdef int64_t record_size(const RecordView* record) noexcept nogil:
    cdef int64_t body = record_body_size(record)
    return body + varlong_size(body)


cdef void record_write(ByteBuffer* out, const RecordView* record) noexcept nogil:
    cdef int64_t body = record_body_size(record)
    cdef uint8_t* at = extend(out, <size_t>(body + varlong_size(body)))
    if at != NULL:
        put_record(at, record, body)


cdef BatchStatus batch_check_records(const uint8_t* data, int64_t size, const BatchHeader* header,
                                     const ValidationRules* rules, RecordError* errors, int32_t* error_count,
                                     int64_t* max_timestamp, int32_t* max_timestamp_offset_delta) noexcept nogil:
    return records_check(data + BATCH_HEADER_SIZE, size - BATCH_HEADER_SIZE, header, rules, errors, error_count,
                         max_timestamp, max_timestamp_offset_delta)


cdef BatchStatus records_check(const uint8_t* payload, int64_t size, const BatchHeader* header,
                               const ValidationRules* rules, RecordError* errors, int32_t* error_count,
                               int64_t* max_timestamp, int32_t* max_timestamp_offset_delta) noexcept nogil:
    cdef Cursor c
    cdef RecordView record
    cdef int32_t i, problem
    cdef int64_t timestamp
    error_count[0] = 0
    max_timestamp[0] = NO_TIMESTAMP
    max_timestamp_offset_delta[0] = 0
    if size < 0:
        return BATCH_BAD_STRUCTURE
    cursor_init(&c, payload, size)
    if header.record_count <= 0 or header.record_count > remaining(&c) // MIN_RECORD_SIZE:
        return BATCH_BAD_STRUCTURE
    if header.last_offset_delta != header.record_count - 1:
        return BATCH_BAD_STRUCTURE
    for i in range(header.record_count):
        if record_read(&c, &record) != BATCH_OK or record.offset_delta != i:
            return BATCH_BAD_STRUCTURE
        timestamp = header.base_timestamp + record.timestamp_delta
        if timestamp > max_timestamp[0]:
            max_timestamp[0] = timestamp
            max_timestamp_offset_delta[0] = i
        problem = record_problem(header, rules, record.key_size, timestamp)
        if problem and error_count[0] < MAX_RECORD_ERRORS:
            errors[error_count[0]].batch_index = i
            errors[error_count[0]].problem = problem
            error_count[0] += 1
    return BATCH_OK if remaining(&c) == 0 else BATCH_BAD_STRUCTURE


# --- for Python: tests and tools --------------------------------------------------------------------------------------


def parse_header(data):
    """(status, fields) of the batch at the start of `data`; fields is a dict with the names of BatchHeader, zeros for
    an unreadable header."""
    cdef Py_buffer view
    cdef BatchHeader header
    cdef BatchStatus status
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        status = batch_header_parse(<const uint8_t*>view.buf, view.len, &header)
    finally:
        PyBuffer_Release(&view)
    return <int>status, <dict>header


def check_crc(data):
    """Whether the checksum of one whole batch is right. ValueError when there are fewer bytes than a header."""
    cdef Py_buffer view
    cdef BatchStatus status
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len < BATCH_HEADER_SIZE:
            raise ValueError(f"{view.len} bytes are less than the header of a record batch ({BATCH_HEADER_SIZE})")
        with nogil:
            status = batch_check_crc(<const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return status == BATCH_OK


def stamp(data, int64_t base_offset, int32_t leader_epoch):
    """Sets base offset and leader epoch in a writable batch. ValueError when there are fewer bytes than a header."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
    try:
        if view.len < BATCH_HEADER_SIZE:
            raise ValueError(f"{view.len} bytes are less than the header of a record batch ({BATCH_HEADER_SIZE})")
        batch_stamp(<uint8_t*>view.buf, base_offset, leader_epoch)
    finally:
        PyBuffer_Release(&view)


def stamp_append_time(data, int64_t append_time_ms):
    """Sets LogAppendTime (ms) and the CRC in a writable, whole batch. ValueError when shorter than a header."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
    try:
        if view.len < BATCH_HEADER_SIZE:
            raise ValueError(f"{view.len} bytes are less than the header of a record batch ({BATCH_HEADER_SIZE})")
        batch_stamp_append_time(<uint8_t*>view.buf, view.len, append_time_ms)
    finally:
        PyBuffer_Release(&view)


def stamp_max_timestamp(data, int64_t max_timestamp):
    """Sets the max timestamp (ms) and the CRC in a writable, whole batch. ValueError when shorter than a header."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
    try:
        if view.len < BATCH_HEADER_SIZE:
            raise ValueError(f"{view.len} bytes are less than the header of a record batch ({BATCH_HEADER_SIZE})")
        batch_stamp_max_timestamp(<uint8_t*>view.buf, view.len, max_timestamp)
    finally:
        PyBuffer_Release(&view)


def refresh_crc(data):
    """Writes the checksum of a writable, whole batch. ValueError when shorter than a header."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
    try:
        if view.len < BATCH_HEADER_SIZE:
            raise ValueError(f"{view.len} bytes are less than the header of a record batch ({BATCH_HEADER_SIZE})")
        batch_refresh_crc(<uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


def check_records(data, payload=None, *, bint needs_keys=False, bint log_append_time=False,
                  int64_t timestamp_before_max_ms=0x7FFFFFFFFFFFFFFF, int64_t timestamp_after_max_ms=0x7FFFFFFFFFFFFFFF,
                  int64_t now_ms=0):
    """The data plane's walk over one uncompressed batch: (status, [(batch_index, problem)], max timestamp in ms, its
    offset delta).

    For an invalid header the status is the header's and no record is checked. `payload` replaces the batch's records by
    decompressed ones. Does not check the CRC.
    """
    cdef Py_buffer view
    cdef Py_buffer inner
    cdef BatchHeader header
    cdef ValidationRules rules
    cdef RecordError[MAX_RECORD_ERRORS] errors
    cdef int32_t error_count = 0, offset_delta = 0
    cdef int64_t max_timestamp = NO_TIMESTAMP
    cdef BatchStatus status
    rules.needs_keys = needs_keys
    rules.log_append_time = log_append_time
    rules.timestamp_before_max_ms = timestamp_before_max_ms
    rules.timestamp_after_max_ms = timestamp_after_max_ms
    rules.now_ms = now_ms
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        status = batch_header_parse(<const uint8_t*>view.buf, view.len, &header)
        if status == BATCH_OK and payload is None:
            with nogil:
                status = batch_check_records(<const uint8_t*>view.buf, header.size, &header, &rules, errors,
                                             &error_count, &max_timestamp, &offset_delta)
        elif status == BATCH_OK:
            PyObject_GetBuffer(payload, &inner, PyBUF_SIMPLE)
            with nogil:
                status = records_check(<const uint8_t*>inner.buf, inner.len, &header, &rules, errors, &error_count,
                                       &max_timestamp, &offset_delta)
            PyBuffer_Release(&inner)
    finally:
        PyBuffer_Release(&view)
    problems = [(errors[i].batch_index, errors[i].problem) for i in range(error_count)]
    return <int>status, problems, max_timestamp, offset_delta
