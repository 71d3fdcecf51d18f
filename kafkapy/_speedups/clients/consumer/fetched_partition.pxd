"""The records of one partition in a Fetch response (see fetched_partition.pyx)."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libcpp.unordered_set cimport unordered_set
from libcpp.vector cimport vector

from kafkapy._speedups.base.wire cimport Cursor
from kafkapy._speedups.clients.consumer.consumer_record cimport ConsumerRecord, RecordMemory, RecordOrigin
from kafkapy._speedups.clients.consumer.fetched_batch cimport FetchedBatch, Slab

cdef struct AbortedTransaction:
    int64_t producer_id
    int64_t first_offset

cdef struct EpochAndOffset:
    int32_t epoch
    int64_t offset

# A partition of a Fetch response, parsed by the I/O thread; a FetchedPartition takes it over.
cdef cppclass PartitionData:
    const uint8_t* topic                # borrowed from the response; NULL from version 13 on
    int32_t topic_size
    const uint8_t* topic_id             # 16 bytes; NULL before version 13
    int32_t partition
    int16_t error_code
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t log_start_offset
    int32_t preferred_read_replica
    EpochAndOffset diverging_epoch      # offset -1: none
    EpochAndOffset snapshot_id          # the same
    int32_t leader_id                   # current leader; both -1: not in the response
    int32_t leader_epoch
    int64_t record_bytes                # of records in the response
    int64_t opened_bytes                # in slabs
    vector[AbortedTransaction] aborted  # in the order of their first offsets
    vector[FetchedBatch] batches
    vector[Slab] slabs

cdef PartitionData* partition_data_new() noexcept nogil
cdef void partition_data_free(PartitionData* data) noexcept nogil


cdef class FetchedPartition:
    cdef PartitionData* data
    cdef RecordMemory response          # memory of batches outside slabs
    cdef RecordMemory slab              # the last slab taken over
    cdef int32_t slab_index
    cdef readonly str topic
    cdef readonly object topic_id
    cdef object key_deserializer
    cdef object value_deserializer
    cdef bint tuple_headers
    cdef bint read_committed
    cdef readonly int64_t next_offset
    cdef readonly int64_t end_offset
    cdef readonly int64_t bytes
    cdef readonly int leader_epoch
    cdef readonly int end_epoch
    cdef readonly bint exhausted
    # The batch being read.
    cdef size_t current                 # its index
    cdef bint entered
    cdef FetchedBatch* batch
    cdef RecordOrigin origin            # of the batch that the last record was read from
    cdef size_t origin_at               # its index
    cdef RecordMemory memory            # of that batch
    cdef Cursor cursor
    cdef int32_t left                   # unread records
    cdef size_t aborted_at              # transactions before it have begun
    cdef unordered_set[int64_t] aborting    # producers with skipped records now

    cdef void adopt(self, PartitionData* data, RecordMemory response) noexcept
    cdef bint settle(self) noexcept nogil
    cdef void leave_batch(self) noexcept nogil
    cdef bint is_aborted(self, FetchedBatch* batch) noexcept nogil
    cdef bint step_in(self) noexcept nogil
    cdef bint enter_batch(self) except -1
    cdef void end_batch(self) noexcept nogil
    cdef int make_origin(self) except -1
    cdef int fail(self, int state) except -1
    cdef ConsumerRecord read_record(self)
    cpdef object next(self)
    cpdef list take(self, Py_ssize_t max_records)
