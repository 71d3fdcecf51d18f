"""What epoll reports of a connection that is past its TLS handshake (see channel_events.pxd)."""

from libc.errno cimport EAGAIN
from libc.stdint cimport int64_t

from kafkapy._speedups.base.epoll cimport EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP
from kafkapy._speedups.base.posix cimport atomic_count_alone
from kafkapy._speedups.network.channel_handler cimport (
    channel_be_ready,
    channel_close,
    channel_handle_frames,
    channel_log_closing,
    channel_write,
)
from kafkapy._speedups.network.connection cimport CLOSED_BY_BROKER, CLOSED_BY_PEER, LEVEL_INFO
from kafkapy._speedups.network.frame_reader cimport reader_fill
from kafkapy._speedups.network.memory_pool cimport pool_available
from kafkapy._speedups.network.processor_state cimport READ_TURN
from kafkapy._speedups.network.selector cimport MUTE_MEMORY, MUTE_THROTTLED, selector_touch, selector_want


cdef void reading_ends(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    cdef const char* reason = channel.transport.functions.error(&channel.transport)
    if reason != NULL:
        channel_log_closing(p, channel, LEVEL_INFO, reason)
    channel_close(p, channel, CLOSED_BY_PEER if reason == NULL else CLOSED_BY_BROKER)


cdef void channel_read(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    cdef int64_t n
    cdef int64_t turn = READ_TURN
    if channel.frame == NULL and channel.head_size == 0 and not pool_available(p.pool):
        channel.mute |= MUTE_MEMORY
        p.starving.push_back(channel.info.id)
        selector_want(&p.selector, channel, channel.interest & ~EPOLLIN)
        return
    while True:
        n = reader_fill(&p.reader, channel)
        if n <= 0:
            if n != -EAGAIN:
                reading_ends(p, channel)
            elif channel.transport.read_wants_write:
                selector_want(&p.selector, channel, channel.interest | EPOLLOUT)
            return
        atomic_count_alone(&channel.info.bytes_in, n)
        selector_touch(&p.selector, channel, p.now_ns)
        channel_handle_frames(p, channel)
        if channel.closed or channel.mute:
            return
        turn -= n
        # A large frame is read on without a question to epoll, as long as reads come back full.
        if channel.frame == NULL or not p.reader.filled or turn <= 0:
            break
    if channel.transport.functions.pending(&channel.transport) > 0:
        channel_be_ready(p, channel)


cdef void peer_shut_down(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    """Handles a peer that will send no more while its channel is muted. The peer may still read its reply (a
    half-closed socket), so only a parked Fetch, which no client sends half-closed, is given up; and only when no
    later request lies behind it."""
    selector_want(&p.selector, channel, channel.interest & ~EPOLLRDHUP)
    channel.peer_done = True
    if (channel.request != NULL and not channel.request.away and channel.request.parked != NULL
        and channel.request.api.waits_for_records
            and channel.ahead == NULL and channel.transport.functions.ended(&channel.transport)):
        channel_close(p, channel, CLOSED_BY_PEER)
    elif (channel.mute == MUTE_THROTTLED and channel.ahead == NULL
            and channel.transport.functions.ended(&channel.transport)):
        channel_close(p, channel, CLOSED_BY_PEER)       # a throttle time may be long


cdef void channel_event(ProcessorState* p, KafkaChannel* channel, unsigned int events) noexcept nogil:
    if channel.closed:
        return
    if (channel.send != NULL and not channel.away
            and (events & EPOLLOUT or (channel.transport.write_wants_read and events & EPOLLIN))):
        channel_write(p, channel)
        if channel.closed or channel.transport.write_wants_read:
            return
    if channel.transport.read_wants_write and events & EPOLLOUT and channel.send == NULL:
        selector_want(&p.selector, channel, channel.interest & ~EPOLLOUT)
        events |= EPOLLIN
    if not channel.mute:
        if events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR) and channel.ahead == NULL:
            channel_read(p, channel)
        return
    if events & (EPOLLHUP | EPOLLERR):
        channel_close(p, channel, CLOSED_BY_PEER)
        return
    if events & EPOLLIN:
        selector_want(&p.selector, channel, channel.interest & ~EPOLLIN)
    if events & EPOLLRDHUP:
        peer_shut_down(p, channel)
