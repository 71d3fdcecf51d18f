"""Produce (api key 0): served versions 0 to 13, wholly in the data plane.

requests/data_plane.pxd holds the contract with the Processor.
"""

from kafkapy._speedups.requests.data_plane cimport DataPlaneState, Frame, Outcome

cdef void produce_handle(DataPlaneState* plane, Frame* frame, Outcome* outcome) noexcept nogil
cdef void produce_resume(DataPlaneState* plane, void* parked, bint timed_out, Outcome* outcome) noexcept nogil
# A worker's part of an OUTCOME_WORKER: CPU only, no lock, no disk.
cdef void produce_work(void* parked) noexcept nogil
cdef void produce_cancel(DataPlaneState* plane, void* parked) noexcept nogil
