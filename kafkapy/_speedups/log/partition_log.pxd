"""The control plane's partition log (see layout.pxd for the state that both planes share)."""

from libc.stdint cimport int32_t, int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.log.files cimport LogFiles
from kafkapy._speedups.log.layout cimport AppendOptions
from kafkapy._speedups.log.segment cimport SegmentState
from kafkapy._speedups.log.workers cimport LogWorkers

cdef class PartitionLog(LogFiles):
    cdef readonly object events         # EventQueue, kept alive
    cdef readonly LogWorkers append_workers     # of the log's directory, or None
    cdef int32_t replica_count          # of the partition; 0: not known
    cdef object __weakref__

    cdef int32_t effective_min_in_sync(self, object config) except? -1
    cdef void hold_segments(self, vector[SegmentState*]* out) noexcept nogil
    cdef object append(self, bytes batches, const AppendOptions* options, int origin)
