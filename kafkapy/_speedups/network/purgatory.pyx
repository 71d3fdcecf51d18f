"""The deadline heap of delayed operations (see purgatory.pxd)."""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free


cdef inline void put(PurgatoryState* p, size_t place, PurgatoryEntry* entry) noexcept nogil:
    p.heap[place] = entry
    entry.place = place + 1


cdef void sift_up(PurgatoryState* p, size_t place) noexcept nogil:
    cdef PurgatoryEntry* entry = p.heap[place]
    cdef size_t parent
    while place > 0:
        parent = (place - 1) // 2
        if p.heap[parent].deadline_ns <= entry.deadline_ns:
            break
        put(p, place, p.heap[parent])
        place = parent
    put(p, place, entry)


cdef void sift_down(PurgatoryState* p, size_t place) noexcept nogil:
    cdef PurgatoryEntry* entry = p.heap[place]
    cdef size_t child
    cdef size_t count = p.heap.size()
    while True:
        child = 2 * place + 1
        if child >= count:
            break
        if child + 1 < count and p.heap[child + 1].deadline_ns < p.heap[child].deadline_ns:
            child += 1
        if entry.deadline_ns <= p.heap[child].deadline_ns:
            break
        put(p, place, p.heap[child])
        place = child
    put(p, place, entry)


cdef void purgatory_add(PurgatoryState* p, PurgatoryEntry* entry, int64_t deadline_ns) noexcept nogil:
    """Adds an entry; an entry in the heap gets the new deadline."""
    purgatory_remove(p, entry)
    entry.deadline_ns = deadline_ns
    p.heap.push_back(entry)
    sift_up(p, p.heap.size() - 1)


cdef void purgatory_remove(PurgatoryState* p, PurgatoryEntry* entry) noexcept nogil:
    cdef size_t place
    cdef PurgatoryEntry* last
    if entry.place == 0:
        return
    place = entry.place - 1
    entry.place = 0
    last = p.heap.back()
    p.heap.pop_back()
    if last != entry:
        put(p, place, last)
        sift_up(p, place)
        sift_down(p, last.place - 1)


cdef class Purgatory:
    """The same heap for tests and Python callers: token to deadline. Single-threaded."""

    def __cinit__(self):
        self.state = new PurgatoryState()
        self.entries = {}

    def __dealloc__(self):
        cdef size_t i
        if self.state != NULL:
            for i in range(self.state.heap.size()):
                free(self.state.heap[i])
            del self.state

    def __len__(self):
        return self.state.heap.size()

    def add(self, uint64_t token, int64_t deadline_ns):
        """Adds the token, or moves its deadline."""
        cdef PurgatoryEntry* entry
        if token in self.entries:
            entry = <PurgatoryEntry*><size_t>self.entries[token]
        else:
            entry = <PurgatoryEntry*>calloc(1, sizeof(PurgatoryEntry))
            if entry == NULL:
                raise MemoryError
            entry.token = token
            self.entries[token] = <size_t>entry
        purgatory_add(self.state, entry, deadline_ns)

    def remove(self, uint64_t token):
        """Takes the token out; KeyError when it is absent."""
        cdef PurgatoryEntry* entry = <PurgatoryEntry*><size_t>self.entries.pop(token)
        purgatory_remove(self.state, entry)
        free(entry)

    def pop_expired(self, int64_t now_ns):
        """The token with the earliest deadline, if that is not after now_ns, else None."""
        cdef PurgatoryEntry* entry = purgatory_pop_expired(self.state, now_ns)
        if entry == NULL:
            return None
        cdef uint64_t token = entry.token
        del self.entries[token]
        free(entry)
        return token

    def next_deadline(self):
        """The earliest deadline, monotonic ns; None when the heap is empty."""
        return None if self.state.heap.empty() else purgatory_next_deadline(self.state)
