"""Updates of a lease step by step, as a network thread makes them (see requests/share/lease.pxd)."""

from libc.stdint cimport int8_t, int16_t, int64_t

from kafkapy._speedups.requests.share.lease cimport StateLease, lease_begin, lease_store
from kafkapy._speedups.share.layout cimport ShareWrite, StateChange


def begin(StateLease lease not None):
    """Begins an update, which `store` ends. False: the lease allows none."""
    return lease_begin(lease.state)


def store(StateLease lease not None, int64_t start_offset, int delivery_complete, changes, int state_epoch=1):
    """Appends the update that `begin` began, changes as (first, last, state, delivery count). Whether it is stored."""
    cdef ShareWrite write
    cdef StateChange change
    cdef bint stored
    for first, last, state, delivery_count in changes:
        change.first = first
        change.last = last
        change.state = <int8_t>state
        change.delivery_count = <int16_t>delivery_count
        change.pending = False
        write.changes.push_back(change)
    write.number = 1
    write.state_epoch = state_epoch
    write.leader_epoch = 0
    write.start_offset = start_offset
    write.delivery_complete = delivery_complete
    with nogil:
        stored = lease_store(lease.state, &write)
    return stored
