"""Truncation, log start, deletion and flush (see cut.pxd). Called by the control plane's threads without the GIL."""

from libc.errno cimport EIO, errno
from libc.stdint cimport int32_t, int64_t
from libcpp.string cimport string
from libcpp.vector cimport vector

from kafkapy._speedups.base.error_codes cimport ERROR_OFFSET_OUT_OF_RANGE
from kafkapy._speedups.base.posix cimport (
    atomic_store,
    is_shortage,
    monotonic_ns,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kafkapy._speedups.base.time_counter cimport TimeCounter, count_time, time_of
from kafkapy._speedups.log.index cimport index_sync
from kafkapy._speedups.log.layout cimport LogState, Waiter
from kafkapy._speedups.log.private cimport LogPrivate, private_of
from kafkapy._speedups.log.producer_state cimport producer_clear, producer_high_watermark
from kafkapy._speedups.log.segment cimport (
    SegmentState,
    segment_detach,
    segment_find,
    segment_open,
    segment_ref,
    segment_release,
    segment_seal,
    segment_truncate,
    segment_unref,
)
from kafkapy._speedups.log.state cimport (
    advance_high_watermark_locked,
    fire,
    floor_segment,
    forget_aborted_summary_locked,
    forget_batches_locked,
    segment_stem,
    set_high_watermark_locked,
    set_offline_locked,
    take_waiters_locked,
    update_last_stable_offset_locked,
)
from kafkapy._speedups.log.transaction_index cimport write_aborted_transactions
from kafkapy._speedups.log.turns cimport begin_turn_locked, end_turn_locked, lock_settled
from kafkapy._speedups.records.file_records cimport (
    SCAN_END,
    SCAN_ERROR,
    SCAN_FOUND,
    BatchPosition,
    ScanStatus,
    file_sync,
    path_sync,
)

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int microseconds)

cdef enum:
    NEVER = 0x7FFFFFFFFFFFFFFF      # flush.messages is not set

cdef TimeCounter flushes            # of every log of this process


def flush_times():
    """The flushes of every log of this process: the total in ns, and a list whose number i counts those that took less
    than 2**i microseconds (and not less than 2**(i-1))."""
    return time_of(&flushes)


cdef bint is_fenced_locked(LogState* log, int32_t leader_epoch) noexcept nogil:
    return leader_epoch >= 0 and (log.leader or log.leader_epoch != leader_epoch)


cdef bint cut_epochs_locked(LogState* log, int64_t offset) noexcept nogil:
    cdef bint dropped = False
    while not private_of(log).history.epochs.empty() and private_of(log).history.epochs.back().start_offset >= offset:
        private_of(log).history.epochs.pop_back()
        private_of(log).epochs_version += 1
        dropped = True
    return dropped


cdef void cut_history_locked(LogState* log, int64_t offset) noexcept nogil:
    """Forgets epochs, aborted transactions and snapshots at or above `offset`."""
    cut_epochs_locked(log, offset)
    while not private_of(log).history.aborted.empty() and private_of(log).history.aborted.back().last_offset >= offset:
        private_of(log).history.aborted.pop_back()
    while not private_of(log).unwritten.empty() and private_of(log).unwritten.back().entry.last_offset >= offset:
        private_of(log).unwritten.pop_back()
    while not private_of(log).snapshots.empty() and private_of(log).snapshots.back().offset > offset:
        private_of(log).snapshots.pop_back()
    cut_flushes_locked(log, offset)


cdef void cut_flushes_locked(LogState* log, int64_t offset) noexcept nogil:
    if private_of(log).flush_due > offset:
        private_of(log).flush_due = offset
    if private_of(log).flushed > offset:
        private_of(log).flushed = offset


