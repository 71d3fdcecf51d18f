"""Reading from a partition log (see log_read.pxd).

Under the mutex: which segment, how far, who is leader, what was aborted. Outside: the position of the first batch, by index and a walk over headers,
unless the batch was appended lately and its position is remembered.
"""

from libc.errno cimport EIO, errno
from libc.stdint cimport int16_t, int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset
from libcpp.vector cimport vector

from kafkapy._speedups.file_records cimport (
    SCAN_END,
    SCAN_ERROR,
    SCAN_FOUND,
    BatchPosition,
    ScanStatus,
    scan_for_offset,
)
from kafkapy._speedups.log_state cimport (
    ERROR_KAFKA_STORAGE_ERROR,
    ERROR_OFFSET_OUT_OF_RANGE,
    check_state_locked,
    end_offset_for_epoch_locked,
    fire,
    floor_segment,
    recall_batch_locked,
    set_offline_locked,
    take_waiters_locked,
)
from kafkapy._speedups.partition_log cimport (
    READ_COMMITTED,
    READ_LOG_END,
    READ_UNCOMMITTED,
    AbortedTransaction,
    FetchIsolation,
    LogState,
    ReadResult,
    RecentBatch,
    Waiter,
)
from kafkapy._speedups.posix cimport pthread_mutex_lock, pthread_mutex_unlock
from kafkapy._speedups.producer_state cimport CompletedTransaction
from kafkapy._speedups.segment cimport SegmentState, segment_find, segment_find_dense, segment_open, segment_ref, segment_unref


cdef void collect_aborted_locked(LogState* log, int64_t start, int64_t upper, ReadResult* result) noexcept nogil:
    """Aborted transactions that overlap [start, upper)."""
    cdef size_t n = log.own.history.aborted.size()
    cdef size_t low = 0, high = n, middle, i
    cdef CompletedTransaction* entry
    result.aborted_count = 0
    while low < high:
        middle = (low + high) // 2
        if log.own.history.aborted[middle].last_offset < start:
            low = middle + 1
        else:
            high = middle
    if low == n:
        return
    result.aborted = <AbortedTransaction*>malloc((n - low) * sizeof(AbortedTransaction))
    if result.aborted == NULL:
        result.error = ERROR_KAFKA_STORAGE_ERROR
        return
    for i in range(low, n):
        entry = &log.own.history.aborted[i]
        if entry.first_offset < upper:
            result.aborted[result.aborted_count].producer_id = entry.producer_id
            result.aborted[result.aborted_count].first_offset = entry.first_offset
            result.aborted_count += 1
        if entry.last_stable_offset >= upper:
            break       # everything aborted later began above


