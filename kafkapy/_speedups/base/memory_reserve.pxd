"""What the data plane does when the system has no memory left: it lives, and does less.

    small allocations       A container or an object that cannot be allocated would throw std::bad_alloc through
                            functions that cannot pass it on, and end the process. In their place a reserve of address
                            space is given back to the system, and the allocation is tried again; after that it waits
                            for memory that others free, for a minute at most.
    large ones              What a client's numbers decide (frames, arrays of a request, replies) is asked for first, by
                            has_room and by malloc, and its connection is closed when there is none.
    no reserve left         memory_is_short: no large frame is taken in, so that what is there lasts until the reserve
                            could be had again.

`install` is the broker's alone: in a client's process std::bad_alloc stays the program's own affair.
"""

from libc.stdint cimport int64_t

cdef enum:
    ROOM_FROM = 1024                # elements; fewer are small
    ROOM_BYTES = 1024               # what an element of a request takes in all, until it is answered

# Whether so many bytes can be had at this moment. A system call; takes nothing.
cdef bint memory_for(size_t size) noexcept nogil
# The reserve is gone, and cannot be had again yet. Cheap while it is there.
cdef bint memory_is_short() noexcept nogil


cdef inline bint has_room(size_t have, size_t more) noexcept nogil:
    """Before `more` elements are added to `have`: whether the memory for them all is there. Asks the system when their
    number passes a power of two."""
    cdef size_t total = have + more
    if total < ROOM_FROM or (have >= ROOM_FROM and (have ^ total) < (have & total)):
        return True
    return memory_for(total * 2 * ROOM_BYTES)
