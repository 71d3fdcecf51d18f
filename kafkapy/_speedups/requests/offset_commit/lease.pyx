"""Offsets of groups that network threads append (see lease.pxd)."""

from cython.operator cimport dereference, preincrement
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memset
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport (
    atomic_count,
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
    wall_clock_ms,
)
from kafkapy._speedups.base.seeded_hash cimport SeededHash
from kafkapy._speedups.base.wire cimport (
    ByteBuffer,
    buffer_free,
    buffer_init,
    write_int16,
    write_int32,
    write_int64,
    write_raw,
    write_string,
)
from kafkapy._speedups.log.append cimport append_commits_at_once
from kafkapy._speedups.log.partition_log cimport PartitionLog
from kafkapy._speedups.log.state cimport log_ref, log_unref
from kafkapy._speedups.records.record_batch cimport RecordView, record_write
from kafkapy._speedups.requests.data_plane cimport DataPlane
from kafkapy._speedups.requests.leased_append cimport leased_append, leased_batch_begin, leased_batch_end

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int microseconds)

cdef enum:
    KEY_VERSION = 1
    VALUE_VERSION = 3
    MOST_BYTES = 65536              # of one commit's batch; larger ones go to the coordinator
    YIELDS = 20                     # of a network thread that waits for another's commit of the group
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


# ---- what a commit is checked against --------------------------------------------------------------------------------

cdef bint topic_of(const CommitLeaseState* lease, const CommitRequest* request, const CommittedTopic* topic,
                   size_t* index) noexcept nogil:
    cdef const unordered_map[string, size_t, SeededHash]* known = &lease.ids if request.by_id else &lease.names
    cdef unordered_map[string, size_t, SeededHash].const_iterator found
    cdef string key
    if topic.size > 0:
        key.assign(<const char*>topic.name, <size_t>topic.size)
    found = known.const_find(key)
    if found == known.const_end():
        return False
    index[0] = dereference(found).second
    return True


cdef const string* commit_topic_name(const CommitLeaseState* lease, const CommitRequest* request,
                                     const CommittedTopic* topic) noexcept nogil:
    cdef size_t index = 0
    if not topic_of(lease, request, topic, &index):
        return NULL
    return &lease.topics[index].name


cdef CommitMember* member_of(CommitLeaseState* lease, const CommitRequest* request, bint* fits) noexcept nogil:
    """The member that commits, or NULL for a commit of nobody. `fits`: whether the commit may be taken."""
    cdef unordered_map[string, CommitMember, SeededHash].iterator found
    cdef CommitMember* member
    cdef string key
    fits[0] = False
    if request.member_size <= 0:
        fits[0] = lease.without_member and request.generation < 0
        return NULL
    key.assign(<const char*>request.member, <size_t>request.member_size)
    found = lease.members.find(key)
    if found == lease.members.end():
        return NULL
    member = &dereference(found).second
    if request.generation < 0 or request.generation != member.generation:
        return NULL
    if lease.checks_instance and request.instance_size >= 0:
        key.assign(<const char*>request.instance, <size_t>request.instance_size)
        if not member.is_static or member.instance.compare(key) != 0:
            return NULL
    fits[0] = True
    return member


cdef bint is_plain(const uint8_t* text, int32_t size) noexcept nogil:
    """Whether text is ASCII: the coordinator looks at other text."""
    cdef int32_t i
    for i in range(size):
        if text[i] >= 0x80:
            return False
    return True


cdef bint find_slots(CommitLeaseState* lease, CommitRequest* request) noexcept nogil:
    """Whether the lease has a slot for each partition, and each is named once."""
    cdef unordered_map[int64_t, size_t, SeededHash].iterator found
    cdef CommittedPartition* each
    cdef size_t index = 0, next_one = 0, i, j
    lease.commits += 1
    for i in range(request.topics.size()):
        if not topic_of(lease, request, &request.topics[i], &index):
            return False
        for j in range(request.topics[i].count):
            each = &request.partitions[next_one]
            next_one += 1
            found = lease.topics[index].slots.find(each.partition)
            if found == lease.topics[index].slots.end():
                return False
            each.slot = dereference(found).second
            if lease.slots[each.slot].named == lease.commits:
                return False
            lease.slots[each.slot].named = lease.commits
            if each.metadata_size > lease.most_metadata or not is_plain(each.metadata, each.metadata_size):
                return False
    return True


# ---- the records -----------------------------------------------------------------------------------------------------

