"""Fetched records as columns of Apache Arrow (see columns.pyx)."""

from libc.stdint cimport int32_t, int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.wire cimport ByteBuffer, Cursor
from kafkapy._speedups.clients.consumer.fetched_batch cimport FetchedBatch
from kafkapy._speedups.clients.consumer.fetched_partition cimport FetchedPartition
from kafkapy._speedups.clients.consumer.record_iterator cimport RecordColumns

cdef enum Column:
    COLUMN_KEY = 1
    COLUMN_VALUE = 2
    COLUMN_HEADERS = 4
    COLUMN_TOPIC = 8
    COLUMN_PARTITION = 16
    COLUMN_OFFSET = 32
    COLUMN_TIMESTAMP = 64
    COLUMN_TIMESTAMP_TYPE = 128
    FOR_SPARK = 256                     # no column: in its types

# Arrow's buffers: a bit per row (1 is valid), int32 ends of the rows' bytes after a leading 0, the bytes.
cdef enum ColumnBufferIndex:
    KEY_VALID = 0
    KEY_ENDS = 1
    KEY_DATA = 2
    VALUE_VALID = 3
    VALUE_ENDS = 4
    VALUE_DATA = 5
    HEADER_ENDS = 6                     # of the rows' headers among all headers
    NAME_ENDS = 7
    NAME_DATA = 8
    HEADER_VALID = 9
    HEADER_VALUE_ENDS = 10
    HEADER_VALUE_DATA = 11
    TOPIC_DATA = 12                     # int32, an index
    PARTITION_DATA = 13                 # int32
    OFFSET_DATA = 14                    # int64
    TIMESTAMP_VALID = 15
    TIMESTAMP_DATA = 16                 # int64
    TYPE_DATA = 17                      # int8, for Spark int32
    HEADERS_VALID = 18                  # whether a row has headers
    COLUMN_BUFFERS = 19

cdef cppclass ColumnChunk:
    ByteBuffer[COLUMN_BUFFERS] buffers
    int64_t rows
    int64_t header_rows
    int64_t no_headers                  # rows without headers
    int64_t key_nulls
    int64_t value_nulls
    int64_t header_nulls
    int64_t timestamp_nulls


cdef class ColumnBuffer:
    """Memory of one of Arrow's buffers, read-only."""
    cdef ByteBuffer buffer
    cdef int index                      # ColumnBufferIndex


cdef class ArrowColumns(RecordColumns):
    cdef int wanted
    cdef vector[ColumnChunk*]* chunks   # the last one is being filled
    cdef int64_t chunk_bytes
    cdef readonly int64_t rows
    cdef dict topic_indexes
    cdef void drop_chunks(self) noexcept
    cdef ColumnChunk* chunk_for(self, int64_t batch_bytes, int32_t records) except NULL
    cdef int64_t walk(self, FetchedPartition partition, ColumnChunk* chunk, int32_t topic, int64_t max_records,
                      int64_t end_offset, int64_t max_bytes) noexcept nogil
    cdef dict columns_of(self, ColumnChunk* chunk)
