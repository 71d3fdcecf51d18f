"""A TLS transport for tests: every function of it, as it is."""

from kafkapy._speedups.base.transport cimport Transport

cdef class TlsConnection:
    cdef Transport transport
    cdef object context
