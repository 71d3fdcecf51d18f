"""The data plane's system calls and primitives that Cython's own libc and posix packages lack."""

from libc.errno cimport EAGAIN, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM, errno
from libc.stdint cimport int64_t, uint8_t, uint64_t
from posix.unistd cimport pread

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    ctypedef struct pthread_rwlock_t:
        pass
    int pthread_mutex_init(pthread_mutex_t*, const void*)
    int pthread_mutex_destroy(pthread_mutex_t*)
    int pthread_mutex_lock(pthread_mutex_t*)
    int pthread_mutex_trylock(pthread_mutex_t*)
    int pthread_mutex_unlock(pthread_mutex_t*)
    int pthread_cond_init(pthread_cond_t*, const void*)
    int pthread_cond_destroy(pthread_cond_t*)
    int pthread_cond_wait(pthread_cond_t*, pthread_mutex_t*)
    int pthread_cond_signal(pthread_cond_t*)
    int pthread_cond_broadcast(pthread_cond_t*)
    int pthread_rwlock_destroy(pthread_rwlock_t*)
    int pthread_rwlock_rdlock(pthread_rwlock_t*)
    int pthread_rwlock_wrlock(pthread_rwlock_t*)
    int pthread_rwlock_unlock(pthread_rwlock_t*)

cdef extern from "<pthread.h>" nogil:
    """
    /* glibc lets readers pass a writer that waits: on a busy broker the control plane would wait for ever. This lock
       prefers writers, so no thread may lock it twice for reading; every reader here leaves before it locks anything
       else. */
    static inline int kp_rwlock_init(pthread_rwlock_t* lock) {
        pthread_rwlockattr_t attributes;
        pthread_rwlockattr_init(&attributes);
        pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
        int failure = pthread_rwlock_init(lock, &attributes);
        pthread_rwlockattr_destroy(&attributes);
        return failure;
    }
    """
    int rwlock_init "kp_rwlock_init"(pthread_rwlock_t*)

cdef extern from "<sys/eventfd.h>" nogil:
    int EFD_NONBLOCK, EFD_CLOEXEC
    int eventfd(unsigned int initval, int flags)
    int eventfd_read(int fd, uint64_t* value)
    int eventfd_write(int fd, uint64_t value)

cdef extern from "<sys/sendfile.h>" nogil:
    ssize_t sendfile(int out_fd, int in_fd, int64_t* offset, size_t count)

cdef extern from * nogil:
    """
    #include <sys/epoll.h>
    #include <sys/socket.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    /* Those of libc are cancellation points, at two locked instructions a call; no thread here is ever cancelled. */
    static inline ssize_t kp_recv(int fd, void* into, size_t size, int flags) {
        return syscall(SYS_recvfrom, fd, into, size, flags, NULL, NULL);
    }
    static inline ssize_t kp_send(int fd, const void* data, size_t size, int flags) {
        return syscall(SYS_sendto, fd, data, size, flags, NULL, 0);
    }
    static inline int kp_epoll_wait(int epoll_fd, void* events, int count, int timeout_ms) {
        return (int)syscall(SYS_epoll_pwait, epoll_fd, events, count, timeout_ms, NULL, 8);
    }
    """
    ssize_t recv "kp_recv"(int fd, void* into, size_t size, int flags)
    ssize_t send "kp_send"(int fd, const void* data, size_t size, int flags)
    int epoll_wait "kp_epoll_wait"(int epoll_fd, void* events, int count, int timeout_ms)

cdef extern from "<time.h>" nogil:
    """
    #include <stdint.h>
    static inline int64_t kp_clock_ns(clockid_t clock) {
        struct timespec t;
        clock_gettime(clock, &t);
        return (int64_t)t.tv_sec * 1000000000LL + t.tv_nsec;
    }
    #include <pthread.h>
    static inline int kp_cond_wait_until(pthread_cond_t* cond, pthread_mutex_t* mutex, int64_t until_ns) {
        struct timespec t = { until_ns / 1000000000LL, until_ns % 1000000000LL };
        return pthread_cond_clockwait(cond, mutex, CLOCK_MONOTONIC, &t) == 0;
    }
    static inline int64_t kp_monotonic_ns(void) { return kp_clock_ns(CLOCK_MONOTONIC); }
    static inline int64_t kp_wall_ms(void) { return kp_clock_ns(CLOCK_REALTIME) / 1000000; }
    """
    int64_t monotonic_ns "kp_monotonic_ns"()
    # False after the deadline (monotonic clock).
    bint cond_wait_until "kp_cond_wait_until"(pthread_cond_t* cond, pthread_mutex_t* mutex, int64_t until_ns)
    int64_t wall_clock_ms "kp_wall_ms"()

cdef extern from * nogil:
    """
    #include <stdint.h>
    static inline int64_t kp_atomic_add(int64_t* p, int64_t n) { return __atomic_add_fetch(p, n, __ATOMIC_ACQ_REL); }
    static inline void kp_atomic_count(int64_t* p, int64_t n) { __atomic_fetch_add(p, n, __ATOMIC_RELAXED); }
    static inline void kp_atomic_count_alone(int64_t* p, int64_t n) {
        __atomic_store_n(p, __atomic_load_n(p, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
    }
    static inline int64_t kp_atomic_load(int64_t* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static inline void kp_atomic_store(int64_t* p, int64_t n) { __atomic_store_n(p, n, __ATOMIC_RELEASE); }
    """
    int64_t atomic_add "kp_atomic_add"(int64_t* p, int64_t n)      # returns the new value; acquire-release
    void atomic_count "kp_atomic_count"(int64_t* p, int64_t n)     # statistics: relaxed
    void atomic_count_alone "kp_atomic_count_alone"(int64_t* p, int64_t n)     # the same with one counting thread
    int64_t atomic_load "kp_atomic_load"(int64_t* p)
    void atomic_store "kp_atomic_store"(int64_t* p, int64_t n)

# Whether the errno means a lack of descriptors or memory, in the process or the machine. Such an error says nothing
# about the disk: try again later.
cdef inline bint is_shortage(int failure) noexcept nogil:
    return failure == EMFILE or failure == ENFILE or failure == ENOMEM or failure == EAGAIN or failure == ENOBUFS


cdef inline int64_t file_read(int fd, uint8_t* out, int64_t size, int64_t position) noexcept nogil:
    """Bytes read (fewer than size only at the end of the file), or -errno."""
    cdef int64_t done = 0
    cdef ssize_t n
    while done < size:
        n = pread(fd, out + done, <size_t>(size - done), position + done)
        if n > 0:
            done += n
        elif n == 0:
            break
        elif errno != EINTR:
            return -errno
    return done
