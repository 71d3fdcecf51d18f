"""Threads that lose their Processor in a call that hangs (base/blocking.pxd), and the requests they take along.

A thread allows that around each call that may hang: of a request's handler, of the append of a group, of a sendfile.
"""

from kafkapy._speedups.base.blocking cimport NetworkThread, network_thread
from kafkapy._speedups.network.pending_request cimport PendingRequest
from kafkapy._speedups.network.processor_state cimport ProcessorState
from kafkapy._speedups.network.selector cimport KafkaChannel
from kafkapy._speedups.requests.data_plane cimport Outcome


cdef inline NetworkThread* may_be_left(ProcessorState* p, KafkaChannel* channel, int what,
                                       bint in_place) noexcept nogil:
    """From here on the calling thread may lose the Processor, until it ends that permission (may_leave); it must then
    check whether it has. NULL: this thread never does. `what` is a Doing."""
    cdef NetworkThread* thread = network_thread()
    if thread == NULL or p.last_chance:
        return NULL
    p.doing = what
    p.doing_for = channel
    p.doing_in_place = in_place
    thread.may_leave = True
    return thread


# Separates the hanging thread's work from this Processor. False when memory is out.
cdef bint channel_separate(ProcessorState* p) noexcept nogil
# Notes that another thread works on the request and will return it.
cdef void request_leave(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Hands on the outcome of a request, of which this thread knows nothing else.
cdef void give_outcome(PendingRequest* pending, const Outcome* outcome) noexcept nogil
# Ends a thread that has lost the Processor and knows only the request. Does not return.
cdef void finish_alone(ProcessorState* p, PendingRequest* pending, const Outcome* outcome,
                       NetworkThread* thread) noexcept nogil
