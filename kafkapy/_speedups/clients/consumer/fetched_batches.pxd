"""The batches of one partition in a Fetch response (see fetched_batches.pyx)."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libcpp.vector cimport vector

from kafkapy._speedups.clients.consumer.fetched_batch cimport FetchedBatch, Slab

# Appends the batches of `data` to `out` and `slabs`; returns the decompressed bytes. `budget`, the bytes that may still
# be decompressed, is lowered.
cdef int64_t batches_scan(const uint8_t* data, int64_t size, bint check_crcs, int64_t* budget,
                          vector[FetchedBatch]* out, vector[Slab]* slabs) noexcept nogil
# Decompresses a FETCHED_CLOSED batch and changes its state. bytes_behind: the partition's record bytes behind the
# batch, an estimate for the size of the slab; -1: the batch gets its own slab.
cdef void batch_open(FetchedBatch* batch, int64_t max_bytes, int64_t bytes_behind, vector[Slab]* slabs) noexcept nogil
