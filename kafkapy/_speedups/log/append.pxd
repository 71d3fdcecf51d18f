"""The append path of a partition log: checks, offsets, one write."""

from libc.stdint cimport int64_t, uint8_t
from libcpp.vector cimport vector

from kafkapy._speedups.log.append_checks cimport CheckedBatch
from kafkapy._speedups.log.layout cimport AppendOptions, AppendResult, AppendStatus, LogState, Waiter
from kafkapy._speedups.log.segment cimport SegmentState

# The bytes of the largest batch that would commit at the end of an append that begins now, where nothing waits for
# other replicas, a sync or a slow disk; else 0.
cdef int64_t append_room_at_once(LogState* log) noexcept nogil
# Counts a refused batch; returns LOG_REFUSED.
cdef AppendStatus append_refused(LogState* log, int64_t size) noexcept nogil
# `origin` is producer_state's AppendOrigin. ORIGIN_REPLICATION keeps the batches' own offsets and epochs.
cdef AppendStatus append_batches(LogState* log, uint8_t* data, int64_t size, const AppendOptions* options,
                                 Waiter* waiter, int origin, AppendResult* result) noexcept nogil
# Validates the one (or, for internal appends, each) batch in data, patches offset, epoch and append time in place,
# writes it, advances the log end and, when this broker is the whole ISR, the high watermark; then wakes waiters.
# `waiter` is used only for LOG_PARK_SEGMENT.
cdef AppendStatus log_append(LogState* log, uint8_t* data, int64_t size, const AppendOptions* options,
                             Waiter* waiter, AppendResult* result) noexcept nogil
# The parts of an append that a group of them has too (group_append.pyx):
# Stamps offsets, writes the batches, and applies them to all derived state. 0 or an errno. The caller holds the mutex,
# but the write releases it; it takes a reference to the segment for the caller.
cdef int write_in_turn(LogState* log, SegmentState* active, uint8_t* data, int64_t size, vector[CheckedBatch]* batches,
                       int origin, bint* aborted, int64_t* messages) noexcept nogil
# After a write that failed: the log may go offline, and who waits for it is woken. Returns the reason for the clients.
cdef const char* write_failed_locked(LogState* log, int failure, vector[Waiter]* woken) noexcept nogil
# After one that succeeded: moves the high watermark and the last stable offset, and takes out who waits for them. True
# when segment_after_append must follow without the mutex.
cdef bint written_locked(LogState* log, SegmentState* active, int origin, vector[Waiter]* woken) noexcept nogil
