"""Disk space that a segment's file holds ahead of its appends.

A write into blocks that the file has already costs the file system less than one for which it has to find them. From
RESERVE_FROM bytes on, a write that meets the end of the reserved space reserves more: as much as the file has, and at
most the limit (kafkapy.log.reserve.bytes). The file keeps its size, so no reader and no recovery sees the space. Only
on ext4 and XFS: on others it saves nothing. Nothing is reserved while less than RESERVE_FREE bytes are free, or a
twentieth of the file system.
"""

from libc.stdint cimport int64_t

cdef enum:
    RESERVE_FROM = 1 << 20          # bytes of a file
    RESERVE_FREE = 1 << 30          # bytes of the file system
    RESERVE_AGAIN = 1 << 16         # bytes that a file grows by after it has given space back, before it reserves again

cdef struct Reservation:
    int64_t end                     # a write beyond reserves again; INT64_MAX: never
    bint holds                      # the file may have space beyond its size

# Of a file without space ahead.
cdef void reservation_init(Reservation* reservation) noexcept nogil
# Reserves space for `size` bytes at `position`, the file's size, and for later ones. A failure is none: writes find
# their blocks themselves.
cdef void reserve_ahead(Reservation* reservation, int fd, int64_t position, int64_t size) noexcept nogil
# Gives back what is beyond the file's size. 0 or an errno.
cdef int release_ahead(Reservation* reservation, int fd, int64_t size) noexcept nogil
# Gives back what a killed process has reserved beyond the file's size.
cdef void give_back(int fd, int64_t size) noexcept nogil
