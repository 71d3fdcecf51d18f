"""The reserve of memory and its use (see memory_reserve.pxd)."""

from libc.stdint cimport int64_t

cdef extern from * nogil:
    """
    #include <atomic>
    #include <errno.h>
    #include <new>
    #include <stdint.h>
    #include <sys/mman.h>
    #include <time.h>

    namespace {

    const size_t kp_reserve_bytes = 8u << 20;
    const int64_t kp_patience_ns = 60000000000LL;
    std::atomic<void*> kp_reserve(nullptr);
    std::atomic<int64_t> kp_taken(0);
    std::atomic<int64_t> kp_waits(0);
    std::atomic<int> kp_installed(0);

    void* kp_map(size_t size) {
        // Not malloc: what it learns from large blocks that are freed would change how it serves all others.
        void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return at == MAP_FAILED ? nullptr : at;
    }

    int64_t kp_now() {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (int64_t)t.tv_sec * 1000000000LL + t.tv_nsec;
    }

    // Shared by all threads: a thread-local would be allocated at its first use, and glibc ends the process when that
    // fails.
    std::atomic<int64_t> kp_since(0);
    std::atomic<int64_t> kp_last(0);

    // Called by operator new, which tries again when this returns.
    void kp_out_of_memory() {
        void* held = kp_reserve.exchange(nullptr);
        if (held) {
            kp_taken++;
            munmap(held, kp_reserve_bytes);
            return;
        }
        int64_t now = kp_now();
        if (now - kp_last.exchange(now) > 1000000000LL) kp_since = now;
        if (now - kp_since > kp_patience_ns) throw std::bad_alloc();
        kp_waits++;
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, nullptr);
    }

    }

    static int kp_memory_for(size_t size) {
        void* at = kp_map(size);
        if (!at) return 0;
        munmap(at, size);
        return 1;
    }

    static int kp_memory_is_short() {
        if (kp_reserve.load(std::memory_order_relaxed) || !kp_installed.load(std::memory_order_relaxed)) return 0;
        void* fresh = kp_map(kp_reserve_bytes), *none = nullptr;
        if (!fresh) return 1;
        if (!kp_reserve.compare_exchange_strong(none, fresh)) munmap(fresh, kp_reserve_bytes);
        return 0;
    }

    static void kp_install() {
        kp_installed = 1;
        kp_memory_is_short();
        std::set_new_handler(kp_out_of_memory);
    }
    """
    bint kp_memory_for(size_t size)
    bint kp_memory_is_short()
    void kp_install()
    int64_t taken "kp_taken.load"()
    int64_t waits "kp_waits.load"()


cdef bint memory_for(size_t size) noexcept nogil:
    return kp_memory_for(size)


cdef bint memory_is_short() noexcept nogil:
    return kp_memory_is_short()


def install():
    """Makes the kernels' own allocations survive a lack of memory, for the rest of this process."""
    kp_install()


def is_short():
    """Whether the reserve is gone. Tries to take it again first."""
    return kp_memory_is_short()


def counters():
    """{"taken", "waits"}: how often the process returned the reserve to the system, and how often an allocation had
    to wait after that."""
    return {"taken": taken(), "waits": waits()}
