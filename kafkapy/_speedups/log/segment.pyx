"""One log segment (see segment.pxd)."""

from libc.errno cimport EIO, EROFS
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libcpp.string cimport string

from kafkapy._speedups.base.posix cimport atomic_load, atomic_store
from kafkapy._speedups.base.send cimport send_take_region
from kafkapy._speedups.base.wire cimport load_int32, load_int64
from kafkapy._speedups.log.index cimport (
    index_detach,
    index_flush_pending,
    index_has_pending,
    index_sync,
    index_trim,
    index_unseal,
    offset_index_append,
    offset_index_bounds,
    offset_index_free,
    offset_index_full,
    offset_index_lookup,
    offset_index_new,
    offset_index_truncate,
    time_index_append,
    time_index_free,
    time_index_full,
    time_index_last,
    time_index_lookup,
    time_index_new,
    time_index_truncate,
)
from kafkapy._speedups.records.file_records cimport (
    SCAN_CHUNK,
    SCAN_CORRUPT,
    SCAN_END,
    SCAN_ERROR,
    SCAN_FOUND,
    BatchPosition,
    BatchScan,
    ScanStatus,
    batch_at,
    file_append,
    file_records_free,
    file_records_new,
    file_records_open,
    file_records_open_to_read,
    file_sync,
    file_truncate,
    scan_for_offset,
    scan_for_timestamp,
    scan_next,
    scan_start,
)
from kafkapy._speedups.records.reservation cimport release_ahead, reservation_init, reserve_ahead
from kafkapy._speedups.records.record_batch cimport (
    BATCH_HEADER_SIZE,
    BATCH_LENGTH_AT,
    LAST_OFFSET_DELTA_AT,
    LOG_OVERHEAD,
    MAX_TIMESTAMP_AT,
)


cdef void segment_free(SegmentState* s) noexcept nogil:
    file_records_free(s.records)
    offset_index_free(s.offset_index)
    time_index_free(s.time_index)
    del s


cdef void release(void* owner) noexcept nogil:
    segment_unref(<SegmentState*>owner)


cdef void segment_send(Send* send, SegmentState* s, int64_t position, int64_t length) noexcept nogil:
    send_take_region(send, s.fd, position, length, s, release, &s.slow)


cdef SegmentState* segment_new(int64_t base_offset, int fd, const string& path, const string& stem, int64_t index_bytes,
                               bint sealed, int64_t created_ms) noexcept nogil:
    cdef SegmentState* s = new SegmentState()
    s.references = 1
    s.base_offset = base_offset
    s.fd = fd
    s.size = 0
    s.max_timestamp = -1
    s.offset_of_max_timestamp = -1
    s.newest_record = NEWEST_NOT_KNOWN
    s.created_ms = created_ms
    s.first_batch_timestamp = -1
    s.bytes_since_index = 0
    s.dense_from = INT64_MAX
    s.index_full = False
    s.index_waits = False
    s.slow = 0
    s.roll_jitter_ms = 0
    s.seen_size = -1
    reservation_init(&s.reservation)
    if path.empty():
        s.reservation.end = INT64_MAX       # in memory
    s.seen_reserved = -1
    s.detached = 0
    s.sealed = sealed
    s.path = path
    s.records = file_records_new(fd, path)
    s.offset_index = offset_index_new(base_offset, stem + <const char*>b".index" if not stem.empty() else stem,
                                      index_bytes, sealed)
    s.time_index = time_index_new(base_offset, stem + <const char*>b".timeindex" if not stem.empty() else stem,
                                  index_bytes, sealed)
    return s


cdef void segment_name(SegmentState* s, int64_t base_offset, const string& stem) noexcept nogil:
    s.base_offset = base_offset
    s.offset_index.base_offset = base_offset
    s.time_index.base_offset = base_offset
    if not stem.empty():
        s.path = stem + <const char*>b".log"
        s.records.path = s.path
        s.offset_index.file.path = stem + <const char*>b".index"
        s.time_index.file.path = stem + <const char*>b".timeindex"
        # Index files of an earlier segment of that name are unchecked.
        s.offset_index.file.touched = True
        s.time_index.file.touched = True


