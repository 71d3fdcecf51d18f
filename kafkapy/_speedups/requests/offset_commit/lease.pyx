"""The leases of groups, and the coordinator's end of them (see lease.pxd)."""

from cython.operator cimport dereference, preincrement
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport (
    atomic_load,
    atomic_store,
    monotonic_ns,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_trylock,
    pthread_mutex_unlock,
    pthread_rwlock_destroy,
    pthread_rwlock_rdlock,
    pthread_rwlock_unlock,
    pthread_rwlock_wrlock,
    rwlock_init,
)
from kafkapy._speedups.base.seeded_hash cimport SeededHash
from kafkapy._speedups.log.append cimport append_room_at_once
from kafkapy._speedups.log.partition_log cimport PartitionLog
from kafkapy._speedups.log.state cimport log_ref, log_unref
from kafkapy._speedups.requests.data_plane cimport DataPlane

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int microseconds)

cdef enum:
    LOOKS = 20                      # of the control loop, LOOK_US apart
    LOOK_US = 10
    TOPIC_ID_SIZE = 16
    NS_PER_MS = 1000000

MOST_PARTITIONS = <int>COMMIT_PARTITIONS


cdef void commit_lease_free(CommitLeaseState* lease) noexcept nogil:
    log_unref(lease.log)
    pthread_mutex_destroy(&lease.mutex)
    del lease


cdef CommitLeaseState* commit_lease_find(CommitTableState* table, const uint8_t* group, int32_t size) noexcept nogil:
    cdef unordered_map[string, CommitLeasePointer, SeededHash].iterator found
    cdef CommitLeaseState* lease = NULL
    cdef string key
    if size > 0:
        key.assign(<const char*>group, <size_t>size)
    pthread_rwlock_rdlock(&table.lock)
    found = table.leases.find(key)
    if found != table.leases.end():
        lease = dereference(found).second
        atomic_add(&lease.references, 1)
    pthread_rwlock_unlock(&table.lock)
    return lease


cdef void forget(CommitTableState* table, CommitLeaseState* lease) noexcept nogil:
    """Takes a lease that has ended out of the table."""
    cdef unordered_map[string, CommitLeasePointer, SeededHash].iterator found
    cdef bint had = False
    pthread_rwlock_wrlock(&table.lock)
    found = table.leases.find(lease.group)
    if found != table.leases.end() and dereference(found).second == lease:
        table.leases.erase(found)
        had = True
    pthread_rwlock_unlock(&table.lock)
    if had:
        commit_lease_unref(lease)


cdef bint commit_lease_lock(CommitLeaseState* lease, int tries, unsigned int pause_us) noexcept nogil:
    while pthread_mutex_trylock(&lease.mutex):
        tries -= 1
        if tries <= 0:
            return False
        if pause_us:
            usleep(pause_us)
        else:
            sched_yield()
    return True


# ---- for the group coordinator ---------------------------------------------------------------------------------------

cdef class CommitTable:
    """The groups whose offsets network threads append. The control loop lends; it sets itself into the DataPlane, which
    keeps it alive."""

    def __cinit__(self, DataPlane plane not None):
        self.state = new CommitTableState()
        rwlock_init(&self.state.lock)
        self.state.committed = 0
        plane.state.commits = self.state
        plane.commits = self

    def __dealloc__(self):
        cdef unordered_map[string, CommitLeasePointer, SeededHash].iterator each
        if self.state == NULL:
            return
        each = self.state.leases.begin()
        while each != self.state.leases.end():
            commit_lease_unref(dereference(each).second)
            each = self.state.leases.erase(each)
        pthread_rwlock_destroy(&self.state.lock)
        del self.state

    def __len__(self):
        cdef size_t count
        with nogil:
            pthread_rwlock_rdlock(&self.state.lock)
            count = self.state.leases.size()
            pthread_rwlock_unlock(&self.state.lock)
        return count

    @property
    def committed(self):
        """The offsets that network threads have stored."""
        return atomic_load(&self.state.committed)

    @staticmethod
    def takes(PartitionLog log not None):
        """Whether the log commits an append of now at once."""
        cdef bint takes
        with nogil:
            takes = append_room_at_once(log.state) > 0
        return takes

    def lend(self, str group not None, PartitionLog log not None, int log_epoch, members, topics, *,
             bint without_member, bint checks_instance, int oldest_version, int most_metadata):
        """Gives a group that has no lease one: a CommitLease. `members`: (member id, instance id or None, generation);
        `topics`: (name, id as bytes or None, partitions with an offset), at most MOST_PARTITIONS; `without_member`:
        whether a consumer may commit that assigns its partitions itself; `checks_instance`: whether an instance id must
        be the member's. Only for a log that `takes` appends."""
        cdef CommitLeaseState* state
        cdef CommitLease lease
        cdef bint lends
        cdef str text
        state = new CommitLeaseState()
        lease = CommitLease.__new__(CommitLease)
        state.references = 1
        pthread_mutex_init(&state.mutex, NULL)
        state.log = log.state
        log_ref(state.log)
        lease.state = state
        lease.table = self
        state.log_epoch = log_epoch
        state.group = group.encode()
        state.most_metadata = most_metadata
        state.without_member = without_member
        state.checks_instance = checks_instance
        state.used = False
        state.oldest_version = <int16_t>oldest_version
        state.ended = 0
        state.commits = 0
        for member_id, instance_id, generation in members:
            text = member_id
            add_member(state, text.encode(), instance_id, generation)
        for name, topic_id, partitions in topics:
            text = name
            add_topic(state, text.encode(), topic_id, partitions)
        with nogil:
            atomic_add(&state.references, 1)
            pthread_rwlock_wrlock(&self.state.lock)
            lends = self.state.leases.count(state.group) == 0
            if lends:
                self.state.leases[state.group] = state
            pthread_rwlock_unlock(&self.state.lock)
            if not lends:
                commit_lease_unref(state)
        if not lends:
            raise RuntimeError(f"group {group!r} has a lease")
        return lease


