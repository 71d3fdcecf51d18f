"""The read path of a partition log: a snapshot under the mutex, the search for bytes outside it."""

from libc.stdint cimport int32_t, int64_t

from kafkapy._speedups.log.layout cimport FetchIsolation, LogState, ReadResult

# A snapshot of what may be read from `offset`: at most max_bytes, except that with min_one_batch the first batch comes
# whole.
cdef void read_batches(LogState* log, int64_t offset, int32_t max_bytes, bint min_one_batch, FetchIsolation isolation,
                       int32_t current_leader_epoch, int32_t last_fetched_epoch, bint leader_only,
                       ReadResult* result) noexcept nogil
