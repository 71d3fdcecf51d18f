"""Which segment files are open, in the whole process: a limit, and the closing of those that nobody uses.

A log opens a segment's file when it is first read or written, and keeps it open. With many segments, or many
partitions, the process would run out of descriptors, so beyond the limit files are closed again, those that were not
used lately first. A segment's file may be closed when the log's own reference is the only one: references are taken
under the log's mutex, which is held here, and who uses a file without a reference holds that mutex. The next use opens
the file again by its path.
"""

from libc.stdint cimport int64_t

from kafkapy._speedups.log.layout cimport LogState

# Called when a log is made, and when its last reference is gone.
cdef void watch_log(LogState* log) noexcept nogil
cdef void forget_log(LogState* log) noexcept nogil
# Closes up to that many files that are not in use; how many. Never waits for a log's mutex: a log that is in use right
# now is left out. The caller may hold the mutex of one log, whose files stay open.
cdef int64_t close_idle_files(int64_t most) noexcept nogil
