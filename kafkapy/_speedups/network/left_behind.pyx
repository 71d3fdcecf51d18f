"""Threads that lose their Processor in a call that hangs (see left_behind.pxd)."""

from kafkapy._speedups.base.blocking cimport become_spare
from kafkapy._speedups.base.epoll cimport EPOLLOUT
from kafkapy._speedups.base.posix cimport atomic_add
from kafkapy._speedups.network.frame_reader cimport reader_donate, reader_stash
from kafkapy._speedups.network.pending_request cimport pending_ref, pending_return, pending_unref
from kafkapy._speedups.network.processor_state cimport DOING_GROUP, DOING_SEND
from kafkapy._speedups.network.selector cimport selector_want


cdef bint channel_separate(ProcessorState* p) noexcept nogil:
    cdef KafkaChannel* channel = p.doing_for
    cdef size_t i
    if p.doing == DOING_GROUP:
        for i in range(p.gather_next - p.group_size, p.gather_next):
            request_leave(p, p.gathered[i].channel)
        atomic_add(&p.alone, 1)
        return True
    # Frames behind the current one.
    if p.reader.start != p.reader.end and reader_stash(&p.reader, channel) < 0:
        return False
    p.reader.start = p.reader.end = 0
    if p.doing == DOING_SEND:
        channel.away = True
        p.sending[channel.info.id] = p.now_ns
        selector_want(&p.selector, channel, channel.interest & ~EPOLLOUT)
    else:
        if p.doing_in_place:
            if reader_donate(&p.reader, channel, channel.request) < 0:
                return False
        request_leave(p, channel)
    atomic_add(&p.alone, 1)
    return True


cdef void request_leave(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    cdef PendingRequest* pending = channel.request
    p.in_flight[pending.frame.token] = channel
    pending.away = True
    pending.woken = False
    pending_ref(pending)


cdef void give_outcome(PendingRequest* pending, const Outcome* outcome) noexcept nogil:
    pending.outcome = outcome[0]
    pending.parked = outcome.parked
    pending_return(pending)
    pending_unref(pending)


cdef void finish_alone(ProcessorState* p, PendingRequest* pending, const Outcome* outcome,
                       NetworkThread* thread) noexcept nogil:
    give_outcome(pending, outcome)
    atomic_add(&p.alone, -1)
    become_spare(thread)
