"""A coordinator's records that a network thread appends, by a lease of the coordinator.

They must commit at once: this broker is the whole ISR, and the log waits for no sync and no slow disk. All others go to
the coordinator, which appends without a network thread.
"""

from libc.stdint cimport int32_t, int64_t

from kafkapy._speedups.base.wire cimport ByteBuffer
from kafkapy._speedups.log.layout cimport LogState

# Room for the header of a batch, before its records. False: no memory.
cdef bint leased_batch_begin(ByteBuffer* out) noexcept nogil
# Fills the header once the records are written.
cdef void leased_batch_end(ByteBuffer* out, int32_t records, int64_t now_ms) noexcept nogil
# Whether the batch is committed, in the log's leadership of that epoch. It may be in the log all the same: then
# end_offset is the offset behind it, else 0.
cdef bint leased_append(LogState* log, int32_t leader_epoch, ByteBuffer* batch, int64_t now_ms,
                        int64_t* end_offset) noexcept nogil
