"""A lease: the share coordinator's leave to append a share-partition's updates to its log from a network thread.

Without one, each acknowledgement takes a turn of the control loop: the write goes to the share coordinator, which
encodes an update, appends it and applies it. With a lease the network thread encodes and appends the update, and the
coordinator hears of many together, when it needs the state (`StateLease.end`). It gives a lease for the updates up to
the next snapshot, and only for a log whose append commits at once: this broker is the whole ISR.

One update at a time is under way (the entry's `writing`). The coordinator does nothing with the state meanwhile: the
order of a share-partition's records in the log is that of their changes. An append that fails, parks or does not commit
ends the lease, and the coordinator gets the write. It hears of an update that was appended too, so that its next record
never goes back, and an update that is stored twice does no harm.

    a lease's mutex     all but the constants. Taken after an entry's mutex; nothing is taken under it, and it is not
                        held for the GIL
"""

from libc.stdint cimport int32_t, int64_t
from libcpp.string cimport string
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport atomic_add, pthread_mutex_t
from kafkapy._speedups.log.layout cimport LogState
from kafkapy._speedups.share.layout cimport ShareWrite, StateChange

cdef cppclass LeaseState:
    int64_t references              # atomic
    # constants
    LogState* log                   # referenced; of a partition of __share_group_state
    int32_t log_epoch               # of this broker's leadership of it
    string key                      # of the updates, encoded
    int32_t snapshot_epoch
    int32_t state_epoch             # the newest that the coordinator knows
    int32_t leader_epoch            # of the updates
    pthread_mutex_t mutex
    # under the mutex
    bint ended                      # no update begins any more
    bint abandoned                  # nobody hears of the updates that are under way
    bint busy                       # an update is under way
    int32_t left                    # updates to the next snapshot
    int64_t start_offset            # as stored, like the rest
    int32_t delivery_complete
    int32_t updates                 # that the coordinator has not heard of
    int64_t end_offset              # of the log behind the last of them
    vector[StateChange] changes     # of these updates, in their order

cdef inline LeaseState* lease_ref(LeaseState* lease) noexcept nogil:
    atomic_add(&lease.references, 1)
    return lease


cdef inline void lease_unref(LeaseState* lease) noexcept nogil:
    if lease != NULL and atomic_add(&lease.references, -1) == 0:
        lease_free(lease)


# Frees a lease after its last reference.
cdef void lease_free(LeaseState* lease) noexcept nogil
# Whether an update may begin now: the log is quick, and the lease is not over. lease_store follows a True.
cdef bint lease_begin(LeaseState* lease) noexcept nogil
# Appends the changes of a write, and ends the update that lease_begin began. True: they are stored and committed.
# False: the share coordinator must store them, and the lease is over.
cdef bint lease_store(LeaseState* lease, const ShareWrite* write) noexcept nogil


cdef class StateLease:
    cdef LeaseState* state
    cdef tuple told(self, bint ends)
