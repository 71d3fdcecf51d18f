"""The cleaner's key-to-offset map (see offset_map.pxd)."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport ENOMEM
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

import os

cdef extern from * nogil:
    """
    #include <stdint.h>
    #include <string.h>
    #define KP_ROTL(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
    #define KP_SIPROUND                                             \\
        do {                                                        \\
            v0 += v1; v1 = KP_ROTL(v1, 13); v1 ^= v0; v0 = KP_ROTL(v0, 32); \\
            v2 += v3; v3 = KP_ROTL(v3, 16); v3 ^= v2;               \\
            v0 += v3; v3 = KP_ROTL(v3, 21); v3 ^= v0;               \\
            v2 += v1; v1 = KP_ROTL(v1, 17); v1 ^= v2; v2 = KP_ROTL(v2, 32); \\
        } while (0)
    /* SipHash-2-4 with 128 bits of output (Aumasson and Bernstein), for little-endian machines. */
    static inline void kp_siphash128(uint64_t k0, uint64_t k1, const uint8_t* in, size_t size, uint64_t* low,
                                      uint64_t* high) {
        uint64_t v0 = 0x736f6d6570736575ULL ^ k0, v1 = 0x646f72616e646f6dULL ^ k1 ^ 0xee;
        uint64_t v2 = 0x6c7967656e657261ULL ^ k0, v3 = 0x7465646279746573ULL ^ k1, m;
        size_t whole = size & ~(size_t)7, i;
        for (i = 0; i < whole; i += 8) {
            memcpy(&m, in + i, 8);
            v3 ^= m; KP_SIPROUND; KP_SIPROUND; v0 ^= m;
        }
        m = 0;
        if (size > whole) memcpy(&m, in + whole, size - whole);
        m |= (uint64_t)size << 56;
        v3 ^= m; KP_SIPROUND; KP_SIPROUND; v0 ^= m;
        v2 ^= 0xee;
        KP_SIPROUND; KP_SIPROUND; KP_SIPROUND; KP_SIPROUND;
        *low = v0 ^ v1 ^ v2 ^ v3;
        v1 ^= 0xdd;
        KP_SIPROUND; KP_SIPROUND; KP_SIPROUND; KP_SIPROUND;
        *high = v0 ^ v1 ^ v2 ^ v3;
    }
    static inline int64_t kp_slot_of(uint64_t hash, int64_t capacity) {
        return (int64_t)(((unsigned __int128)hash * (uint64_t)capacity) >> 64);
    }
    """
    void siphash "kp_siphash128"(uint64_t k0, uint64_t k1, const uint8_t* data, size_t size, uint64_t* low,
                                 uint64_t* high)
    int64_t slot_of "kp_slot_of"(uint64_t hash, int64_t capacity)

cdef enum:
    MIN_SLOTS = 1024
    SMALL_ENOUGH_TO_KEEP = 1 << 16      # slots; a larger table is returned to the system when it is not needed


cdef int offset_map_reset(OffsetMapState* map, int64_t records) noexcept nogil:
    cdef int64_t wanted = map.max_capacity
    cdef double slots = <double>records / map.load_factor + 1
    if slots < <double>wanted:
        wanted = <int64_t>slots
    if wanted < MIN_SLOTS:
        wanted = MIN_SLOTS
    if wanted > map.max_capacity:
        wanted = map.max_capacity
    map.entries = 0
    map.latest_offset = -1
    if map.slots != NULL and wanted == map.capacity and wanted <= SMALL_ENOUGH_TO_KEEP:
        memset(map.slots, 0, <size_t>wanted * sizeof(OffsetSlot))
    else:
        free(map.slots)
        map.capacity = 0
        map.slots = <OffsetSlot*>calloc(<size_t>wanted, sizeof(OffsetSlot))
        if map.slots == NULL:
            return ENOMEM
        map.capacity = wanted
    map.limit = <int64_t>(<double>wanted * map.load_factor)
    return 0


cdef OffsetSlot* find_slot(OffsetMapState* map, const uint8_t* key, int64_t size, uint64_t* low,
                           uint64_t* high) noexcept nogil:
    """Returns the key's slot, or the empty slot where it belongs. One slot is always empty: the load factor is below
    1."""
    cdef int64_t at
    siphash(map.key0, map.key1, key, <size_t>size, low, high)
    at = slot_of(low[0], map.capacity)
    while map.slots[at].above != 0 and (map.slots[at].low != low[0] or map.slots[at].high != high[0]):
        at += 1
        if at == map.capacity:
            at = 0
    return &map.slots[at]


cdef bint offset_map_put(OffsetMapState* map, const uint8_t* key, int64_t size, int64_t offset) noexcept nogil:
    cdef uint64_t low, high
    cdef OffsetSlot* slot
    if map.slots == NULL:
        return False
    slot = find_slot(map, key, size, &low, &high)
    if slot.above == 0:
        if map.entries >= map.limit:
            return False
        map.entries += 1
        slot.low = low
        slot.high = high
    slot.above = offset + 1
    return True


cdef int64_t offset_map_get(OffsetMapState* map, const uint8_t* key, int64_t size) noexcept nogil:
    cdef uint64_t low, high
    if map.slots == NULL:
        return -1
    return find_slot(map, key, size, &low, &high).above - 1


cdef class OffsetMap:
    """The map of one cleaner thread, which reuses it for every log. Owns its memory; never exceeds `memory_bytes`."""

    def __cinit__(self, int64_t memory_bytes, double load_factor=0.9):
        cdef bytes secret = os.urandom(16)
        if not 0 < load_factor < 1:
            raise ValueError(f"a load factor is between 0 and 1, not {load_factor}")
        if memory_bytes < <int64_t>(2 * sizeof(OffsetSlot)):
            raise ValueError(f"{memory_bytes} bytes hold no entry")
        self.state = new OffsetMapState()
        self.state.slots = NULL
        self.state.capacity = 0
        self.state.max_capacity = memory_bytes // <int64_t>sizeof(OffsetSlot)
        self.state.load_factor = load_factor
        self.state.limit = 0
        self.state.entries = 0
        self.state.latest_offset = -1
        memcpy(&self.state.key0, <const char*>secret, 8)
        memcpy(&self.state.key1, <const char*>secret + 8, 8)

    def __init__(self, memory_bytes, load_factor=0.9):
        pass

    def __dealloc__(self):
        if self.state != NULL:
            free(self.state.slots)
            del self.state

    @property
    def max_entries(self):
        """Keys that fit when all the memory is used."""
        return <int64_t>(<double>self.state.max_capacity * self.state.load_factor)

    @property
    def latest_offset(self):
        """The offset up to which the map is complete."""
        return self.state.latest_offset

    @property
    def memory_bytes(self):
        """Bytes that the table has now."""
        return self.state.capacity * <int64_t>sizeof(OffsetSlot)

    def reset(self, int64_t records=0x7FFFFFFFFFFFFFFF):
        """Empties the map and sizes it for at most `records` keys. MemoryError."""
        if offset_map_reset(self.state, records):
            raise MemoryError

    def put(self, key, int64_t offset):
        """Stores the key's last offset; False when the key is new and the map is full (or was never reset)."""
        cdef Py_buffer view
        PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
        try:
            return bool(offset_map_put(self.state, <const uint8_t*>view.buf, view.len, offset))
        finally:
            PyBuffer_Release(&view)

    def get(self, key):
        """The key's last offset, or -1 without one."""
        cdef Py_buffer view
        PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
        try:
            return offset_map_get(self.state, <const uint8_t*>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    def __len__(self):
        return self.state.entries


def siphash128(bytes key, data):
    """SipHash-2-4 of 128 bits under a 16-byte key: the function, for its test vectors. ValueError for another key
    size."""
    cdef uint64_t k[2]
    cdef uint64_t out[2]
    cdef Py_buffer view
    if len(key) != 16:
        raise ValueError(f"the key has 16 bytes, not {len(key)}")
    memcpy(k, <const char*>key, 16)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    siphash(k[0], k[1], <const uint8_t*>view.buf, <size_t>view.len, &out[0], &out[1])
    PyBuffer_Release(&view)
    return (<const char*>out)[:16]
