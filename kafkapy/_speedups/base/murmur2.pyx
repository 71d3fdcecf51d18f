"""murmur2 with Kafka's seed (org.apache.kafka.common.utils.Utils.murmur2): 32 bits, four bytes at a time,
little-endian.

A key's partition is the hash without its sign bit, modulo the number of partitions.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, uint8_t


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
