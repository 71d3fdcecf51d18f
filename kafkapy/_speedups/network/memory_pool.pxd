"""The bound on memory of request frames (queued.max.request.bytes), and the reuse of large receive buffers.

Reservations and buffers are separate on purpose:

* A *reservation* is bookkeeping: a frame reserves its announced size when it starts, which bounds the memory that peers
  can make the broker hold. As in Kafka's SimpleMemoryPool a reservation succeeds while any byte is free, so one frame
  may exceed the pool, and a frame larger than the pool can still pass.
* A *buffer* is memory. It grows as bytes arrive, so a frame that lies about its size holds a reservation and no memory.

All Processors share the pool, which writes to the eventfd of a refused Processor when memory is free again.
"""

from libc.stdint cimport int64_t, uint8_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport atomic_load, pthread_mutex_t

cdef enum:
    POOL_SMALLEST_CLASS = 16 * 1024         # smaller buffers come from malloc
    POOL_CLASSES = 8                        # 16 KiB, 32 KiB ... 2 MiB; larger buffers come from malloc
    POOL_RECYCLED_LIMIT = 16 * 1024 * 1024  # bytes kept for reuse

cdef cppclass MemoryPoolState:
    int64_t limit               # bytes; -1: unlimited
    int64_t reserved            # atomic
    int64_t starving            # atomic; 1 after a refusal since the last wake
    int64_t refused             # atomic; number of refused reservations
    pthread_mutex_t mutex       # guards the fields below
    vector[int] event_fds       # of the Processors
    vector[uint8_t*] recycled[8]
    int64_t recycled_bytes

cdef inline bint pool_available(MemoryPoolState* pool) noexcept nogil:
    """Whether a new frame may start. If not, the pool writes the caller's eventfd once memory is free."""
    return pool.limit < 0 or atomic_load(&pool.reserved) < pool.limit or pool_looked_again(pool)


cdef bint pool_looked_again(MemoryPoolState* pool) noexcept nogil
# Reserves bytes. 0 when the pool is exhausted, which later wakes the caller through its eventfd.
cdef bint pool_try_reserve(MemoryPoolState* pool, int64_t size) noexcept nogil
# Reserves without a limit, for received bytes.
cdef void pool_reserve(MemoryPoolState* pool, int64_t size) noexcept nogil
cdef void pool_release(MemoryPoolState* pool, int64_t size) noexcept nogil
cdef void pool_add_listener(MemoryPoolState* pool, int event_fd) noexcept nogil
cdef void pool_remove_listener(MemoryPoolState* pool, int event_fd) noexcept nogil
# A buffer of at least `size` bytes, NULL when memory is out; buffer_give_back needs the capacity.
cdef uint8_t* buffer_take(MemoryPoolState* pool, size_t size, size_t* capacity) noexcept nogil
cdef void buffer_give_back(MemoryPoolState* pool, uint8_t* data, size_t capacity) noexcept nogil
# A larger buffer with the first `used` bytes kept; NULL (and the old one untouched) when memory is out.
cdef uint8_t* buffer_grow(MemoryPoolState* pool, uint8_t* data, size_t used, size_t size,
                          size_t* capacity) noexcept nogil

cdef class MemoryPool:
    cdef MemoryPoolState* state
