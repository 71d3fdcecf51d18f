"""Updates of share-partitions that network threads append (see lease.pxd)."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    wall_clock_ms,
)
from kafkapy._speedups.base.wire cimport (
    ByteBuffer,
    buffer_free,
    buffer_init,
    write_array_length,
    write_int8,
    write_int16,
    write_int32,
    write_int64,
    write_unsigned_varint,
)
from kafkapy._speedups.log.append cimport append_room_at_once
from kafkapy._speedups.log.partition_log cimport PartitionLog
from kafkapy._speedups.log.state cimport log_ref, log_unref
from kafkapy._speedups.records.record_batch cimport RecordView, record_write
from kafkapy._speedups.requests.leased_append cimport leased_append, leased_batch_begin, leased_batch_end
from kafkapy._speedups.share.layout cimport SHARE_ARCHIVING, ShareWrite, StateChange

cdef enum:
    VALUE_VERSION = 0
    UNKNOWN_DELIVERY_COMPLETE = -1          # the default of the tagged field
    DELIVERY_COMPLETE_TAG = 0
    MOST_CHANGES = 1000                     # that the coordinator has not heard of
    WIDEST_UPDATE = 500                     # changes of one update; wider ones go to the coordinator
    CHANGES_KEPT = 64                       # before those below the start offset are dropped


cdef struct LeaseUpdate:            # what the log gets of a write
    int64_t start_offset
    int32_t delivery_complete


cdef void lease_free(LeaseState* lease) noexcept nogil:
    log_unref(lease.log)
    pthread_mutex_destroy(&lease.mutex)
    del lease


cdef bint lease_begin(LeaseState* lease) noexcept nogil:
    cdef bint free_now
    if append_room_at_once(lease.log) == 0:
        return False
    pthread_mutex_lock(&lease.mutex)
    free_now = not lease.ended and not lease.busy and lease.left > 0
    if free_now:
        lease.busy = True
    pthread_mutex_unlock(&lease.mutex)
    return free_now


# ---- the record ------------------------------------------------------------------------------------------------------

cdef bint has_letters(const ShareWrite* write) noexcept nogil:
    """Whether records wait for dead letters, which Python sends when the write has ended."""
    cdef size_t i
    for i in range(write.changes.size()):
        if write.changes[i].state == SHARE_ARCHIVING:
            return True
    return False


cdef void combine(const vector[StateChange]* changes, int64_t start_offset, vector[StateChange]* out) noexcept nogil:
    """The changes from the start offset on; neighbours of one state and count as one."""
    cdef StateChange change
    cdef StateChange* before
    cdef size_t i
    for i in range(changes.size()):
        change = changes[0][i]
        if change.last < start_offset:
            continue
        change.first = max(change.first, start_offset)
        if not out.empty():
            before = &out.back()
            if (before.last + 1 == change.first and before.state == change.state
                    and before.delivery_count == change.delivery_count):
                before.last = change.last
                continue
        out.push_back(change)


cdef void write_value(const LeaseState* lease, const LeaseUpdate* update, const vector[StateChange]* changes,
                      ByteBuffer* out) noexcept nogil:
    """ShareUpdateValue; see kafkapy/protocol/messages/share_state_records.py."""
    cdef size_t i
    write_int16(out, VALUE_VERSION)
    write_int32(out, lease.snapshot_epoch)
    write_int32(out, lease.leader_epoch)
    write_int64(out, update.start_offset)
    write_array_length(out, <int32_t>changes.size(), True)
    for i in range(changes.size()):
        write_int64(out, changes[0][i].first)
        write_int64(out, changes[0][i].last)
        write_int8(out, changes[0][i].state)
        write_int16(out, changes[0][i].delivery_count)
        write_unsigned_varint(out, 0)
    if update.delivery_complete == UNKNOWN_DELIVERY_COMPLETE:
        write_unsigned_varint(out, 0)
    else:
        write_unsigned_varint(out, 1)
        write_unsigned_varint(out, DELIVERY_COMPLETE_TAG)
        write_unsigned_varint(out, sizeof(int32_t))
        write_int32(out, update.delivery_complete)


cdef void encode(const LeaseState* lease, const LeaseUpdate* update, const vector[StateChange]* changes,
                 int64_t now_ms, ByteBuffer* out) noexcept nogil:
    """Encodes an update as a batch of one record."""
    cdef ByteBuffer value
    cdef RecordView record
    buffer_init(&value)
    write_value(lease, update, changes, &value)
    memset(&record, 0, sizeof(record))
    record.key = <const uint8_t*>lease.key.data()
    record.key_size = <int32_t>lease.key.size()
    record.value = value.data
    record.value_size = <int32_t>value.size
    if value.error or not leased_batch_begin(out):
        out.error = 1
    else:
        record_write(out, &record)
    buffer_free(&value)
    leased_batch_end(out, 1, now_ms)


# ---- the append ------------------------------------------------------------------------------------------------------

cdef void remember(LeaseState* lease, const LeaseUpdate* update, const vector[StateChange]* changes,
                   int64_t end_offset) noexcept nogil:
    """Notes an update for the coordinator. Changes that the start offset has passed tell it nothing."""
    cdef size_t i, kept = 0
    lease.left -= 1
    lease.updates += 1
    lease.start_offset = update.start_offset
    lease.delivery_complete = update.delivery_complete
    lease.end_offset = end_offset
    lease.changes.insert(lease.changes.end(), changes.begin(), changes.end())
    if lease.changes.size() <= CHANGES_KEPT:
        return
    for i in range(lease.changes.size()):
        if lease.changes[i].last >= update.start_offset:
            lease.changes[kept] = lease.changes[i]
            kept += 1
    lease.changes.resize(kept)
    if kept > MOST_CHANGES:
        lease.ended = True


cdef bint lease_store(LeaseState* lease, const ShareWrite* write) noexcept nogil:
    cdef vector[StateChange] changes
    cdef LeaseUpdate update
    cdef ByteBuffer batch
    cdef int64_t now_ms = wall_clock_ms()
    cdef int64_t end_offset = 0
    cdef bint stored = False
    # Nobody else changes these while an update is under way. The start offset never goes back.
    update.start_offset = max(write.start_offset, lease.start_offset)
    update.delivery_complete = <int32_t>write.delivery_complete
    if write.start_offset < lease.start_offset:
        update.delivery_complete = lease.delivery_complete
    elif write.start_offset == lease.start_offset:
        update.delivery_complete = max(update.delivery_complete, lease.delivery_complete)
    if (write.state_epoch >= lease.state_epoch and write.changes.size() <= WIDEST_UPDATE
            and not has_letters(write)):
        combine(&write.changes, update.start_offset, &changes)
        buffer_init(&batch)
        encode(lease, &update, &changes, now_ms, &batch)
        stored = not batch.error and leased_append(lease.log, lease.log_epoch, &batch, now_ms, &end_offset)
        buffer_free(&batch)
    pthread_mutex_lock(&lease.mutex)
    lease.busy = False
    if end_offset:
        # The coordinator goes on from what the log has, committed or not; else its next record may go back.
        remember(lease, &update, &changes, end_offset)
    stored = stored and not lease.abandoned
    if not stored:
        lease.ended = True
    pthread_mutex_unlock(&lease.mutex)
    return stored


# ---- for the share coordinator ---------------------------------------------------------------------------------------

cdef class StateLease:
    """The share coordinator's end of a lease, from StateWrite.lend. The control loop uses it."""

    def __cinit__(self, PartitionLog log not None, int log_epoch, bytes key not None, int snapshot_epoch,
                  int state_epoch, int leader_epoch, int64_t start_offset, int delivery_complete, int updates):
        """`key`: of the updates, encoded; `updates`: how many may follow before the next snapshot."""
        cdef LeaseState* state = new LeaseState()
        state.references = 1
        state.log = log.state
        log_ref(state.log)
        state.log_epoch = log_epoch
        state.key = key
        state.snapshot_epoch = snapshot_epoch
        state.state_epoch = state_epoch
        state.leader_epoch = leader_epoch
        pthread_mutex_init(&state.mutex, NULL)
        state.ended = state.abandoned = state.busy = False
        state.left = updates
        state.start_offset = start_offset
        state.delivery_complete = delivery_complete
        state.updates = 0
        state.end_offset = 0
        self.state = state

    def __dealloc__(self):
        if self.state != NULL:
            with nogil:
                lease_unref(self.state)

    @property
    def busy(self):
        """Whether an update is under way."""
        cdef bint busy
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            busy = self.state.busy
            pthread_mutex_unlock(&self.state.mutex)
        return busy

    cdef tuple told(self, bint ends):
        cdef vector[StateChange] changes
        cdef int updates = 0
        cdef int delivery_complete = 0
        cdef int64_t start_offset = 0
        cdef int64_t end_offset = 0
        cdef bint busy
        cdef size_t i
        # A network thread may wait for the mutex: it is not held for the GIL.
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            busy = self.state.busy
            if ends:
                self.state.ended = True
            if not (ends and busy):
                changes.swap(self.state.changes)
                updates = self.state.updates
                self.state.updates = 0
                start_offset = self.state.start_offset
                delivery_complete = self.state.delivery_complete
                end_offset = self.state.end_offset
            pthread_mutex_unlock(&self.state.mutex)
        if ends and busy:
            return None
        return (updates, start_offset, delivery_complete, end_offset,
                [(changes[i].first, changes[i].last, changes[i].state, changes[i].delivery_count)
                 for i in range(changes.size())])

    def tell(self):
        """(updates, start offset, delivery-complete count, end offset of the log, state batches) of the updates since
        the last call, whose batches may overlap. The offset counts only with updates."""
        return self.told(False)

    def end(self):
        """Ends the lease, and tells as `tell`; None: an update is under way, call again."""
        return self.told(True)

    def abandon(self):
        """Ends the lease without a word: the coordinator reads the log again. Whether an update is under way, which the
        coordinator then gets as a write."""
        cdef bint busy
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            self.state.ended = self.state.abandoned = True
            busy = self.state.busy
            pthread_mutex_unlock(&self.state.mutex)
        return busy
