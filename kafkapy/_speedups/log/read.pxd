"""The read path of a partition log: a snapshot under the mutex, the search for bytes outside it."""

from libc.stdint cimport int32_t, int64_t

from kafkapy._speedups.log.layout cimport FetchIsolation, LogState, ReadResult

# Takes a snapshot of the readable bytes from `offset` on: at most max_bytes, but with min_one_batch the whole first
# batch.
cdef void read_batches(LogState* log, int64_t offset, int32_t max_bytes, bint min_one_batch, FetchIsolation isolation,
                       int32_t current_leader_epoch, int32_t last_fetched_epoch, bint leader_only,
                       ReadResult* result) noexcept nogil
