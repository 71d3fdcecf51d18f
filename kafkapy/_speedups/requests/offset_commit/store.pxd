"""What a network thread does with commits of groups that have a lease (lease.pxd): checks them, appends their records,
and remembers their offsets for the coordinator.

Several commits of one log make one batch, as Kafka's group coordinator makes one of the records that it has together.
"""

from libc.stdint cimport int64_t
from libcpp.string cimport string

from kafkapy._speedups.requests.offset_commit.lease cimport (
    CommitLeaseState,
    CommitMember,
    CommitRequest,
    CommittedTopic,
    CommitTableState,
)

cdef struct Commit:
    CommitLeaseState* lease
    CommitRequest* request
    CommitMember* member            # who commits; NULL: nobody
    int64_t now_ms                  # of the commit, by the wall clock
    bint locks                      # the commit holds its lease's mutex
    bint stored                     # all its offsets are stored and committed

# The name of a request's topic; NULL: not one of the lease.
cdef const string* commit_topic_name(const CommitLeaseState* lease, const CommitRequest* request,
                                     const CommittedTopic* topic) noexcept nogil
# Stores the commits, whose leases have one log, in their order. One that is not stored may be tried by itself; if that
# fails too, the coordinator must serve it.
cdef void commit_store(CommitTableState* table, Commit* commits, size_t count) noexcept nogil
