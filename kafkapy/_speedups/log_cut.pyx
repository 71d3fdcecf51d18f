"""Truncation, log start, deletion and flush (see log_cut.pxd). Called by the control plane's threads without the GIL."""

from libc.stdint cimport int32_t, int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.file_records cimport SCAN_END, SCAN_FOUND, BatchPosition, ScanStatus
from kafkapy._speedups.log_state cimport (
    ERROR_OFFSET_OUT_OF_RANGE,
    fire,
    floor_segment,
    forget_batches_locked,
    lock_settled,
    set_high_watermark_locked,
    set_offline_locked,
    take_waiters_locked,
    update_last_stable_offset_locked,
)
from kafkapy._speedups.partition_log cimport LogState, Waiter
from kafkapy._speedups.posix cimport pthread_mutex_lock, pthread_mutex_unlock
from kafkapy._speedups.producer_state cimport producer_clear, producer_high_watermark
from kafkapy._speedups.segment cimport (
    SegmentState,
    segment_find,
    segment_open,
    segment_ref,
    segment_seal,
    segment_truncate,
    segment_unref,
)
from kafkapy._speedups.file_records cimport file_sync


cdef void cut_history_locked(LogState* log, int64_t offset) noexcept nogil:
    """Forgets epochs, aborted transactions and snapshots that speak of offsets at or above `offset`."""
    while not log.own.history.epochs.empty() and log.own.history.epochs.back().start_offset >= offset:
        log.own.history.epochs.pop_back()
        log.own.epochs_version += 1
    while not log.own.history.aborted.empty() and log.own.history.aborted.back().last_offset >= offset:
        log.own.history.aborted.pop_back()
    while not log.own.snapshots.empty() and log.own.snapshots.back().offset > offset:
        log.own.snapshots.pop_back()


cdef int truncate_log(LogState* log, int64_t offset, vector[int64_t]* removed) noexcept nogil:
    cdef vector[Waiter] woken
    cdef vector[SegmentState*] dropped
    cdef SegmentState* segment = NULL
    cdef BatchPosition at
    cdef ScanStatus status
    cdef int64_t index, end = offset
    cdef int failure = 0
    cdef size_t i
    lock_settled(log)
    index = floor_segment(log, offset)
    if offset >= log.log_end_offset or index < 0:
        pthread_mutex_unlock(&log.mutex)
        return 0
    segment = log.segments[<size_t>index]
    segment_ref(segment)
    log.own.rolling = True
    at.position = segment.size
    pthread_mutex_unlock(&log.mutex)

    status = segment_find(segment, offset, segment.size, &at)
    if status == SCAN_END:
        at.position = segment.size
    elif status == SCAN_FOUND:
        # A batch is cut whole: one that holds the offset in its middle goes too.
        if at.base_offset < offset:
            end = at.base_offset if at.base_offset > log.log_start_offset else log.log_start_offset
    else:
        failure = 5

    pthread_mutex_lock(&log.mutex)
    if failure == 0:
        while <int64_t>log.segments.size() > index + 1:
            dropped.push_back(log.segments.back())
            removed.push_back(log.segments.back().base_offset)
            log.segments.pop_back()
        segment.size = at.position
        log.log_end_offset = end
        forget_batches_locked(log, end)
        cut_history_locked(log, end)
        if log.recovery_point > end:
            log.recovery_point = end
        if log.high_watermark > end:
            set_high_watermark_locked(log, end)
    pthread_mutex_unlock(&log.mutex)

    if failure == 0:
        failure = segment_truncate(segment, end, at.position)
    pthread_mutex_lock(&log.mutex)
    log.own.rolling = False
    if failure:
        set_offline_locked(log, failure, "truncation failed")
    take_waiters_locked(log, failure != 0, &woken)
    pthread_mutex_unlock(&log.mutex)
    segment_unref(segment)
    for i in range(dropped.size()):
        segment_unref(dropped[i])
    fire(&woken)
    return failure


cdef void empty_log(LogState* log, int64_t offset, vector[int64_t]* removed) noexcept nogil:
    cdef vector[SegmentState*] dropped
    cdef size_t i
    lock_settled(log)
    log.own.rolling = True
    dropped.swap(log.segments)
    log.log_start_offset = offset
    log.log_end_offset = offset
    log.recovery_point = offset
    forget_batches_locked(log, 0)
    log.own.history.epochs.clear()
    log.own.epochs_version += 1
    log.own.history.aborted.clear()
    log.own.snapshots.clear()
    producer_clear(log.own.history.producers, offset)
    log.high_watermark = -1
    set_high_watermark_locked(log, offset)
    pthread_mutex_unlock(&log.mutex)
    for i in range(dropped.size()):
        removed.push_back(dropped[i].base_offset)
        segment_unref(dropped[i])


