"""What epoll reports of a connection that is past its TLS handshake: bytes, room for a reply, the peer's end."""

from kafkapy._speedups.network.processor_state cimport ProcessorState
from kafkapy._speedups.network.selector cimport KafkaChannel

# Reads what has come and handles the whole frames in it, up to READ_TURN bytes.
cdef void channel_read(ProcessorState* p, KafkaChannel* channel) noexcept nogil
cdef void channel_event(ProcessorState* p, KafkaChannel* channel, unsigned int events) noexcept nogil
