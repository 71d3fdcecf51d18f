"""CRC-32C (Castagnoli), the checksum of record batches, without the GIL.

Polynomial 0x1EDC6F41, reflected, initial value and final xor 0xFFFFFFFF: crc32c_of(0, "123456789", 9) == 0xE3069283.
"""

from libc.stdint cimport uint8_t, uint32_t

# The checksum of `size` bytes. `seed`: the checksum of the bytes before them, or 0 to start.
cdef uint32_t crc32c_of(uint32_t seed, const uint8_t* data, size_t size) noexcept nogil
