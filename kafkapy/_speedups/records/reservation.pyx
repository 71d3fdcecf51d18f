"""Disk space ahead of appends (see reservation.pxd)."""

from libc.errno cimport ENOSYS, EOPNOTSUPP
from libc.stdint cimport INT64_MAX, int64_t

from kafkapy._speedups.base.posix cimport atomic_load, atomic_store
from kafkapy._speedups.records.file_records cimport file_truncate

cdef extern from * nogil:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <linux/falloc.h>
    #include <linux/magic.h>
    #include <sys/stat.h>
    #include <sys/vfs.h>
    #ifndef XFS_SUPER_MAGIC
    #define XFS_SUPER_MAGIC 0x58465342
    #endif
    /* The free bytes of a file system on which reserving pays; 0 while they are less than a twentieth of all. Or -1. */
    static inline int64_t kp_free_space(int fd, int anywhere) {
        struct statfs s;
        if (fstatfs(fd, &s) || (!anywhere && s.f_type != EXT4_SUPER_MAGIC && s.f_type != XFS_SUPER_MAGIC))
            return -1;
        return !anywhere && s.f_bavail < s.f_blocks / 20 ? 0 : (int64_t)s.f_bavail * (int64_t)s.f_bsize;
    }
    static inline int kp_reserve(int fd, int64_t position, int64_t size) {
        return fallocate(fd, FALLOC_FL_KEEP_SIZE, position, size) ? errno : 0;
    }
    static inline int64_t kp_space(int fd) {
        struct stat s;
        return fstat(fd, &s) ? -1 : (int64_t)s.st_blocks * 512;
    }
    """
    int64_t kp_free_space(int fd, bint anywhere)
    int kp_reserve(int fd, int64_t position, int64_t size)
    int64_t kp_space(int fd)

cdef enum:
    # Blocks that a file system uses for the file's map count too.
    SPACE_OF_THE_MAP = 1 << 18

cdef struct Rules:
    int64_t most                # atomic, as the others; bytes ahead, 0: none
    int64_t start
    int64_t least_free
    int64_t anywhere            # on each file system

cdef Rules rules
rules.most = 0
rules.start = RESERVE_FROM
rules.least_free = RESERVE_FREE
rules.anywhere = 0


cdef void reservation_init(Reservation* reservation) noexcept nogil:
    reservation.end = atomic_load(&rules.start)
    reservation.holds = False


cdef void reserve_ahead(Reservation* reservation, int fd, int64_t position, int64_t size) noexcept nogil:
    cdef int64_t ahead = min(atomic_load(&rules.most), position + size), free = -1
    cdef int failure
    if ahead > 0:
        free = kp_free_space(fd, atomic_load(&rules.anywhere) != 0)
    if free < 0:
        reservation.end = INT64_MAX
        return
    reservation.end = position + size + ahead
    if free < atomic_load(&rules.least_free) + size + ahead:
        return
    failure = kp_reserve(fd, position, size + ahead)
    if failure == EOPNOTSUPP or failure == ENOSYS:
        reservation.end = INT64_MAX
    else:
        # One that fails may have reserved a part.
        reservation.holds = True


cdef int release_ahead(Reservation* reservation, int fd, int64_t size) noexcept nogil:
    cdef int failure
    if not reservation.holds:
        return 0
    failure = file_truncate(fd, size)
    if failure == 0:
        reservation_init(reservation)
        reservation.end = max(reservation.end, size + min(atomic_load(&rules.start), <int64_t>RESERVE_AGAIN))
    return failure


cdef void give_back(int fd, int64_t size) noexcept nogil:
    if kp_space(fd) > size + SPACE_OF_THE_MAP and kp_free_space(fd, atomic_load(&rules.anywhere) != 0) >= 0:
        file_truncate(fd, size)


def set_reservation(int64_t most, *, int64_t start=RESERVE_FROM, int64_t least_free=RESERVE_FREE, bint anywhere=False):
    """Sets how many bytes a file reserves ahead at most, 0 for none; from which size on, and how many bytes of the file
    system stay free. `anywhere`: on each file system. Segments that have met 0 reserve nothing any more."""
    atomic_store(&rules.start, start)
    atomic_store(&rules.least_free, least_free)
    atomic_store(&rules.anywhere, anywhere)
    atomic_store(&rules.most, most)


def most_reserved():
    """The most bytes that a file reserves ahead; 0: none."""
    return atomic_load(&rules.most)
