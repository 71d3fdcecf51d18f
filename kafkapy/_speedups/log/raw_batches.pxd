"""Appends to and reads from a partition log as bytes objects, for the control plane.

The data plane uses buffers and file regions instead.
"""

from libc.stdint cimport int32_t, int64_t

from kafkapy._speedups.log.layout cimport AppendOptions, LogState

# (base offset, last offset, log append time in ms or -1); None when a segment must be prepared first. KafkaError for a
# refused append.
cdef object append_bytes(LogState* log, bytes batches, const AppendOptions* options, int origin)
# See PartitionLog.read.
cdef tuple read_bytes(LogState* log, int64_t offset, int32_t max_bytes, bint min_one_batch, int isolation,
                      bint leader_only)
# See PartitionLog.find_timestamp.
cdef object find_timestamp_bytes(LogState* log, int64_t timestamp, int64_t end_offset, int64_t start_offset)
# The highest timestamp of the log's records, -1 without any; transaction markers do not count.
cdef int64_t newest_record_timestamp(LogState* log) noexcept nogil
