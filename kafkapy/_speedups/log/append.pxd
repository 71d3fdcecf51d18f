"""The append path of a partition log: checks, offsets, one write."""

from libc.stdint cimport int64_t, uint8_t

from kafkapy._speedups.log.layout cimport AppendOptions, AppendResult, AppendStatus, LogState, Waiter

# Whether an append that begins now may commit at its end: nothing waits for other replicas, a sync or a slow disk.
cdef bint append_commits_at_once(LogState* log) noexcept nogil
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
