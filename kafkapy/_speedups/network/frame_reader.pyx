"""Request frames out of a stream of bytes (see frame_reader.pxd)."""

from libc.errno cimport ENOMEM
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from kafkapy._speedups.base.wire cimport load_int32
from kafkapy._speedups.network.memory_pool cimport (
    MemoryPoolState,
    buffer_give_back,
    buffer_grow,
    buffer_take,
    pool_release,
    pool_reserve,
    pool_try_reserve,
)
from kafkapy._speedups.network.selector cimport STAGE_READY, KafkaChannel


cdef int reader_open(FrameReader* r, MemoryPoolState* pool, int64_t max_frame) noexcept nogil:
    r.pool = pool
    r.max_frame = max_frame
    r.start = r.end = 0
    r.scratch = buffer_take(pool, SCRATCH_SIZE, &r.scratch_capacity)
    return 0 if r.scratch != NULL else -1


cdef void reader_close(FrameReader* r) noexcept nogil:
    buffer_give_back(r.pool, r.scratch, r.scratch_capacity)
    r.scratch = NULL


cdef int64_t reader_fill(FrameReader* r, KafkaChannel* channel) noexcept nogil:
    cdef int64_t n
    cdef int64_t room
    cdef uint8_t* grown
    if channel.frame != NULL:
        if channel.frame_have == <int64_t>channel.frame_capacity:
            grown = buffer_grow(r.pool, channel.frame, channel.frame_have,
                                min(channel.frame_want, <int64_t>channel.frame_capacity * GROWTH),
                                &channel.frame_capacity)
            if grown == NULL:
                return -ENOMEM
            channel.frame = grown
        room = min(channel.frame_want, <int64_t>channel.frame_capacity) - channel.frame_have
        n = channel.transport.functions.read(&channel.transport, channel.frame + channel.frame_have, room)
        r.filled = n == room
        if n > 0:
            channel.frame_have += n
        return n
    # The bytes of a size that came in pieces go before the new bytes.
    if channel.head_size:
        memcpy(r.scratch, channel.head, channel.head_size)
    room = r.scratch_capacity - channel.head_size
    n = channel.transport.functions.read(&channel.transport, r.scratch + channel.head_size, room)
    r.filled = n == room
    if n > 0:
        r.start = 0
        r.end = channel.head_size + n
        channel.head_size = 0
    return n


cdef FrameStatus take_from(FrameReader* r, KafkaChannel* channel, uint8_t* data, int64_t* start, int64_t end,
                           WholeFrame* frame) noexcept nogil:
    """Finds the next frame in a stretch of bytes; an incomplete frame moves to the channel."""
    cdef int64_t left = end - start[0]
    cdef int64_t size
    cdef int64_t reserved
    if left < 4:
        memcpy(channel.head, data + start[0], left)
        channel.head_size = <int>left
        start[0] = end
        return FRAME_PARTIAL
    size = load_int32(data + start[0])
    if size < 0 or size > channel.max_frame:
        frame.size = size
        return FRAME_INVALID
    if size <= left - 4:
        frame.data = data + start[0] + 4
        frame.size = size
        frame.memory = NULL
        frame.capacity = 0
        frame.reserved = 0
        start[0] += 4 + size
        return FRAME_WHOLE
    # Clients that are not authenticated cannot take the pool from those that are; their frames are small.
    reserved = size if channel.stage == STAGE_READY else 0
    if reserved and not pool_try_reserve(r.pool, reserved):
        return FRAME_NO_MEMORY
    # When a fair part of the frame is here, it gets a buffer of its full size: no byte moves again.
    channel.frame = buffer_take(r.pool, min(4 + size, max(left * GROWTH, <int64_t>FIRST_BUFFER)),
                                &channel.frame_capacity)
    if channel.frame == NULL:
        pool_release(r.pool, reserved)
        return FRAME_OUT_OF_MEMORY
    memcpy(channel.frame, data + start[0], left)
    channel.frame_have = left
    channel.frame_want = 4 + size
    channel.frame_reserved = reserved
    start[0] = end
    return FRAME_PARTIAL


cdef FrameStatus reader_next(FrameReader* r, KafkaChannel* channel, WholeFrame* frame) noexcept nogil:
    cdef FrameStatus status
    if channel.frame != NULL:
        if channel.frame_have < channel.frame_want:
            return FRAME_PARTIAL
        frame.place = PLACE_OWNED
        frame.data = channel.frame + 4
        frame.size = channel.frame_want - 4
        frame.memory = channel.frame
        frame.capacity = channel.frame_capacity
        frame.reserved = channel.frame_reserved
        channel.frame = NULL
        channel.frame_reserved = 0
        return FRAME_WHOLE
    if channel.ahead != NULL:
        if channel.ahead_start < channel.ahead_end:
            frame.place = PLACE_AHEAD
            status = take_from(r, channel, channel.ahead, &channel.ahead_start, channel.ahead_end, frame)
            if status != FRAME_PARTIAL:
                return status
        buffer_give_back(r.pool, channel.ahead, channel.ahead_capacity)
        channel.ahead = NULL
        return FRAME_PARTIAL
    if r.start < r.end:
        frame.place = PLACE_SCRATCH
        return take_from(r, channel, r.scratch, &r.start, r.end, frame)
    return FRAME_PARTIAL


cdef int reader_stash(FrameReader* r, KafkaChannel* channel) noexcept nogil:
    cdef int64_t left = r.end - r.start
    if left == 0:
        return 0
    channel.ahead = buffer_take(r.pool, left, &channel.ahead_capacity)
    if channel.ahead == NULL:
        return -1
    memcpy(channel.ahead, r.scratch + r.start, left)
    channel.ahead_start = 0
    channel.ahead_end = left
    r.start = r.end = 0
    return 0


cdef int reader_donate(FrameReader* r, KafkaChannel* channel, PendingRequest* pending) noexcept nogil:
    cdef size_t fresh_capacity
    cdef uint8_t* fresh
    if reader_stash(r, channel) < 0:
        return -1
    fresh = buffer_take(r.pool, SCRATCH_SIZE, &fresh_capacity)
    if fresh == NULL:
        return -1
    pending.memory = r.scratch
    pending.capacity = r.scratch_capacity
    pending.reserved = r.scratch_capacity
    pool_reserve(r.pool, pending.reserved)
    r.scratch = fresh
    r.scratch_capacity = fresh_capacity
    return 0


cdef bint reader_copy(MemoryPoolState* pool, PendingRequest* pending, WholeFrame* frame) noexcept nogil:
    if <size_t>frame.size <= sizeof(pending.small):
        memcpy(pending.small, frame.data, frame.size)
        frame.data = pending.small
        return True
    pending.memory = buffer_take(pool, frame.size, &pending.capacity)
    if pending.memory == NULL:
        return False
    memcpy(pending.memory, frame.data, frame.size)
    pending.reserved = frame.size
    pool_reserve(pool, frame.size)
    frame.data = pending.memory
    return True


cdef void reader_release(FrameReader* r, KafkaChannel* channel) noexcept nogil:
    """Releases the memory of a channel that is being closed."""
    if channel.frame != NULL:
        buffer_give_back(r.pool, channel.frame, channel.frame_capacity)
        pool_release(r.pool, channel.frame_reserved)
        channel.frame = NULL
    if channel.ahead != NULL:
        buffer_give_back(r.pool, channel.ahead, channel.ahead_capacity)
        channel.ahead = NULL
