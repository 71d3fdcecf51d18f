"""murmur2, the hash by which Kafka's producers choose a record's partition.

Inline: hashing a key takes less time than a call.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcpy

cdef enum:
    SEED = 0x9747B28C
    M = 0x5BD1E995
    R = 24
    POSITIVE = 0x7FFFFFFF


cdef inline uint32_t murmur2_of(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t h = <uint32_t>SEED ^ <uint32_t>size
    cdef uint32_t k
    cdef Py_ssize_t left = size
    while left >= 4:
        memcpy(&k, data, 4)         # the machines this is built for are little-endian, as the hash is
        k *= <uint32_t>M
        k ^= k >> R
        k *= <uint32_t>M
        h *= <uint32_t>M
        h ^= k
        data += 4
        left -= 4
    if left == 3:
        h ^= <uint32_t>data[2] << 16
    if left >= 2:
        h ^= <uint32_t>data[1] << 8
    if left >= 1:
        h ^= data[0]
        h *= <uint32_t>M
    h ^= h >> 13
    h *= <uint32_t>M
    h ^= h >> 15
    return h


cdef inline int32_t partition_of_key(const uint8_t* key, Py_ssize_t size, int32_t count) noexcept nogil:
    """The partition of a key among `count` (at least 1) partitions, as every Kafka client with murmur2 chooses it."""
    return <int32_t>((murmur2_of(key, size) & <uint32_t>POSITIVE) % <uint32_t>count)
