"""Truncation, deletion and log start of a partition log, and flushes to disk.

Python removes the files of the segments that these functions take out.
"""

from libc.stdint cimport int32_t, int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.log.layout cimport LogState
from kafkapy._speedups.log.segment cimport SegmentState

cdef enum:
    # What was begun in memory is ended in files, also while descriptors are short.
    SHORTAGE_TRIES = 120
    SHORTAGE_PAUSE_US = 500_000

cdef struct LogCut:
    SegmentState* segment       # with the new log end, referenced; NULL: nothing to cut
    int64_t position            # in its file
    int64_t end                 # the new log end
    bint fenced                 # the log leads, or has another leader epoch than the caller: nothing was cut
    bint forgot_epochs          # with nothing to cut: leader epochs without a record were dropped

# Cuts in memory at the first batch that reaches `offset` or beyond; `removed` gets the base offsets of the removed
# segments. 0 or an errno. Appends park until finish_truncation. In between the caller removes the files of those
# segments: files before bytes, so that a crash leaves a log without a hole. Leader epochs that begin at or above
# `offset` go in any case. `leader_epoch`: the one that the caller follows; -1: not checked.
cdef int begin_truncation(LogState* log, int64_t offset, int32_t leader_epoch, LogCut* cut,
                          vector[int64_t]* removed) noexcept nogil
# Cuts the file. With a `failure` (of removing files) the log goes offline instead, and the truncation ends. 0 or an
# errno. The caller rebuilds the producer state and calls end_truncation.
cdef int finish_truncation(LogState* log, LogCut* cut, int failure) noexcept nogil
# Ends the truncation: appends go on.
cdef void end_truncation(LogState* log, LogCut* cut) noexcept nogil
# Removes all segments and moves every offset to `offset`; the log has no active segment until the next switch. Leaves
# `rolling` set: the caller removes the files and calls resume_appends. False: the log leads, or has another leader
# epoch than `leader_epoch`, unless that is -1; nothing has changed.
cdef bint empty_log(LogState* log, int64_t offset, int32_t leader_epoch, vector[int64_t]* removed) noexcept nogil
cdef void resume_appends(LogState* log) noexcept nogil
# Moves the log start up to `offset`, and the high watermark at least there. Under the mutex.
cdef void raise_log_start_locked(LogState* log, int64_t offset) noexcept nogil
# Moves the log start up; 0, or a Kafka error when `offset` is above the high watermark.
cdef int advance_log_start(LogState* log, int64_t offset) noexcept nogil
# Removes closed segments that end at or below `offset`; the log start follows.
cdef void remove_segments_below(LogState* log, int64_t offset, vector[int64_t]* removed) noexcept nogil
# Syncs everything up to `limit` (the log end at most) and moves the recovery point there: data, indexes and transaction
# indexes of closed segments, the names of new ones. 0 or an errno.
cdef int flush_log(LogState* log, int64_t limit) noexcept nogil
# Syncs when flush.messages messages are unflushed, or waits for the thread that syncs them. The appending thread calls
# it after an append, or a worker. 0 or an errno, then the log is offline.
cdef int flush_if_due(LogState* log) noexcept nogil
# Cuts the indexes of closed segments to size (answer to SEGMENT_ROLLED). 0 or an errno.
cdef int seal_closed_segments(LogState* log) noexcept nogil
# Gives back the disk space ahead of the active segment's file, when that has not grown since the last call. Appends
# wait for their turn meanwhile. 0 or an errno, then the log is offline.
cdef int release_idle_space(LogState* log) noexcept nogil
