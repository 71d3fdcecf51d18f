"""File work of a log on worker threads: the next segment, rolls, truncation, deletion, flushes (see files.pxd).

Each step under the log's mutex is memory work; file work comes before or after it, with the GIL and without the mutex.
"""

from libc.errno cimport EIO
from libc.stdint cimport int32_t, int64_t
from libc.string cimport strerror
from libcpp.string cimport string
from libcpp.vector cimport vector

from kafkapy._speedups.base.error_codes cimport ERROR_FENCED_LEADER_EPOCH
from kafkapy._speedups.base.posix cimport is_shortage, pthread_mutex_lock, pthread_mutex_unlock, wall_clock_ms
from kafkapy._speedups.log.background cimport make_segment
from kafkapy._speedups.log.cut cimport (
    SHORTAGE_PAUSE_US,
    SHORTAGE_TRIES,
    LogCut,
    begin_truncation,
    empty_log,
    end_truncation,
    finish_truncation,
    flush_log,
    release_idle_space,
    remove_segments_below,
    resume_appends,
    seal_closed_segments,
)
from kafkapy._speedups.log.describe cimport hold_segments
from kafkapy._speedups.log.layout cimport LogState, Waiter
from kafkapy._speedups.log.open_files cimport close_idle_files
from kafkapy._speedups.log.private cimport private_of
from kafkapy._speedups.log.segment cimport SegmentState, segment_new, segment_seal, segment_trim, segment_unref
from kafkapy._speedups.log.state cimport (
    active_segment,
    fire,
    log_epochs_unwritten,
    switch_segment_locked,
    take_waiters_locked,
)
from kafkapy._speedups.log.turns cimport lock_settled


from kafkapy.errors import error_for


cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int microseconds)

cdef enum:
    FILES_AT_ONCE = 32


cdef class LogFiles:
    """The files of a log: the base class of PartitionLog, for the functions here."""


cdef void wake_changed(LogState* log, bint every) noexcept nogil:
    """Takes the mutex, and wakes the waiters whose condition holds now, or all waiters."""
    cdef vector[Waiter] woken
    pthread_mutex_lock(&log.mutex)
    take_waiters_locked(log, every, &woken)
    pthread_mutex_unlock(&log.mutex)
    fire(&woken)


cdef bint has_prepared(LogState* log) noexcept nogil:
    pthread_mutex_lock(&log.mutex)
    cdef bint prepared = log.prepared != NULL
    pthread_mutex_unlock(&log.mutex)
    return prepared


cdef int check_online(LogState* log) except -1:
    """Raises OSError when the log is offline: its files stay as they are for the recovery of the next start."""
    if log.offline_errno:
        raise OSError(log.offline_errno, strerror(log.offline_errno).decode(), private_of(log).directory.decode())
    return 0


cdef int make_segment_ready(LogFiles log) except -1:
    cdef SegmentState* segment
    cdef vector[Waiter] woken
    cdef string path, directory
    cdef bint moved = True, ready
    cdef int failure
    if private_of(log.state).native_segments:
        with nogil:
            failure = make_segment(log.state)
        if failure:
            raise OSError(failure, strerror(failure).decode(), log.storage.directory)
        return 0
    while moved:
        with nogil:
            ready = has_prepared(log.state)
            if ready:
                wake_changed(log.state, False)
        if ready:
            return 0
        storage = log.storage
        try:
            fd, name = storage.prepare_segment()
        except FileNotFoundError:
            # The log may be on its way to another directory (future_log.pyx): the file is then made in the new
            # directory.
            with nogil:
                lock_settled(log.state)
                pthread_mutex_unlock(&log.state.mutex)
            if log.storage is storage:
                raise
            continue
        path = name.encode()
        directory = storage.directory.encode()
        segment = segment_new(0, fd, path, string(), log.state.config.segment_index_bytes, False, wall_clock_ms())
        with nogil:
            lock_settled(log.state)
            moved = private_of(log.state).directory != directory
            if not moved:
                if log.state.prepared == NULL and not private_of(log.state).closed and not log.state.deleted:
                    log.state.prepared = segment
                    segment = NULL
                private_of(log.state).segment_wanted = False
                take_waiters_locked(log.state, False, &woken)
            pthread_mutex_unlock(&log.state.mutex)
            fire(&woken)
        if segment != NULL:
            # Another thread was faster, or the log is closed: this file is not needed.
            segment_unref(segment)
            if name:
                storage.remove_file(name.rpartition("/")[2])
    return 0


