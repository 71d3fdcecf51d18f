"""The limit of open segment files (see open_files.pxd)."""

from libc.stdint cimport int64_t
from libcpp.vector cimport vector
from posix.unistd cimport close

from kafkapy._speedups.base.posix cimport (
    atomic_load,
    atomic_store,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_t,
    pthread_mutex_trylock,
    pthread_mutex_unlock,
)
from kafkapy._speedups.log.layout cimport LogState
from kafkapy._speedups.log.private cimport private_of
from kafkapy._speedups.log.segment cimport SegmentState
from kafkapy._speedups.records.file_records cimport OpenFiles, file_records_take, open_files, segment_file_closed

cdef vector[LogState*] logs
cdef size_t hand                # the log that the next search begins at
cdef pthread_mutex_t registry   # over both. A thread takes it before a log's mutex, or after it: a holder
                                # only tries to take that mutex.
pthread_mutex_init(&registry, NULL)


cdef void watch_log(LogState* log) noexcept nogil:
    pthread_mutex_lock(&registry)
    private_of(log).watched_at = logs.size()
    logs.push_back(log)
    pthread_mutex_unlock(&registry)


cdef void forget_log(LogState* log) noexcept nogil:
    cdef LogState* last
    pthread_mutex_lock(&registry)
    last = logs.back()
    logs[private_of(log).watched_at] = last
    private_of(last).watched_at = private_of(log).watched_at
    logs.pop_back()
    pthread_mutex_unlock(&registry)


cdef void take_if_idle(SegmentState* s, int64_t own, bint every, vector[int]* taken) noexcept nogil:
    """Takes the descriptor of a segment that has just `own` references, under the log's mutex. A segment that grew
    since the last check stays open, the first time."""
    if s.fd < 0 or s.path.empty() or atomic_load(&s.references) != own:
        return
    if s.seen_size != s.size and not every:
        s.seen_size = s.size
        return
    taken.push_back(file_records_take(s.records))
    s.fd = -1


cdef int64_t close_idle_files(int64_t most) noexcept nogil:
    global hand
    cdef vector[int] taken
    cdef LogState* log
    cdef bint reopens
    cdef int64_t own
    cdef size_t visited, i
    pthread_mutex_lock(&registry)
    for visited in range(2 * logs.size()):
        if <int64_t>taken.size() >= most:
            break
        hand = hand + 1 if hand + 1 < logs.size() else 0
        log = logs[hand]
        if pthread_mutex_trylock(&log.mutex) != 0:
            continue
        # During other renames, paths may be those of other files.
        reopens = private_of(log).reopens
        own = MOVED_REFERENCES if reopens else 1
        if not ((private_of(log).rolling and not reopens) or private_of(log).loading or log.deleted):
            for i in range(log.segments.size()):
                if <int64_t>taken.size() < most:
                    take_if_idle(log.segments[i], own, visited >= logs.size(), &taken)
            if log.prepared != NULL and <int64_t>taken.size() < most and not reopens:
                take_if_idle(log.prepared, own, visited >= logs.size(), &taken)
        pthread_mutex_unlock(&log.mutex)
    pthread_mutex_unlock(&registry)
    close_taken(&taken)
    return <int64_t>taken.size()


cdef void take_files_locked(const vector[SegmentState*]* segments, int64_t own, vector[int]* taken) noexcept nogil:
    cdef size_t i
    for i in range(segments.size()):
        take_if_idle(segments[0][i], own, True, taken)


cdef void close_taken(const vector[int]* taken) noexcept nogil:
    cdef size_t i
    for i in range(taken.size()):
        close(taken[0][i])
        segment_file_closed()


cdef void make_room() noexcept nogil:
    """Closes a quarter of the files at the limit, so that the search is rare."""
    cdef OpenFiles* files = open_files()
    cdef int64_t limit = atomic_load(&files.limit)
    close_idle_files(max(limit // 4, <int64_t>1) if limit > 0 else 64)


open_files().make_room = make_room


def set_limit(int64_t limit, int64_t slack):
    """Sets the number of open segment files beyond which idle ones close. While all are in use, writes open up to
    `slack` more, and reads half of that. 0: no limit."""
    atomic_store(&open_files().slack, slack)
    atomic_store(&open_files().limit, limit)


def open_limit():
    """The limit of open segment files; 0: none."""
    return atomic_load(&open_files().limit)


def open_count():
    """The number of open segment files."""
    return atomic_load(&open_files().count)


def close_idle(int64_t most):
    """Closes up to `most` idle segment files; returns their number."""
    cdef int64_t closed
    with nogil:
        closed = close_idle_files(most)
    return closed
