"""Records that survive compaction (see record_filter.pxd). Works on borrowed bytes, keeps no state; any thread."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.wire cimport ByteBuffer, Cursor, cursor_init, extend, remaining, write_raw
from kafkapy._speedups.log.offset_map cimport offset_map_get
from kafkapy._speedups.records.record_batch cimport (
    BATCH_BAD_STRUCTURE,
    BATCH_HEADER_SIZE,
    BATCH_OK,
    CODEC_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    MIN_RECORD_SIZE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    BatchStatus,
    RecordView,
    batch_header_write,
    batch_refresh_crc,
    record_read,
    record_write,
)


cdef bint retains(const RecordView* record, int64_t offset, const BatchHeader* header,
                  const FilterRules* rules) noexcept nogil:
    """Whether a record with a key below the map's end is the newest of its key, and no expired tombstone."""
    if offset < offset_map_get(rules.map, record.key, record.key_size):
        return False
    return (record.value_size >= 0 or not header.attributes & DELETE_HORIZON_FLAG
            or rules.now_ms < header.base_timestamp)


cdef BatchStatus filter_records(const uint8_t* payload, int64_t size, const BatchHeader* header,
                                const FilterRules* rules, bint discard, bint empty_marker, vector[uint8_t]* keep,
                                FilterVerdict* out) noexcept nogil:
    cdef Cursor c
    cdef RecordView record
    cdef int64_t offset, timestamp
    cdef int32_t i, previous = -1
    cdef bint control = (header.attributes & CONTROL_FLAG) != 0, kept, tombstones = False
    out.kept = 0
    out.without_key = 0
    out.as_is = False
    out.sets_horizon = False
    out.base_timestamp = header.base_timestamp
    out.max_timestamp = NO_TIMESTAMP
    cursor_init(&c, payload, size)
    if header.record_count < 0 or header.record_count > remaining(&c) // MIN_RECORD_SIZE:
        return BATCH_BAD_STRUCTURE
    keep.assign(<size_t>header.record_count, 0)
    for i in range(header.record_count):
        if (record_read(&c, &record) != BATCH_OK or record.offset_delta <= previous
                or record.offset_delta > header.last_offset_delta):
            return BATCH_BAD_STRUCTURE
        previous = record.offset_delta
        offset = header.base_offset + record.offset_delta
        if discard:
            kept = False
        elif control or offset > rules.map.latest_offset:
            kept = True
        elif record.key_size < 0:
            kept = False
            out.without_key += 1
        else:
            kept = retains(&record, offset, header, rules)
        if kept:
            keep[0][<size_t>i] = 1
            out.kept += 1
            timestamp = header.base_timestamp + record.timestamp_delta
            if timestamp > out.max_timestamp:
                out.max_timestamp = timestamp
            if record.value_size < 0 and not control:
                tombstones = True
    if remaining(&c) != 0:
        return BATCH_BAD_STRUCTURE
    if header.attributes & TIMESTAMP_TYPE_FLAG:
        out.max_timestamp = header.max_timestamp
    if (tombstones or empty_marker) and not header.attributes & DELETE_HORIZON_FLAG and out.kept > 0:
        out.sets_horizon = True
        out.base_timestamp = rules.now_ms + rules.delete_retention_ms
    out.as_is = out.kept == header.record_count and not out.sets_horizon
    return BATCH_OK


cdef void filter_write(ByteBuffer* out, const uint8_t* payload, int64_t size, const BatchHeader* header,
                       const vector[uint8_t]* keep, const FilterVerdict* verdict) noexcept nogil:
    cdef Cursor c
    cdef RecordView record
    cdef const uint8_t* run = payload       # of kept records, not copied yet
    cdef const uint8_t* start
    cdef int64_t shift = header.base_timestamp - verdict.base_timestamp
    cdef int32_t i
    cursor_init(&c, payload, size)
    for i in range(header.record_count):
        start = c.p
        if record_read(&c, &record) != BATCH_OK:
            return          # filter_records has walked the same bytes
        if shift != 0:
            if keep[0][<size_t>i]:
                record.timestamp_delta += shift
                record_write(out, &record)
        elif not keep[0][<size_t>i]:
            if start > run:
                write_raw(out, run, <size_t>(start - run))
            run = c.p
    if shift == 0 and c.p > run:
        write_raw(out, run, <size_t>(c.p - run))


cdef void filter_header(uint8_t* at, const BatchHeader* header, const FilterVerdict* verdict,
                        int64_t payload_size) noexcept nogil:
    cdef BatchHeader written = header[0]
    written.size = <int32_t>(BATCH_HEADER_SIZE + payload_size)
    written.record_count = verdict.kept
    written.base_timestamp = verdict.base_timestamp
    written.max_timestamp = verdict.max_timestamp
    if verdict.sets_horizon:
        written.attributes |= DELETE_HORIZON_FLAG
    batch_header_write(at, &written)
    batch_refresh_crc(at, written.size)


cdef void filter_empty(ByteBuffer* out, const BatchHeader* header) noexcept nogil:
    cdef BatchHeader written = header[0]
    cdef uint8_t* at = extend(out, BATCH_HEADER_SIZE)
    written.size = BATCH_HEADER_SIZE
    written.record_count = 0
    written.base_timestamp = NO_TIMESTAMP
    written.attributes &= ~(CODEC_MASK | DELETE_HORIZON_FLAG)
    if at != NULL:
        batch_header_write(at, &written)
        batch_refresh_crc(at, BATCH_HEADER_SIZE)