cdef object patiently(work, tuple arguments=(), dict named={}):
    """Ends what was begun on a log: in memory it is done, and descriptors come back."""
    cdef int tries = SHORTAGE_TRIES
    while True:
        try:
            return work(*arguments, **named)
        except OSError as error:
            tries -= 1
            if not is_shortage(error.errno or 0) or tries == 0:
                raise
        with nogil:
            close_idle_files(FILES_AT_ONCE)
            usleep(SHORTAGE_PAUSE_US)


cdef bint roll_segment(LogFiles log) except -1:
    cdef SegmentState* active
    cdef bint rolled = False, again = True
    cdef int failure = 0
    while again:
        log.prepare_segment()
        with nogil:
            lock_settled(log.state)
            active = active_segment(log.state)
            again = False
            if log.state.offline_errno or private_of(log.state).closed or log.state.deleted:
                failure = log.state.offline_errno
            elif active == NULL or active.size > 0:
                again = log.state.prepared == NULL
                if not again:
                    failure = switch_segment_locked(log.state, log.state.log_end_offset, wall_clock_ms())
                    rolled = failure == 0
            pthread_mutex_unlock(&log.state.mutex)
    if failure:
        raise OSError(failure, strerror(failure).decode())
    with nogil:
        wake_changed(log.state, False)
    return rolled


cdef bint truncate(LogFiles log, int64_t offset, int32_t leader_epoch) except -1:
    cdef vector[int64_t] removed
    cdef LogCut cut
    cdef int failure
    check_online(log.state)
    if offset < log.log_end_offset and offset <= log.log_start_offset:
        truncate_fully(log, offset, leader_epoch)
        return True
    with nogil:
        failure = begin_truncation(log.state, offset, leader_epoch, &cut, &removed)
    if failure:
        raise OSError(failure, strerror(failure).decode(), log.storage.directory)
    if cut.fenced:
        raise error_for(ERROR_FENCED_LEADER_EPOCH)
    if cut.segment == NULL:
        if cut.forgot_epochs:
            log.write_leader_epochs()
        return False
    try:
        # The newest segment goes first, in the order of begin_truncation.
        patiently(log.storage.delete_segments, (list(removed),), {"delay_ms": 0})
    except OSError as error:
        failure = error.errno or EIO
        raise
    finally:
        with nogil:
            failure = finish_truncation(log.state, &cut, failure)
    if failure:
        raise OSError(failure, strerror(failure).decode(), log.storage.directory)
    try:
        patiently(log.rewrite_transaction_indexes, (max(segment[0] for segment in log.segments()),))
        patiently(log.write_leader_epochs)
        # Appends park until here: the producer state still holds batches that the truncation cut off.
        patiently(log.reload_producers, (True,))
    except OSError as error:
        log.go_offline(error.errno or EIO)
        raise
    finally:
        if cut.segment != NULL:
            with nogil:
                end_truncation(log.state, &cut)
    return True


