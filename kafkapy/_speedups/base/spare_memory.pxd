"""Large pieces of memory of earlier responses, kept for the next ones (see spare_memory.pyx)."""

from libc.stdint cimport uint8_t

# A malloc'ed piece of at least `size` bytes, and not many times that; NULL: there is none. Any thread.
cdef uint8_t* spare_take(size_t size) noexcept nogil
# Keeps a malloc'ed piece for the next response, or frees it.
cdef void spare_give(uint8_t* data) noexcept nogil
