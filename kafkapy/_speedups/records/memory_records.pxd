"""Record batches for Python: views and decoding (see memory_records.pyx)."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkapy._speedups.records.record_batch cimport BatchHeader


cdef class Source:
    cdef Py_buffer view


cdef class Record:
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef readonly int timestamp_type
    cdef readonly object key
    cdef readonly object value
    cdef int32_t header_count
    cdef bytes raw_headers
    cdef tuple decoded_headers


cdef class BatchView:
    cdef Source source
    cdef const uint8_t* data
    cdef BatchHeader header
    cdef readonly Py_ssize_t position
    cdef list decode_from(self, const uint8_t* payload, Py_ssize_t size)


cdef class BatchIterator:
    cdef Source source
    cdef readonly Py_ssize_t position
    cdef bint check_crc
