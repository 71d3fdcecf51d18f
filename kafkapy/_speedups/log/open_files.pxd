"""The open segment files of the process: a limit, and the closing of idle ones.

A log opens a segment's file at its first read or write, and keeps it open. With many segments or partitions the process
would run out of descriptors, so beyond the limit the least recently used files are closed. A segment's file may be
closed while the log's own reference is the only one (at the end of a move: the log's and the move's): references are
taken under the log's mutex, which the closing thread holds, and a user without a reference holds that mutex too. The
next use opens the file again by its path.
"""

from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.log.layout cimport LogState
from kafkapy._speedups.log.segment cimport SegmentState

cdef enum:
    MOVED_REFERENCES = 2            # of the log and of its move to a segment, while the move replaces it

# Adds a new log to the table; forget_log removes it with its last reference.
cdef void watch_log(LogState* log) noexcept nogil
cdef void forget_log(LogState* log) noexcept nogil
# Closes up to `most` idle files; returns their number. Never waits for a log's mutex: it skips a log that is in use
# right now. The caller may hold the mutex of one log, whose files stay open.
cdef int64_t close_idle_files(int64_t most) noexcept nogil
# Takes the descriptors of the segments that have just `own` references, under their log's mutex, to be closed
# without it.
cdef void take_files_locked(const vector[SegmentState*]* segments, int64_t own, vector[int]* taken) noexcept nogil
cdef void close_taken(const vector[int]* taken) noexcept nogil
