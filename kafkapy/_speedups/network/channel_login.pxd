"""Logins by SCRAM that the network thread serves by itself: SaslHandshake, both tokens, and the end of the exchange.

Python tells a listener's mechanisms, and has every other login, also from the middle of one: by delegation token, with
an authorization id, of sessions that end, of SaslHandshake version 0, and of requests that are not valid. After the
broker's first message the exchange ends here, but for requests that the exchange does not expect: Python refuses them.
"""

from libc.stdint cimport int64_t

from kafkapy._speedups.network.channel_handler cimport ProcessorState
from kafkapy._speedups.network.selector cimport KafkaChannel

# Serves the request of a channel that is not authenticated. False: it is Python's.
cdef bint login_serve(ProcessorState* p, KafkaChannel* channel, int64_t started) noexcept nogil
# Ends the login, if there is one.
cdef void login_free(KafkaChannel* channel) noexcept nogil