cdef int truncate_fully(LogFiles log, int64_t offset, int32_t leader_epoch) except -1:
    cdef vector[int64_t] removed
    cdef bint emptied
    check_online(log.state)
    log.prepare_segment()
    with nogil:
        emptied = empty_log(log.state, offset, leader_epoch, &removed)
    if not emptied:
        raise error_for(ERROR_FENCED_LEADER_EPOCH)
    try:
        patiently(log.storage.delete_segments, (list(removed),), {"delay_ms": 0})
        for name in patiently(log.storage.names):
            if name.endswith(".snapshot"):
                patiently(log.storage.remove_file, (name,))
    except OSError as error:
        log.go_offline(error.errno or EIO)
        raise
    finally:
        with nogil:
            resume_appends(log.state)
    patiently(log.roll)
    patiently(log.write_leader_epochs)
    return 0


cdef list delete_closed_segments(LogFiles log, int64_t offset):
    cdef vector[int64_t] removed
    check_online(log.state)
    offset = min(offset, log.high_watermark)
    # The producer state of removed batches may exist only in these snapshots.
    log.write_rolled_snapshots()
    with nogil:
        # Until the files are gone as well, the log must not move to another directory, where these names belong to
        # other segments.
        pthread_mutex_lock(&private_of(log.state).sealing)
        remove_segments_below(log.state, offset, &removed)
    bases = list(removed)
    try:
        if bases:
            log.storage.delete_segments(bases, delay_ms=log.config.file_delete_delay_ms)
    except OSError as error:
        log.go_offline(error.errno or EIO)
        raise
    finally:
        with nogil:
            pthread_mutex_unlock(&private_of(log.state).sealing)
    if bases:
        log.write_leader_epochs()
    return bases


cdef int sync_files(LogFiles log) except -1:
    cdef int failure
    cdef int64_t end = log.log_end_offset
    cdef bint unwritten
    if log.storage.directory:
        with nogil:
            unwritten = log_epochs_unwritten(log.state)
        if unwritten:
            # Recovery reads no batch below the new recovery point, and so finds no epoch there.
            log.write_leader_epochs()
        try:
            log.storage.sync()
        except OSError as error:
            # A second sync may report success although the first one lost the data.
            log.go_offline(error.errno or EIO)
            raise
        with nogil:
            failure = flush_log(log.state, end)
        if failure:
            raise OSError(failure, strerror(failure).decode(), log.storage.directory)
    return 0


cdef int seal_files(LogFiles log) except -1:
    cdef int failure
    check_online(log.state)
    with nogil:
        failure = seal_closed_segments(log.state)
    if failure:
        log.go_offline(failure)
        raise OSError(failure, strerror(failure).decode(), log.storage.directory)
    log.write_rolled_snapshots()
    return 0


cdef int release_space(LogFiles log) except -1:
    cdef int failure
    with nogil:
        failure = release_idle_space(log.state)
    if failure:
        raise OSError(failure, strerror(failure).decode(), log.storage.directory)
    return 0


cdef int close_files(LogFiles log) except -1:
    cdef vector[Waiter] woken
    cdef vector[SegmentState*] held
    cdef SegmentState* prepared
    cdef size_t i
    cdef int failure = 0
    with nogil:
        lock_settled(log.state)
        private_of(log.state).closed = True
        log.state.leader = False
        prepared = log.state.prepared
        log.state.prepared = NULL
        take_waiters_locked(log.state, True, &woken)
        pthread_mutex_unlock(&log.state.mutex)
        fire(&woken)
    if prepared != NULL:
        if not prepared.path.empty():
            log.storage.remove_file((<bytes>prepared.path).decode().rpartition("/")[2])
        segment_unref(prepared)
    with nogil:
        pthread_mutex_lock(&private_of(log.state).sealing)
        hold_segments(log.state, &held)
        for i in range(held.size()):
            if failure == 0 and not log.state.deleted and not log.state.offline_errno:
                failure = segment_trim(held[i]) if i + 1 == held.size() else segment_seal(held[i], False)
            segment_unref(held[i])
        pthread_mutex_unlock(&private_of(log.state).sealing)
    if failure:
        raise OSError(failure, strerror(failure).decode(), log.storage.directory)
    return 0
