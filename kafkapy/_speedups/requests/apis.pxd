"""The table of the APIs that the data plane serves without Python."""

from libc.stdint cimport int16_t

from kafkapy._speedups.requests.data_plane cimport DataPlaneApi, LeftMemory

# NULL: Python serves it.
cdef const DataPlaneApi* data_plane_api(int16_t api_key) noexcept nogil
# A thread that will run these APIs begins: what it needs of its own is allocated now, and not while memory is short.
cdef void data_plane_thread_begin() noexcept nogil
# Frees what requests have left for the next ones of the same thread.
cdef void data_plane_forget(LeftMemory* left) noexcept nogil
