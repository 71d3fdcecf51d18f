"""Writes of share-partitions: acknowledgements that are stored before their requests are answered.

One write of an entry at a time is under way (ShareEntry.writing). A network thread stores it by the entry's lease
(lease.pxd); without a lease, or when that fails, Python takes it (StateWrite). Acknowledgements that come meanwhile
belong to the next write.
"""

from libc.stdint cimport int16_t

from kafkapy._speedups.requests.share.entries cimport ShareEntry, ShareTableState, TicketWaiter
from kafkapy._speedups.requests.share.lease cimport LeaseState
from kafkapy._speedups.share.layout cimport ShareWrite

cdef struct LeasedWrite:
    ShareWrite* write               # owned; NULL: none
    LeaseState* lease               # referenced

# Under the entry's mutex: takes the changes of an entry that has a lease and no write; share_store follows.
cdef bint share_take_leased_locked(ShareEntry* entry, LeasedWrite* out) noexcept nogil
# Stores the write, which ends it, and those of acknowledgements that came meanwhile. `waiter` is of the caller, and not
# in the entry's list: it joins the list when Python must go on with the write, else the write is stored.
cdef void share_store(ShareTableState* table, ShareEntry* entry, LeasedWrite* leased,
                      TicketWaiter* waiter) noexcept nogil
# Ends a write of an entry, with an error for the acknowledgements in it. True: the entry has changes again. `closes`:
# the caller closes the entry next.
cdef bint share_write_end(ShareTableState* table, ShareEntry* entry, const ShareWrite* write, int16_t error,
                          bint closes) noexcept nogil
