"""One cleaning of one log: map each key to its last offset, then rewrite the segments with only those records.

Source: kafka.log.Cleaner. The cleaner reads segments by its own descriptors in pieces of a megabyte, so readers and
writers of the log notice nothing; swap.pyx installs the new segments. Uncompressed batches need no GIL; for a
compressed batch the cleaner takes the GIL to call the codec, which releases it again, and for a message of format v0 or
v1 to convert it: cleaning turns old messages into batches, as in Kafka 4.1.
"""

from libc.stdint cimport int16_t, int64_t, uint8_t
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.wire cimport ByteBuffer
from kafkapy._speedups.log.cleaned_transactions cimport CleanedTransactions
from kafkapy._speedups.log.cleaner_throttle cimport CleanerThrottle
from kafkapy._speedups.log.offset_map cimport OffsetMap
from kafkapy._speedups.log.partition_log cimport PartitionLog
from kafkapy._speedups.log.producer_state cimport CompletedTransaction
from kafkapy._speedups.log.record_filter cimport FilterRules
from kafkapy._speedups.log.segment cimport SegmentState
from kafkapy._speedups.records.record_batch cimport BatchHeader

cdef struct LastRecord:             # the last offset and epoch of a producer in the log
    int64_t last_data_offset        # -1: only control batches
    int16_t epoch

cdef struct CleaningStats:
    int64_t map_bytes_read
    int64_t map_records_read
    int64_t bytes_read
    int64_t bytes_written
    int64_t records_read
    int64_t records_written
    int64_t batches_dropped
    int64_t records_without_key

cdef class CleanedSegment:
    cdef SegmentState* segment
    cdef vector[CompletedTransaction] retained

cdef class LogCleaning:
    cdef PartitionLog log
    cdef OffsetMap map
    cdef CleanerThrottle pace
    cdef object compress
    cdef object decompress
    cdef object upgrade             # converts a message of format v0 or v1 into a batch
    cdef bytes upgraded             # its last batch
    cdef object opened              # the codec's result, while `opened_view` is in use
    cdef Py_buffer opened_view
    cdef bint has_opened
    cdef vector[SegmentState*] held
    cdef vector[int64_t] sizes
    cdef vector[CompletedTransaction] aborted
    cdef CleanedTransactions transactions
    cdef unordered_map[int64_t, LastRecord] producers
    cdef FilterRules rules
    cdef CleaningStats figures
    cdef int64_t stopped            # atomic
    # the file being read
    cdef int fd
    cdef int failure                # errno
    cdef int64_t position
    cdef int64_t limit
    cdef uint8_t* buffer
    cdef int64_t capacity
    cdef int64_t buffer_start
    cdef int64_t buffer_size
    # buffers of the writing
    cdef ByteBuffer out
    cdef ByteBuffer scratch
    cdef vector[uint8_t] keep

    cdef int start_reading(self, SegmentState* segment, int64_t offset) noexcept nogil
    cdef int next_batch(self, BatchHeader* header, const uint8_t** data) except -1 nogil
    cdef int upgrade_message(self, BatchHeader* header, const uint8_t** data) except -1 with gil
    cdef int open_payload(self, const uint8_t* data, const BatchHeader* header, const uint8_t** payload,
                          int64_t* size) except -1 with gil
    cdef int close_payload(self) except -1 with gil
    cdef int pack_scratch(self, int codec) except -1 with gil
    cdef bint last_of_producer(self, const BatchHeader* header, bint control) noexcept nogil
    cdef int map_batch(self, const BatchHeader* header, const uint8_t* data, int64_t start) except -1 nogil
    cdef int clean_batch(self, const BatchHeader* header, const uint8_t* data, int64_t* max_timestamp) except -1 nogil
    cdef int write_out(self, SegmentState* fresh) noexcept nogil
    cdef int write_segment(self, size_t first, size_t count, SegmentState* fresh) except -1 nogil
    cdef object fail(self, int status, SegmentState* segment)
