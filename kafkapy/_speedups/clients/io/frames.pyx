"""Frames that Python encodes and decodes, and the classes that kernels derive from (see frames.pxd)."""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport ENOMEM, ENOSYS
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free

from kafkapy._speedups.base.send cimport Send, send_lend, send_take_buffer
from kafkapy._speedups.base.wire cimport ByteBuffer, buffer_init, store_int32, write_int32, write_raw

cdef enum:
    SIZE_BYTES = 4
    CORRELATION_START = 4       # int16 api key, int16 version, int32 correlation id
    CORRELATION_END = 8


cdef class RequestFrame:
    cdef int64_t encode(self, Send* into) noexcept nogil:
        return -ENOSYS


cdef class ResponseFrame:
    cdef void parse(self, uint8_t* memory, int64_t start, int64_t size) noexcept nogil:
        free(memory)


cdef class BytesFrame(RequestFrame):
    def __init__(self, bytes frame not None):
        """frame: request header and body without the 4-byte size. ValueError for a frame shorter than a header."""
        if len(frame) < CORRELATION_END:
            raise ValueError(f"a request of {len(frame)} bytes has no header")
        self.frame = frame
        self.data = <const uint8_t*><char*>frame
        self.size = len(frame)

    cdef int64_t encode(self, Send* into) noexcept nogil:
        cdef int64_t copied = self.size if self.size <= COPIED_FRAME else CORRELATION_END
        cdef ByteBuffer head
        buffer_init(&head)
        write_int32(&head, <int32_t>self.size)
        write_raw(&head, self.data, copied)
        if head.error:
            free(head.data)
            return -ENOMEM
        store_int32(head.data + SIZE_BYTES + CORRELATION_START, self.correlation_id)
        send_take_buffer(into, &head)
        send_lend(into, self.data + copied, self.size - copied)
        return 0


cdef class BytesResponse(ResponseFrame):
    def __dealloc__(self):
        free(self.memory)

    cdef void parse(self, uint8_t* memory, int64_t start, int64_t size) noexcept nogil:
        self.memory = memory
        self.start = start
        self.size = size

    def __getbuffer__(self, Py_buffer* view, int flags):
        if self.memory == NULL:
            raise BufferError("there is no response yet")
        PyBuffer_FillInfo(view, self, self.memory + self.start, self.size, 1, flags)

    @property
    def frame(self):
        """The frame without its size, as a memoryview that keeps this object: the int32 correlation id comes first."""
        return memoryview(self)
