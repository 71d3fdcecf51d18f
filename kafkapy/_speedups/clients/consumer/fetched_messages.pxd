"""Messages of formats v0 and v1 as batches of a consumer (see fetched_messages.pyx)."""

from libc.stdint cimport int64_t, uint8_t
from libcpp.vector cimport vector

from kafkapy._speedups.clients.consumer.fetched_batch cimport FetchedBatch, Slab

# Makes one batch of the wrapper, or of the run of plain messages with one format and timestamp type, at `data`. Returns
# the bytes of its messages, or 0 without a whole message. `entry` comes initialized, with its magic and the first
# offset; its state holds an error.
cdef int64_t messages_convert(const uint8_t* data, int64_t available, int64_t max_bytes, FetchedBatch* entry,
                              vector[Slab]* slabs) noexcept nogil
