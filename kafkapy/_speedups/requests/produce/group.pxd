"""Produce requests of several connections to one partition, which one turn of a network thread has found: one append.

The members are single requests before and after it. One that log_append_group leaves undecided is resumed.
"""

from kafkapy._speedups.requests.data_plane cimport DataPlaneState, Outcome

cdef void produce_settle(DataPlaneState* plane, void** parked, size_t count, Outcome* outcomes) noexcept nogil
