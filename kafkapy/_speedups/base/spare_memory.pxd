"""Large pieces of memory that responses have lain in, kept for the next ones (see spare_memory.pyx)."""

from libc.stdint cimport uint8_t

# A malloc'ed piece of at least `size` bytes and of not many times that, or NULL: there is none. Any thread.
cdef uint8_t* spare_take(size_t size) noexcept nogil
# Instead of free().
cdef void spare_give(uint8_t* data) noexcept nogil
