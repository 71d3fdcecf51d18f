"""The transaction index of a log's segments (see transaction_index.pxd).

    .txnindex entry: int16 version 0 | int64 producer id | int64 first offset | int64 last offset |
                     int64 last stable offset
"""

from libc.errno cimport ENOSPC, errno
from libc.stdint cimport int64_t, uint8_t
from libcpp.string cimport string
from libcpp.vector cimport vector
from posix.fcntl cimport O_APPEND, O_CLOEXEC, O_CREAT, O_WRONLY
from posix.unistd cimport close, write

from kafkapy._speedups.base.posix cimport is_shortage, pthread_mutex_lock, pthread_mutex_unlock
from kafkapy._speedups.base.wire cimport store_int16, store_int64
from kafkapy._speedups.log.layout cimport Waiter
from kafkapy._speedups.log.private cimport AbortedWrite, private_of
from kafkapy._speedups.log.state cimport fire, segment_stem, set_offline_locked, take_waiters_locked
from kafkapy._speedups.records.file_records cimport open_file

cdef enum:
    ABORTED_PRODUCER_ID_AT = 2
    ABORTED_FIRST_OFFSET_AT = ABORTED_PRODUCER_ID_AT + 8
    ABORTED_LAST_OFFSET_AT = ABORTED_FIRST_OFFSET_AT + 8
    ABORTED_LAST_STABLE_OFFSET_AT = ABORTED_LAST_OFFSET_AT + 8
    ABORTED_ENTRY_SIZE = ABORTED_LAST_STABLE_OFFSET_AT + 8


cdef int append_aborted(const string& directory, const AbortedWrite* aborted) noexcept nogil:
    """Appends an entry. Opens the file for each entry, because aborted transactions are rare. 0 or an errno."""
    cdef uint8_t raw[34]
    cdef string path = segment_stem(directory, aborted.segment_base)
    cdef int fd, failure = 0
    cdef ssize_t n
    path.append(<const char*>".txnindex")
    fd = open_file(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o644)
    if fd < 0:
        return -fd
    store_int16(raw, 0)
    store_int64(raw + ABORTED_PRODUCER_ID_AT, aborted.entry.producer_id)
    store_int64(raw + ABORTED_FIRST_OFFSET_AT, aborted.entry.first_offset)
    store_int64(raw + ABORTED_LAST_OFFSET_AT, aborted.entry.last_offset)
    store_int64(raw + ABORTED_LAST_STABLE_OFFSET_AT, aborted.entry.last_stable_offset)
    n = write(fd, raw, ABORTED_ENTRY_SIZE)
    if n != ABORTED_ENTRY_SIZE:
        failure = errno if n < 0 else ENOSPC
    close(fd)
    return failure


cdef int write_aborted_transactions(LogState* log) noexcept nogil:
    cdef vector[AbortedWrite] waiting
    cdef vector[Waiter] woken
    cdef size_t i
    cdef int failure = 0
    # A second thread waits for the first, so that entries stand in the file in the order of their markers.
    pthread_mutex_lock(&private_of(log).aborted_file)
    pthread_mutex_lock(&log.mutex)
    if not log.deleted:
        waiting.swap(private_of(log).unwritten)
    pthread_mutex_unlock(&log.mutex)
    for i in range(waiting.size()):
        failure = append_aborted(private_of(log).directory, &waiting[i])
        if failure:
            break
    if is_shortage(failure):
        # The next marker or flush tries again.
        pthread_mutex_lock(&log.mutex)
        if not log.deleted:
            private_of(log).unwritten.insert(private_of(log).unwritten.begin(), waiting.begin() + <int64_t>i,
                                             waiting.end())
        pthread_mutex_unlock(&log.mutex)
    pthread_mutex_unlock(&private_of(log).aborted_file)
    if failure and not is_shortage(failure):
        pthread_mutex_lock(&log.mutex)
        if not log.deleted:
            set_offline_locked(log, failure, "writing the transaction index failed")
        take_waiters_locked(log, True, &woken)
        pthread_mutex_unlock(&log.mutex)
        fire(&woken)
    return failure
