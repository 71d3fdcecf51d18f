from libc.stdint cimport int64_t

from kafkapy._speedups.clients.consumer.fetched_partition cimport FetchedPartition


cdef class RecordColumns:
    """Columns that collect records, chunk by chunk (ArrowColumns)."""
    cdef readonly int64_t bytes         # of the columns' memory
    cpdef int64_t append(self, FetchedPartition partition, int64_t max_records, bint release_gil=*,
                         int64_t end_offset=*,
                          int64_t max_bytes=*) except -1


cdef class PartitionBuffer:
    cdef readonly object topic_partition
    cdef FetchBuffer owner
    cdef FetchedPartition chunk
    cdef list waiting
    cdef int64_t offset
    cdef int leader_epoch
    cdef bint is_readable
    cdef bint queued
    cdef readonly int64_t bytes

    cdef bint start_next(self) except -1
    cdef int finish_chunk(self) except -1
    cdef int drop_chunks(self) except -1


cdef class FetchBuffer:
    cdef object ready
    cdef PartitionBuffer current
    cdef FetchedPartition chunk
    cdef object tell_hungry
    cdef object tell_ready
    cdef public bint telling
    cdef public bint tells_all
    cdef public bint attention
    cdef readonly int64_t calls
    cdef readonly int64_t records
    cdef readonly int64_t bytes

    cdef int enqueue(self, PartitionBuffer partition) except -1
    cdef bint advance(self) except -1
    cdef int tell(self) except -1
    cdef object next_record(self)


cdef class RecordIterator:
    cdef readonly FetchBuffer fetch_buffer
