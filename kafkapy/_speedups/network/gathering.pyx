"""Gathered requests and their groups (see gathering.pxd)."""

from libc.stdint cimport int64_t

from kafkapy._speedups.base.blocking cimport NetworkThread, become_spare, is_alone
from kafkapy._speedups.base.posix cimport atomic_add, atomic_count, monotonic_ns
from kafkapy._speedups.network.channel_handler cimport carry_out, request_resume
from kafkapy._speedups.network.left_behind cimport give_outcome, may_be_left
from kafkapy._speedups.network.pending_request cimport PendingRequest
from kafkapy._speedups.network.processor_state cimport DOING_GROUP, Gathered
from kafkapy._speedups.network.selector cimport KafkaChannel
from kafkapy._speedups.requests.data_plane cimport GROUP_MEMBERS, OUTCOME_RESUME, DataPlaneApi, Outcome


cdef enum:
    REST = 16                       # turns: connections that share no partition lose little by looking for others


cdef void take_group(ProcessorState* p) noexcept nogil:
    """Takes the next requests of one group, which it puts behind each other; without a group, one."""
    cdef const void* group = p.gathered[p.gather_next].group
    cdef const DataPlaneApi* api = NULL
    cdef Gathered entry
    cdef size_t i
    p.group_size = 0
    for i in range(p.gather_next, p.gathered.size()):
        entry = p.gathered[i]
        if entry.group != group or entry.channel.closed or (api != NULL and entry.channel.request.api != api):
            continue
        api = entry.channel.request.api
        if i != p.gather_next:
            p.gathered[i] = p.gathered[p.gather_next]
            p.gathered[p.gather_next] = entry
        p.gather_next += 1
        p.group_size += 1
        if p.group_size == GROUP_MEMBERS or group == NULL:
            break


cdef void settle_group(ProcessorState* p) noexcept nogil:
    # A thread that has lost the Processor looks at no word of it any more.
    cdef KafkaChannel* channels[GROUP_MEMBERS]
    cdef PendingRequest* requests[GROUP_MEMBERS]
    cdef void* parked[GROUP_MEMBERS]
    cdef Outcome outcomes[GROUP_MEMBERS]
    cdef size_t count = p.group_size, i
    cdef NetworkThread* thread
    cdef int64_t started = monotonic_ns(), ended
    for i in range(count):
        channels[i] = p.gathered[p.gather_next - count + i].channel
        requests[i] = channels[i].request
        parked[i] = requests[i].parked
    thread = may_be_left(p, NULL, DOING_GROUP, False)
    requests[0].api.settle(p.plane, parked, count, outcomes)
    ended = monotonic_ns()
    atomic_count(&p.plane.apis[requests[0].frame.api_key].local_ns, ended - started)
    for i in range(count):
        requests[i].local_ns += (ended - started) // <int64_t>count
    if thread != NULL:
        if is_alone(thread):
            for i in range(count):
                give_outcome(requests[i], &outcomes[i])
            atomic_add(&p.alone, -1)
            become_spare(thread)
        thread.may_leave = False
    p.now_ns = ended
    for i in range(count):
        requests[i].parked = outcomes[i].parked
        if outcomes[i].kind == OUTCOME_RESUME:
            # This thread may be left behind in each of them.
            p.gathered.push_back(Gathered(channels[i], NULL))
    for i in range(count):
        if outcomes[i].kind != OUTCOME_RESUME:
            carry_out(p, channels[i], &outcomes[i])


cdef void settle_gathered(ProcessorState* p) noexcept nogil:
    while p.gather_next < p.gathered.size():
        if p.gathered[p.gather_next].channel.closed:
            p.gather_next += 1      # with its request
            continue
        take_group(p)
        if p.group_size == 1:
            request_resume(p, p.gathered[p.gather_next - 1].channel, False)
        else:
            p.shared = True
            settle_group(p)
    if p.gathered.empty():
        return
    p.gathered.clear()
    p.gather_next = 0
    if not p.shared:
        p.gather_rest = REST
    p.shared = False
