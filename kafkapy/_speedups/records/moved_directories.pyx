"""Directories that are being renamed (see moved_directories.pxd)."""

from libc.errno cimport ENOENT, errno
from libc.stdint cimport int64_t
from libc.string cimport strncmp
from libcpp.string cimport string
from libcpp.vector cimport vector
from posix.fcntl cimport O_CLOEXEC, O_RDONLY, open as posix_open
from posix.unistd cimport close

from kafkapy._speedups.base.posix cimport (
    atomic_load,
    atomic_store,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_t,
    pthread_mutex_unlock,
)

cdef extern from "<fcntl.h>" nogil:
    int O_DIRECTORY
    int F_DUPFD_CLOEXEC
    int fcntl(int fd, int command, int argument)
    int openat(int directory, const char* path, int flags, int mode)

cdef cppclass MovedDirectory:
    string prefix                   # the old path and "/"
    int fd

cdef vector[MovedDirectory] directories
cdef int64_t count                  # atomic; of the above
cdef pthread_mutex_t mutex
pthread_mutex_init(&mutex, NULL)


cdef int directory_moves(const string& directory) noexcept nogil:
    global count
    cdef MovedDirectory entry
    entry.fd = posix_open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    if entry.fd < 0:
        return errno
    entry.prefix = directory + <const char*>b"/"
    pthread_mutex_lock(&mutex)
    directories.push_back(entry)
    atomic_store(&count, <int64_t>directories.size())
    pthread_mutex_unlock(&mutex)
    return 0


cdef void directory_moved(const string& directory) noexcept nogil:
    cdef string prefix = directory + <const char*>b"/"
    cdef int fd = -1
    cdef size_t i
    pthread_mutex_lock(&mutex)
    for i in range(directories.size()):
        if directories[i].prefix == prefix:
            fd = directories[i].fd
            directories[i] = directories.back()
            directories.pop_back()
            break
    atomic_store(&count, <int64_t>directories.size())
    pthread_mutex_unlock(&mutex)
    if fd >= 0:
        close(fd)


cdef int open_in_moved(const char* path, int flags, int mode) noexcept nogil:
    cdef int directory = -ENOENT
    cdef int fd
    cdef size_t i, skipped = 0
    if atomic_load(&count) == 0:
        return directory
    pthread_mutex_lock(&mutex)
    for i in range(directories.size()):
        if strncmp(path, directories[i].prefix.c_str(), directories[i].prefix.size()) == 0:
            skipped = directories[i].prefix.size()
            directory = fcntl(directories[i].fd, F_DUPFD_CLOEXEC, 0)
            if directory < 0:
                directory = -errno
            break
    pthread_mutex_unlock(&mutex)
    if directory < 0:
        return directory
    # Its disk may hang: not under the mutex.
    fd = openat(directory, path + skipped, flags, mode)
    if fd < 0:
        fd = -errno
    close(directory)
    return fd
