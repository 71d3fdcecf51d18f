"""Share partitions for Python callers (see share/partition.pxd for what the calls mean)."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint64_t
from libcpp.vector cimport vector

from kafkapy._speedups.share.layout cimport (
    AcquiredRange,
    Acknowledgement,
    AcquireRequest,
    LogBatch,
    RecordRow,
    ShareDescription,
    ShareFetchVerdict,
    ShareLimits,
    ShareWrite,
    StateBatch,
    StateChange,
)
from kafkapy._speedups.share.partition cimport (
    SharePartitionState,
    share_acknowledge,
    share_acquire,
    share_archiving,
    share_begin_fetch,
    share_can_fetch,
    share_close,
    share_configure,
    share_dead_lettered,
    share_describe,
    share_end_fetch,
    share_error,
    share_expire,
    share_finish_write,
    share_log_start,
    share_new,
    share_next_deadline,
    share_records,
    share_release_member,
    share_take_write,
    share_unref,
)


cdef class StateWrite:
    """The changes for one Persister.write."""

    def __cinit__(self):
        self.write = new ShareWrite()

    def __dealloc__(self):
        del self.write

    @property
    def number(self):
        """The ticket of the acknowledgements in it."""
        return self.write.number

    @property
    def state_epoch(self):
        return self.write.state_epoch

    @property
    def leader_epoch(self):
        return self.write.leader_epoch

    @property
    def start_offset(self):
        return self.write.start_offset

    @property
    def delivery_complete(self):
        """The number of acknowledged and archived records, pending ones included."""
        return self.write.delivery_complete

    @property
    def batches(self):
        """(first, last, state, delivery count) in the order of offsets."""
        cdef size_t i
        cdef StateChange change
        found = []
        for i in range(self.write.changes.size()):
            change = self.write.changes[i]
            found.append((change.first, change.last, change.state, change.delivery_count))
        return found


cdef list ranges(const vector[AcquiredRange]* found):
    cdef size_t i
    listed = []
    for i in range(found.size()):
        listed.append((found[0][i].first, found[0][i].last, found[0][i].delivery_count))
    return listed


cdef class SharePartition:
    """The leader's state of one share partition.

    Any thread may call it. Times are milliseconds of one monotonic clock, errors are Kafka's error codes.
    """

    def __cinit__(self, int64_t start_offset=0, batches=(), *, int32_t state_epoch=0, int32_t leader_epoch=0,
                  int64_t lock_ms=30000, int32_t max_in_flight=2000, int32_t delivery_limit=5,
                  bint dead_letters=False):
        """`batches`: (first, last, state, delivery count) as the share coordinator has them.

        ValueError: the batches are out of order, overlap, or have impossible states or counts."""
        cdef vector[StateBatch] restored
        cdef StateBatch batch
        cdef ShareLimits limits
        for first, last, state, delivery_count in batches:
            batch.first = first
            batch.last = last
            batch.state = state
            batch.delivery_count = delivery_count
            restored.push_back(batch)
        limits.lock_ms = lock_ms
        limits.max_in_flight = max_in_flight
        limits.delivery_limit = delivery_limit
        limits.dead_letters = dead_letters
        self.state = share_new(state_epoch, leader_epoch, &limits, start_offset, restored.data(), restored.size())
        if self.state == NULL:
            raise ValueError("The state of a share partition is impossible.")

    def __dealloc__(self):
        share_unref(self.state)

    def configure(self, *, int64_t lock_ms, int32_t max_in_flight, int32_t delivery_limit, bint dead_letters=False):
        """Change the limits; True when waiting fetches may find room now."""
        cdef ShareLimits limits
        limits.lock_ms = lock_ms
        limits.max_in_flight = max_in_flight
        limits.delivery_limit = delivery_limit
        limits.dead_letters = dead_letters
        return share_configure(self.state, &limits)

    def close(self, int16_t error):
        """End the service for good, with an error for later callers."""
        share_close(self.state, error)

    @property
    def error(self):
        """Why it is closed; 0 while it serves."""
        return share_error(self.state)

    def begin_fetch(self, uint64_t owner):
        """Begin to read the log for a fetch: (verdict, offset), verdicts as ShareFetchVerdict."""
        cdef int64_t offset = -1
        cdef ShareFetchVerdict verdict = share_begin_fetch(self.state, owner, &offset)
        return <int>verdict, offset

    def end_fetch(self, uint64_t owner):
        """End the reading of a fetch; True when another one was refused meanwhile."""
        return share_end_fetch(self.state, owner)

    def can_fetch(self):
        """The offset where a fetch would read; None when nothing can be acquired."""
        cdef int64_t offset = -1
        return offset if share_can_fetch(self.state, &offset) else None

    def acquire(self, bytes member, batches, int64_t fetch_offset, *, int32_t max_records=500, int32_t batch_size=500,
                int8_t mode=0, int64_t now_ms=0):
        """Acquire records of log batches (first, last, skipped) that were read from the fetch offset on.

        Returns the acquired ranges: (first, last, delivery count)."""
        cdef vector[LogBatch] read
        cdef vector[AcquiredRange] out
        cdef LogBatch batch
        cdef AcquireRequest request
        for first, last, skipped in batches:
            batch.first = first
            batch.last = last
            batch.skipped = skipped
            read.push_back(batch)
        request.member = member
        request.member_size = <size_t>len(member)
        request.mode = mode
        request.max_records = max_records
        request.batch_size = batch_size
        request.fetch_offset = fetch_offset
        request.now_ms = now_ms
        with nogil:
            share_acquire(self.state, &request, read.data(), read.size(), &out)
        return ranges(&out)

    def acknowledge(self, bytes member, list batches, int64_t now_ms=0):
        """Acknowledge ranges (first, last, types as bytes), all or none: (error, ticket).

        The ticket is the number of the write that makes it durable, 0 when nothing is to be written."""
        cdef vector[Acknowledgement] given
        cdef Acknowledgement batch
        cdef const char* name = member
        cdef size_t size = <size_t>len(member)
        cdef int64_t ticket = 0
        cdef int16_t error
        for first, last, types in batches:      # the list keeps the types alive
            batch.first = first
            batch.last = last
            batch.types = <const int8_t*><const char*>types
            batch.type_count = len(types)
            given.push_back(batch)
        with nogil:
            error = share_acknowledge(self.state, name, size, given.data(), given.size(), now_ms, &ticket)
        return error, ticket

    def release_member(self, bytes member):
        """Release all records of a member whose session ended; the ticket, 0 when it had none."""
        return share_release_member(self.state, member, <size_t>len(member))

    def expire(self, int64_t now_ms):
        """End locks whose time is over; True when any ended."""
        return share_expire(self.state, now_ms)

    def next_deadline(self):
        """The time at which a lock may end; None when no record is acquired."""
        cdef int64_t deadline_ms = share_next_deadline(self.state)
        return None if deadline_ms < 0 else deadline_ms

    def log_start(self, int64_t offset):
        """Archive records below the log's start; True when the start offset moved."""
        return share_log_start(self.state, offset)

    def dead_lettered(self, int64_t first, int64_t last):
        """Archive records whose dead letters are written; True when the start offset moved."""
        return share_dead_lettered(self.state, first, last)

    def archiving(self):
        """Records that wait for their dead letters: (first, last, delivery count)."""
        cdef vector[AcquiredRange] out
        share_archiving(self.state, &out)
        return ranges(&out)

    def take_write(self):
        """The changes since the last write, for Persister.write; None when there are none."""
        cdef StateWrite taken = StateWrite()
        return taken if share_take_write(self.state, taken.write) else None

    def finish_write(self, StateWrite write not None, bint stored, int64_t now_ms=0):
        """End a write: its transitions hold, or are taken back. True when waiting fetches may find records now."""
        cdef bint found
        with nogil:
            found = share_finish_write(self.state, write.write, stored, now_ms)
        return found

    def describe(self):
        """The offsets and counts of the window."""
        cdef ShareDescription description
        share_describe(self.state, &description)
        return description

    def records(self):
        """The window: (first, last, state, delivery count, member, pending state) in the order of offsets."""
        cdef vector[RecordRow] rows
        cdef size_t i
        cdef RecordRow* row
        share_records(self.state, &rows)
        found = []
        for i in range(rows.size()):
            row = &rows[i]
            found.append((
                row.first,
                row.last,
                row.state,
                row.delivery_count,
                <bytes>row.member or None,
                None if row.pending < 0 else row.pending,
            ))
        return found
