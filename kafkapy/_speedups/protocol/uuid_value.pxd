"""uuid.UUID from and to 16 bytes (see uuid_value.pyx)."""

from libc.stdint cimport uint8_t, uint64_t


cdef object uuid_from(const uint8_t* at)
cdef int uuid_halves(object value, uint64_t* halves) except -1
