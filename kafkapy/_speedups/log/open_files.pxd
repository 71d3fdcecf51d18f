"""The open segment files of the process: a limit, and the closing of idle ones.

A log opens a segment's file at its first read or write, and keeps it open. With many segments or partitions the process
would run out of descriptors, so beyond the limit the least recently used files are closed. A segment's file may be
closed while the log's own reference is the only one: references are taken under the log's mutex, which the closing
thread holds, and a user without a reference holds that mutex too. The next use opens the file again by its path.
"""

from libc.stdint cimport int64_t

from kafkapy._speedups.log.layout cimport LogState

# Adds a new log to the table; forget_log removes it with its last reference.
cdef void watch_log(LogState* log) noexcept nogil
cdef void forget_log(LogState* log) noexcept nogil
# Closes up to `most` idle files; returns their number. Never waits for a log's mutex: it skips a log that is in use
# right now. The caller may hold the mutex of one log, whose files stay open.
cdef int64_t close_idle_files(int64_t most) noexcept nogil
