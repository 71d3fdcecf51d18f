"""The accept loop of one listener: a thread that never takes the GIL.

For every connection: wait for the quotas (connection_quotas.pxd), accept, set the socket's options, hand it to the next
Processor in turn. When the process is out of descriptors it pauses, instead of spinning on a listen socket that stays
readable. A line about that, or about the limit of connections, is logged at most once a minute; meanwhile clients wait
in the backlog.
"""

from libc.stdint cimport int16_t, int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.network.connection cimport ConnectionRegistry, ConnectionRegistryState
from kafkapy._speedups.network.mailbox cimport Mailbox

cdef cppclass AcceptorState:
    ConnectionRegistryState* registry
    int listen_fd
    int event_fd                # written to stop it, and by the quotas
    int64_t stop                # atomic
    int16_t listener_index
    bint privileged
    int send_buffer             # bytes; -1: the system's default
    int same_host_send_buffer
    vector[Mailbox*] mailboxes
    size_t next
    int64_t failure_said_ns     # when a line about accept's errors was logged, 0: never
    int64_t full_said_ns        # the same, of the limit of connections

cdef class Acceptor:
    cdef AcceptorState* state
    cdef readonly ConnectionRegistry registry
    cdef object listen_socket
    cdef list processors