cdef int begin_truncation(LogState* log, int64_t offset, int32_t leader_epoch, LogCut* cut,
                          vector[int64_t]* removed) noexcept nogil:
    cdef vector[SegmentState*] dropped
    cdef SegmentState* segment
    cdef BatchPosition at
    cdef ScanStatus status
    cdef int64_t index
    cdef size_t i
    cdef int failure = 0, opened
    cut.segment = NULL
    cut.end = offset
    cut.forgot_epochs = False
    pthread_mutex_lock(&private_of(log).sealing)
    lock_settled(log)
    cut.fenced = is_fenced_locked(log, leader_epoch)
    index = floor_segment(log, offset)
    if cut.fenced or offset >= log.log_end_offset or index < 0:
        if not cut.fenced and offset >= log.log_end_offset:
            cut.forgot_epochs = cut_epochs_locked(log, offset)
        pthread_mutex_unlock(&log.mutex)
        pthread_mutex_unlock(&private_of(log).sealing)
        return 0
    segment = log.segments[<size_t>index]
    segment_ref(segment)
    private_of(log).rolling = True
    pthread_mutex_unlock(&log.mutex)

    cut.segment = segment
    at.position = segment.size
    opened = segment_open(segment)
    status = segment_find(segment, offset, segment.size, &at) if opened >= 0 else SCAN_ERROR
    if opened < 0:
        failure = -opened
    elif status == SCAN_END:
        at.position = segment.size
    elif status == SCAN_FOUND:
        # The cut removes whole batches: a batch that holds the offset in its middle goes too.
        if at.base_offset < offset:
            cut.end = at.base_offset if at.base_offset > log.log_start_offset else log.log_start_offset
    else:
        failure = errno if status == SCAN_ERROR and errno else EIO
    cut.position = at.position
    if failure:
        finish_truncation(log, cut, failure)
        return failure

    pthread_mutex_lock(&log.mutex)
    while <int64_t>log.segments.size() > index + 1:
        dropped.push_back(log.segments.back())
        removed.push_back(log.segments.back().base_offset)
        log.segments.pop_back()
    segment.size = cut.position
    atomic_store(&log.log_end_offset, cut.end)
    private_of(log).truncations += 1
    forget_batches_locked(log, cut.end)
    cut_history_locked(log, cut.end)
    if log.recovery_point > cut.end:
        log.recovery_point = cut.end
    if log.high_watermark > cut.end:
        set_high_watermark_locked(log, cut.end)
    pthread_mutex_unlock(&log.mutex)
    for i in range(dropped.size()):
        segment_detach(dropped[i], 1)
        segment_unref(dropped[i])
    return 0


cdef int finish_truncation(LogState* log, LogCut* cut, int failure) noexcept nogil:
    cdef int tries = SHORTAGE_TRIES
    if cut.segment == NULL:
        return failure
    if failure == 0:
        failure = segment_truncate(cut.segment, cut.end, cut.position)
        while is_shortage(failure) and tries:
            # In memory the log is cut, and descriptors come back.
            tries -= 1
            usleep(SHORTAGE_PAUSE_US)
            failure = segment_truncate(cut.segment, cut.end, cut.position)
    if failure:
        pthread_mutex_lock(&log.mutex)
        set_offline_locked(log, failure, "truncation failed")
        pthread_mutex_unlock(&log.mutex)
        end_truncation(log, cut)
    return failure


cdef void end_truncation(LogState* log, LogCut* cut) noexcept nogil:
    cdef vector[Waiter] woken
    pthread_mutex_lock(&log.mutex)
    private_of(log).rolling = False
    take_waiters_locked(log, log.offline_errno != 0, &woken)
    pthread_mutex_unlock(&log.mutex)
    pthread_mutex_unlock(&private_of(log).sealing)
    segment_unref(cut.segment)
    cut.segment = NULL
    fire(&woken)


cdef bint empty_log(LogState* log, int64_t offset, int32_t leader_epoch, vector[int64_t]* removed) noexcept nogil:
    cdef vector[SegmentState*] dropped
    cdef size_t i
    lock_settled(log)
    if is_fenced_locked(log, leader_epoch):
        pthread_mutex_unlock(&log.mutex)
        return False
    private_of(log).rolling = True
    dropped.swap(log.segments)
    atomic_store(&log.log_start_offset, offset)
    atomic_store(&log.log_end_offset, offset)
    log.recovery_point = offset
    forget_batches_locked(log, 0)
    private_of(log).history.epochs.clear()
    private_of(log).epochs_version += 1
    private_of(log).history.aborted.clear()
    private_of(log).snapshots.clear()
    private_of(log).unwritten.clear()
    cut_flushes_locked(log, 0)
    private_of(log).truncations += 1
    producer_clear(private_of(log).history.producers, offset)
    atomic_store(&log.high_watermark, -1)
    set_high_watermark_locked(log, offset)
    pthread_mutex_unlock(&log.mutex)
    for i in range(dropped.size()):
        removed.push_back(dropped[i].base_offset)
        segment_detach(dropped[i], 1)
        segment_unref(dropped[i])
    return True


