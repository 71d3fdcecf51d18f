"""Offsets that network threads append and remember (see store.pxd)."""

from cython.operator cimport dereference
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memset
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map

from kafkapy._speedups.base.posix cimport (
    atomic_count,
    atomic_load,
    monotonic_ns,
    pthread_mutex_unlock,
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
from kafkapy._speedups.log.append cimport append_room_at_once
from kafkapy._speedups.records.record_batch cimport RecordView, record_write
from kafkapy._speedups.requests.leased_append cimport leased_append, leased_batch_begin, leased_batch_end
from kafkapy._speedups.requests.offset_commit.lease cimport (
    CommitLeaseState,
    CommitMember,
    CommitSlot,
    CommittedPartition,
    commit_lease_lock,
)

cdef enum:
    KEY_VERSION = 1
    VALUE_VERSION = 3
    MOST_BYTES = 65536              # of a batch; larger commits go to the coordinator
    YIELDS = 20                     # of a network thread that waits for another's commit of the group

cdef struct Batch:
    ByteBuffer out
    ByteBuffer key                  # of the next record
    ByteBuffer value
    int64_t room                    # bytes, at most
    int64_t now_ms                  # of the last commit


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


cdef bint add_records(Commit* commit, int32_t* records, Batch* batch) noexcept nogil:
    """Adds a record for each partition to the batch. False: it has no room, and is as before."""
    cdef const CommitRequest* request = commit.request
    cdef size_t before = batch.out.size, i
    cdef int32_t number = records[0]
    for i in range(request.partitions.size()):
        write_record(commit.lease, &request.partitions[i], number, commit.now_ms, &batch.key, &batch.value, &batch.out)
        number += 1
        if batch.out.error or <int64_t>batch.out.size > batch.room:
            break
    if not batch.out.error and <int64_t>batch.out.size > batch.room:
        batch.out.size = before
        return False
    records[0] = number
    batch.now_ms = commit.now_ms
    return not batch.out.error


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


# ---- commits of one log, as one batch --------------------------------------------------------------------------------

cdef bint lock_for(Commit* commits, size_t which, int tries) noexcept nogil:
    """Locks the commit's lease. True also if a former commit has locked it."""
    cdef size_t i
    if atomic_load(&commits[which].lease.ended):
        return False
    for i in range(which):
        if commits[i].locks and commits[i].lease == commits[which].lease:
            return True
    commits[which].locks = commit_lease_lock(commits[which].lease, tries, 0)
    return commits[which].locks


cdef void unlock(Commit* commit) noexcept nogil:
    if commit.locks:
        commit.locks = False
        pthread_mutex_unlock(&commit.lease.mutex)


cdef bint fits_locked(Commit* commit) noexcept nogil:
    """Whether the lease has all that the commit names."""
    cdef bint fits = False
    if atomic_load(&commit.lease.ended) or commit.request.version < commit.lease.oldest_version:
        return False
    commit.member = member_of(commit.lease, commit.request, &fits)
    return fits and find_slots(commit.lease, commit.request)


cdef int32_t gather_locked(Commit* commits, size_t count, Batch* batch) noexcept nogil:
    """Writes the records of the commits that may be stored, and keeps the leases of these locked. Returns how many
    records there are."""
    cdef int tries = YIELDS if count == 1 else 1
    cdef Commit* commit
    cdef int32_t records = 0
    cdef bint has_room = True
    cdef size_t i
    for i in range(count):
        commit = &commits[i]
        if commit.lease.log_epoch != commits[0].lease.log_epoch or not lock_for(commits, i, tries):
            continue
        commit.now_ms = wall_clock_ms()
        if fits_locked(commit):
            has_room = commit.stored = add_records(commit, &records, batch)
        if not commit.stored:
            # Nobody waits for the append of others.
            unlock(commit)
        if not has_room:
            break
    return 0 if batch.out.error else records


cdef void commit_store(CommitTableState* table, Commit* commits, size_t count) noexcept nogil:
    cdef CommitLeaseState* first = commits[0].lease
    cdef Batch batch
    cdef int64_t now_ns, end_offset = 0
    cdef int32_t records = 0
    cdef bint appended = False
    cdef size_t i
    for i in range(count):
        commits[i].locks = commits[i].stored = False
        commits[i].member = NULL
    buffer_init(&batch.out)
    buffer_init(&batch.key)
    buffer_init(&batch.value)
    batch.now_ms = 0
    batch.room = min(<int64_t>MOST_BYTES, append_room_at_once(first.log))
    if batch.room > 0 and leased_batch_begin(&batch.out):
        records = gather_locked(commits, count, &batch)
    if records > 0:
        leased_batch_end(&batch.out, records, batch.now_ms)
        appended = leased_append(first.log, first.log_epoch, &batch.out, batch.now_ms, &end_offset)
    now_ns = monotonic_ns()
    for i in range(count):
        commits[i].stored = commits[i].stored and appended
        if commits[i].stored:
            remember(commits[i].lease, commits[i].request, commits[i].now_ms)
            commits[i].lease.used = True
            if commits[i].member != NULL:
                commits[i].member.committed_ns = now_ns
    for i in range(count):
        unlock(&commits[i])
    if appended:
        atomic_count(&table.committed, records)
    buffer_free(&batch.out)
    buffer_free(&batch.key)
    buffer_free(&batch.value)