cdef int add_member(CommitLeaseState* lease, bytes member_id, instance_id, int32_t generation) except -1:
    cdef CommitMember* member = &lease.members[<string>member_id]
    member.is_static = instance_id is not None
    if member.is_static:
        member.instance = (<str>instance_id).encode()
    member.generation = generation
    member.committed_ns = 0
    return 0


cdef int add_topic(CommitLeaseState* lease, bytes name, topic_id, partitions) except -1:
    cdef CommitTopic topic
    cdef CommitSlot slot
    cdef size_t index = lease.topics.size()
    cdef int32_t partition
    slot.topic = index
    slot.offset = -1
    slot.leader_epoch = -1
    slot.timestamp_ms = 0
    slot.changed = False
    slot.named = 0
    topic.name = name
    for number in partitions:
        partition = number
        if lease.slots.size() >= COMMIT_PARTITIONS:
            raise ValueError(f"a lease has at most {COMMIT_PARTITIONS} partitions")
        slot.partition = partition
        topic.slots[partition] = lease.slots.size()
        lease.slots.push_back(slot)
    lease.topics.push_back(topic)
    lease.names[<string>name] = index
    if topic_id is not None:
        if len(<bytes>topic_id) != TOPIC_ID_SIZE:
            raise ValueError(f"{topic_id!r} is no topic id")
        lease.ids[<string><bytes>topic_id] = index
    return 0


cdef str text_of(const string* text):
    return text.data()[:text.size()].decode()


cdef tuple entry_of(CommitLeaseState* lease, const CommitSlot* slot):
    return (text_of(&lease.topics[slot.topic].name), slot.partition, slot.offset, slot.leader_epoch,
            text_of(&slot.metadata), slot.timestamp_ms)


cdef class CommitLease:
    """The group coordinator's end of a lease, from CommitTable.lend. The control loop uses it; `newest` is for any
    thread. An offset is (topic, partition, offset, leader epoch, metadata, commit time in ms)."""

    def __init__(self, *args, **kwargs):
        if self.state == NULL:
            raise TypeError("leases come from CommitTable.lend()")

    def __dealloc__(self):
        if self.state != NULL:
            with nogil:
                commit_lease_unref(self.state)

    @property
    def busy(self):
        """Whether a commit is under way."""
        cdef bint busy
        with nogil:
            busy = not commit_lease_lock(self.state, 1, 0)
            if not busy:
                pthread_mutex_unlock(&self.state.mutex)
        return busy

    @property
    def used(self):
        """Whether a commit was stored by it; the control loop knows the lease's end."""
        return self.state.used

    def newest(self):
        """The offsets since the last call of `tell`; none while a disk hangs."""
        cdef vector[CommitSlot] slots
        cdef size_t i
        with nogil:
            if commit_lease_lock(self.state, LOOKS, LOOK_US):
                for i in range(self.state.changed.size()):
                    slots.push_back(self.state.slots[self.state.changed[i]])
                pthread_mutex_unlock(&self.state.mutex)
        return [entry_of(self.state, &slots[i]) for i in range(slots.size())]

    cdef tuple told(self, bint ends):
        cdef unordered_map[string, CommitMember, SeededHash].iterator member
        cdef vector[CommitSlot] slots
        cdef vector[string] members
        cdef vector[int64_t] since
        cdef int64_t now_ns
        cdef bint heard
        cdef size_t i
        if ends:
            atomic_store(&self.state.ended, 1)
        # A network thread may hold the mutex for as long as the disk hangs: the loop waits once, and not for that.
        with nogil:
            heard = commit_lease_lock(self.state, 1 if self.late else LOOKS, LOOK_US)
            if heard:
                now_ns = monotonic_ns()
                for i in range(self.state.changed.size()):
                    slots.push_back(self.state.slots[self.state.changed[i]])
                    self.state.slots[self.state.changed[i]].changed = False
                self.state.changed.clear()
                member = self.state.members.begin()
                while member != self.state.members.end():
                    if dereference(member).second.committed_ns:
                        members.push_back(dereference(member).first)
                        since.push_back((now_ns - dereference(member).second.committed_ns) // NS_PER_MS)
                        dereference(member).second.committed_ns = 0
                    preincrement(member)
                pthread_mutex_unlock(&self.state.mutex)
            if ends and heard:
                forget(self.table.state, self.state)
        self.late = not heard
        if not heard:
            return None
        return ([entry_of(self.state, &slots[i]) for i in range(slots.size())],
                [(text_of(&members[i]), since[i]) for i in range(members.size())])

    def tell(self):
        """(the newest offset of each partition, [(member id, ms since its last commit), ...]) since the last call.
        None: a commit is under way, call again."""
        return self.told(False)

    def end(self):
        """Ends the lease, and tells as `tell`; None: a commit is under way, call again."""
        return self.told(True)

    def abandon(self):
        """Ends the lease without a word: the coordinator reads the log again. Whether a commit is under way."""
        cdef bint busy
        with nogil:
            atomic_store(&self.state.ended, 1)
            busy = not commit_lease_lock(self.state, 1, 0)
            if not busy:
                pthread_mutex_unlock(&self.state.mutex)
            forget(self.table.state, self.state)
        return busy
