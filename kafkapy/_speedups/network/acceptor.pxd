"""The accept loop of one listener: a thread that never takes the GIL.

For every connection the Acceptor waits for the quotas (connection_quotas.pxd), accepts, sets the socket's options, and
gives the connection to the next Processor in turn; the Processors may change meanwhile. Without free descriptors it
pauses, instead of spinning on a listen socket that stays readable. It logs a line about that, or about the limit of
connections, at most once a minute; clients wait in the backlog meanwhile.
"""

from libc.stdint cimport int16_t, int64_t
from libcpp.deque cimport deque
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport pthread_mutex_t
from kafkapy._speedups.network.connection cimport ConnectionRegistry, ConnectionRegistryState
from kafkapy._speedups.network.mailbox cimport Mailbox

cdef enum:
    MAX_THROTTLED = 32          # sockets, of the reserve of descriptors; of more, the oldest are closed early

cdef struct ThrottledSocket:
    # A connection that is closed after the throttle time of its address.
    int fd
    int64_t close_at_ns

cdef cppclass AcceptorState:
    ConnectionRegistryState* registry
    int listen_fd
    int event_fd                # written to by a stop and by the quotas
    int64_t stop                # atomic
    int16_t listener_index
    bint privileged
    int send_buffer             # bytes; -1: the system's default
    int same_host_send_buffer
    pthread_mutex_t mutex       # guards the two below
    vector[Mailbox*] mailboxes
    size_t next
    int64_t failure_said_ns     # time of the last log line about errors of accept, 0: never
    int64_t full_said_ns        # the same for the limit of connections
    deque[ThrottledSocket] throttled    # in the order of their close, which differs by less than a window

cdef class Acceptor:
    cdef AcceptorState* state
    cdef readonly ConnectionRegistry registry
    cdef object listen_socket
    cdef list processors
