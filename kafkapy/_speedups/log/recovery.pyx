"""Recovery walks over segments (see recovery.pxd). The thread that loads a log calls them, without the GIL."""

from libc.errno cimport ENOMEM
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport file_read
from kafkapy._speedups.log.index cimport (
    index_clear,
    index_flush_pending,
    offset_index_append,
    offset_index_last,
    offset_index_lookup,
    time_index_append,
)
from kafkapy._speedups.log.producer_state cimport (
    CONTROL_NONE,
    CompletedTransaction,
    ControlMarker,
    control_marker_parse,
    producer_apply,
)
from kafkapy._speedups.log.segment cimport SegmentState, segment_open
from kafkapy._speedups.records.file_records cimport (
    SCAN_CORRUPT,
    SCAN_END,
    SCAN_ERROR,
    SCAN_FOUND,
    BatchScan,
    ScanStatus,
    file_size,
    legacy_check_crc,
    scan_next,
    scan_start,
)
from kafkapy._speedups.records.record_batch cimport BATCH_OK, CONTROL_FLAG, MAGIC_V2, BatchHeader, batch_check_crc

cdef enum:
    READ_AHEAD = 1 << 20            # bytes per read of a full check
    FLUSH_INDEX_EVERY = 4096        # entries kept in memory at most


cdef bint epochs_assign(vector[EpochEntry]* epochs, int32_t epoch, int64_t start_offset) noexcept nogil:
    cdef EpochEntry entry
    if epoch < 0 or (not epochs.empty() and epochs.back().epoch >= epoch):
        return False
    # Kafka drops newer entries that would begin at or above the new one: they hold no record.
    while not epochs.empty() and epochs.back().start_offset >= start_offset:
        epochs.pop_back()
    entry.epoch = epoch
    entry.start_offset = start_offset
    epochs.push_back(entry)
    return True


cdef void apply_batch(LogHistory* history, const BatchHeader* header, const ControlMarker* marker) noexcept nogil:
    cdef CompletedTransaction completed
    cdef int64_t last = header.base_offset + header.last_offset_delta
    producer_apply(history.producers, header, marker, header.base_offset, last, &completed)
    if completed.completed and completed.aborted:
        if history.aborted.empty() or history.aborted.back().last_offset < completed.last_offset:
            history.aborted.push_back(completed)


cdef void learn_epoch(vector[EpochEntry]* epochs, int32_t epoch, int64_t offset) noexcept nogil:
    """A batch of this epoch stands at the offset, whatever the entries say. They may be of truncated batches, or of
    batches that never reached the disk; or a deletion of records has raised the start of an entry, and the new log
    start did not reach the disk."""
    cdef EpochEntry entry
    cdef size_t i = epochs.size()
    if epoch < 0:
        return
    while i > 0 and epochs[0][i - 1].start_offset > offset:
        i -= 1
    # Up to here: newer epochs at or below the offset, and older ones that hold no record.
    while i > 0 and (epochs[0][i - 1].epoch > epoch
                     or (epochs[0][i - 1].start_offset == offset and epochs[0][i - 1].epoch < epoch)):
        i -= 1
        epochs.erase(epochs.begin() + <int64_t>i)
    # From here on: this epoch and older ones that would begin later.
    while i < epochs.size() and epochs[0][i].epoch <= epoch:
        epochs.erase(epochs.begin() + <int64_t>i)
    if i > 0 and epochs[0][i - 1].epoch == epoch:
        return
    entry.epoch = epoch
    entry.start_offset = offset
    epochs.insert(epochs.begin() + <int64_t>i, entry)