cdef void read_batches(LogState* log, int64_t offset, int32_t max_bytes, bint min_one_batch, FetchIsolation isolation,
                       int32_t current_leader_epoch, int32_t last_fetched_epoch, bint leader_only, ReadResult* result) noexcept nogil:
    cdef int64_t limit_offset, index, end, start = -1, first_size = 0, sought = offset
    cdef bint end_known, last_one
    cdef RecentBatch recent
    cdef BatchPosition found
    cdef ScanStatus status
    cdef SegmentState* segment
    cdef int error, opened
    memset(result, 0, sizeof(ReadResult))
    result.aborted_count = -1
    result.diverging_epoch = -1
    result.diverging_end_offset = -1
    pthread_mutex_lock(&log.mutex)
    result.high_watermark = log.high_watermark
    result.last_stable_offset = log.last_stable_offset
    result.log_start_offset = log.log_start_offset
    result.log_end_offset = log.log_end_offset
    result.leader_id = log.leader_id
    result.leader_epoch = log.leader_epoch
    error = check_state_locked(log, current_leader_epoch, leader_only)
    if error == 0 and last_fetched_epoch >= 0:
        end_offset_for_epoch_locked(log, last_fetched_epoch, &result.diverging_epoch, &result.diverging_end_offset)
        if result.diverging_epoch < 0 or (result.diverging_epoch == last_fetched_epoch and result.diverging_end_offset >= offset):
            if result.diverging_epoch < 0:
                error = ERROR_OFFSET_OUT_OF_RANGE
            result.diverging_epoch = -1
            result.diverging_end_offset = -1
        else:
            pthread_mutex_unlock(&log.mutex)
            return
    if error == 0 and (offset < log.log_start_offset or offset > log.log_end_offset):
        error = ERROR_OFFSET_OUT_OF_RANGE
    if error:
        pthread_mutex_unlock(&log.mutex)
        result.error = <int16_t>error
        return
    if isolation == READ_UNCOMMITTED:
        limit_offset = log.high_watermark
    elif isolation == READ_COMMITTED:
        limit_offset = log.last_stable_offset
        result.aborted_count = 0
    else:
        limit_offset = log.log_end_offset
    index = floor_segment(log, offset)
    if index < 0:
        index = 0           # the start offset was moved below the first segment that is left
    while True:
        # One turn per segment; a second one only when the offset lies in a hole that compaction left at a segment's end.
        if sought >= limit_offset or index >= <int64_t>log.segments.size() or (max_bytes <= 0 and not min_one_batch):
            pthread_mutex_unlock(&log.mutex)
            return
        segment = log.segments[<size_t>index]
        last_one = index + 1 == <int64_t>log.segments.size()
        end = segment.size
        end_known = limit_offset >= log.log_end_offset or (not last_one and limit_offset >= log.segments[<size_t>(index + 1)].base_offset)
        if not end_known and recall_batch_locked(log, limit_offset, segment.base_offset, &recent):
            end = recent.position
            end_known = True
        start = -1
        if recall_batch_locked(log, sought, segment.base_offset, &recent):
            start = recent.position
            first_size = recent.size
        if isolation == READ_COMMITTED:
            collect_aborted_locked(log, offset, limit_offset if last_one else log.segments[<size_t>(index + 1)].base_offset, result)
        segment_ref(segment)
        pthread_mutex_unlock(&log.mutex)

        error = 0
        opened = segment_open(segment)
        if opened < 0:
            status = SCAN_ERROR
            error = -opened
        elif start >= 0:
            status = SCAN_FOUND
        elif end_known and segment_find_dense(segment, sought, end, max_bytes, &start):
            status = SCAN_FOUND
        else:
            status = segment_find(segment, sought, end, &found)
            error = errno
            start = found.position
            first_size = found.size
        if status == SCAN_FOUND and not end_known:
            status = scan_for_offset(segment.fd, start, end, limit_offset, &found)
            error = errno
            if status == SCAN_FOUND:
                end = found.position
            elif status == SCAN_END:
                status = SCAN_FOUND
        if status != SCAN_END or last_one:
            break
        segment_unref(segment)
        free_aborted(result)
        pthread_mutex_lock(&log.mutex)
        # Segments may have been deleted meanwhile, so the number is looked up anew.
        index = floor_segment(log, segment_next_base(log, sought))
        if index < 0 or index >= <int64_t>log.segments.size():
            pthread_mutex_unlock(&log.mutex)
            return
        if log.segments[<size_t>index].base_offset <= sought:
            pthread_mutex_unlock(&log.mutex)
            return
        sought = log.segments[<size_t>index].base_offset

    if status != SCAN_FOUND or end <= start:
        segment_unref(segment)
        if status != SCAN_FOUND and status != SCAN_END:
            free_aborted(result)
            result.error = ERROR_KAFKA_STORAGE_ERROR
            # The disk is at fault, as for a failed append; too many open files, or a file that a delete took away, are not.
            if status == SCAN_ERROR and error == EIO:
                take_offline(log, error)
        return
    result.position = start
    result.length = end - start
    if result.length > max_bytes:
        result.length = max_bytes
        if min_one_batch and result.length < first_size:
            result.length = first_size
    if result.length <= 0:
        segment_unref(segment)
        return
    result.segment = segment


cdef void take_offline(LogState* log, int failure) noexcept nogil:
    cdef vector[Waiter] woken
    pthread_mutex_lock(&log.mutex)
    set_offline_locked(log, failure, "read failed")
    take_waiters_locked(log, True, &woken)
    pthread_mutex_unlock(&log.mutex)
    fire(&woken)


cdef void free_aborted(ReadResult* result) noexcept nogil:
    free(result.aborted)
    result.aborted = NULL
    result.aborted_count = 0


cdef int64_t segment_next_base(LogState* log, int64_t offset) noexcept nogil:
    """Base offset of the first segment above `offset`, or -1."""
    cdef int64_t next = floor_segment(log, offset) + 1
    return log.segments[<size_t>next].base_offset if next < <int64_t>log.segments.size() else -1
