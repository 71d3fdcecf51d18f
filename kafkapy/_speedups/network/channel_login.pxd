"""Logins by SCRAM that the network thread serves by itself: SaslHandshake, both tokens, and the end of the exchange.

Python tells a listener's mechanisms, and has every other login, also from the middle of one: by delegation token, with
an authorization id, of sessions that end, of SaslHandshake version 0, and of requests that are not valid. After the
broker's first message the exchange ends here, but for requests that the exchange does not expect: Python refuses them.
"""

from kafkapy._speedups.base.send cimport Send
from kafkapy._speedups.network.connection cimport ConnectionRegistryState
from kafkapy._speedups.network.selector cimport KafkaChannel
from kafkapy._speedups.requests.data_plane cimport DataPlaneState
from kafkapy._speedups.requests.request_header cimport ApiTableState

cdef enum LoginResult:
    LOGIN_OF_PYTHON = 0             # Python serves the request, and the rest of the login
    LOGIN_GOES_ON = 1
    LOGIN_ACCEPTED = 2              # the connection has its principal
    LOGIN_REFUSED = 3               # the log has the reason

# Serves the request of a channel that is not authenticated, and makes the reply; NULL: memory is out.
cdef LoginResult login_serve(DataPlaneState* plane, ConnectionRegistryState* registry, const ApiTableState* apis,
                             KafkaChannel* channel, Send** reply) noexcept nogil
# Ends the login, if there is one.
cdef void login_free(KafkaChannel* channel) noexcept nogil
