"""Delayed operations of one Processor: a heap of deadlines with removal of any entry.

A delayed fetch or produce completes because a partition wakes it, which removes its deadline, or because its deadline
passes. Most complete early, so entries carry their place in the heap: removal is O(log n) and leaves nothing stale
behind. Threads do not share a purgatory.
"""

from libc.stdint cimport int64_t, uint64_t
from libcpp.vector cimport vector

cdef struct PurgatoryEntry:
    int64_t deadline_ns         # monotonic
    int64_t place               # in the heap, plus one; 0: not in it
    uint64_t token

cdef cppclass PurgatoryState:
    vector[PurgatoryEntry*] heap    # borrowed entries

cdef void purgatory_add(PurgatoryState* p, PurgatoryEntry* entry, int64_t deadline_ns) noexcept nogil
cdef void purgatory_remove(PurgatoryState* p, PurgatoryEntry* entry) noexcept nogil
# Removes and returns the earliest entry if its deadline has passed; else NULL.
cdef inline PurgatoryEntry* purgatory_pop_expired(PurgatoryState* p, int64_t now_ns) noexcept nogil:
    if p.heap.empty() or p.heap[0].deadline_ns > now_ns:
        return NULL
    cdef PurgatoryEntry* entry = p.heap[0]
    purgatory_remove(p, entry)
    return entry


# The earliest deadline; -1 when nothing waits.
cdef inline int64_t purgatory_next_deadline(PurgatoryState* p) noexcept nogil:
    return -1 if p.heap.empty() else p.heap[0].deadline_ns


cdef class Purgatory:
    cdef PurgatoryState* state
    cdef dict entries
