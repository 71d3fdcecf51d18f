"""The partitions of one request, to find repeated entries for a partition. Linear time for any names."""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.seeded_hash cimport SeededHash

cdef struct NamedPartition:
    const uint8_t* topic            # borrowed: a name, or an id
    size_t topic_size
    uint64_t hash
    int32_t index

cdef cppclass NamedPartitions:
    SeededHash seed
    vector[NamedPartition] entries
    vector[uint32_t] table          # number of an entry + 1, found by its hash; 0: free

# Starts, with the largest number of entries.
cdef void named_begin(NamedPartitions* named, size_t count) noexcept nogil
# The hash of a topic's name or id; once for all its entries.
cdef uint64_t named_topic(NamedPartitions* named, const uint8_t* topic, size_t size) noexcept nogil
# The number of the first entry for that partition, counted from 0 in the order of calls: the current entry's own number
# if it is the first.
cdef size_t named_first(NamedPartitions* named, const uint8_t* topic, size_t size, uint64_t topic_hash,
                        int32_t index) noexcept nogil
