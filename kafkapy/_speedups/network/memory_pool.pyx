"""The memory pool of request frames (see memory_pool.pxd)."""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from kafkapy._speedups.base.memory_reserve cimport memory_is_short
from kafkapy._speedups.base.posix cimport (
    atomic_add,
    atomic_load,
    atomic_store,
    eventfd_write,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)

cdef enum:
    LARGE = 65536               # bytes; while memory is short, the pool lends no larger block


cdef bint pool_looked_again(MemoryPoolState* pool) noexcept nogil:
    # The flag is raised before the second look: a release between the two looks either is seen here or sees the flag.
    atomic_store(&pool.starving, 1)
    atomic_add(&pool.refused, 1)
    return atomic_load(&pool.reserved) < pool.limit


cdef bint pool_try_reserve(MemoryPoolState* pool, int64_t size) noexcept nogil:
    if not pool_available(pool):
        return False
    atomic_add(&pool.reserved, size)
    return True


cdef void pool_reserve(MemoryPoolState* pool, int64_t size) noexcept nogil:
    atomic_add(&pool.reserved, size)


cdef void pool_release(MemoryPoolState* pool, int64_t size) noexcept nogil:
    cdef size_t i
    if size == 0:
        return
    cdef int64_t left = atomic_add(&pool.reserved, -size)
    if pool.limit >= 0 and left < pool.limit and atomic_load(&pool.starving):
        atomic_store(&pool.starving, 0)
        pthread_mutex_lock(&pool.mutex)
        for i in range(pool.event_fds.size()):
            eventfd_write(pool.event_fds[i], 1)
        pthread_mutex_unlock(&pool.mutex)


cdef void pool_add_listener(MemoryPoolState* pool, int event_fd) noexcept nogil:
    pthread_mutex_lock(&pool.mutex)
    pool.event_fds.push_back(event_fd)
    pthread_mutex_unlock(&pool.mutex)


cdef void pool_remove_listener(MemoryPoolState* pool, int event_fd) noexcept nogil:
    cdef size_t i = 0
    pthread_mutex_lock(&pool.mutex)
    while i < pool.event_fds.size():
        if pool.event_fds[i] == event_fd:
            pool.event_fds[i] = pool.event_fds.back()
            pool.event_fds.pop_back()
        else:
            i += 1
    pthread_mutex_unlock(&pool.mutex)


cdef inline int size_class(size_t size) noexcept nogil:
    """Returns the smallest class that holds `size`; -1 when malloc is to serve it."""
    cdef int i = 0
    if size < POOL_SMALLEST_CLASS:
        return -1
    while i < POOL_CLASSES:
        if size <= (<size_t>POOL_SMALLEST_CLASS << i):
            return i
        i += 1
    return -1


cdef uint8_t* buffer_take(MemoryPoolState* pool, size_t size, size_t* capacity) noexcept nogil:
    cdef int which = size_class(size)
    cdef uint8_t* data = NULL
    capacity[0] = size
    if size > LARGE and memory_is_short():
        return NULL
    if which < 0:
        return <uint8_t*>malloc(size if size else 1)
    capacity[0] = <size_t>POOL_SMALLEST_CLASS << which
    pthread_mutex_lock(&pool.mutex)
    if not pool.recycled[which].empty():
        data = pool.recycled[which].back()
        pool.recycled[which].pop_back()
        pool.recycled_bytes -= capacity[0]
    pthread_mutex_unlock(&pool.mutex)
    if data == NULL:
        data = <uint8_t*>malloc(capacity[0])
    return data


cdef void buffer_give_back(MemoryPoolState* pool, uint8_t* data, size_t capacity) noexcept nogil:
    cdef int which
    if data == NULL:
        return
    which = size_class(capacity)
    if which >= 0 and capacity == <size_t>POOL_SMALLEST_CLASS << which:
        pthread_mutex_lock(&pool.mutex)
        if pool.recycled_bytes + <int64_t>capacity <= POOL_RECYCLED_LIMIT:
            pool.recycled[which].push_back(data)
            pool.recycled_bytes += capacity
            data = NULL
        pthread_mutex_unlock(&pool.mutex)
    free(data)


cdef uint8_t* buffer_grow(MemoryPoolState* pool, uint8_t* data, size_t used, size_t size,
                          size_t* capacity) noexcept nogil:
    cdef size_t larger
    cdef uint8_t* grown
    if size <= capacity[0]:
        return data
    if size_class(size) < 0 and size_class(capacity[0]) < 0:
        grown = <uint8_t*>realloc(data, size)   # for large blocks the kernel moves pages and copies no bytes
        if grown != NULL:
            capacity[0] = size
        return grown
    grown = buffer_take(pool, size, &larger)
    if grown == NULL:
        return NULL
    memcpy(grown, data, used)
    buffer_give_back(pool, data, capacity[0])
    capacity[0] = larger
    return grown


cdef class MemoryPool:
    """Owns the bound. The SocketServer creates it, every Processor uses it, Python reads the figures."""

    def __cinit__(self, int64_t limit=-1):
        self.state = new MemoryPoolState()
        self.state.limit = limit if limit > 0 else -1
        pthread_mutex_init(&self.state.mutex, NULL)

    def __dealloc__(self):
        cdef int i
        cdef size_t k
        if self.state != NULL:
            for i in range(POOL_CLASSES):
                for k in range(self.state.recycled[i].size()):
                    free(self.state.recycled[i][k])
            pthread_mutex_destroy(&self.state.mutex)
            del self.state

    @property
    def limit(self):
        """Bytes; -1 when unlimited."""
        return self.state.limit

    @property
    def used(self):
        """Bytes reserved by frames in reception or in work."""
        return atomic_load(&self.state.reserved)

    @property
    def free(self):
        """Free bytes; -1 when unlimited. Never below 0, though one frame per connection may exceed the pool."""
        if self.state.limit < 0:
            return -1
        return max(0, self.state.limit - atomic_load(&self.state.reserved))

    @property
    def refused(self):
        """How many times a connection had to wait for memory."""
        return atomic_load(&self.state.refused)

    @property
    def recycled(self):
        """Bytes of idle buffers kept for reuse."""
        cdef int64_t recycled
        pthread_mutex_lock(&self.state.mutex)
        recycled = self.state.recycled_bytes
        pthread_mutex_unlock(&self.state.mutex)
        return recycled

    def try_reserve(self, int64_t size):
        """Reserves memory as a starting frame does; False when the pool is exhausted."""
        if size < 0:
            raise ValueError(f"a reservation cannot be negative: {size}")
        return pool_try_reserve(self.state, size)

    def release(self, int64_t size):
        """Returns a reservation."""
        if size < 0:
            raise ValueError(f"a reservation cannot be negative: {size}")
        pool_release(self.state, size)