cdef int segment_open_file_to_read(SegmentState* s) noexcept nogil:
    cdef int64_t fd = file_records_open_to_read(s.records)
    if fd >= 0:
        s.fd = <int>fd
    return <int>fd


cdef int segment_open_file(SegmentState* s) noexcept nogil:
    cdef int64_t fd = file_records_open(s.records)
    if fd >= 0:
        # Every thread stores the same value: file_records_open settles which descriptor it is.
        s.fd = <int>fd
    return <int>fd


cdef inline int64_t size_of_batch(const uint8_t* batch) noexcept nogil:
    return <int64_t>load_int32(batch + <int>BATCH_LENGTH_AT) + LOG_OVERHEAD


cdef bint index_batch(SegmentState* s, int64_t position, int64_t size, int64_t last_offset, int64_t max_timestamp,
                      int64_t offset_of_max_timestamp, int32_t index_interval_bytes) noexcept nogil:
    """Appends index entries when the interval is over. True when the batch has one in the offset index."""
    cdef bint indexed = False
    if s.bytes_since_index > index_interval_bytes:
        indexed = offset_index_append(s.offset_index, last_offset, position) == 0
        time_index_append(s.time_index, max_timestamp, offset_of_max_timestamp, False)
        s.bytes_since_index = 0
    s.bytes_since_index += size
    return indexed


cdef bint index_batches(SegmentState* s, const uint8_t* data, int64_t size,
                        int32_t index_interval_bytes) noexcept nogil:
    """The same for several batches, which a replica appends at once. True when each has an entry."""
    cdef int64_t at = 0, last, timestamp, max_timestamp = s.max_timestamp, offset_of_max = s.offset_of_max_timestamp
    cdef int64_t batch_size
    cdef bint every = True
    while size - at >= BATCH_HEADER_SIZE:
        batch_size = size_of_batch(data + at)
        if not BATCH_HEADER_SIZE <= batch_size <= size - at:
            break
        last = load_int64(data + at) + load_int32(data + at + <int>LAST_OFFSET_DELTA_AT)
        timestamp = load_int64(data + at + <int>MAX_TIMESTAMP_AT)
        if timestamp > max_timestamp:
            max_timestamp = timestamp
            offset_of_max = last
        if not index_batch(s, s.size + at, batch_size, last, max_timestamp, offset_of_max, index_interval_bytes):
            every = False
        at += batch_size
    return every


cdef int segment_write(SegmentState* s, const uint8_t* data, int64_t size, int64_t last_offset, int64_t max_timestamp,
                       int64_t offset_of_max_timestamp, int32_t index_interval_bytes) noexcept nogil:
    cdef int64_t position = s.size, due = s.bytes_since_index
    cdef bint dense
    cdef int failure
    if position + size > s.reservation.end:
        reserve_ahead(&s.reservation, s.fd, position, size)
    failure = file_append(s.fd, data, size, position)
    if failure:
        return failure
    if size_of_batch(data) < size:
        dense = index_batches(s, data, size, index_interval_bytes)
    elif max_timestamp > s.max_timestamp:
        dense = index_batch(s, position, size, last_offset, max_timestamp, offset_of_max_timestamp,
                            index_interval_bytes)
    else:
        dense = index_batch(s, position, size, last_offset, s.max_timestamp, s.offset_of_max_timestamp,
                            index_interval_bytes)
    if s.bytes_since_index < due + size:
        s.index_full = offset_index_full(s.offset_index) or time_index_full(s.time_index)
        s.index_waits = index_has_pending(&s.offset_index.file)
    if not dense:
        atomic_store(&s.dense_from, INT64_MAX)
    elif s.dense_from > position:
        atomic_store(&s.dense_from, position)
    return 0


cdef void segment_grow(SegmentState* s, int64_t size, int64_t max_timestamp,
                       int64_t offset_of_max_timestamp) noexcept nogil:
    if max_timestamp > s.max_timestamp:
        s.max_timestamp = max_timestamp
        s.offset_of_max_timestamp = offset_of_max_timestamp
    if s.size == 0:
        s.first_batch_timestamp = max_timestamp
    s.size += size