cdef void resume_appends(LogState* log) noexcept nogil:
    cdef vector[Waiter] woken
    pthread_mutex_lock(&log.mutex)
    private_of(log).rolling = False
    take_waiters_locked(log, False, &woken)
    pthread_mutex_unlock(&log.mutex)
    fire(&woken)


cdef void raise_log_start_locked(LogState* log, int64_t offset) noexcept nogil:
    cdef int64_t i
    if offset <= log.log_start_offset:
        return
    atomic_store(&log.log_start_offset, offset)
    if log.high_watermark < offset:
        set_high_watermark_locked(log, offset)
    producer_high_watermark(private_of(log).history.producers, offset)
    update_last_stable_offset_locked(log)
    # The newest epoch that began at or below the new start begins there now; older epochs have no record left.
    i = <int64_t>private_of(log).history.epochs.size() - 1
    while i >= 0 and private_of(log).history.epochs[<size_t>i].start_offset > offset:
        i -= 1
    if i >= 0 and (i > 0 or private_of(log).history.epochs.front().start_offset < offset):
        private_of(log).history.epochs.erase(private_of(log).history.epochs.begin(),
                                             private_of(log).history.epochs.begin() + i)
        private_of(log).history.epochs.front().start_offset = offset
        private_of(log).epochs_version += 1


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
        while (i < private_of(log).history.aborted.size()
               and private_of(log).history.aborted[i].last_offset < log.log_start_offset):
            i += 1
        private_of(log).history.aborted.erase(private_of(log).history.aborted.begin(),
                                              private_of(log).history.aborted.begin() + <int64_t>i)
        forget_aborted_summary_locked(log)
    pthread_mutex_unlock(&log.mutex)
    for i in range(dropped.size()):
        removed.push_back(dropped[i].base_offset)
        segment_detach(dropped[i], 1)
        segment_unref(dropped[i])


cdef int sync_segment(LogState* log, SegmentState* segment, bint closed) noexcept nogil:
    cdef string path
    cdef int failure
    if closed:
        failure = segment_seal(segment, True)
    else:
        failure = segment_open(segment)
        failure = -failure if failure < 0 else file_sync(failure)
    if failure == 0 and not private_of(log).directory.empty():
        path = segment_stem(private_of(log).directory, segment.base_offset)
        path.append(<const char*>".txnindex")
        failure = path_sync(path)
    return failure


cdef int flush_log(LogState* log, int64_t limit) noexcept nogil:
    return sync_segments(log, limit, False)


cdef int flush_if_due(LogState* log) noexcept nogil:
    cdef int failure
    cdef bint due
    pthread_mutex_lock(&log.mutex)
    private_of(log).flush_wanted = False
    due = private_of(log).flush_due > private_of(log).flushed
    failure = log.offline_errno
    pthread_mutex_unlock(&log.mutex)
    # Where another thread has taken these appends along, this thread first waits for it.
    return sync_segments(log, NEVER, True) if due else failure


