"""Decodes a Produce body in place."""

from kafkapy._speedups.requests.produce.state cimport ProduceState

# Fills transactional id, acks, timeout, topics and partitions from state.frame. False when the bytes are not exactly
# one Produce of that version.
cdef bint produce_decode(ProduceState* state) noexcept nogil
