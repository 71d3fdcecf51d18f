"""ShareFetch and ShareAcknowledge (api keys 78 and 79): served versions 1 and 2.

The data plane serves them but for the reads and writes of durable state, which Python does for all requests of a turn
together (kafkapy/broker/share_manager.py). requests/data_plane.pxd holds the contract with the Processor.
"""

from kafkapy._speedups.requests.data_plane cimport DataPlaneState, Frame, Outcome

cdef void share_handle(DataPlaneState* plane, Frame* frame, Outcome* outcome) noexcept nogil
cdef void share_resume(DataPlaneState* plane, void* parked, bint timed_out, Outcome* outcome) noexcept nogil
cdef void share_cancel(DataPlaneState* plane, void* parked) noexcept nogil
