"""murmur2, the hash that Kafka's producers choose a record's partition by."""

from libc.stdint cimport int32_t, uint8_t, uint32_t

cdef uint32_t murmur2_of(const uint8_t* data, Py_ssize_t size) noexcept nogil
# The partition of a key among `count` (at least 1) partitions: every Kafka client that hashes with murmur2 chooses the same.
cdef int32_t partition_of_key(const uint8_t* key, Py_ssize_t size, int32_t count) noexcept nogil
