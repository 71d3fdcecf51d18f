"""A seeded hash for keys that clients choose.

The standard library's hash is the same in every process, so a client could send only keys of one bucket, and every
look-up would walk over all of them. Each hash object has its own seed. A container keeps the hash object of its
creation, so kernels may share containers.
"""

from libc.stdint cimport uint8_t, uint64_t

cdef extern from * nogil:
    """
    #include <stdint.h>
    #include <string.h>
    #include <sys/random.h>
    #include <atomic>
    #include <string>

    namespace kafkapy {

    static inline uint64_t folded(uint64_t a, uint64_t b) {
        unsigned __int128 product = (unsigned __int128)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }

    static inline uint64_t fresh_seed() {
        static const uint64_t base = [] {
            uint64_t drawn = 0;
            if (getrandom(&drawn, sizeof drawn, GRND_NONBLOCK) != sizeof drawn) {
                struct timespec now;
                clock_gettime(CLOCK_REALTIME, &now);
                drawn = (uint64_t)now.tv_nsec * 0x9E3779B97F4A7C15u + (uint64_t)now.tv_sec
                    + (uint64_t)(uintptr_t)&drawn;
            }
            return drawn;
        }();
        static std::atomic<uint64_t> made{0};
        uint64_t z = base + 0x9E3779B97F4A7C15u * made.fetch_add(1, std::memory_order_relaxed);
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        return z ^ z >> 31;
    }

    struct SeededHash {
        uint64_t first, second;
        SeededHash() : first(fresh_seed()), second(fresh_seed() | 1) {}
        uint64_t of(uint64_t key) const { return folded(key ^ first, second); }
        uint64_t of(const uint8_t* data, size_t size) const {
            uint64_t hash = first ^ size, word;
            for (; size >= 8; data += 8, size -= 8) {
                memcpy(&word, data, 8);
                hash = folded(hash ^ word, second);
            }
            word = 0;
            if (size) memcpy(&word, data, size);
            return folded(hash ^ word, second ^ first << 1);
        }
        /* May throw as far as the compiler knows: then containers keep the hash beside each key. */
        size_t operator()(const std::string& key) const { return of((const uint8_t*)key.data(), key.size()); }
        size_t operator()(int64_t key) const noexcept { return of((uint64_t)key); }
    };

    }
    """
    cdef cppclass SeededHash "kafkapy::SeededHash":
        SeededHash()
        uint64_t of(uint64_t key)
        uint64_t of(const uint8_t* data, size_t size)
