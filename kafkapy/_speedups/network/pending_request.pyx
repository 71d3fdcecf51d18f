"""Requests from frame to outcome (see pending_request.pxd)."""

from libc.stdint cimport int64_t

from kafkapy._speedups.base.posix cimport atomic_add, atomic_count, monotonic_ns
from kafkapy._speedups.base.send cimport send_free
from kafkapy._speedups.network.connection cimport ConnectionInfo, connection_ref, connection_unref
from kafkapy._speedups.network.mailbox cimport MAIL_OUTCOME, Mailbox, mailbox_post_token, mailbox_wake, next_token
from kafkapy._speedups.network.memory_pool cimport MemoryPoolState, buffer_give_back, pool_release
from kafkapy._speedups.requests.data_plane cimport OUTCOME_RESUME, DataPlaneState, LeftMemory


cdef PendingRequest* pending_new(PendingRequest* kept, DataPlaneState* plane, Mailbox* mailbox, MemoryPoolState* pool,
                                 ConnectionInfo* connection, LeftMemory* left) noexcept nogil:
    cdef PendingRequest* p = kept
    if p == NULL:
        p = new PendingRequest()
    p.references = 1
    p.plane = plane
    p.api = NULL
    p.mailbox = mailbox
    p.pool = pool
    p.connection = connection
    connection_ref(connection)
    p.frame.token = next_token()
    p.frame.wake = mailbox_wake
    p.frame.wake_owner = mailbox
    p.frame.authorization = &connection.authorization
    p.frame.end = &connection.end
    p.frame.left = left
    p.frame.listener_index = connection.listener_index
    p.frame.privileged = connection.privileged
    p.frame_size = 0
    p.unsupported_version = False
    p.stage = 0
    p.is_token = False
    p.tokens_follow = False
    p.scram = 0
    p.memory = NULL
    p.capacity = 0
    p.reserved = 0
    p.parked = NULL
    p.ask = NULL
    p.away = False
    p.outcome.send = NULL
    p.wait.token = p.frame.token
    p.wait.place = 0
    p.parked_ns = 0
    p.taken_ns = 0
    p.local_ns = 0
    p.remote_ns = 0
    p.frame.quota = NULL
    p.quota.throttle_ms = 0
    return p


cdef void pending_work(PendingRequest* p) noexcept nogil:
    cdef int64_t took = monotonic_ns()
    p.api.work(p.parked)
    took = monotonic_ns() - took
    # This time is no wait.
    p.parked_ns += took
    p.local_ns += took
    atomic_count(&p.plane.apis[p.frame.api_key].local_ns, took)
    p.outcome.kind = OUTCOME_RESUME
    p.outcome.parked = p.parked


cdef void pending_return(PendingRequest* p) noexcept nogil:
    mailbox_post_token(p.mailbox, MAIL_OUTCOME, p.frame.token, NULL)


cdef void pending_ref(PendingRequest* p) noexcept nogil:
    atomic_add(&p.references, 1)


cdef void pending_unref(PendingRequest* p) noexcept nogil:
    if pending_unref_keep(p):
        del p


cdef bint pending_unref_keep(PendingRequest* p) noexcept nogil:
    if atomic_add(&p.references, -1) > 0:
        return False
    send_free(p.outcome.send)
    if p.parked != NULL:
        p.api.cancel(p.plane, p.parked)
    if p.memory != NULL:
        buffer_give_back(p.pool, p.memory, p.capacity)
    if p.reserved:
        pool_release(p.pool, p.reserved)
    connection_unref(p.connection)
    return True
