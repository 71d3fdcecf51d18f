"""Filling a PartitionLog from its files at start-up, without the GIL.

kafkapy/log/loader.py calls these functions on recovery threads, before any other thread knows the log. After a clean
stop they read only the indexes' last entries and the headers behind the last one. After an unclean stop they check
every byte from the recovery point on, and cut off the rest from the first unsound byte.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport strerror
from libcpp.string cimport string
from libcpp.vector cimport vector

from posix.unistd cimport close

from kafkapy._speedups.base.posix cimport pthread_mutex_lock, pthread_mutex_unlock
from kafkapy._speedups.base.wire cimport Cursor, cursor_init, read_int16, read_int64, remaining
from kafkapy._speedups.log.index cimport index_trim, offset_index_check, time_index_check, time_index_last
from kafkapy._speedups.log.layout cimport LogState
from kafkapy._speedups.log.partition_log cimport PartitionLog
from kafkapy._speedups.log.private cimport private_of
from kafkapy._speedups.log.producer_state cimport (
    CompletedTransaction,
    ProducerStateManager,
    producer_clear,
    producer_high_watermark,
    producer_snapshot_read,
    producer_state_free,
    producer_state_new,
)
from kafkapy._speedups.log.recovery cimport EpochEntry, LogHistory, segment_next_offset, segment_recover, segment_replay
from kafkapy._speedups.log.segment cimport (
    SegmentState,
    segment_new,
    segment_open,
    segment_read_max_timestamp,
    segment_ref,
    segment_unref,
)
from kafkapy._speedups.log.state cimport forget_aborted_summary_locked, segment_stem, update_last_stable_offset_locked
from kafkapy._speedups.log.turns cimport lock_settled
from kafkapy._speedups.records.file_records cimport file_records_take, file_truncate, path_sync, segment_file_closed
from kafkapy._speedups.records.reservation cimport give_back

cdef enum:
    ABORTED_ENTRY_SIZE = 34

cdef struct LoadOutcome:
    int failure
    int64_t next_offset
    int64_t recovered               # segments walked byte by byte
    int64_t cut_bytes
    int64_t first_recovered         # base offset, -1 when none
    int64_t kept                    # segments; the segments behind it are deleted


cdef void forget_file(SegmentState* s) noexcept nogil:
    """Closes the file again: an idle partition holds no descriptor. Only before any other thread knows the segment."""
    if s.records.fd >= 0 and not s.path.empty():
        close(file_records_take(s.records))
        segment_file_closed()
        s.fd = -1


cdef void load_segments(LogState* log, LogHistory* history, int64_t recovery_point, bint clean,
                        LoadOutcome* out) noexcept nogil:
    cdef SegmentState* s
    cdef size_t i
    cdef bint last, recover, distrusted, gaps = False
    cdef int verdict
    cdef int64_t cut, offset
    out.failure = 0
    out.next_offset = 0
    out.recovered = 0
    out.cut_bytes = 0
    out.first_recovered = -1
    out.kept = <int64_t>log.segments.size()
    for i in range(log.segments.size()):
        s = log.segments[i]
        last = i + 1 == log.segments.size()
        recover = not clean and (last or log.segments[i + 1].base_offset > recovery_point)
        if not recover:
            verdict = offset_index_check(s.offset_index, s.size)
            if verdict == 0:
                verdict = time_index_check(s.time_index, s.size)
            if verdict > 0:
                out.failure = verdict
                return
            recover = verdict < 0
        if not recover and not last:
            s.sealed = True
            s.offset_index.file.sealed = True
            s.time_index.file.sealed = True
        if not recover:
            # If the recovery point is the base of the next segment, the last flush of this one may have been before its
            # close, and its indexes may be unsynced.
            distrusted = not clean and not last and log.segments[i + 1].base_offset == recovery_point
            if not time_index_last(s.time_index, &s.max_timestamp, &s.offset_of_max_timestamp) or distrusted:
                segment_read_max_timestamp(s)
            if last:
                verdict = segment_next_offset(s, &out.next_offset)
                if verdict > 0:
                    out.failure = verdict
                    return
                recover = verdict < 0
            else:
                out.next_offset = log.segments[i + 1].base_offset
        if recover:
            out.recovered += 1
            if out.first_recovered < 0:
                out.first_recovered = s.base_offset
            verdict = segment_recover(s, history, log.config.index_interval_bytes, &out.next_offset, &cut, &gaps)
            if verdict:
                out.failure = verdict
                return
            out.cut_bytes += cut
            distrusted = False
            if not last and out.next_offset > log.segments[i + 1].base_offset:
                distrusted = True       # overlaps its successor: the segments behind it cannot be right
            elif not last and not clean and log.segments[i + 1].base_offset > recovery_point:
                # Segments behind a hole are not reliable (and no flush acknowledged them). A power failure can also
                # take a file's end so that the rest looks whole; compaction leaves offsets out, too, and where it may
                # have done so the hole proves nothing.
                distrusted = cut > 0 or (out.next_offset < log.segments[i + 1].base_offset and not gaps
                                         and not log.config.compacted)
            # Else only an unsound index caused the walk. The segments behind were synced and stay, as in Kafka,
            # whatever this one has lost.
            if distrusted:
                # The cut follows the removal of the segments behind: a crash in between must find the hole again.
                out.kept = <int64_t>i + 1
                return
            if cut:
                out.failure = file_truncate(<int>s.records.fd, s.size)
                if out.failure:
                    return
            elif s.records.fd >= 0:
                give_back(<int>s.records.fd, s.size)
            # Written, not mapped: most logs are idle after a start.
            index_trim(&s.offset_index.file, False)
            index_trim(&s.time_index.file, False)
        forget_file(s)


cdef int end_at_last(LogState* log) noexcept nogil:
    """Ends the last segment's file where the segment ends, and its directory without later names. 0 or an errno."""
    cdef SegmentState* s = log.segments.back()
    cdef int failure = segment_open(s)
    failure = -failure if failure < 0 else path_sync(private_of(log).directory)
    if failure == 0:
        failure = file_truncate(s.fd, s.size)
    index_trim(&s.offset_index.file, False)
    index_trim(&s.time_index.file, False)
    forget_file(s)
    return failure


