"""SO_RCVLOWAT: the received bytes from which a socket counts as readable."""

cdef extern from "<sys/socket.h>" nogil:
    int SOL_SOCKET, SO_RCVBUF, SO_RCVLOWAT
    int getsockopt(int fd, int level, int name, void* value, unsigned int* size)
    int setsockopt(int fd, int level, int name, const void* value, unsigned int size)

cdef enum:
    LOW_WATER_ROOM = 4


cdef inline void set_low_water(int fd, int count) noexcept nogil:
    """Sets SO_RCVLOWAT, to less where the receive buffer may be too small: the kernel would then never report the
    bytes."""
    cdef int room = 0
    cdef unsigned int size = sizeof(int)
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &count, sizeof(count))
    if count == 1:
        return
    # The kernel makes the buffer larger (Linux 4.18), unless its size was set. Packets take up to a few times their
    # bytes in it.
    getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, &size)
    if room < LOW_WATER_ROOM * count:
        count = max(room // LOW_WATER_ROOM, 1)
        setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &count, sizeof(count))
