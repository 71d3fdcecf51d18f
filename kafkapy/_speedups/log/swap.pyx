"""Swapping cleaned segments into a log (see swap.pxd). Cleaner threads, without the GIL; the log's mutex is held for
memory work only.
"""

from libc.stdint cimport int64_t
from libcpp.string cimport string
from libcpp.vector cimport vector
from posix.unistd cimport close

from kafkapy._speedups.base.posix cimport atomic_load, pthread_mutex_lock, pthread_mutex_unlock
from kafkapy._speedups.log.cut cimport resume_appends
from kafkapy._speedups.log.index cimport offset_index_lookup, time_index_lookup
from kafkapy._speedups.log.private cimport private_of
from kafkapy._speedups.log.segment cimport segment_new, segment_open, segment_ref, segment_unref
from kafkapy._speedups.log.state cimport floor_segment, forget_batches_locked
from kafkapy._speedups.log.turns cimport lock_settled
from kafkapy._speedups.records.file_records cimport file_records_take, segment_file_closed


cdef int swap_pin(SegmentState* segment) noexcept nogil:
    cdef int fd = segment_open(segment)
    if fd < 0:
        return -fd
    offset_index_lookup(segment.offset_index, segment.base_offset)
    time_index_lookup(segment.time_index, 0)
    return 0


cdef void let_close(LogState* log, SegmentState* segment) noexcept nogil:
    cdef int64_t at
    cdef int fd = -1
    pthread_mutex_lock(&log.mutex)
    at = floor_segment(log, segment.base_offset)
    if (at >= 0 and log.segments[<size_t>at] == segment and atomic_load(&segment.references) == 2 and segment.fd >= 0
            and not segment.path.empty()):
        # During the renames, the path may belong to another segment.
        if not (private_of(log).rolling or private_of(log).loading or log.deleted):
            fd = file_records_take(segment.records)
            segment.fd = -1
    pthread_mutex_unlock(&log.mutex)
    if fd >= 0:
        close(fd)
        segment_file_closed()


cdef int64_t place_of(LogState* log, const vector[SegmentState*]* segments) noexcept nogil:
    """Returns the number of the first of these segments in the log, -1 when they do not all stand there in a row, below
    the active one. Mutex held."""
    cdef size_t first = 0, i
    while first < log.segments.size() and log.segments[first] != segments[0][0]:
        first += 1
    if first + segments.size() >= log.segments.size():
        return -1
    for i in range(segments.size()):
        if log.segments[first + i] != segments[0][i]:
            return -1
    return <int64_t>first


cdef bint swap_begin(LogState* log, const vector[SegmentState*]* replaced, SegmentState* fresh,
                     const vector[CompletedTransaction]* aborted) noexcept nogil:
    cdef vector[CompletedTransaction] entries
    cdef vector[CompletedTransaction]* known
    cdef int64_t first = -1, low, high
    cdef size_t i
    lock_settled(log)
    if not (private_of(log).closed or log.deleted or log.offline_errno):
        first = place_of(log, replaced)
    if first < 0:
        pthread_mutex_unlock(&log.mutex)
        return False
    low = replaced[0][0].base_offset
    high = log.segments[<size_t>first + replaced.size()].base_offset
    private_of(log).rolling = True
    segment_ref(fresh)
    log.segments[<size_t>first] = fresh
    log.segments.erase(log.segments.begin() + first + 1, log.segments.begin() + first + <int64_t>replaced.size())
    # Remembered positions refer to the old files.
    forget_batches_locked(log, low)
    known = &private_of(log).history.aborted
    for i in range(known.size()):
        if known[0][i].last_offset < low:
            entries.push_back(known[0][i])
    for i in range(aborted.size()):
        entries.push_back(aborted[0][i])
    for i in range(known.size()):
        if known[0][i].last_offset >= high:
            entries.push_back(known[0][i])
    known.swap(entries)
    pthread_mutex_unlock(&log.mutex)
    for i in range(replaced.size()):
        segment_unref(replaced[0][i])       # the log's own reference
    return True


cdef void swap_end(LogState* log) noexcept nogil:
    resume_appends(log)


cdef bint still_current(LogState* log, const vector[SegmentState*]* segments,
                        const vector[int64_t]* sizes) noexcept nogil:
    cdef bint same
    cdef size_t i
    pthread_mutex_lock(&log.mutex)
    same = not (private_of(log).closed or log.deleted or log.offline_errno) and place_of(log, segments) >= 0
    for i in range(segments.size()):
        if same and segments[0][i].size != sizes[0][i]:
            same = False
    pthread_mutex_unlock(&log.mutex)
    return same


cdef SegmentState* cleaned_segment(int64_t base_offset, int fd, const string& path, const string& stem,
                                   int64_t index_bytes, int64_t created_ms) noexcept nogil:
    cdef SegmentState* segment = segment_new(base_offset, fd, path, stem, index_bytes, False, created_ms)
    if not stem.empty():
        segment.offset_index.file.path = stem + <const char*>b".index.cleaned"
        segment.time_index.file.path = stem + <const char*>b".timeindex.cleaned"
        # An index without an entry has a file, too.
        segment.offset_index.file.touched = True
        segment.time_index.file.touched = True
    return segment


cdef void final_name(SegmentState* segment, const string& stem) noexcept nogil:
    if stem.empty():
        return
    segment.path = stem + <const char*>b".log"
    segment.records.path = segment.path
    pthread_mutex_lock(&segment.offset_index.file.mutex)
    segment.offset_index.file.path = stem + <const char*>b".index"
    pthread_mutex_unlock(&segment.offset_index.file.mutex)
    pthread_mutex_lock(&segment.time_index.file.mutex)
    segment.time_index.file.path = stem + <const char*>b".timeindex"
    pthread_mutex_unlock(&segment.time_index.file.mutex)
