"""The walk over compressed records (see compressed_records.pxd)."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkapy._speedups.base.wire cimport Cursor, cursor_init, read_int8, read_varint, read_varlong, remaining, take
from kafkapy._speedups.records.decompress_stream cimport (
    STREAM_END,
    STREAM_NO_MEMORY,
    STREAM_PIECE,
    STREAM_PIECE_READY,
    ByteStream,
    stream_close,
    stream_next,
    stream_open,
)
from kafkapy._speedups.records.record_batch cimport (
    BATCH_HEADER_SIZE,
    BATCH_OK,
    CODEC_GZIP,
    CODEC_LZ4,
    CODEC_MASK,
    CODEC_SNAPPY,
    CODEC_ZSTD,
    MAX_RECORD_ERRORS,
    MIN_HEADER_SIZE,
    MIN_RECORD_SIZE,
    NO_TIMESTAMP,
    RecordView,
    batch_header_parse,
    record_problem,
    record_read,
)

cdef enum Stage:
    AT_RECORD = 0
    AT_VALUE = 1
    AT_HEADERS = 2
    AT_HEADER_KEY = 3
    AT_HEADER_VALUE = 4

cdef enum:
    HEAD_MAX = 5 + 1 + 10 + 5 + 5   # bytes: length, attributes, timestamp delta, offset delta, length of the key
    VARINT_MAX = 5

# The largest ratio of each codec. deflate: a match of 258 bytes takes two bits. snappy: see decompress_stream.pyx. lz4:
# a byte of a match's length stands for 255. zstd: a block of 128 KB that repeats one byte takes four.
cdef enum:
    GZIP_MAX_RATIO = 1032
    SNAPPY_MAX_RATIO = 22
    LZ4_MAX_RATIO = 255
    ZSTD_MAX_RATIO = 32768

OK = <int>COMPRESSED_OK
BAD_STRUCTURE = <int>COMPRESSED_BAD_STRUCTURE
CORRUPT = <int>COMPRESSED_CORRUPT
TOO_LARGE = <int>COMPRESSED_TOO_LARGE
NO_MEMORY = <int>COMPRESSED_NO_MEMORY
OVER_BUDGET = <int>COMPRESSED_OVER_BUDGET

cdef struct Walk:
    const BatchHeader* header
    const ValidationRules* rules
    RecordFindings* findings
    int32_t index                   # of the current record, or of the next
    int stage                       # Stage
    int32_t headers_left
    int64_t skip                    # remaining bytes of a key or value
    int64_t left                    # remaining bytes of the record, `skip` included


cdef inline bint note_record(Walk* w, int64_t timestamp_delta, int32_t offset_delta, int32_t key_size) noexcept nogil:
    """Notes the findings of one record. False: the offsets are not consecutive."""
    cdef RecordFindings* findings = w.findings
    cdef int64_t timestamp = w.header.base_timestamp + timestamp_delta
    cdef int32_t problem
    if offset_delta != w.index:
        return False
    if timestamp > findings.max_timestamp:
        findings.max_timestamp = timestamp
        findings.max_timestamp_offset_delta = w.index
    problem = record_problem(w.header, w.rules, key_size, timestamp)
    if problem and findings.error_count < MAX_RECORD_ERRORS:
        findings.errors[findings.error_count].batch_index = w.index
        findings.errors[findings.error_count].problem = problem
        findings.error_count += 1
    return True


cdef inline int64_t in_record(Walk* w, Cursor* c, Cursor* field, int64_t at_most, bint last) noexcept nogil:
    """A cursor over the next field, of at most `at_most` bytes and within its record. False: the field may go on in the
    next piece."""
    cdef int64_t there = remaining(c)
    if there < at_most and there < w.left and not last:
        return False
    cursor_init(field, c.p, min(there, w.left))
    return True


cdef inline void took(Walk* w, Cursor* c, const Cursor* field) noexcept nogil:
    w.left -= field.p - c.p
    c.p = field.p


cdef bint skip_over(Walk* w, int64_t size) noexcept nogil:
    """Skips a key or value; size -1 is null. False: the record is smaller."""
    if size > w.left:
        return False
    w.skip = size if size > 0 else 0
    return True


cdef int walk_head(Walk* w, Cursor* c, bint last) noexcept nogil:
    """Reads up to the key of a record that crosses a border. 1: done, 0: more bytes are needed, -1: invalid."""
    cdef Cursor body
    cdef int32_t length, offset_delta, key_size
    cdef int64_t timestamp_delta
    cdef Cursor start
    if remaining(c) < HEAD_MAX and not last:
        return 0
    start = c[0]
    length = read_varint(&start)
    if start.error or length < MIN_RECORD_SIZE - 1 or length > MAX_OPENED_BYTES:
        return -1
    cursor_init(&body, start.p, min(<int64_t>remaining(&start), <int64_t>length))
    read_int8(&body)
    timestamp_delta = read_varlong(&body)
    offset_delta = read_varint(&body)
    key_size = read_varint(&body)
    if body.error or not note_record(w, timestamp_delta, offset_delta, key_size if key_size >= 0 else -1):
        return -1
    w.left = length - (body.p - start.p)
    c.p = body.p
    w.stage = AT_VALUE
    return 1 if skip_over(w, key_size) else -1


cdef int walk_field(Walk* w, Cursor* c, bint last) noexcept nogil:
    """Reads one field behind a record's key. 1: done, 0: more bytes are needed, -1: invalid."""
    cdef Cursor field
    cdef int32_t size
    if w.stage == AT_HEADER_KEY and w.headers_left == 0:
        w.stage = AT_RECORD
        w.index += 1
        return 1 if w.left == 0 else -1
    if not in_record(w, c, &field, VARINT_MAX, last):
        return 0
    size = read_varint(&field)
    if field.error:
        return -1
    took(w, c, &field)
    if w.stage == AT_VALUE:
        w.stage = AT_HEADERS
    elif w.stage == AT_HEADERS:
        if size < 0 or size > w.left // MIN_HEADER_SIZE:
            return -1
        w.headers_left = size
        w.stage = AT_HEADER_KEY
        return 1
    elif w.stage == AT_HEADER_KEY:
        if size < 0:
            return -1
        w.stage = AT_HEADER_VALUE
    else:
        w.headers_left -= 1
        w.stage = AT_HEADER_KEY
    return 1 if skip_over(w, size) else -1


