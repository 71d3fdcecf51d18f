"""A lease: the group coordinator's leave to append a group's offsets to its log from a network thread.

Without one, each OffsetCommit takes a turn of the control loop. With a lease the network thread checks the member,
encodes the offsets and appends them, and the coordinator hears of them when it needs them (`CommitLease.tell`). The
coordinator ends the lease (`CommitLease.end`) before anything else happens to the group, so a lease knows all that a
commit is checked against: the members with their generations, and the partitions that the group has offsets for. A
commit that does not fit exactly goes to the coordinator, which has the error for it.

    the table's lock    the leases of the groups. Nothing is locked under it
    a lease's mutex     all but the constants, also while its thread appends: the order of a group's records in the log
                        is that of their offsets here. Nobody waits for it on a good disk: a network thread gives the
                        commit to the coordinator, and the coordinator tries again later. A thread that stores commits
                        of several groups has the mutexes of all of them until its append has ended
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport atomic_add, pthread_mutex_t, pthread_rwlock_t
from kafkapy._speedups.base.seeded_hash cimport SeededHash
from kafkapy._speedups.log.layout cimport LogState

cdef enum:
    COMMIT_PARTITIONS = 500         # the most of a lease, and of a commit by one

cdef cppclass CommitMember:
    bint is_static
    string instance
    int32_t generation              # or member epoch
    int64_t committed_ns            # monotonic; 0: not since the coordinator has heard

cdef cppclass CommitSlot:
    """One partition with an offset."""
    size_t topic
    int32_t partition
    int64_t offset
    int32_t leader_epoch
    string metadata
    int64_t timestamp_ms
    bint changed                    # since the coordinator has heard
    uint64_t named                  # by the commit of that number

cdef cppclass CommitTopic:
    string name
    unordered_map[int64_t, size_t, SeededHash] slots    # by partition

cdef cppclass CommitLeaseState:
    int64_t references              # atomic
    # constants
    LogState* log                   # referenced; of a partition of __consumer_offsets
    int32_t log_epoch               # of this broker's leadership of it
    string group
    int32_t most_metadata           # bytes
    bint without_member             # commits of nobody are taken: the group has no members
    bint checks_instance            # a commit's instance id must be its member's
    int16_t oldest_version          # of OffsetCommit
    int64_t ended                   # atomic; no commit begins any more
    pthread_mutex_t mutex
    # under the mutex
    unordered_map[string, CommitMember, SeededHash] members
    vector[CommitTopic] topics
    unordered_map[string, size_t, SeededHash] names
    unordered_map[string, size_t, SeededHash] ids
    vector[CommitSlot] slots
    vector[size_t] changed          # the slots
    uint64_t commits
    bint used                       # a commit was stored by it

ctypedef CommitLeaseState* CommitLeasePointer

cdef cppclass CommitTableState:
    pthread_rwlock_t lock
    unordered_map[string, CommitLeasePointer, SeededHash] leases    # by group; each referenced
    int64_t committed               # atomic; offsets

cdef struct CommittedPartition:
    # One partition of a request.
    int32_t partition
    int64_t offset
    int32_t leader_epoch
    const uint8_t* metadata         # borrowed from the frame
    int32_t metadata_size           # -1: null
    size_t slot

cdef struct CommittedTopic:
    const uint8_t* name             # or its id; borrowed from the frame
    int32_t size
    size_t count                    # of its partitions, which follow one another

cdef cppclass CommitRequest:
    """An OffsetCommit; its text is borrowed from the frame."""
    int16_t version
    bint by_id                      # topics have ids in place of names
    const uint8_t* group
    int32_t group_size
    int32_t generation
    const uint8_t* member
    int32_t member_size
    const uint8_t* instance
    int32_t instance_size           # -1: null
    vector[CommittedTopic] topics
    vector[CommittedPartition] partitions

cdef inline void commit_lease_unref(CommitLeaseState* lease) noexcept nogil:
    if lease != NULL and atomic_add(&lease.references, -1) == 0:
        commit_lease_free(lease)


# Frees a lease after its last reference.
cdef void commit_lease_free(CommitLeaseState* lease) noexcept nogil
# The lease of a group, with a reference; NULL: the coordinator has its offsets.
cdef CommitLeaseState* commit_lease_find(CommitTableState* table, const uint8_t* group, int32_t size) noexcept nogil
# Whether the thread has the lease's mutex, after that many tries with a pause, or a yield, in between.
cdef bint commit_lease_lock(CommitLeaseState* lease, int tries, unsigned int pause_us) noexcept nogil


cdef class CommitTable:
    cdef CommitTableState* state


cdef class CommitLease:
    cdef CommitLeaseState* state
    cdef CommitTable table
    cdef bint late                  # the last look of the control loop met a commit
    cdef tuple told(self, bint ends)
