"""The append path of a partition log: checks, offsets, one write."""

from libc.stdint cimport int64_t, uint8_t

from kafkapy._speedups.log.partition_log cimport AppendOptions, AppendResult, AppendStatus, LogState, Waiter

cdef enum:
    BATCHES_SINCE_VERSION = 3       # of Produce: before, message sets of v0 and v1 come in (KIP-98)

# Puts aborted transactions that appends have left into .txnindex, in their order; called by those appends after the mutex is released, and by a
# flush before the recovery point moves over their markers. 0 or an errno, then the log is offline.
cdef int write_aborted_transactions(LogState* log) noexcept nogil
# Counts a batch that was refused; LOG_REFUSED.
cdef AppendStatus append_refused(LogState* log, int64_t size) noexcept nogil
# `origin` is producer_state's AppendOrigin. ORIGIN_REPLICATION keeps the batches' own offsets and epochs.
cdef AppendStatus append_batches(LogState* log, uint8_t* data, int64_t size, const AppendOptions* options, const Waiter* waiter, int origin,
                                 AppendResult* result) noexcept nogil