cdef void segment_after_append(SegmentState* s) noexcept nogil:
    if index_has_pending(&s.offset_index.file):
        index_flush_pending(&s.offset_index.file)
        index_flush_pending(&s.time_index.file)


cdef bint begins_at_or_below(SegmentState* s, int64_t position, int64_t limit, int64_t offset) noexcept nogil:
    """Whether a walk from `position` may find the offset: the batch there does not begin above it."""
    cdef BatchScan scan
    scan_start(&scan, s.fd, position, limit)
    return scan_next(&scan) == SCAN_FOUND and scan.header.base_offset <= offset


cdef ScanStatus segment_find(SegmentState* s, int64_t offset, int64_t limit, BatchPosition* out) noexcept nogil:
    cdef int64_t position = 0, following = -1, second
    cdef ScanStatus status
    if segment_open(s) < 0:
        return SCAN_ERROR
    if offset > s.base_offset:
        position = offset_index_bounds(s.offset_index, offset, &following, &second)
        if following - position > SCAN_CHUNK and following < limit:
            # An entry holds the last offset of its batch: a reader that goes on after a batch as large as the index
            # interval starts at that batch, and finds the next one through the entry behind.
            if batch_at(s.fd, following, limit, out) == SCAN_FOUND and out.base_offset <= offset <= out.last_offset:
                return SCAN_FOUND
    status = scan_for_offset(s.fd, position, limit, offset, out)
    if position > 0 and (status == SCAN_CORRUPT or (status == SCAN_FOUND and out.base_offset > offset)
                         or (status == SCAN_END and not begins_at_or_below(s, position, limit, offset))):
        # A damaged index entry led into the middle of a batch or too far; the data itself is the truth.
        status = scan_for_offset(s.fd, 0, limit, offset, out)
    return status


cdef bint segment_find_dense(SegmentState* s, int64_t offset, int64_t limit, int64_t most,
                             int64_t* position) noexcept nogil:
    cdef int64_t dense_from = atomic_load(&s.dense_from)
    cdef int64_t before, second
    if dense_from >= limit or offset <= s.base_offset:
        return False
    # An entry holds the last offset of its batch. The search needs the first batch whose last offset is not below
    # `offset`: with an entry for every batch it is the one behind the last entry below.
    before = offset_index_bounds(s.offset_index, offset - 1, position, &second)
    if before < dense_from or position[0] <= before or position[0] >= limit:
        return False
    return (second if 0 <= second < limit else limit) - position[0] <= most


cdef ScanStatus segment_find_timestamp(SegmentState* s, int64_t timestamp, int64_t start_offset, int64_t limit,
                                       BatchPosition* out) noexcept nogil:
    cdef int64_t offset, position
    cdef ScanStatus status
    if segment_open(s) < 0:
        return SCAN_ERROR
    # The entry's timestamp is the highest up to its offset. The record may lie in the batch of that entry, so the
    # search begins at its position.
    offset = time_index_lookup(s.time_index, timestamp - 1)
    if start_offset > offset:
        offset = start_offset
    position = offset_index_lookup(s.offset_index, offset)
    status = scan_for_timestamp(s.fd, position, limit, timestamp, start_offset, out)
    if position > 0 and status == SCAN_CORRUPT:
        status = scan_for_timestamp(s.fd, 0, limit, timestamp, start_offset, out)
    return status


cdef int segment_should_roll(SegmentState* s, int64_t size, int64_t last_offset, int64_t max_timestamp, int64_t now_ms,
                             int64_t segment_bytes, int64_t segment_ms) noexcept nogil:
    """The reason for a roll: 1 bytes, 2 time, 3 index full, 4 relative offset overflow. An empty segment does not
    roll."""
    cdef int64_t waited
    if s.size == 0:
        return 4 if last_offset - s.base_offset > INT32_MAX else 0
    if s.size + size > segment_bytes or s.size + size > INT32_MAX:
        return 1
    if s.first_batch_timestamp >= 0 and max_timestamp >= 0:
        waited = max_timestamp - s.first_batch_timestamp
    else:
        waited = now_ms - s.created_ms
    if waited > segment_ms - s.roll_jitter_ms:
        return 2
    if s.index_full:
        return 3
    return 4 if last_offset - s.base_offset > INT32_MAX else 0