cdef int segment_recover(SegmentState* s, LogHistory* history, int32_t index_interval_bytes, int64_t* next_offset,
                         int64_t* cut_bytes, bint* gaps) noexcept nogil:
    cdef BatchScan scan
    cdef ControlMarker marker
    cdef ScanStatus status
    cdef uint8_t* buffer = NULL
    cdef uint8_t* larger
    cdef int64_t buffer_start = 0, buffer_size = 0, capacity = 0, wanted, got, limit, last, since = 0, kept = 0
    cdef int failure = 0
    cdef int fd = segment_open(s)
    next_offset[0] = s.base_offset
    cut_bytes[0] = 0
    if fd < 0:
        return -fd
    limit = file_size(fd)
    s.size = 0
    if limit < 0:
        return <int>-limit
    index_clear(&s.offset_index.file)
    index_clear(&s.time_index.file)
    s.max_timestamp = -1
    s.offset_of_max_timestamp = s.base_offset
    s.first_batch_timestamp = -1
    s.sealed = False
    scan_start(&scan, fd, 0, limit)
    while True:
        status = scan_next(&scan)
        if status == SCAN_ERROR:
            failure = scan.error
            break
        if status != SCAN_FOUND:
            break
        last = scan.header.base_offset + scan.header.last_offset_delta
        if scan.header.base_offset < next_offset[0] or last - s.base_offset > 0x7FFFFFFF:
            break           # offsets ascend: bytes that break the order are not this log's
        if scan.at < buffer_start or scan.at + scan.header.size > buffer_start + buffer_size:
            wanted = scan.header.size if scan.header.size > READ_AHEAD else READ_AHEAD
            if wanted > limit - scan.at:
                wanted = limit - scan.at
            if wanted > capacity:
                larger = <uint8_t*>realloc(buffer, <size_t>wanted)
                if larger == NULL:
                    failure = ENOMEM
                    break
                buffer = larger
                capacity = wanted
            got = file_read(fd, buffer, wanted, scan.at)
            if got < 0:
                failure = <int>-got
                break
            buffer_start = scan.at
            buffer_size = got
            if got < scan.header.size:
                break
        if scan.header.magic < MAGIC_V2:
            if not legacy_check_crc(buffer + (scan.at - buffer_start), scan.header.size):
                break
        elif batch_check_crc(buffer + (scan.at - buffer_start), scan.header.size) != BATCH_OK:
            break
        if not control_marker_parse(buffer + (scan.at - buffer_start), scan.header.size, &scan.header, &marker):
            break
        if scan.header.base_offset > next_offset[0]:
            gaps[0] = True
        if scan.header.max_timestamp > s.max_timestamp:
            s.max_timestamp = scan.header.max_timestamp
            s.offset_of_max_timestamp = last
        if scan.at == 0:
            s.first_batch_timestamp = scan.header.max_timestamp
        if since > index_interval_bytes:
            offset_index_append(s.offset_index, last, scan.at)
            time_index_append(s.time_index, s.max_timestamp, s.offset_of_max_timestamp, False)
            since = 0
            kept += 1
            if kept >= FLUSH_INDEX_EVERY:
                index_flush_pending(&s.offset_index.file)
                index_flush_pending(&s.time_index.file)
                kept = 0
        since += scan.header.size
        learn_epoch(&history.epochs, scan.header.leader_epoch, scan.header.base_offset)
        next_offset[0] = last + 1
        s.size = scan.position
    free(buffer)
    if failure:
        return failure
    s.bytes_since_index = since
    cut_bytes[0] = limit - s.size
    return 0


cdef int segment_replay(SegmentState* s, LogHistory* history, int64_t end_offset) noexcept nogil:
    cdef BatchScan scan
    cdef ControlMarker marker
    cdef ScanStatus status
    cdef uint8_t control[4096]
    cdef int64_t start = history.producers.end_offset
    cdef int64_t last, got
    cdef int fd
    if s.size == 0:
        return 0
    fd = segment_open(s)
    if fd < 0:
        return -fd
    scan_start(&scan, fd, offset_index_lookup(s.offset_index, start) if start > s.base_offset else 0, s.size)
    while True:
        status = scan_next(&scan)
        if status == SCAN_ERROR:
            return scan.error
        if status != SCAN_FOUND or scan.header.base_offset >= end_offset:
            return 0
        last = scan.header.base_offset + scan.header.last_offset_delta
        if last < start:
            continue
        marker.type = CONTROL_NONE
        marker.coordinator_epoch = -1
        if scan.header.attributes & CONTROL_FLAG and scan.header.size <= <int32_t>sizeof(control):
            got = file_read(fd, control, scan.header.size, scan.at)
            if got < 0:
                return <int>-got
            if got == scan.header.size:
                control_marker_parse(control, got, &scan.header, &marker)
        apply_batch(history, &scan.header, &marker)


cdef int segment_next_offset(SegmentState* s, int64_t* next_offset) noexcept nogil:
    cdef BatchScan scan
    cdef ScanStatus status
    cdef int64_t offset, position = 0
    cdef int fd
    next_offset[0] = s.base_offset
    if s.size == 0:
        return 0
    fd = segment_open(s)
    if fd < 0:
        return -fd
    offset_index_last(s.offset_index, &offset, &position)
    scan_start(&scan, fd, position, s.size)
    while True:
        status = scan_next(&scan)
        if status == SCAN_FOUND:
            next_offset[0] = scan.header.base_offset + scan.header.last_offset_delta + 1
        elif status == SCAN_END:
            return 0
        elif status == SCAN_CORRUPT:
            return -1
        else:
            return scan.error
