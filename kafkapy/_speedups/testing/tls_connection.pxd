"""A TLS transport for tests: each function of it, over a descriptor of the test.

A SendInTurns goes out over it turn by turn, as the Processor sends a reply.
"""

from kafkapy._speedups.base.transport cimport Transport

cdef class TlsConnection:
    cdef Transport transport
    cdef object context
