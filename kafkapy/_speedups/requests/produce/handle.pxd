"""Produce (api key 0): served versions 0 to 13, wholly in the data plane.

requests/data_plane.pxd holds the contract with the Processor.
"""

from libc.stdint cimport int64_t

from kafkapy._speedups.log.layout cimport AppendOptions, AppendResult
from kafkapy._speedups.requests.data_plane cimport DataPlaneState, Frame, Outcome
from kafkapy._speedups.requests.produce.state cimport ProducePartition, ProduceState

cdef void produce_handle(DataPlaneState* plane, Frame* frame, Outcome* outcome) noexcept nogil
cdef void produce_resume(DataPlaneState* plane, void* parked, bint timed_out, Outcome* outcome) noexcept nogil
# A worker's part of an OUTCOME_WORKER: CPU only, no lock, no disk.
cdef void produce_work(void* parked) noexcept nogil
cdef void produce_cancel(DataPlaneState* plane, void* parked) noexcept nogil
# For group.pyx: the options of the request's appends at `now_ms`, what an append of a partition has answered, and the
# rest of a request whose partitions are appended.
cdef void produce_options(DataPlaneState* plane, const ProduceState* state, int64_t now_ms,
                          AppendOptions* options) noexcept nogil
cdef void produce_appended(const ProduceState* state, ProducePartition* partition,
                           const AppendResult* result) noexcept nogil
cdef void produce_refused(ProducePartition* partition, const AppendResult* result) noexcept nogil
cdef void produce_end_appends(DataPlaneState* plane, ProduceState* state, Outcome* outcome) noexcept nogil
