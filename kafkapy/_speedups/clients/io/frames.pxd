"""Requests and responses of a client for its I/O thread: objects that encode and parse themselves without the GIL.

A request writes its own frame: int32 size, then header and body. A response gets the received frame. client_io.pxd
describes the way between them, and ownership.
"""

from libc.stdint cimport int64_t, uint8_t

from kafkapy._speedups.base.send cimport Send


cdef class RequestFrame:
    """A request to send. Made on the loop's thread; a subclass defines its bytes on the wire in `encode`."""
    cdef public int correlation_id      # set by the loop before `submit`
    # The I/O thread calls it once, without the GIL. Appends the whole frame, its 4-byte size first, to `into`. 0, or
    # minus an errno: the request fails with it unsent. The object, and memory that it lends, lives until events()
    # returns its response or its failure.
    cdef int64_t encode(self, Send* into) noexcept nogil


cdef class ResponseFrame:
    """The target of one response; a subclass parses the bytes."""
    cdef public object context          # for the caller of `submit`; unused here
    # The I/O thread calls it at most once, without the GIL. Takes over `memory` (malloc'ed: free() it in the end);
    # the frame without its size is memory[start:start + size], correlation id first. size is at least 4.
    cdef void parse(self, uint8_t* memory, int64_t start, int64_t size) noexcept nogil


cdef class BytesFrame(RequestFrame):
    """A request that Python has encoded: header and body without the size. The I/O thread puts the correlation id in at
    offset 4."""
    cdef bytes frame
    cdef const uint8_t* data            # of `frame`
    cdef int64_t size


cdef class BytesResponse(ResponseFrame):
    """A response that Python decodes: the whole frame, correlation id first. Has the buffer interface."""
    cdef uint8_t* memory
    cdef int64_t start
    cdef int64_t size

cdef enum:
    COPIED_FRAME = 16 * 1024    # bytes; a smaller BytesFrame is copied behind its size, a larger one lent
