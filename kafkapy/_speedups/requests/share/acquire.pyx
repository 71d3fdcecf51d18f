"""Reading and acquiring the records of one share partition (see acquire.pxd).

The log gives a snapshot of bytes from the share partition's next offset on. A walk over the headers of its batches
tells the kernel of the share partition which offsets exist; no record byte passes through this code. The reply has the
file region from the first to the last batch with acquired records, as Kafka's maybeSliceFetchRecords.

For a group that reads committed records, batches of aborted transactions are skipped: they are archived and never
delivered. The first control batch of a producer at or behind the first offset of its aborted transaction is the marker
that ends it.
"""

from libc.stdint cimport int16_t, int64_t, uint8_t
from libc.stdlib cimport free
from libcpp.algorithm cimport sort
from libcpp.pair cimport pair
from libcpp.unordered_set cimport unordered_set
from libcpp.vector cimport vector

from kafkapy._speedups.base.blocking cimport NetworkThread, blocking_begin, blocking_end
from kafkapy._speedups.base.error_codes cimport (
    ERROR_CORRUPT_MESSAGE,
    ERROR_FENCED_LEADER_EPOCH,
    ERROR_NONE,
    ERROR_NOT_LEADER_OR_FOLLOWER,
    ERROR_OFFSET_OUT_OF_RANGE,
    ERROR_UNKNOWN_LEADER_EPOCH,
    ERROR_UNKNOWN_TOPIC_ID,
    ERROR_UNKNOWN_TOPIC_OR_PARTITION,
)
from kafkapy._speedups.base.posix cimport atomic_count, monotonic_ns
from kafkapy._speedups.log.layout cimport READ_COMMITTED, READ_UNCOMMITTED, LogState, ReadResult
from kafkapy._speedups.log.read cimport read_batches
from kafkapy._speedups.log.segment cimport segment_unref
from kafkapy._speedups.log.state cimport log_unref
from kafkapy._speedups.records.file_records cimport SCAN_FOUND, BatchScan, scan_next, scan_start
from kafkapy._speedups.records.record_batch cimport CONTROL_FLAG, MAGIC_V2, TRANSACTIONAL_FLAG, BatchHeader
from kafkapy._speedups.requests.partition_table cimport (
    LOOKUP_NOT_HOSTED,
    LOOKUP_OK,
    LOOKUP_UNKNOWN_TOPIC,
    LeaderHint,
    LookupStatus,
    partition_by_id,
    partition_leader,
)
from kafkapy._speedups.requests.share.state cimport BatchPlace
from kafkapy._speedups.requests.share.entries cimport (
    ShareEntry,
    ShareTableState,
    share_changed,
    share_dirty,
    share_entry_close,
    share_entry_find,
    share_entry_open,
    share_entry_state,
    share_move_start,
    share_table,
    share_time,
)
from kafkapy._speedups.share.layout cimport SHARE_FETCH, SHARE_FETCH_CLOSED, AcquireRequest, LogBatch
from kafkapy._speedups.share.partition cimport (
    SharePartitionState,
    share_acquire,
    share_begin_fetch,
    share_can_fetch,
    share_end_fetch,
    share_error,
)

cdef enum:
    MAX_BATCHES = 10000             # that one fetch looks at in one partition
    MAX_READS = 4                   # of one partition in one try, while nothing is found
    NS_PER_MS = 1000000

cdef cppclass AbortedWalk:
    # The aborted transactions of a read, while a walk passes over them.
    vector[pair[int64_t, int64_t]] waiting  # (first offset, producer), sorted
    size_t next
    unordered_set[int64_t] active           # producers

cdef cppclass Reading:
    # The findings of a read.
    ReadResult read
    vector[LogBatch] batches
    vector[BatchPlace] places
    bint archives                           # an acquisition archives some of the offsets


cdef void refuse(SharePart* part, int16_t error) noexcept nogil:
    part.refused = True
    part.waits = False
    part.error = error


cdef void share_read_release(SharePart* part) noexcept nogil:
    if part.segment != NULL:
        segment_unref(part.segment)
        part.segment = NULL
    part.length = 0


