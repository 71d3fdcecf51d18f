"""The append path of a partition log: checks, offsets, one write."""

from libc.stdint cimport int64_t, uint8_t

from kafkapy._speedups.partition_log cimport AppendOptions, AppendResult, AppendStatus, LogState, Waiter

# `origin` is producer_state's AppendOrigin. ORIGIN_REPLICATION keeps the batches' own offsets and epochs.
cdef AppendStatus append_batches(LogState* log, uint8_t* data, int64_t size, const AppendOptions* options, const Waiter* waiter, int origin,
                                 AppendResult* result) noexcept nogil
