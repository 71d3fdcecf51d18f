"""The data plane when the system has no memory left: it stays alive and accepts less work.

    small allocations       A failed allocation of a container or an object would throw std::bad_alloc through functions
                            that cannot pass it on, and end the process. Instead the process returns a reserve of
                            address space to the system and tries again, then waits for memory that others free, for a
                            minute at most.
    large allocations       A client's numbers decide their size (frames, arrays of a request, replies): has_room and
                            malloc ask first, and without memory the connection is closed.
    no reserve left         memory_is_short: the broker reads no large frame, so that the remaining memory lasts until
                            the process has its reserve again.

Only the broker calls `install`: in a client's process std::bad_alloc stays the program's own affair.
"""

from libc.stdint cimport int64_t

cdef enum:
    ROOM_FROM = 1024                # elements; fewer are small
    ROOM_BYTES = 1024               # memory of one element of a request until its answer

# Whether the system has that many bytes now. A system call; allocates nothing.
cdef bint memory_for(size_t size) noexcept nogil
# Whether the reserve is gone and the system cannot give it back yet. Cheap while the reserve is there.
cdef bint memory_is_short() noexcept nogil


cdef inline bint has_room(size_t have, size_t more) noexcept nogil:
    """Whether memory for `have` + `more` elements is there. Asks the system when the number passes a power of two."""
    cdef size_t total = have + more
    if total < ROOM_FROM or (have >= ROOM_FROM and (have ^ total) < (have & total)):
        return True
    return memory_for(total * 2 * ROOM_BYTES)
