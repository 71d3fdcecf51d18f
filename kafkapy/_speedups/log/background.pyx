"""Segments and syncs ahead of need (see background.pxd)."""

from libc.errno cimport ENOENT, errno
from libc.stdint cimport int64_t
from libc.stdio cimport snprintf
from libcpp.string cimport string
from libcpp.vector cimport vector
from posix.fcntl cimport O_CLOEXEC, O_CREAT, O_RDWR, O_TRUNC, open as posix_open
from posix.unistd cimport unlink

from kafkapy._speedups.base.posix cimport is_shortage, pthread_mutex_lock, pthread_mutex_unlock, wall_clock_ms
from kafkapy._speedups.log.cut cimport flush_if_due
from kafkapy._speedups.log.layout cimport LogState, Waiter
from kafkapy._speedups.log.private cimport private_of
from kafkapy._speedups.log.segment cimport SegmentState, segment_new, segment_unref
from kafkapy._speedups.log.state cimport fire, log_unref, set_offline_locked, take_waiters_locked
from kafkapy._speedups.log.turns cimport lock_settled
from kafkapy._speedups.log.workers cimport LogWorkersState, log_workers_post, log_workers_ref, log_workers_unref

cdef extern from "<sys/mman.h>" nogil:
    int memfd_create(const char* name, unsigned int flags)
    unsigned int MFD_CLOEXEC

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int microseconds)

cdef enum:
    RETRY_US = 100_000          # a file without a descriptor or memory is tried again after this time
    MEMORY_NAME = 200           # /proc shows a memfd's name, of at most 249 bytes


cdef int open_file(LogState* log, const string& directory, int64_t number, string* path) noexcept nogil:
    """Returns the descriptor, or -errno. A process uses a name once: a deletion or a move of the partition may be under
    way."""
    cdef char name[256]
    cdef int fd
    if directory.empty():
        snprintf(name, MEMORY_NAME, "kafkapy:%s-%d", log.topic.c_str(), log.partition)
        fd = memfd_create(name, MFD_CLOEXEC)
    else:
        # The suffix makes Kafka, and the loader after a crash, delete the file if it is unused.
        snprintf(name, sizeof(name), "/%lld.%lld.next-segment.deleted", <long long>log.id, <long long>number)
        path[0] = directory
        path.append(<const char*>name)
        fd = posix_open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
    return fd if fd >= 0 else -errno


cdef int make_segment(LogState* log) noexcept nogil:
    cdef SegmentState* segment
    cdef vector[Waiter] woken
    cdef string directory, path
    cdef int64_t number, index_bytes
    cdef int fd
    cdef bint moved = True
    while moved:
        lock_settled(log)
        if log.prepared != NULL or private_of(log).closed or log.deleted or log.offline_errno:
            private_of(log).segment_wanted = False
            take_waiters_locked(log, False, &woken)
            pthread_mutex_unlock(&log.mutex)
            fire(&woken)
            return 0
        directory = private_of(log).directory
        index_bytes = log.config.segment_index_bytes
        private_of(log).segments_made += 1
        number = private_of(log).segments_made
        pthread_mutex_unlock(&log.mutex)
        path.clear()
        fd = open_file(log, directory, number, &path)
        if fd == -ENOENT:
            # The log may be on its way to another directory (future_log.pyx), or deleted.
            lock_settled(log)
            moved = private_of(log).directory != directory or private_of(log).closed or log.deleted
            pthread_mutex_unlock(&log.mutex)
            if moved:
                continue
        if fd < 0:
            return -fd
        segment = segment_new(0, fd, path, string(), index_bytes, False, wall_clock_ms())
        lock_settled(log)
        moved = private_of(log).directory != directory
        if not moved:
            if log.prepared == NULL and not private_of(log).closed and not log.deleted:
                log.prepared = segment
                segment = NULL
            private_of(log).segment_wanted = False
            take_waiters_locked(log, False, &woken)
        pthread_mutex_unlock(&log.mutex)
        fire(&woken)
        if segment != NULL:
            # Another thread was faster, or the log is closed: this file is not needed.
            segment_unref(segment)
            if not path.empty():
                unlink(path.c_str())
    return 0


cdef void make_segment_work(void* argument) noexcept nogil:
    cdef LogState* log = <LogState*>argument
    cdef LogWorkersState* workers
    cdef vector[Waiter] woken
    cdef int failure = make_segment(log)
    if is_shortage(failure):
        usleep(RETRY_US)
        pthread_mutex_lock(&log.mutex)
        workers = private_of(log).segment_workers
        if workers != NULL:
            log_workers_ref(workers)
        pthread_mutex_unlock(&log.mutex)
        if workers != NULL and log_workers_post(workers, make_segment_work, log):
            log = NULL
        log_workers_unref(workers)
    elif failure:
        pthread_mutex_lock(&log.mutex)
        set_offline_locked(log, failure, "cannot make a segment")
        take_waiters_locked(log, True, &woken)
        pthread_mutex_unlock(&log.mutex)
        fire(&woken)
    log_unref(log)


cdef void flush_work(void* argument) noexcept nogil:
    cdef LogState* log = <LogState*>argument
    # A failure has taken the log offline.
    flush_if_due(log)
    log_unref(log)
