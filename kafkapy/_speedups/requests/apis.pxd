"""The table of the APIs that the data plane serves without Python."""

from libc.stdint cimport int16_t

from kafkapy._speedups.requests.data_plane cimport DataPlaneApi, LeftMemory

# The entry of an API; NULL: Python serves it.
cdef const DataPlaneApi* data_plane_api(int16_t api_key) noexcept nogil
# Allocates the thread-local memory of these APIs when a thread starts, and not later while memory is short.
cdef void data_plane_thread_begin() noexcept nogil
# Frees the memory that requests keep for later requests of the same thread.
cdef void data_plane_forget(LeftMemory* left) noexcept nogil
