"""The cleaner's map from key to the last offset of that key, in bounded memory (kafka.log.SkimpyOffsetMap).

The map holds a 128-bit hash of each key, not the key: a slot has 24 bytes, so 128 MiB at a load factor of 0.9 hold 5
million keys. The hash is SipHash-2-4 with a random key per map. Kafka uses MD5, for which anybody can make two keys
with one hash: the cleaner then drops the record of one of them.

Open addressing with linear probing; entries are never removed, only the whole map is cleared. One cleaner thread at a
time uses a map.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef struct OffsetSlot:
    uint64_t low
    uint64_t high
    int64_t above                   # offset + 1; 0: empty

cdef cppclass OffsetMapState:
    OffsetSlot* slots
    int64_t capacity                # slots in use for this round
    int64_t max_capacity            # slots within the memory limit
    double load_factor
    int64_t limit                   # entries this round may hold
    int64_t entries
    int64_t latest_offset           # the map covers all offsets up to here; -1: none
    uint64_t key0
    uint64_t key1

# Empties the map and sizes it for `records` keys, within the memory limit. 0 or ENOMEM.
cdef int offset_map_reset(OffsetMapState* map, int64_t records) noexcept nogil
# False when the key is new and the map is full.
cdef bint offset_map_put(OffsetMapState* map, const uint8_t* key, int64_t size, int64_t offset) noexcept nogil
# The last offset put for the key, -1 when there is none.
cdef int64_t offset_map_get(OffsetMapState* map, const uint8_t* key, int64_t size) noexcept nogil

cdef class OffsetMap:
    cdef OffsetMapState* state