cdef bint share_look_up(DataPlaneState* plane, ShareState* state, SharePart* part, bint create) noexcept nogil:
    cdef ShareTableState* table = share_table(plane)
    cdef LogState* log = NULL
    cdef LeaderHint hint
    cdef int16_t error = ERROR_NONE
    cdef LookupStatus status = partition_by_id(plane.partitions, part.topic.topic_id, part.partition, &log)
    if status == LOOKUP_UNKNOWN_TOPIC:
        error = ERROR_UNKNOWN_TOPIC_ID
    elif status == LOOKUP_NOT_HOSTED:
        error = ERROR_NOT_LEADER_OR_FOLLOWER
        hint = partition_leader(plane.partitions, <const uint8_t*>part.topic.name.data(), part.topic.name.size(),
                                part.partition)
        part.leader_id = hint.leader_id
        part.leader_epoch = hint.leader_epoch
    elif status != LOOKUP_OK:
        error = ERROR_UNKNOWN_TOPIC_OR_PARTITION
    if error == ERROR_NONE and part.entry == NULL:
        if create:
            part.entry = share_entry_open(table, state.group, log, part.topic.topic_id, &error, &part.leader_id,
                                          &part.leader_epoch)
        else:
            part.entry = share_entry_find(table, state.group, part.topic.topic_id, part.partition)
    if log != NULL:
        log_unref(log)
    if error != ERROR_NONE:
        part.error = error
        return False
    return True


# ---- batches ---------------------------------------------------------------------------------------------------------

cdef void aborted_begin(AbortedWalk* walk, const ReadResult* read) noexcept nogil:
    cdef int i
    walk.next = 0
    walk.active.clear()
    walk.waiting.clear()
    for i in range(read.aborted_count):
        walk.waiting.push_back(pair[int64_t, int64_t](read.aborted[i].first_offset, read.aborted[i].producer_id))
    sort(walk.waiting.begin(), walk.waiting.end())


cdef bint is_aborted(AbortedWalk* walk, const BatchHeader* header) noexcept nogil:
    """Whether a batch belongs to an aborted transaction. Called for every batch in the order of offsets."""
    while (walk.next < walk.waiting.size()
            and walk.waiting[walk.next].first <= header.base_offset + header.last_offset_delta):
        walk.active.insert(walk.waiting[walk.next].second)
        walk.next += 1
    if walk.active.empty() or header.magic < MAGIC_V2 or not walk.active.count(header.producer_id):
        return False
    if header.attributes & CONTROL_FLAG:
        walk.active.erase(header.producer_id)
        return False
    return (header.attributes & TRANSACTIONAL_FLAG) != 0


cdef void walk_batches(Reading* found, int64_t offset, int64_t wanted) noexcept nogil:
    """Finds the batches of the bytes that were read, until they hold `wanted` records from the offset on."""
    cdef BatchScan scan
    cdef LogBatch batch
    cdef BatchPlace place
    cdef AbortedWalk aborted
    cdef int64_t records = 0
    cdef int seen = 0
    cdef NetworkThread* thread
    found.batches.clear()
    found.places.clear()
    found.archives = False
    aborted_begin(&aborted, &found.read)
    thread = blocking_begin(&found.read.segment.slow)
    scan_start(&scan, found.read.segment.fd, found.read.position, found.read.position + found.read.length)
    while records < wanted and seen < MAX_BATCHES and scan_next(&scan) == SCAN_FOUND:
        seen += 1
        batch.first = scan.header.base_offset
        batch.last = scan.header.base_offset + scan.header.last_offset_delta
        batch.skipped = is_aborted(&aborted, &scan.header)
        if batch.last < offset:
            continue
        if batch.skipped or (found.batches.empty() and batch.first > offset):
            found.archives = True
        place.position = scan.at
        place.size = scan.header.size
        found.batches.push_back(batch)
        found.places.push_back(place)
        if not batch.skipped:
            records += batch.last - max(batch.first, offset) + 1
    blocking_end(thread)


# ---- reading and acquiring -------------------------------------------------------------------------------------------

cdef bint read_log(ShareTableState* table, ShareState* state, SharePart* part, int64_t offset,
                   Reading* found) noexcept nogil:
    """Takes a snapshot at the offset. False: there is nothing to acquire (part.waits, part.refused)."""
    cdef ShareEntry* entry = part.entry
    cdef int64_t most = min(state.limit, <int64_t>0x7FFFFFFF)
    read_batches(entry.log, offset, <int>most, state.accumulated == 0,
                 READ_COMMITTED if entry.settings.read_committed else READ_UNCOMMITTED, entry.leader_epoch, -1, True,
                 &found.read)
    if found.read.error == ERROR_OFFSET_OUT_OF_RANGE:
        if offset < found.read.log_start_offset:
            share_move_start(table, entry, found.read.log_start_offset)
        part.waits = True
        return False
    if (found.read.error == ERROR_NOT_LEADER_OR_FOLLOWER or found.read.error == ERROR_FENCED_LEADER_EPOCH
            or found.read.error == ERROR_UNKNOWN_LEADER_EPOCH):
        # The next fetch makes another entry, if this broker leads again.
        part.leader_id = found.read.leader_id
        part.leader_epoch = found.read.leader_epoch
        share_entry_close(table, entry, ERROR_NOT_LEADER_OR_FOLLOWER)
        refuse(part, ERROR_NOT_LEADER_OR_FOLLOWER)
        return False
    if found.read.error != ERROR_NONE:
        refuse(part, found.read.error)
        return False
    part.waits = True
    return found.read.length > 0