cdef int segment_truncate(SegmentState* s, int64_t offset, int64_t position) noexcept nogil:
    cdef int failure
    if segment_open(s) < 0:
        return -segment_open(s)
    offset_index_truncate(s.offset_index, offset)
    time_index_truncate(s.time_index, offset)
    index_unseal(&s.offset_index.file)
    index_unseal(&s.time_index.file)
    failure = file_truncate(s.fd, position)
    if failure:
        return failure
    if s.reservation.holds:
        reservation_init(&s.reservation)    # what was ahead is gone too
    if s.size != position:          # begin_truncation may have set it already, under the log's mutex
        s.size = position
    s.bytes_since_index = 0
    s.index_full = False
    atomic_store(&s.dense_from, INT64_MAX)
    atomic_store(&s.sealed, 0)
    atomic_store(&s.newest_record, NEWEST_NOT_KNOWN)
    if position > 0:
        segment_read_max_timestamp(s)
        return 0
    s.first_batch_timestamp = -1
    atomic_store(&s.max_timestamp, -1)
    s.offset_of_max_timestamp = -1
    # A stop writes no index of an empty segment, so the files must not keep old entries.
    failure = index_trim(&s.offset_index.file, False)
    if failure == 0:
        failure = index_trim(&s.time_index.file, False)
    return failure


cdef void segment_read_max_timestamp(SegmentState* s) noexcept nogil:
    """Reads the last time index entry, or a higher timestamp in a batch behind it."""
    cdef BatchScan scan
    cdef int64_t timestamp = -1
    if not time_index_last(s.time_index, &timestamp, &s.offset_of_max_timestamp):
        timestamp = -1
        s.offset_of_max_timestamp = s.base_offset
    atomic_store(&s.max_timestamp, timestamp)
    if s.size == 0 or segment_open(s) < 0:
        return
    scan_start(&scan, s.fd, offset_index_lookup(s.offset_index, s.offset_of_max_timestamp), s.size)
    while scan_next(&scan) == SCAN_FOUND:
        if scan.header.max_timestamp > s.max_timestamp:
            atomic_store(&s.max_timestamp, scan.header.max_timestamp)
            s.offset_of_max_timestamp = scan.header.base_offset + scan.header.last_offset_delta


cdef int segment_release(SegmentState* s) noexcept nogil:
    cdef int failure
    if not s.reservation.holds:
        return 0
    failure = -segment_open(s)
    # What was opened before the segment left its log is its own file.
    if failure > 0 or atomic_load(&s.detached):
        return 0
    failure = release_ahead(&s.reservation, s.fd, s.size)
    return failure if failure == EIO or failure == EROFS else 0


cdef int segment_trim(SegmentState* s) noexcept nogil:
    cdef int failure = segment_release(s)
    if failure or s.size == 0:
        return failure      # an empty index has no file
    if s.max_timestamp >= 0:
        time_index_append(s.time_index, s.max_timestamp, s.offset_of_max_timestamp, True)
    failure = index_trim(&s.offset_index.file, False)
    if failure == 0:
        failure = index_trim(&s.time_index.file, False)
    return failure


cdef int segment_seal(SegmentState* s, bint sync) noexcept nogil:
    cdef int failure = 0
    if not s.sealed:
        failure = segment_trim(s)
        if failure == 0:
            failure = index_trim(&s.offset_index.file, True)
        if failure == 0:
            failure = index_trim(&s.time_index.file, True)
        atomic_store(&s.sealed, failure == 0)
    if failure == 0 and sync:
        failure = segment_open(s)
        failure = -failure if failure < 0 else file_sync(failure)
        if failure == 0:
            failure = index_sync(&s.offset_index.file)
        if failure == 0:
            failure = index_sync(&s.time_index.file)
    return failure


cdef void segment_detach(SegmentState* s, int64_t own) noexcept nogil:
    atomic_store(&s.detached, 1)
    # A reader took its reference under the log's mutex, before the segment left the log; it may not have opened the
    # file yet.
    if atomic_load(&s.references) > own and not s.path.empty():
        segment_open(s)
    index_detach(&s.offset_index.file)
    index_detach(&s.time_index.file)