def load(PartitionLog log, list segments, *, int64_t recovery_point, int64_t log_start_offset, bint clean, list epochs):
    """Takes over the segments [(base offset, size in bytes, created ms), ...] and the leader epochs [(epoch, start
    offset), ...].

    Returns (base offsets of segments that do not continue the log and were deleted, first recovered base offset or -1,
    segments recovered, bytes cut). The producer state comes next: rebuild_producers. OSError when a file cannot be read
    or written.
    """
    cdef LogState* state = log.state
    if state.segments.size():
        raise ValueError("the log is loaded already")
    with nogil:
        pthread_mutex_lock(&state.mutex)
        private_of(state).loading = True
        pthread_mutex_unlock(&state.mutex)
    try:
        return fill(log, segments, recovery_point, log_start_offset, clean, epochs)
    finally:
        with nogil:
            pthread_mutex_lock(&state.mutex)
            private_of(state).loading = False
            pthread_mutex_unlock(&state.mutex)


cdef tuple fill(PartitionLog log, list segments, int64_t recovery_point, int64_t log_start_offset, bint clean,
                list epochs):
    cdef LogState* state = log.state
    cdef LoadOutcome outcome
    cdef EpochEntry epoch
    cdef SegmentState* s
    cdef string path, stem
    cdef int failure
    for number, start in epochs:
        epoch.epoch = number
        epoch.start_offset = start
        private_of(state).history.epochs.push_back(epoch)
    for base_offset, size, created_ms in segments:
        stem = segment_stem(private_of(state).directory, base_offset)
        path = stem
        path.append(<const char*>b".log")
        s = segment_new(base_offset, -1, path, stem, state.config.segment_index_bytes, False, created_ms)
        s.size = size
        state.segments.push_back(s)
    with nogil:
        load_segments(state, &private_of(state).history, recovery_point, clean, &outcome)
    if outcome.failure:
        raise OSError(outcome.failure, strerror(outcome.failure).decode(), log.storage.directory)
    removed = []
    while <int64_t>state.segments.size() > outcome.kept:
        removed.append(state.segments.back().base_offset)
        segment_unref(state.segments.back())
        state.segments.pop_back()
    if removed:
        # The newest goes first, so that a crash in between leaves no hole.
        log.storage.delete_segments(removed, delay_ms=0)
        with nogil:
            failure = end_at_last(state)
        if failure:
            raise OSError(failure, strerror(failure).decode(), log.storage.directory)
    # Offsets below the first segment are gone; a log start at or above the end means that a delete of all records was
    # under way.
    if state.segments.size() and log_start_offset < state.segments.front().base_offset:
        log_start_offset = state.segments.front().base_offset
    if not state.segments.size():
        outcome.next_offset = log_start_offset
    if outcome.next_offset < log_start_offset:
        below = []
        while state.segments.size():
            below.append(state.segments.back().base_offset)
            segment_unref(state.segments.back())
            state.segments.pop_back()
        outcome.next_offset = log_start_offset
        log.storage.delete_segments(below, delay_ms=0)
        removed += below
    while (private_of(state).history.epochs.size()
           and private_of(state).history.epochs.back().start_offset >= outcome.next_offset):
        private_of(state).history.epochs.pop_back()
    with nogil:
        pthread_mutex_lock(&state.mutex)
        state.log_start_offset = log_start_offset
        state.log_end_offset = outcome.next_offset
        state.recovery_point = recovery_point if recovery_point < outcome.next_offset else outcome.next_offset
        if state.recovery_point < log_start_offset:
            state.recovery_point = log_start_offset
        # These messages may not be on disk.
        private_of(state).unflushed_messages = state.log_end_offset - state.recovery_point
        state.high_watermark = log_start_offset
        state.last_stable_offset = log_start_offset
        private_of(state).history.producers.end_offset = log_start_offset
        pthread_mutex_unlock(&state.mutex)
    return sorted(removed), outcome.first_recovered, outcome.recovered, outcome.cut_bytes