cdef void resume_appends(LogState* log) noexcept nogil:
    cdef vector[Waiter] woken
    pthread_mutex_lock(&log.mutex)
    log.own.rolling = False
    take_waiters_locked(log, False, &woken)
    pthread_mutex_unlock(&log.mutex)
    fire(&woken)


cdef void raise_log_start_locked(LogState* log, int64_t offset) noexcept nogil:
    cdef int64_t i
    if offset <= log.log_start_offset:
        return
    log.log_start_offset = offset
    if log.high_watermark < offset:
        set_high_watermark_locked(log, offset)
    producer_high_watermark(log.own.history.producers, offset)
    update_last_stable_offset_locked(log)
    # The newest epoch that began at or below the new start begins there now; older ones have no record left.
    i = <int64_t>log.own.history.epochs.size() - 1
    while i >= 0 and log.own.history.epochs[<size_t>i].start_offset > offset:
        i -= 1
    if i >= 0 and (i > 0 or log.own.history.epochs.front().start_offset < offset):
        log.own.history.epochs.erase(log.own.history.epochs.begin(), log.own.history.epochs.begin() + i)
        log.own.history.epochs.front().start_offset = offset
        log.own.epochs_version += 1


cdef int advance_log_start(LogState* log, int64_t offset) noexcept nogil:
    cdef int error = 0
    pthread_mutex_lock(&log.mutex)
    if offset > log.high_watermark:
        error = ERROR_OFFSET_OUT_OF_RANGE
    else:
        raise_log_start_locked(log, offset)
    pthread_mutex_unlock(&log.mutex)
    return error


cdef void remove_segments_below(LogState* log, int64_t offset, vector[int64_t]* removed) noexcept nogil:
    cdef vector[SegmentState*] dropped
    cdef size_t count = 0, i
    lock_settled(log)
    while count + 1 < log.segments.size() and log.segments[count + 1].base_offset <= offset:
        dropped.push_back(log.segments[count])
        count += 1
    if count:
        log.segments.erase(log.segments.begin(), log.segments.begin() + <int64_t>count)
        raise_log_start_locked(log, log.segments.front().base_offset)
        i = 0
        while i < log.own.history.aborted.size() and log.own.history.aborted[i].last_offset < log.log_start_offset:
            i += 1
        log.own.history.aborted.erase(log.own.history.aborted.begin(), log.own.history.aborted.begin() + <int64_t>i)
    pthread_mutex_unlock(&log.mutex)
    for i in range(dropped.size()):
        removed.push_back(dropped[i].base_offset)
        segment_unref(dropped[i])


cdef int flush_log(LogState* log) noexcept nogil:
    cdef vector[SegmentState*] held
    cdef int64_t end, recovery_point
    cdef size_t i
    cdef int failure = 0
    lock_settled(log)
    end = log.log_end_offset
    recovery_point = log.recovery_point
    if recovery_point < end and not log.offline_errno:
        for i in range(log.segments.size()):
            if i + 1 == log.segments.size() or log.segments[i + 1].base_offset > recovery_point:
                segment_ref(log.segments[i])
                held.push_back(log.segments[i])
    log.own.unflushed_messages = 0
    pthread_mutex_unlock(&log.mutex)
    for i in range(held.size()):
        if failure == 0 and held[i].size > 0:
            if i + 1 < held.size():
                failure = segment_seal(held[i], True)
            else:
                failure = segment_open(held[i])
                failure = -failure if failure < 0 else file_sync(failure)
        segment_unref(held[i])
    pthread_mutex_lock(&log.mutex)
    if failure:
        set_offline_locked(log, failure, "flush failed")
    elif log.recovery_point < end and end <= log.log_end_offset:
        log.recovery_point = end
    pthread_mutex_unlock(&log.mutex)
    return failure


cdef int seal_closed_segments(LogState* log) noexcept nogil:
    cdef vector[SegmentState*] held
    cdef size_t i
    cdef int failure = 0
    pthread_mutex_lock(&log.mutex)
    for i in range(log.segments.size()):
        if i + 1 < log.segments.size() and not log.segments[i].sealed:
            segment_ref(log.segments[i])
            held.push_back(log.segments[i])
    pthread_mutex_unlock(&log.mutex)
    for i in range(held.size()):
        if failure == 0:
            failure = segment_seal(held[i], False)
        segment_unref(held[i])
    return failure
