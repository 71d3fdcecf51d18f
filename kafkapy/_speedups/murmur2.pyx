"""murmur2 with Kafka's seed (org.apache.kafka.common.utils.Utils.murmur2): 32 bits, four bytes at a time, little-endian.

A key's partition is the hash without its sign bit, modulo the number of partitions.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.string cimport memcpy

cdef enum:
    SEED = 0x9747B28C
    M = 0x5BD1E995
    R = 24
    POSITIVE = 0x7FFFFFFF


cdef uint32_t murmur2_of(const uint8_t* data, Py_ssize_t size) noexcept nogil:
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


cdef int32_t partition_of_key(const uint8_t* key, Py_ssize_t size, int32_t count) noexcept nogil:
    return <int32_t>((murmur2_of(key, size) & <uint32_t>POSITIVE) % <uint32_t>count)


def murmur2(data):
    """The hash of any contiguous bytes-like object, 0 to 2**32 - 1."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return murmur2_of(<const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


def partition_for_key(key, int32_t count):
    """The partition (0 to count - 1) of a serialized key. ValueError when there are no partitions."""
    cdef Py_buffer view
    if count < 1:
        raise ValueError(f"there is no partition among {count}")
    PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
    try:
        return partition_of_key(<const uint8_t*>view.buf, view.len, count)
    finally:
        PyBuffer_Release(&view)
