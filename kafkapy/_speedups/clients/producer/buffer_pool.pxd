"""The memory of a producer's unsent records, bounded by buffer.memory.

Source: org.apache.kafka.clients.producer.internals.BufferPool. Buffers of the usual size (batch.size) are kept for the
next batch; others go back to the allocator. Everything here is done under the GIL, by the threads that send and by the
loop's thread; nothing calls Python.
"""

from libc.stdint cimport int64_t, uint8_t
from libcpp.vector cimport vector


cdef class BufferPool:
    cdef readonly int64_t total         # buffer.memory, in bytes
    cdef readonly int64_t available     # bytes that are not lent; below zero after a batch was split in a full pool
    cdef readonly int64_t buffer_size   # batch.size: what is kept for the next batch
    cdef public int waiting             # threads that wait for room
    cdef vector[uint8_t*] kept
    cdef public unsigned long loop_thread   # ident of the thread that completes the batches, on which nothing may wait
                                            # for them; 0: not known
    # A buffer, or NULL: there is no room, in the pool or in the machine. `forced` takes it whatever the pool holds.
    cdef uint8_t* allocate(self, int64_t size, bint forced) noexcept
    cdef void release(self, uint8_t* data, int64_t size) noexcept
    # Buffers of another size are kept from now on, those that were kept given up.
    cdef void resize(self, int64_t buffer_size) noexcept