cdef int64_t walk_piece(Walk* w, const uint8_t* piece, int64_t size, bint last) noexcept nogil:
    """Bytes at the piece's end to repeat in front of the next piece; -1: the records do not add up."""
    cdef Cursor c
    cdef Cursor ahead
    cdef RecordView record
    cdef int32_t length
    cdef int64_t n
    cdef int status
    cursor_init(&c, piece, size)
    while True:
        if w.skip > 0:
            n = min(w.skip, <int64_t>remaining(&c))
            take(&c, n)
            w.skip -= n
            w.left -= n
            if w.skip > 0:
                return 0
        if w.stage != AT_RECORD:
            status = walk_field(w, &c, last)
        elif remaining(&c) == 0:
            return 0
        elif w.index == w.header.record_count:
            return -1                           # bytes behind the last record
        else:
            ahead = c
            length = read_varint(&ahead)
            if not ahead.error and length <= remaining(&ahead):
                if (record_read(&c, &record) != BATCH_OK
                        or not note_record(w, record.timestamp_delta, record.offset_delta, record.key_size)):
                    return -1
                w.index += 1
                continue
            status = walk_head(w, &c, last)
        if status < 0:
            return -1
        if status == 0:
            return remaining(&c)


cdef int check_stream(ByteStream* s, Walk* w, int64_t budget) noexcept nogil:
    cdef int64_t kept = 0
    cdef int status
    while True:
        status = stream_next(s, kept)
        w.findings.opened += s.piece_size - kept
        if status == STREAM_END:
            break
        if status != STREAM_PIECE_READY:
            return COMPRESSED_NO_MEMORY if status == STREAM_NO_MEMORY else COMPRESSED_CORRUPT
        if w.findings.opened > MAX_OPENED_BYTES:
            return COMPRESSED_TOO_LARGE
        kept = walk_piece(w, s.piece, s.piece_size, False)
        if kept < 0:
            return COMPRESSED_BAD_STRUCTURE
        if w.left > 0 and w.stage != AT_RECORD and w.findings.opened - kept + w.left > MAX_OPENED_BYTES:
            return COMPRESSED_TOO_LARGE
        if w.findings.opened > budget:
            return COMPRESSED_OVER_BUDGET
    kept = walk_piece(w, s.piece, s.piece_size, True)
    if kept != 0 or w.stage != AT_RECORD or w.index != w.header.record_count:
        return COMPRESSED_BAD_STRUCTURE
    return COMPRESSED_OK


cdef int compressed_records_check(const uint8_t* batch, const BatchHeader* header, const ValidationRules* rules,
                                  int64_t budget, RecordFindings* findings) noexcept nogil:
    return check_payload(batch, header, rules, budget, STREAM_PIECE, findings)