cdef int sync_segments(LogState* log, int64_t limit, bint appended) noexcept nogil:
    """Syncs segments. `appended`: for an append that must be on disk, and may be there already; the recovery point then
    stays, because files that Python writes belong to it."""
    cdef vector[SegmentState*] held
    cdef vector[int64_t] sizes
    cdef vector[Waiter] woken
    cdef int64_t end, recovery_point, truncations, written, started, unflushed = 0
    cdef size_t i
    cdef bint new_names = False, first = False, nothing_new, closing
    cdef int failure = 0
    # After a crash, recovery does not read markers below the recovery point again, so the file must hold their aborted
    # transactions before.
    failure = write_aborted_transactions(log)
    if failure:
        return failure
    pthread_mutex_lock(&private_of(log).sealing)
    lock_settled(log)
    end = limit if limit < log.log_end_offset else log.log_end_offset
    written = log.log_end_offset
    recovery_point = log.recovery_point
    truncations = private_of(log).truncations
    closing = private_of(log).closed
    failure = log.offline_errno
    nothing_new = appended and private_of(log).unflushed_messages == 0
    if (recovery_point < end or closing) and not log.offline_errno and not log.deleted and not nothing_new:
        for i in range(log.segments.size()):
            if i + 1 == log.segments.size() or log.segments[i + 1].base_offset > recovery_point:
                segment_ref(log.segments[i])
                held.push_back(log.segments[i])
                sizes.push_back(log.segments[i].size)
                new_names = new_names or log.segments[i].base_offset >= recovery_point
        unflushed = private_of(log).unflushed_messages
        private_of(log).unflushed_messages = 0
        private_of(log).flush_wanted = False
        # Else Python syncs the name of the partition's directory before the recovery point moves.
        first = (appended and held.size() > 0 and recovery_point <= log.segments.front().base_offset
                 and private_of(log).flushed <= recovery_point)
    pthread_mutex_unlock(&log.mutex)
    started = monotonic_ns()
    for i in range(held.size()):
        if failure == 0 and sizes[i] > 0:
            failure = sync_segment(log, held[i], i + 1 < held.size())
            if failure == 0 and closing:
                # A start after a clean stop trusts the indexes.
                failure = index_sync(&held[i].offset_index.file)
                if failure == 0:
                    failure = index_sync(&held[i].time_index.file)
        # The file may close after its sync: the log may have more segments than the process has descriptors.
        segment_unref(held[i])
    # A rename gave the segment its name; if a power failure loses the rename, the file looks like an unused one.
    if failure == 0 and new_names and not private_of(log).directory.empty():
        failure = path_sync(private_of(log).directory)
        if failure == 0 and first:
            failure = path_sync(private_of(log).directory.substr(0, private_of(log).directory.rfind(<const char*>b"/")))
    if held.size():
        count_time(&flushes, monotonic_ns() - started)
    pthread_mutex_lock(&log.mutex)
    if log.deleted:
        failure = 0             # a delete took its files away meanwhile
    elif is_shortage(failure):
        private_of(log).unflushed_messages += unflushed         # the next flush tries again
    elif failure:
        set_offline_locked(log, failure, "flush failed")
        take_waiters_locked(log, True, &woken)
    elif held.size() and truncations == private_of(log).truncations:
        if log.recovery_point < end and not appended:
            log.recovery_point = end
        if private_of(log).flushed < written:
            private_of(log).flushed = written
            advance_high_watermark_locked(log)
            take_waiters_locked(log, False, &woken)
    pthread_mutex_unlock(&log.mutex)
    pthread_mutex_unlock(&private_of(log).sealing)
    fire(&woken)
    return failure


cdef int seal_closed_segments(LogState* log) noexcept nogil:
    cdef vector[SegmentState*] held
    cdef size_t i
    cdef int failure = 0
    pthread_mutex_lock(&private_of(log).sealing)
    pthread_mutex_lock(&log.mutex)
    if not log.deleted:
        for i in range(log.segments.size()):
            if i + 1 < log.segments.size() and not log.segments[i].sealed:
                segment_ref(log.segments[i])
                held.push_back(log.segments[i])
    pthread_mutex_unlock(&log.mutex)
    for i in range(held.size()):
        if failure == 0:
            failure = segment_seal(held[i], False)
        segment_unref(held[i])
    pthread_mutex_lock(&log.mutex)
    if log.deleted:
        failure = 0
    pthread_mutex_unlock(&log.mutex)
    pthread_mutex_unlock(&private_of(log).sealing)
    return failure


cdef SegmentState* idle_with_space_locked(LogState* log) noexcept nogil:
    """The active segment, when it has space ahead and has not grown since the last call."""
    cdef LogPrivate* own = private_of(log)
    cdef SegmentState* s
    if (own.writing or own.rolling or own.loading or own.closed or own.next_turn.owner != NULL or own.turn_queue
            or log.deleted or log.offline_errno or log.segments.empty()):
        return NULL
    s = log.segments.back()
    if s.seen_reserved == s.size and s.reservation.holds:
        return s
    s.seen_reserved = s.size
    return NULL


cdef int release_idle_space(LogState* log) noexcept nogil:
    cdef vector[Waiter] woken
    cdef SegmentState* s
    cdef int failure
    pthread_mutex_lock(&log.mutex)
    s = idle_with_space_locked(log)
    if s == NULL:
        pthread_mutex_unlock(&log.mutex)
        return 0
    segment_ref(s)
    # In the turn of an append: no other one writes behind the file's end meanwhile.
    begin_turn_locked(log)
    pthread_mutex_unlock(&log.mutex)
    failure = segment_release(s)
    pthread_mutex_lock(&log.mutex)
    end_turn_locked(log)
    if failure:
        set_offline_locked(log, failure, "space ahead of appends cannot be given back")
    take_waiters_locked(log, failure != 0, &woken)
    pthread_mutex_unlock(&log.mutex)
    segment_unref(s)
    fire(&woken)
    return failure
