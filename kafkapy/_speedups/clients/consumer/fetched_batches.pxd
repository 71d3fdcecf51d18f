"""What a Fetch brought of one partition, batch by batch (see fetched_batches.pyx)."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libcpp.vector cimport vector

from kafkapy._speedups.clients.consumer.fetched_batch cimport FetchedBatch, Slab

# Appends what is in `data` to `out` and `slabs`, and returns the bytes it has opened. `budget` is what may be opened
# yet, and is lowered.
cdef int64_t batches_scan(const uint8_t* data, int64_t size, bint check_crcs, int64_t* budget,
                          vector[FetchedBatch]* out, vector[Slab]* slabs) noexcept nogil
# Opens a FETCHED_CLOSED batch, in a slab of its own where bytes_behind is -1; its state is another one then.
# bytes_behind: of the partition's records, behind the batch, to guess by how much room a slab should have.
cdef void batch_open(FetchedBatch* batch, int64_t max_bytes, int64_t bytes_behind, vector[Slab]* slabs) noexcept nogil