cdef int check_payload(const uint8_t* batch, const BatchHeader* header, const ValidationRules* rules, int64_t budget,
                       int64_t piece, RecordFindings* findings) noexcept nogil:
    cdef ByteStream stream
    cdef Walk walk
    cdef int status
    findings.error_count = 0
    findings.max_timestamp = NO_TIMESTAMP
    findings.max_timestamp_offset_delta = 0
    findings.opened = 0
    if (header.record_count <= 0 or header.last_offset_delta != header.record_count - 1
            or not compressed_count_possible(header)):
        return COMPRESSED_BAD_STRUCTURE
    walk.header = header
    walk.rules = rules
    walk.findings = findings
    walk.index = 0
    walk.stage = AT_RECORD
    walk.headers_left = 0
    walk.skip = 0
    walk.left = 0
    status = stream_open(&stream, header.attributes & CODEC_MASK, batch + BATCH_HEADER_SIZE,
                         header.size - BATCH_HEADER_SIZE)
    if status == STREAM_PIECE_READY:
        stream.limit = piece
        status = check_stream(&stream, &walk, budget)
    else:
        status = COMPRESSED_NO_MEMORY if status == STREAM_NO_MEMORY else COMPRESSED_CORRUPT
    stream_close(&stream, status != COMPRESSED_OK)
    return status


cdef bint compressed_count_possible(const BatchHeader* header) noexcept nogil:
    cdef int64_t payload = header.size - BATCH_HEADER_SIZE
    cdef int codec = header.attributes & CODEC_MASK
    cdef int64_t most = 0
    if codec == CODEC_GZIP:
        most = GZIP_MAX_RATIO
    elif codec == CODEC_SNAPPY:
        most = SNAPPY_MAX_RATIO
    elif codec == CODEC_LZ4:
        most = LZ4_MAX_RATIO
    elif codec == CODEC_ZSTD:
        most = ZSTD_MAX_RATIO
    most = min(payload * most, <int64_t>MAX_OPENED_BYTES)
    return header.record_count <= most // MIN_RECORD_SIZE


# ---- for Python: tests and measurements ------------------------------------------------------------------------------


def check(data, *, bint needs_keys=False, bint log_append_time=False,
          int64_t timestamp_before_max_ms=0x7FFFFFFFFFFFFFFF, int64_t timestamp_after_max_ms=0x7FFFFFFFFFFFFFFF,
          int64_t now_ms=0, int64_t budget=MAX_OPENED_BYTES, int64_t piece=STREAM_PIECE, int64_t times=1):
    """The walk over one compressed batch: (status, [(batch_index, problem)], max timestamp in ms, its offset delta,
    bytes opened). Does not check the CRC. `piece` makes smaller pieces, `times` repeats the walk for a measurement.
    ValueError without a whole batch."""
    cdef Py_buffer view
    cdef BatchHeader header
    cdef ValidationRules rules
    cdef RecordFindings findings
    cdef int status = COMPRESSED_OK
    cdef int64_t n
    if not 1 <= piece <= STREAM_PIECE:
        raise ValueError(f"a piece has 1 to {STREAM_PIECE} bytes, not {piece}")
    rules.needs_keys = needs_keys
    rules.log_append_time = log_append_time
    rules.timestamp_before_max_ms = timestamp_before_max_ms
    rules.timestamp_after_max_ms = timestamp_after_max_ms
    rules.now_ms = now_ms
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if batch_header_parse(<const uint8_t*>view.buf, view.len, &header) != BATCH_OK:
            raise ValueError(f"{view.len} bytes are no whole batch")
        with nogil:
            for n in range(times):
                status = check_payload(<const uint8_t*>view.buf, &header, &rules, budget, piece, &findings)
    finally:
        PyBuffer_Release(&view)
    problems = [(findings.errors[i].batch_index, findings.errors[i].problem) for i in range(findings.error_count)]
    return status, problems, findings.max_timestamp, findings.max_timestamp_offset_delta, findings.opened


def count_possible(data):
    """Whether a batch of that size can hold its header's record count. ValueError without a whole batch."""
    cdef Py_buffer view
    cdef BatchHeader header
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if batch_header_parse(<const uint8_t*>view.buf, view.len, &header) != BATCH_OK:
            raise ValueError(f"{view.len} bytes are no whole batch")
    finally:
        PyBuffer_Release(&view)
    return bool(compressed_count_possible(&header))
