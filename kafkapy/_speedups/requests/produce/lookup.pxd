"""The first stage of a Produce request: the client's permissions, the topics' names and the logs of the partitions."""

from kafkapy._speedups.requests.data_plane cimport DataPlaneState, Outcome
from kafkapy._speedups.requests.produce.state cimport ProducePartition, ProduceState

# Sets the error of every partition that cannot be appended to, and the log of every other one. False when questions
# must be asked first.
cdef bint produce_authorize(DataPlaneState* plane, ProduceState* state, Outcome* outcome) noexcept nogil
cdef bint produce_is_transactional(const ProducePartition* partition) noexcept nogil
