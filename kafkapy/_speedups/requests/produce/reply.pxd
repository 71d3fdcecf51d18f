"""The reply to a Produce."""

from kafkapy._speedups.base.send cimport Send
from kafkapy._speedups.requests.data_plane cimport DataPlaneState
from kafkapy._speedups.requests.produce.state cimport ProduceState

# The whole reply frame for a finished state, or NULL when memory is out.
cdef Send* produce_response_build(DataPlaneState* plane, ProduceState* state) noexcept nogil
