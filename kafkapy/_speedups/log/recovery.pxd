"""Reading a segment back: after an unclean stop with every CRC checked, or only to restore producer state."""

from libc.stdint cimport int32_t, int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.log.producer_state cimport CompletedTransaction, ProducerStateManager
from kafkapy._speedups.log.segment cimport SegmentState

cdef struct EpochEntry:
    int32_t epoch
    int64_t start_offset

cdef cppclass LogHistory:
    # The state that a walk over the segments rebuilds.
    ProducerStateManager* producers
    vector[EpochEntry] epochs               # ascending
    vector[CompletedTransaction] aborted    # by last offset, ascending

# Adds the epoch when it is above the newest one.
cdef bint epochs_assign(vector[EpochEntry]* epochs, int32_t epoch, int64_t start_offset) noexcept nogil
# Checks every batch of the file and ends the segment behind the last valid one; rebuilds both indexes; adds leader
# epochs to `history`. `next_offset` is one above the last offset (the base offset when empty), `cut_bytes` the bytes of
# the file behind the segment's size, which the caller cuts off. Sets `gaps` when offsets are missing, as after
# compaction. 0 or an errno.
cdef int segment_recover(SegmentState* s, LogHistory* history, int32_t index_interval_bytes, int64_t* next_offset,
                         int64_t* cut_bytes, bint* gaps) noexcept nogil
# Applies the batches of [producers.end_offset, end_offset) to the producer state and the aborted transactions; headers
# only. 0 or an errno.
cdef int segment_replay(SegmentState* s, LogHistory* history, int64_t end_offset) noexcept nogil
# One above the last offset of a segment with sound indexes. 0 or an errno; -1 when the file does not end with a batch.
cdef int segment_next_offset(SegmentState* s, int64_t* next_offset) noexcept nogil
