"""The control plane's partition log (see layout.pxd for the state that both planes share)."""

from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.log.layout cimport AppendOptions
from kafkapy._speedups.log.replicated_log cimport ReplicatedLog
from kafkapy._speedups.log.segment cimport SegmentState
from kafkapy._speedups.log.workers cimport LogWorkers

cdef class PartitionLog(ReplicatedLog):
    cdef readonly object events         # EventQueue, kept alive
    cdef readonly LogWorkers append_workers     # of the log's directory, or None
    cdef object __weakref__

    cdef void hold_segments(self, vector[SegmentState*]* out) noexcept nogil
    cdef object append(self, bytes batches, const AppendOptions* options, int origin)