cdef void drop_read(Reading* found) noexcept nogil:
    if found.read.segment != NULL:
        segment_unref(found.read.segment)
        found.read.segment = NULL
    if found.read.aborted != NULL:
        free(found.read.aborted)
        found.read.aborted = NULL


cdef void keep_places(ShareState* state, SharePart* part, Reading* found) noexcept nogil:
    """Keeps the file region from the first to the last batch with acquired records."""
    cdef int64_t first = state.ranges[part.first_range].first
    cdef int64_t last = state.ranges[part.first_range + part.range_count - 1].last
    cdef size_t from_batch = 0
    cdef size_t to_batch = found.batches.size() - 1
    while from_batch < to_batch and found.batches[from_batch].last < first:
        from_batch += 1
    while to_batch > from_batch and found.batches[to_batch].first > last:
        to_batch -= 1
    part.position = found.places[from_batch].position
    part.length = found.places[to_batch].position + found.places[to_batch].size - part.position
    part.segment = found.read.segment
    found.read.segment = NULL


cdef bint acquire(ShareTableState* table, ShareState* state, SharePart* part, SharePartitionState* share,
                  int64_t offset, Reading* found) noexcept nogil:
    """Acquires records of the batches that were read. False: none."""
    cdef AcquireRequest request
    cdef int64_t acquired
    cdef bint alone = state.accumulated == 0
    walk_batches(found, offset, min(state.records_left, <int64_t>part.entry.settings.limits.max_in_flight))
    if found.batches.empty():
        if alone:
            refuse(part, ERROR_CORRUPT_MESSAGE)
        return False
    request.member = state.member.data()
    request.member_size = state.member.size()
    request.mode = state.acquire_mode
    request.max_records = <int>state.records_left
    request.batch_size = state.batch_size
    request.fetch_offset = offset
    request.now_ms = monotonic_ns() // NS_PER_MS
    part.first_range = state.ranges.size()
    acquired = share_acquire(share, &request, found.batches.data(), found.batches.size(), &state.ranges)
    part.range_count = state.ranges.size() - part.first_range
    if found.archives:
        share_dirty(table, part.entry)
    if part.range_count == 0:
        return False
    keep_places(state, part, found)
    state.records_left = max(state.records_left - acquired, <int64_t>0)
    state.limit = max(state.limit - part.length, <int64_t>0)
    state.accumulated += part.length
    atomic_count(&table.counters.acquired, acquired)
    share_time(table, part.entry)
    return True


cdef FetchTry share_try(DataPlaneState* plane, ShareState* state, SharePart* part) noexcept nogil:
    cdef ShareTableState* table = share_table(plane)
    cdef SharePartitionState* share
    cdef Reading found
    cdef int16_t error = ERROR_NONE
    cdef int64_t offset = 0
    cdef int64_t before = -1
    cdef int verdict
    cdef bint got = False
    cdef int turn
    part.waits = False
    part.readable = 0
    if part.entry == NULL and not share_look_up(plane, state, part, True):
        refuse(part, part.error)
        return TRY_REFUSED
    found.read.segment = NULL
    found.read.aborted = NULL
    for turn in range(MAX_READS):
        share = share_entry_state(part.entry, &part.waiter.seen, &error)
        if share == NULL:
            if error != ERROR_NONE:
                refuse(part, error)
                return TRY_REFUSED
            part.waits = True
            return TRY_NOTHING
        state.lock_ms = <int>part.entry.settings.limits.lock_ms
        part.waits = True
        if state.counts:
            if share_can_fetch(share, &offset) and read_log(table, state, part, offset, &found):
                part.readable = found.read.length
            drop_read(&found)
            return TRY_REFUSED if part.refused else TRY_NOTHING
        verdict = share_begin_fetch(share, state.frame.token, &offset)
        if verdict == SHARE_FETCH_CLOSED:
            refuse(part, share_error(share))
            return TRY_REFUSED
        if verdict != SHARE_FETCH:
            return TRY_NOTHING
        if read_log(table, state, part, offset, &found):
            got = acquire(table, state, part, share, offset, &found)
        drop_read(&found)
        if share_end_fetch(share, state.frame.token):
            share_changed(table, part.entry)
        if got:
            return TRY_ACQUIRED
        if part.refused:
            return TRY_REFUSED
        # Aborted transactions and the log's start may have moved the offset: there may be more behind.
        if offset == before:
            break
        before = offset
    else:
        share_changed(table, part.entry)    # the offset has moved each time: there may be more, so nobody sleeps
    return TRY_NOTHING
