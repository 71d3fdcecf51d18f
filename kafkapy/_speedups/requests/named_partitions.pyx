"""Repeated entries in Produce and Fetch requests (see named_partitions.pxd). No Python interface."""

from libc.string cimport memcmp


cdef void named_begin(NamedPartitions* named, size_t count) noexcept nogil:
    cdef size_t size = 16
    while size < 2 * count:
        size *= 2
    named.entries.clear()
    named.entries.reserve(count)
    named.table.assign(size, 0)


cdef uint64_t named_topic(NamedPartitions* named, const uint8_t* topic, size_t size) noexcept nogil:
    return named.seed.of(topic, size)


cdef size_t named_first(NamedPartitions* named, const uint8_t* topic, size_t size, uint64_t topic_hash,
                        int32_t index) noexcept nogil:
    cdef NamedPartition entry
    cdef NamedPartition* known
    cdef size_t mask = named.table.size() - 1
    cdef size_t number = named.entries.size()
    cdef size_t slot
    cdef bint repeated = False
    entry.topic = topic
    entry.topic_size = size
    entry.hash = named.seed.of(topic_hash + <uint32_t>index)
    entry.index = index
    slot = entry.hash & mask
    while named.table[slot]:
        known = &named.entries[named.table[slot] - 1]
        if (known.hash == entry.hash and known.index == index and known.topic_size == size
                and (known.topic == topic or memcmp(known.topic, topic, size) == 0)):
            repeated = True
            break
        slot = (slot + 1) & mask
    named.entries.push_back(entry)
    if repeated:
        return named.table[slot] - 1
    named.table[slot] = <uint32_t>(number + 1)
    return number
