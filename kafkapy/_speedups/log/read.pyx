"""Reading from a partition log (see read.pxd).

Under the mutex: the segment, the limit, the leadership. Outside: the position of the first batch, by index and a walk
over headers, unless the log remembers the place of a recent batch. Then, for read_committed readers of a log with
aborted transactions, once more under the mutex: the aborted transactions in the bytes found.

No header is read between the first batch and the end: a high watermark or last stable offset in the middle of a segment
has a remembered place (LimitPlace), or one index look-up finds it.
"""

from libc.errno cimport EIO, errno
from libc.stdint cimport int16_t, int32_t, int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset
from libcpp.vector cimport vector

from kafkapy._speedups.base.blocking cimport NetworkThread, blocking_begin, blocking_end, network_thread
from kafkapy._speedups.base.error_codes cimport ERROR_KAFKA_STORAGE_ERROR, ERROR_OFFSET_OUT_OF_RANGE
from kafkapy._speedups.base.posix cimport atomic_load, is_shortage, pthread_mutex_lock, pthread_mutex_unlock
from kafkapy._speedups.log.layout cimport (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    AbortedTransaction,
    FetchIsolation,
    LogState,
    ReadResult,
    Waiter,
)
from kafkapy._speedups.log.private cimport RecentBatch, private_of
from kafkapy._speedups.log.producer_state cimport CompletedTransaction
from kafkapy._speedups.log.segment cimport (
    SegmentState,
    segment_find,
    segment_find_dense,
    segment_offset_bound,
    segment_open_to_read,
    segment_ref,
    segment_unref,
)
from kafkapy._speedups.log.state cimport (
    ABORTED_BLOCK,
    check_state_locked,
    end_offset_for_epoch_locked,
    fire,
    floor_segment,
    limit_position_locked,
    recall_batch_locked,
    set_offline_locked,
    take_waiters_locked,
)
from kafkapy._speedups.records.file_records cimport SCAN_END, SCAN_ERROR, SCAN_FOUND, BatchPosition, ScanStatus

cdef enum:
    MOST_HANGING = 4            # threads that may hang in reads of one log; then network threads read nothing more


cdef int64_t lowest_of_block_locked(LogState* log, size_t block) noexcept nogil:
    """The lowest first offset among the aborted transactions of a block."""
    cdef vector[CompletedTransaction]* aborted = &private_of(log).history.aborted
    cdef vector[int64_t]* lowest = &private_of(log).aborted_lowest
    cdef size_t i = private_of(log).aborted_summed
    while i < aborted.size():
        if i % ABORTED_BLOCK == 0:
            lowest.push_back(aborted[0][i].first_offset)
        elif aborted[0][i].first_offset < lowest.back():
            lowest[0][lowest.size() - 1] = aborted[0][i].first_offset
        i += 1
    private_of(log).aborted_summed = i
    return lowest[0][block]


cdef bint add_aborted(ReadResult* result, const CompletedTransaction* entry, int32_t* capacity) noexcept nogil:
    cdef AbortedTransaction* larger
    if result.aborted_count == capacity[0]:
        capacity[0] = 2 * capacity[0] if capacity[0] else 16
        larger = <AbortedTransaction*>realloc(result.aborted, <size_t>capacity[0] * sizeof(AbortedTransaction))
        if larger == NULL:
            return False
        result.aborted = larger
    result.aborted[result.aborted_count].producer_id = entry.producer_id
    result.aborted[result.aborted_count].first_offset = entry.first_offset
    result.aborted_count += 1
    return True


