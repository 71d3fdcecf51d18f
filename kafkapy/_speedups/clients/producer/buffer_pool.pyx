"""The bounded memory of a producer (see buffer_pool.pxd)."""

from libc.stdlib cimport free, malloc


cdef class BufferPool:
    """Lends buffers of at most `total` bytes at a time. ValueError for sizes that are not positive."""

    def __cinit__(self, int64_t total, int64_t buffer_size):
        if total < 1 or buffer_size < 1:
            raise ValueError(f"a pool of {total} bytes in buffers of {buffer_size} cannot be")
        self.total = total
        self.available = total
        self.buffer_size = buffer_size
        self.waiting = 0

    def __dealloc__(self):
        self.resize(self.buffer_size)

    cdef void resize(self, int64_t buffer_size) noexcept:
        cdef size_t i
        for i in range(self.kept.size()):
            free(self.kept[i])
        self.kept.clear()
        self.buffer_size = buffer_size

    cdef uint8_t* allocate(self, int64_t size, bint forced) noexcept:
        cdef uint8_t* data
        if size > self.available and not forced:
            return NULL
        if size == self.buffer_size and self.kept.size():
            data = self.kept.back()
            self.kept.pop_back()
        else:
            data = <uint8_t*>malloc(<size_t>size)
            if data == NULL:
                return NULL
        self.available -= size
        return data

    cdef void release(self, uint8_t* data, int64_t size) noexcept:
        self.available += size
        # Kept buffers count as available, so together with lent ones they never exceed the total.
        if size == self.buffer_size and <int64_t>(self.kept.size() + 1) * size <= self.available:
            self.kept.push_back(data)
        else:
            free(data)

    @property
    def kept_bytes(self):
        """Bytes of the idle buffers kept for the next batch; they count as available."""
        return <int64_t>self.kept.size() * self.buffer_size
