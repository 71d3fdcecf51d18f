"""The memory of a producer's unsent records, bounded by buffer.memory.

Source: org.apache.kafka.clients.producer.internals.BufferPool. The pool keeps buffers of the usual size (batch.size)
for the next batch; others go back to the allocator. Sending threads and the loop's thread use it under the GIL; it
calls no Python code.
"""

from libc.stdint cimport int64_t, uint8_t
from libcpp.vector cimport vector


cdef class BufferPool:
    cdef readonly int64_t total         # buffer.memory, in bytes
    cdef readonly int64_t available     # bytes not lent; below zero after a batch was split in a full pool
    cdef readonly int64_t buffer_size   # batch.size: the size of kept buffers
    cdef public int waiting             # threads that wait for room
    cdef vector[uint8_t*] kept
    cdef public unsigned long loop_thread   # ident of the thread that completes batches and so must not wait for one;
                                            # 0: not known
    # A buffer; NULL without room in the pool or the machine. `forced` ignores the pool's bound.
    cdef uint8_t* allocate(self, int64_t size, bint forced) noexcept
    cdef void release(self, uint8_t* data, int64_t size) noexcept
    # Changes the size of kept buffers, and frees the kept ones.
    cdef void resize(self, int64_t buffer_size) noexcept
