"""Disk space that a segment's file holds ahead of its appends.

A write into blocks that the file has already costs the file system less than one for which it has to find them. From
RESERVE_FROM bytes on, a write that meets the end of the reserved space reserves more: as much as the file has, and at
most the limit (kafkapy.log.reserve.bytes). The file keeps its size, so no reader and no recovery sees the space. Only
on ext4 and XFS: on others it saves nothing. Nothing is reserved while less than RESERVE_FREE bytes are free.
"""

from libc.stdint cimport int64_t

cdef enum:
    RESERVE_FROM = 1 << 20          # bytes of a file
    RESERVE_FREE = 1 << 30          # bytes of the file system

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
# Whether the file has much more space than its size needs.
cdef bint has_space_ahead(int fd, int64_t size) noexcept nogil