cdef bint collect_aborted_locked(LogState* log, int64_t start, int64_t upper, ReadResult* result) noexcept nogil:
    """Collects aborted transactions that overlap [start, upper); False without memory. The list has the order of their
    markers: a transaction with its marker above `upper` that began below it may stand far behind, among many that
    began above. The search passes over whole blocks of the latter."""
    cdef vector[CompletedTransaction]* aborted = &private_of(log).history.aborted
    cdef size_t n = aborted.size()
    cdef size_t low = 0, high = n, middle
    cdef int32_t capacity = 0
    cdef const CompletedTransaction* entry
    while low < high:
        middle = (low + high) // 2
        if aborted[0][middle].last_offset < start:
            low = middle + 1
        else:
            high = middle
    while low < n:
        if low % ABORTED_BLOCK == 0 and lowest_of_block_locked(log, low // ABORTED_BLOCK) >= upper:
            low = min(low + ABORTED_BLOCK, n)
            entry = &aborted[0][low - 1]
        else:
            entry = &aborted[0][low]
            if entry.first_offset < upper and not add_aborted(result, entry, &capacity):
                return False
            low += 1
        if entry.last_stable_offset >= upper:
            break       # every later entry began above
    return True


cdef bint add_aborted_transactions(LogState* log, int64_t offset, SegmentState* segment, int64_t bytes_end,
                                   int64_t upper, int64_t layout, ReadResult* result) noexcept nogil:
    """Adds the aborted transactions of the bytes up to `bytes_end` in the segment, which end below the offset `upper`
    at the latest. False when the log has changed since the bytes were found: it may have forgotten their aborted
    transactions."""
    cdef int64_t bound = segment_offset_bound(segment, bytes_end)
    cdef bint same
    if 0 <= bound < upper:
        upper = bound
    pthread_mutex_lock(&log.mutex)
    same = private_of(log).layout == layout
    if same and not collect_aborted_locked(log, offset, upper, result):
        result.error = ERROR_KAFKA_STORAGE_ERROR
    pthread_mutex_unlock(&log.mutex)
    return same


cdef ScanStatus find_limit(LogState* log, SegmentState* segment, int which, int64_t offset, int64_t layout,
                           int64_t* end) noexcept nogil:
    """Finds the position of the first batch that reaches the offset, by index, and remembers it. `end`: takes the end
    of the segment, and gets the position."""
    cdef BatchPosition found
    cdef ScanStatus status = segment_find(segment, offset, end[0], &found)
    if status == SCAN_FOUND:
        end[0] = found.position
    elif status != SCAN_END:
        return status
    pthread_mutex_lock(&log.mutex)
    if status == SCAN_FOUND and private_of(log).layout == layout:
        private_of(log).limits[which].offset = offset
        private_of(log).limits[which].segment_base = segment.base_offset
        private_of(log).limits[which].position = found.position
    pthread_mutex_unlock(&log.mutex)
    return SCAN_FOUND


cdef void read_batches(LogState* log, int64_t offset, int32_t max_bytes, bint min_one_batch, FetchIsolation isolation,
                       int32_t current_leader_epoch, int32_t last_fetched_epoch, bint leader_only,
                       ReadResult* result) noexcept nogil:
    while not read_once(log, offset, max_bytes, min_one_batch, isolation, current_leader_epoch, last_fetched_epoch,
                        leader_only, result):
        pass


cdef bint read_once(LogState* log, int64_t offset, int32_t max_bytes, bint min_one_batch, FetchIsolation isolation,
                    int32_t current_leader_epoch, int32_t last_fetched_epoch, bint leader_only,
                    ReadResult* result) noexcept nogil:
    """False when a truncation, a cleaning or a move meanwhile makes the positions inconsistent."""
    cdef int64_t limit_offset, index, end, layout, upper, start = -1, first_size = 0, sought = offset
    cdef bint end_known, last_one, has_aborted
    cdef int which = isolation == READ_COMMITTED
    cdef RecentBatch recent
    cdef BatchPosition found
    cdef ScanStatus status
    cdef SegmentState* segment
    cdef NetworkThread* thread
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
        if result.diverging_epoch < 0 or (result.diverging_epoch == last_fetched_epoch
                                          and result.diverging_end_offset >= offset):
            if result.diverging_epoch < 0:
                error = ERROR_OFFSET_OUT_OF_RANGE
            result.diverging_epoch = -1
            result.diverging_end_offset = -1
        else:
            pthread_mutex_unlock(&log.mutex)
            return True
    if error == 0 and (offset < log.log_start_offset or offset > log.log_end_offset):
        error = ERROR_OFFSET_OUT_OF_RANGE
    if error:
        pthread_mutex_unlock(&log.mutex)
        result.error = <int16_t>error
        return True
    if isolation == READ_UNCOMMITTED:
        limit_offset = log.high_watermark
    elif isolation == READ_COMMITTED:
        limit_offset = log.last_stable_offset
        result.aborted_count = 0
    else:
        limit_offset = log.log_end_offset
    index = floor_segment(log, offset)
    if index < 0:
        index = 0           # the start offset was moved below the first remaining segment
    while True:
        # One turn per segment; a second turn only when the offset lies in a hole that compaction left at a segment's
        # end.
        if sought >= limit_offset or index >= <int64_t>log.segments.size() or (max_bytes <= 0 and not min_one_batch):
            pthread_mutex_unlock(&log.mutex)
            return True
        segment = log.segments[<size_t>index]
        last_one = index + 1 == <int64_t>log.segments.size()
        end = segment.size
        end_known = (limit_offset >= log.log_end_offset
                     or (not last_one and limit_offset >= log.segments[<size_t>(index + 1)].base_offset))
        if not end_known:
            end_known = limit_position_locked(log, which, limit_offset, segment.base_offset, &end)
        start = -1
        if recall_batch_locked(log, sought, segment.base_offset, &recent):
            start = recent.position
            first_size = recent.size
        upper = limit_offset
        if not last_one and log.segments[<size_t>(index + 1)].base_offset < upper:
            upper = log.segments[<size_t>(index + 1)].base_offset
        layout = private_of(log).layout
        has_aborted = isolation == READ_COMMITTED and not private_of(log).history.aborted.empty()
        segment_ref(segment)
        pthread_mutex_unlock(&log.mutex)

        error = 0
        status = SCAN_FOUND
        thread = NULL
        if segment.fd < 0 or start < 0 or not end_known:
            if atomic_load(&private_of(log).slow) >= MOST_HANGING and network_thread() != NULL:
                # Enough threads hang in reads of this log. The reply has no data, and the client asks again.
                segment_unref(segment)
                return True
            thread = blocking_begin(&private_of(log).slow)
        opened = segment_open_to_read(segment)
        if opened < 0:
            status = SCAN_ERROR
            error = -opened
        elif not end_known:
            status = find_limit(log, segment, which, limit_offset, layout, &end)
            error = errno
        if status != SCAN_FOUND or start >= 0 or segment_find_dense(segment, sought, end, max_bytes, &start):
            pass
        else:
            status = segment_find(segment, sought, end, &found)
            error = errno
            start = found.position
            first_size = found.size
        blocking_end(thread)
        if status != SCAN_END or last_one:
            break
        segment_unref(segment)
        pthread_mutex_lock(&log.mutex)
        # Segments may have been deleted meanwhile, so the number is looked up again.
        index = floor_segment(log, segment_next_base(log, sought))
        if index < 0 or index >= <int64_t>log.segments.size():
            pthread_mutex_unlock(&log.mutex)
            return True
        if log.segments[<size_t>index].base_offset <= sought:
            pthread_mutex_unlock(&log.mutex)
            return True
        sought = log.segments[<size_t>index].base_offset

    if status != SCAN_FOUND or end <= start:
        segment_unref(segment)
        if status != SCAN_FOUND and status != SCAN_END:
            result.error = ERROR_KAFKA_STORAGE_ERROR
            result.shortage = status == SCAN_ERROR and is_shortage(error)
            # The disk is at fault, as for a failed append; a shortage of descriptors, or a file that a delete removed,
            # is no fault of the disk.
            if status == SCAN_ERROR and error == EIO:
                take_offline(log, error)
        return True
    result.position = start
    result.length = end - start
    if result.length > max_bytes:
        result.length = max_bytes
        if min_one_batch and result.length < first_size:
            result.length = first_size
    if result.length <= 0:
        segment_unref(segment)
        return True
    result.segment = segment
    if has_aborted and not add_aborted_transactions(log, offset, segment, start + result.length, upper, layout, result):
        segment_unref(segment)
        return False
    if result.error:
        segment_unref(segment)
        result.segment = NULL
        free_aborted(result)
    return True


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