def load_aborted(PartitionLog log, bytes data):
    """Takes over a .txnindex file, whose entries must ascend. Returns their number, or -1 when the file is malformed
    (then no entry is taken)."""
    cdef Cursor c
    cdef CompletedTransaction entry
    cdef vector[CompletedTransaction] entries
    cdef int64_t previous = -1
    cdef LogState* state = log.state
    if len(data) % ABORTED_ENTRY_SIZE:
        return -1
    cursor_init(&c, <const uint8_t*>data, len(data))
    while remaining(&c) >= ABORTED_ENTRY_SIZE:
        if read_int16(&c) != 0:
            return -1
        entry.completed = True
        entry.aborted = True
        entry.producer_id = read_int64(&c)
        entry.first_offset = read_int64(&c)
        entry.last_offset = read_int64(&c)
        entry.last_stable_offset = read_int64(&c)
        if entry.last_offset <= previous or entry.first_offset > entry.last_offset:
            return -1
        previous = entry.last_offset
        if (private_of(state).history.aborted.size() == 0
                or private_of(state).history.aborted.back().last_offset < entry.last_offset):
            if entry.last_offset < state.log_end_offset:
                entries.push_back(entry)
    for entry in entries:
        private_of(state).history.aborted.push_back(entry)
    return entries.size()


cdef void lock_for_rebuild(LogState* log, bint truncating) noexcept nogil:
    """Locks the log for a rebuild. A truncation itself holds off appends until the producer state matches the log
    again."""
    if truncating:
        pthread_mutex_lock(&log.mutex)
    else:
        lock_settled(log)


def rebuild_producers(PartitionLog log, list snapshots, int64_t now_ms, bint truncating=False):
    """Rebuilds the producer state from the newest sound snapshot [(offset, bytes), ...] and the batches behind it;
    without a snapshot from the log start.

    Returns the offset of the used snapshot, or -1. Also after a truncation; no append may run meanwhile. OSError.
    """
    cdef LogState* state = log.state
    cdef LogHistory history
    cdef vector[SegmentState*] held
    cdef int64_t end, start, offset, used = -1
    cdef size_t i
    cdef int failure = 0
    cdef const uint8_t* raw
    cdef int64_t size
    cdef ProducerStateManager* old
    history.producers = producer_state_new(log.producer_id_expiration_ms)
    with nogil:
        lock_for_rebuild(state, truncating)
        start = state.log_start_offset
        end = state.log_end_offset
        held = state.segments
        for i in range(held.size()):
            segment_ref(held[i])
        history.aborted = private_of(state).history.aborted
        pthread_mutex_unlock(&state.mutex)
    for offset_, data in sorted(snapshots, reverse=True):
        offset = offset_
        raw = data
        size = len(data)
        if offset <= end and producer_snapshot_read(history.producers, raw, size, offset, now_ms):
            used = offset
            break
    if used < 0:
        producer_clear(history.producers, start)
    with nogil:
        for i in range(held.size()):
            if i + 1 < held.size() and held[i + 1].base_offset <= history.producers.end_offset:
                pass            # the snapshot has all of it
            elif failure == 0 and history.producers.end_offset < end and held[i].size:
                failure = segment_replay(held[i], &history, end)
            segment_unref(held[i])
        lock_for_rebuild(state, truncating)
        if failure == 0:
            history.producers.end_offset = end
            old = private_of(state).history.producers
            private_of(state).history.producers = history.producers
            private_of(state).history.aborted = history.aborted
            forget_aborted_summary_locked(state)
            producer_high_watermark(private_of(state).history.producers, state.high_watermark)
            update_last_stable_offset_locked(state)
        else:
            old = history.producers
        pthread_mutex_unlock(&state.mutex)
        producer_state_free(old)
    if failure:
        raise OSError(failure, strerror(failure).decode(), log.storage.directory)
    return used


def has_producers_to_replay(PartitionLog log):
    """Whether the log holds any batch: an empty log needs no snapshot."""
    return log.state.log_end_offset > log.state.log_start_offset
