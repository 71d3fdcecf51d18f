"""From bytes to whole request frames.

    frame: int32 size (of what follows) | request header | request body

One read goes into the Processor's scratch buffer, where whole frames are handled in place. The bytes behind a frame
that stays in flight move to the channel ("ahead", at most one read, outside of the pool's accounting, so that it cannot
block itself). An incomplete frame gets its own buffer, which grows as its bytes arrive.
"""

from libc.stdint cimport int64_t, uint8_t

from kafkapy._speedups.network.memory_pool cimport MemoryPoolState
from kafkapy._speedups.network.pending_request cimport PendingRequest
from kafkapy._speedups.network.selector cimport KafkaChannel

cdef enum:
    SCRATCH_SIZE = 128 * 1024
    FIRST_BUFFER = 64 * 1024        # of a frame that does not fit into one read
    GROWTH = 16                     # a buffer is at most so many times the received bytes: a frame that lies about its
                                    # size gets little

cdef cppclass FrameReader:
    MemoryPoolState* pool
    int64_t max_frame               # socket.request.max.bytes
    uint8_t* scratch
    size_t scratch_capacity
    int64_t start                   # of the unhandled bytes in scratch
    int64_t end
    bint filled                     # the last read filled its room: more bytes may wait

cdef enum FrameStatus:
    FRAME_WHOLE = 0
    FRAME_PARTIAL = 1               # no whole frame is left; the reader keeps the rest
    FRAME_INVALID = 2               # size negative or too large
    FRAME_NO_MEMORY = 3             # a new frame must wait until the pool has memory
    FRAME_OUT_OF_MEMORY = 4         # malloc failed

cdef enum FramePlace:
    PLACE_SCRATCH = 0               # valid until the next read
    PLACE_AHEAD = 1                 # valid until the channel's next frame
    PLACE_OWNED = 2                 # the receiver owns memory, capacity and reservation

cdef struct WholeFrame:
    int place                       # FramePlace
    uint8_t* data                   # without the size
    int64_t size
    uint8_t* memory
    size_t capacity
    int64_t reserved

# 0, or -1 when memory is out.
cdef int reader_open(FrameReader* r, MemoryPoolState* pool, int64_t max_frame) noexcept nogil
cdef void reader_close(FrameReader* r) noexcept nogil
# Reads once: bytes, 0 at the end of the stream, minus an errno.
cdef int64_t reader_fill(FrameReader* r, KafkaChannel* channel) noexcept nogil
cdef FrameStatus reader_next(FrameReader* r, KafkaChannel* channel, WholeFrame* frame) noexcept nogil
# Moves the rest of scratch to the channel, before a read of another channel. 0, or -1 when memory is out.
cdef int reader_stash(FrameReader* r, KafkaChannel* channel) noexcept nogil
# Gives the scratch buffer to the request whose frame lies in it and stays in flight, and allocates a new one. 0, or -1
# when memory is out.
cdef int reader_donate(FrameReader* r, KafkaChannel* channel, PendingRequest* pending) noexcept nogil
# Copies a frame, whose bytes the next read or frame will overwrite, into memory of its request. False when memory is
# out.
cdef bint reader_copy(MemoryPoolState* pool, PendingRequest* pending, WholeFrame* frame) noexcept nogil
cdef void reader_release(FrameReader* r, KafkaChannel* channel) noexcept nogil
