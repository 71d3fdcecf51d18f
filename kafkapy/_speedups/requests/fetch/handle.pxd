"""Fetch (api key 1): served versions 0 to 18.

The data plane does all but the conversion of records in versions 0 to 3. requests/data_plane.pxd holds the contract
with the Processor.
"""

from kafkapy._speedups.requests.data_plane cimport DataPlaneState, Frame, Outcome

cdef void fetch_handle(DataPlaneState* plane, Frame* frame, Outcome* outcome) noexcept nogil
cdef void fetch_resume(DataPlaneState* plane, void* parked, bint timed_out, Outcome* outcome) noexcept nogil
cdef void fetch_cancel(DataPlaneState* plane, void* parked) noexcept nogil
# Frees LeftMemory.fetch; NULL does nothing.
cdef void fetch_forget_kept(void* kept) noexcept nogil