cdef void write_record(const CommitLeaseState* lease, const CommittedPartition* each, int32_t number, int64_t now_ms,
                       ByteBuffer* key, ByteBuffer* value, ByteBuffer* out) noexcept nogil:
    """OffsetCommitKey and OffsetCommitValue; see kafkapy/protocol/messages/group_metadata_records.py."""
    cdef const string* topic = &lease.topics[lease.slots[each.slot].topic].name
    cdef RecordView record
    key.size = 0
    write_int16(key, KEY_VERSION)
    write_string(key, lease.group.data(), <int32_t>lease.group.size(), False)
    write_string(key, topic.data(), <int32_t>topic.size(), False)
    write_int32(key, each.partition)
    value.size = 0
    write_int16(value, VALUE_VERSION)
    write_int64(value, each.offset)
    write_int32(value, each.leader_epoch)
    write_int16(value, <int16_t>max(each.metadata_size, 0))
    if each.metadata_size > 0:
        write_raw(value, each.metadata, <size_t>each.metadata_size)
    write_int64(value, now_ms)
    if key.error or value.error:
        out.error = 1
        return
    memset(&record, 0, sizeof(record))
    record.offset_delta = number
    record.key = key.data
    record.key_size = <int32_t>key.size
    record.value = value.data
    record.value_size = <int32_t>value.size
    record_write(out, &record)


cdef bint encode(const CommitLeaseState* lease, const CommitRequest* request, int64_t now_ms,
                 ByteBuffer* out) noexcept nogil:
    """One batch with a record for each partition. False: no memory, or too large."""
    cdef ByteBuffer key, value
    cdef size_t i
    if not leased_batch_begin(out):
        return False
    buffer_init(&key)
    buffer_init(&value)
    for i in range(request.partitions.size()):
        write_record(lease, &request.partitions[i], <int32_t>i, now_ms, &key, &value, out)
        if out.error or out.size > MOST_BYTES:
            break
    buffer_free(&key)
    buffer_free(&value)
    if out.error or out.size > MOST_BYTES:
        return False
    leased_batch_end(out, <int32_t>request.partitions.size(), now_ms)
    return True


cdef void remember(CommitLeaseState* lease, const CommitRequest* request, int64_t now_ms) noexcept nogil:
    cdef const CommittedPartition* each
    cdef CommitSlot* slot
    cdef size_t i
    for i in range(request.partitions.size()):
        each = &request.partitions[i]
        slot = &lease.slots[each.slot]
        slot.offset = each.offset
        slot.leader_epoch = each.leader_epoch
        if each.metadata_size > 0:
            slot.metadata.assign(<const char*>each.metadata, <size_t>each.metadata_size)
        else:
            slot.metadata.clear()
        slot.timestamp_ms = now_ms
        if not slot.changed:
            slot.changed = True
            lease.changed.push_back(each.slot)


cdef bint store_locked(CommitLeaseState* lease, CommitRequest* request) noexcept nogil:
    cdef bint fits = False
    cdef CommitMember* member = member_of(lease, request, &fits)
    cdef ByteBuffer batch
    cdef int64_t now_ms = wall_clock_ms()
    cdef int64_t end_offset = 0
    cdef bint stored = False
    if not fits or request.version < lease.oldest_version or not find_slots(lease, request):
        return False
    if not append_commits_at_once(lease.log):
        return False
    buffer_init(&batch)
    if encode(lease, request, now_ms, &batch):
        stored = leased_append(lease.log, lease.log_epoch, &batch, now_ms, &end_offset)
    buffer_free(&batch)
    if stored:
        remember(lease, request, now_ms)
        lease.used = True
        if member != NULL:
            member.committed_ns = monotonic_ns()
    return stored


cdef bint try_lock(CommitLeaseState* lease, int tries, unsigned int pause_us) noexcept nogil:
    while pthread_mutex_trylock(&lease.mutex):
        tries -= 1
        if tries <= 0:
            return False
        if pause_us:
            usleep(pause_us)
        else:
            sched_yield()
    return True


cdef bint commit_store(CommitTableState* table, CommitLeaseState* lease, CommitRequest* request) noexcept nogil:
    cdef bint stored = False
    if atomic_load(&lease.ended) or not try_lock(lease, YIELDS, 0):
        return False
    if not atomic_load(&lease.ended):
        stored = store_locked(lease, request)
    pthread_mutex_unlock(&lease.mutex)
    if stored:
        atomic_count(&table.committed, <int64_t>request.partitions.size())
    return stored


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
            takes = append_commits_at_once(log.state)
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
            busy = not try_lock(self.state, 1, 0)
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
            if try_lock(self.state, LOOKS, LOOK_US):
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
            heard = try_lock(self.state, 1 if self.late else LOOKS, LOOK_US)
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
            busy = not try_lock(self.state, 1, 0)
            if not busy:
                pthread_mutex_unlock(&self.state.mutex)
            forget(self.table.state, self.state)
        return busy
