"""A connection before it is served: TLS handshake, principal of its certificate, SASL; and the end of one that fails.

    HANDSHAKE --SASL listener--> SASL --------------authenticated--> READY
        |                         | refused
        |--certificate--> PRINCIPAL --refused--> FAILED (its reply waits for connection.failed.authentication.delay.ms)
        |                         | authenticated
        |--no certificate---------------------------------------> READY

A listener that asks for every principal passes PRINCIPAL without a certificate too, and without TLS begins with it.

Handshakes compute. A turn of the Processor spends HANDSHAKES_NS on them, at least one step; the other connections that
have bytes wait in a queue for the next turn, so that handshakes never hold up established connections for longer. A
connection that is not ready after the listener's setup time is closed: Kafka has no key for it, and its clients give up
after socket.connection.setup.timeout.max.ms.
"""

from libc.stdint cimport int64_t

from kafkapy._speedups.base.send cimport Send
from kafkapy._speedups.network.connection cimport ListenerSecurity
from kafkapy._speedups.network.processor_state cimport ProcessorState
from kafkapy._speedups.network.selector cimport KafkaChannel

cdef enum:
    HANDSHAKES_NS = 500_000         # a turn's time for them

# Makes the transport of a new connection and sets its first stage. 0 or an errno.
cdef int stage_begin(ProcessorState* p, KafkaChannel* channel, int fd, ListenerSecurity* security) noexcept nogil
# Asks what the first stage asks, once the Selector and the Processor know the channel.
cdef void stage_begun(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# An event of a connection in its handshake.
cdef void stage_event(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Goes on with handshakes that wait for their turn.
cdef void stage_take_turns(ProcessorState* p) noexcept nogil
# Python has authenticated the connection of the channel's request; `reply` may be NULL.
cdef void stage_authenticated(ProcessorState* p, KafkaChannel* channel, Send* reply) noexcept nogil
# Closes connections that were not ready in time, and those whose last reply is due.
cdef void stage_expire(ProcessorState* p) noexcept nogil
# Monotonic ns of the next work here; -1: none.
cdef int64_t stage_next_due(ProcessorState* p) noexcept nogil
