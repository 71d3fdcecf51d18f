"""Idempotence and transactions on one partition (see producer_state.pxd for the snapshot's format)."""

from cython.operator cimport dereference as deref, predecrement as dec, preincrement as inc
from libc.stdint cimport INT32_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset
from libcpp.map cimport map as ordered_map
from libcpp.unordered_map cimport unordered_map

from kafkapy._speedups.base.crc32c cimport crc32c_of
from kafkapy._speedups.base.error_codes cimport (
    ERROR_INVALID_PRODUCER_EPOCH,
    ERROR_INVALID_TXN_STATE,
    ERROR_OUT_OF_ORDER_SEQUENCE_NUMBER,
    ERROR_TRANSACTION_COORDINATOR_FENCED,
)
from kafkapy._speedups.base.posix cimport atomic_add
from kafkapy._speedups.base.wire cimport (
    ByteBuffer,
    Cursor,
    cursor_init,
    load_int16,
    load_int32,
    read_int16,
    read_int32,
    read_int64,
    read_int8,
    read_uint32,
    read_varint,
    read_varlong,
    remaining,
    store_int32,
    take,
    write_int16,
    write_int32,
    write_int64,
)
from kafkapy._speedups.records.record_batch cimport (
    BATCH_HEADER_SIZE,
    CODEC_MASK,
    CONTROL_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)

cdef enum:
    SNAPSHOT_VERSION = 1
    SNAPSHOT_CRC_AT = 2
    SNAPSHOT_ENTRIES_AT = SNAPSHOT_CRC_AT + 4
    SNAPSHOT_ENTRY_SIZE = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8

cdef const char* OVERTAKES = b"An earlier batch of this producer waits for the transaction coordinator still."

cdef int64_t last_guard = 0


cdef int32_t sequence_minus(int32_t sequence, int32_t n) noexcept nogil:
    """Subtracts sequence numbers, which run from 0 to 2^31-1 and start again at 0."""
    return sequence - n if sequence >= n else <int32_t>(INT32_MAX - (n - sequence) + 1)


cdef int32_t sequence_plus(int32_t sequence, int32_t n) noexcept nogil:
    return sequence + n if sequence <= INT32_MAX - n else <int32_t>(n - (INT32_MAX - sequence) - 1)


cdef int32_t last_sequence(const BatchHeader* header) noexcept nogil:
    return -1 if header.base_sequence < 0 else sequence_plus(header.base_sequence, header.last_offset_delta)


cdef ProducerStateManager* producer_state_new(int64_t expiration_ms) noexcept nogil:
    cdef ProducerStateManager* state = new ProducerStateManager()
    state.end_offset = 0
    state.snapshot_offset = 0
    state.expiration_ms = expiration_ms
    return state


cdef void producer_state_free(ProducerStateManager* state) noexcept nogil:
    if state != NULL:
        del state


cdef bint control_marker_parse(const uint8_t* data, int64_t size, const BatchHeader* header,
                               ControlMarker* out) noexcept nogil:
    """Parses a marker. Key: int16 version, int16 type (0 abort, 1 commit). Value: int16 version, int32 coordinator
    epoch."""
    cdef Cursor c
    cdef const uint8_t* key
    cdef const uint8_t* value
    cdef int32_t key_size, value_size
    cdef int16_t kind
    out.type = CONTROL_NONE
    out.coordinator_epoch = -1
    if not header.attributes & CONTROL_FLAG or header.record_count == 0:
        return True
    if header.attributes & CODEC_MASK:
        return False
    cursor_init(&c, data + BATCH_HEADER_SIZE, size - BATCH_HEADER_SIZE)
    read_varint(&c)         # length
    read_int8(&c)           # attributes
    read_varlong(&c)        # timestamp delta
    read_varint(&c)         # offset delta
    key_size = read_varint(&c)
    key = take(&c, key_size)
    value_size = read_varint(&c)
    value = take(&c, value_size if value_size >= 0 else 0)
    if c.error or key_size < 4 or load_int16(key) < 0:
        return False
    kind = load_int16(key + 2)
    if kind != CONTROL_ABORT and kind != CONTROL_COMMIT:
        return True
    if value_size < 6 or load_int16(value) < 0:
        return False
    out.type = <int8_t>kind
    out.coordinator_epoch = load_int32(value + 2)
    return True


cdef SequenceVerdict refuse(SequenceCheck* out, int16_t error, const char* message) noexcept nogil:
    out.error = error
    out.message = message
    return SEQUENCE_REFUSED


cdef SequenceVerdict check_sequence(const ProducerEntry* entry, const BatchHeader* header,
                                    SequenceCheck* out) noexcept nogil:
    """Checks a sequence number. An unknown producer may begin with any number, as in Kafka since KIP-360."""
    cdef int32_t last
    if header.producer_epoch != entry.epoch:
        if header.base_sequence != 0 and entry.epoch != -1:
            return refuse(out, ERROR_OUT_OF_ORDER_SEQUENCE_NUMBER,
                          "A new producer epoch must begin with sequence number 0.")
        return SEQUENCE_OK
    last = entry.batches[entry.count - 1].last_sequence if entry.count else -1
    if header.base_sequence == <int64_t>last + 1 or (header.base_sequence == 0 and last == INT32_MAX):
        return SEQUENCE_OK
    return refuse(out, ERROR_OUT_OF_ORDER_SEQUENCE_NUMBER,
                  "The sequence number does not follow the last one of this producer.")


cdef bint overtakes(ProducerStateManager* state, const BatchHeader* header) noexcept nogil:
    """Whether an unverified earlier batch of the producer will come again: this batch must not be appended before
    it."""
    cdef unordered_map[int64_t, Verification, SeededHash].iterator found
    if state.verifications.empty():
        return False
    found = state.verifications.find(header.producer_id)
    return (found != state.verifications.end() and deref(found).second.epoch == header.producer_epoch
            and header.base_sequence > deref(found).second.lowest_sequence)


cdef SequenceVerdict producer_check(ProducerStateManager* state, const BatchHeader* header, const ControlMarker* marker,
                                    int origin, bint adds_partitions, SequenceCheck* out) noexcept nogil:
    cdef unordered_map[int64_t, ProducerEntry, SeededHash].iterator found
    cdef ProducerEntry* entry
    cdef BatchMetadata* batch
    cdef int32_t i, last
    out.error = 0
    out.message = NULL
    if header.producer_id < 0 or origin == ORIGIN_REPLICATION:
        return SEQUENCE_OK
    found = state.producers.find(header.producer_id)
    if found == state.producers.end():
        if origin == ORIGIN_CLIENT and header.producer_epoch < -1:
            return refuse(out, ERROR_INVALID_PRODUCER_EPOCH, "A producer epoch cannot be negative.")
        if origin == ORIGIN_CLIENT and header.attributes & TRANSACTIONAL_FLAG:
            if adds_partitions and header.base_sequence != 0:
                return refuse(out, ERROR_OUT_OF_ORDER_SEQUENCE_NUMBER,
                              "The first batch of a transaction must begin with sequence number 0.")
            if overtakes(state, header):
                return refuse(out, ERROR_OUT_OF_ORDER_SEQUENCE_NUMBER, OVERTAKES)
        return SEQUENCE_OK
    entry = &deref(found).second
    if origin == ORIGIN_CLIENT and header.producer_epoch == entry.epoch:
        last = last_sequence(header)
        for i in range(entry.count):
            batch = &entry.batches[i]
            if (last == batch.last_sequence
                    and header.base_sequence == sequence_minus(batch.last_sequence, batch.offset_delta)):
                out.base_offset = batch.last_offset - batch.offset_delta
                out.last_offset = batch.last_offset
                out.timestamp = batch.timestamp
                return SEQUENCE_DUPLICATE
    if header.producer_epoch < entry.epoch:
        return refuse(out, ERROR_INVALID_PRODUCER_EPOCH, "A producer with a newer epoch has written to this partition.")
    if header.attributes & CONTROL_FLAG:
        if marker.type != CONTROL_NONE and entry.coordinator_epoch > marker.coordinator_epoch:
            return refuse(out, ERROR_TRANSACTION_COORDINATOR_FENCED,
                          "A newer transaction coordinator has written a marker here.")
        return SEQUENCE_OK
    if origin == ORIGIN_CLIENT:
        if check_sequence(entry, header, out) != SEQUENCE_OK:
            return SEQUENCE_REFUSED
        if header.attributes & TRANSACTIONAL_FLAG and overtakes(state, header):
            return refuse(out, ERROR_OUT_OF_ORDER_SEQUENCE_NUMBER, OVERTAKES)
    if entry.transaction_start >= 0 and not header.attributes & TRANSACTIONAL_FLAG:
        return refuse(out, ERROR_INVALID_TXN_STATE,
                      "A transaction of this producer is open, so only transactional records are taken.")
    return SEQUENCE_OK


cdef bint producer_in_transaction(ProducerStateManager* state, const BatchHeader* header) noexcept nogil:
    cdef unordered_map[int64_t, ProducerEntry, SeededHash].iterator found = state.producers.find(header.producer_id)
    return (found != state.producers.end() and deref(found).second.transaction_start >= 0
            and deref(found).second.epoch == header.producer_epoch)


cdef int64_t producer_start_verification(ProducerStateManager* state, const BatchHeader* header, bint adds_partitions,
                                         int64_t now_ms) noexcept nogil:
    cdef unordered_map[int64_t, Verification, SeededHash].iterator found = state.verifications.find(header.producer_id)
    cdef Verification fresh
    cdef Verification* known
    if found == state.verifications.end():
        fresh.guard = atomic_add(&last_guard, 1)
        fresh.started_ms = now_ms
        fresh.lowest_sequence = header.base_sequence
        fresh.epoch = header.producer_epoch
        fresh.adds_partitions = adds_partitions
        state.verifications[header.producer_id] = fresh
        return fresh.guard
    known = &deref(found).second
    if header.producer_epoch > known.epoch:
        known.epoch = header.producer_epoch
        known.lowest_sequence = header.base_sequence
    elif header.producer_epoch == known.epoch and header.base_sequence < known.lowest_sequence:
        known.lowest_sequence = header.base_sequence
    return known.guard


cdef bint producer_is_verified(ProducerStateManager* state, const BatchHeader* header, int64_t guard) noexcept nogil:
    cdef unordered_map[int64_t, Verification, SeededHash].iterator found = state.verifications.find(header.producer_id)
    return found != state.verifications.end() and deref(found).second.guard == guard


cdef void end_verification(ProducerStateManager* state, const BatchHeader* header) noexcept nogil:
    """Ends a verification after a transactional batch or a marker, which makes an earlier answer of the coordinator
    void.

    One exception: each transaction has a new epoch, and the marker has the waiting batch's epoch. The marker then ends
    the transaction before."""
    cdef unordered_map[int64_t, Verification, SeededHash].iterator found = state.verifications.find(header.producer_id)
    cdef Verification* known
    if found == state.verifications.end():
        return
    known = &deref(found).second
    if not (known.adds_partitions and header.attributes & CONTROL_FLAG and header.producer_epoch == known.epoch):
        state.verifications.erase(found)


cdef void set_epoch(ProducerEntry* entry, int16_t epoch) noexcept nogil:
    if entry.epoch != epoch:
        entry.count = 0
        entry.epoch = epoch


cdef void producer_apply(ProducerStateManager* state, const BatchHeader* header, const ControlMarker* marker,
                         int64_t base_offset, int64_t last_offset, CompletedTransaction* completed) noexcept nogil:
    cdef unordered_map[int64_t, ProducerEntry, SeededHash].iterator found
    cdef ordered_map[int64_t, Transaction].iterator open_one
    cdef ProducerEntry fresh
    cdef ProducerEntry* entry
    cdef Transaction transaction
    cdef int32_t i
    completed.completed = False
    state.end_offset = last_offset + 1
    if header.producer_id < 0 or (header.attributes & CONTROL_FLAG and marker.type == CONTROL_NONE):
        return
    found = state.producers.find(header.producer_id)
    if found == state.producers.end():
        memset(&fresh, 0, sizeof(fresh))
        fresh.producer_id = header.producer_id
        fresh.epoch = -1
        fresh.coordinator_epoch = -1
        fresh.last_timestamp = -1
        fresh.transaction_start = -1
        state.producers[header.producer_id] = fresh
        found = state.producers.find(header.producer_id)
    entry = &deref(found).second
    if header.attributes & TRANSACTIONAL_FLAG and not state.verifications.empty():
        end_verification(state, header)
    set_epoch(entry, header.producer_epoch)
    entry.last_timestamp = header.max_timestamp
    if header.attributes & CONTROL_FLAG:
        entry.coordinator_epoch = marker.coordinator_epoch
        if entry.transaction_start < 0:
            return      # this transaction wrote nothing here
        completed.completed = True
        completed.aborted = marker.type == CONTROL_ABORT
        completed.producer_id = header.producer_id
        completed.first_offset = entry.transaction_start
        completed.last_offset = last_offset
        completed.last_stable_offset = last_offset + 1
        open_one = state.ongoing.begin()
        while open_one != state.ongoing.end():
            if deref(open_one).second.producer_id != header.producer_id:
                completed.last_stable_offset = deref(open_one).first
                break
            inc(open_one)
        transaction = state.ongoing[entry.transaction_start]
        transaction.producer_id = header.producer_id
        transaction.first_offset = entry.transaction_start
        transaction.last_offset = last_offset
        state.ongoing.erase(entry.transaction_start)
        state.unreplicated[entry.transaction_start] = transaction
        entry.transaction_start = -1
        return
    if entry.count == KEPT_BATCHES:
        for i in range(KEPT_BATCHES - 1):
            entry.batches[i] = entry.batches[i + 1]
        entry.count -= 1
    entry.batches[entry.count].last_sequence = last_sequence(header)
    entry.batches[entry.count].last_offset = last_offset
    entry.batches[entry.count].offset_delta = <int32_t>(last_offset - base_offset)
    entry.batches[entry.count].timestamp = header.max_timestamp
    entry.count += 1
    if header.attributes & TRANSACTIONAL_FLAG and entry.transaction_start < 0:
        entry.transaction_start = base_offset
        transaction.producer_id = header.producer_id
        transaction.first_offset = base_offset
        transaction.last_offset = -1
        transaction.segment_base = -1
        transaction.position = -1
        state.ongoing[base_offset] = transaction


cdef void producer_place_batch(ProducerStateManager* state, int64_t offset, int64_t segment_base,
                               int64_t position) noexcept nogil:
    cdef ordered_map[int64_t, Transaction].iterator newest
    if state.ongoing.empty():
        return
    newest = state.ongoing.end()
    dec(newest)
    if deref(newest).first == offset:
        deref(newest).second.segment_base = segment_base
        deref(newest).second.position = position


cdef void forget_places(ordered_map[int64_t, Transaction]* transactions) noexcept nogil:
    cdef ordered_map[int64_t, Transaction].iterator at = transactions.begin()
    while at != transactions.end():
        deref(at).second.position = -1
        inc(at)


cdef void producer_forget_places(ProducerStateManager* state) noexcept nogil:
    forget_places(&state.ongoing)
    forget_places(&state.unreplicated)


cdef const Transaction* producer_first_unstable(ProducerStateManager* state) noexcept nogil:
    cdef const Transaction* first = NULL
    if not state.ongoing.empty():
        first = &deref(state.ongoing.begin()).second
    if not state.unreplicated.empty() and (first == NULL
                                           or deref(state.unreplicated.begin()).first < first.first_offset):
        first = &deref(state.unreplicated.begin()).second
    return first


cdef int64_t producer_first_unstable_offset(ProducerStateManager* state) noexcept nogil:
    cdef const Transaction* first = producer_first_unstable(state)
    return first.first_offset if first != NULL else -1


cdef void producer_high_watermark(ProducerStateManager* state, int64_t high_watermark) noexcept nogil:
    cdef ordered_map[int64_t, Transaction].iterator at = state.unreplicated.begin()
    while at != state.unreplicated.end():
        if deref(at).second.last_offset < high_watermark:
            at = state.unreplicated.erase(at)
        else:
            inc(at)


cdef bint expired(ProducerStateManager* state, const ProducerEntry* entry, int64_t now_ms) noexcept nogil:
    return entry.transaction_start < 0 and now_ms - entry.last_timestamp >= state.expiration_ms


cdef int32_t producer_expire(ProducerStateManager* state, int64_t now_ms) noexcept nogil:
    """Forgets expired producers; returns their number."""
    cdef unordered_map[int64_t, ProducerEntry, SeededHash].iterator at = state.producers.begin()
    cdef unordered_map[int64_t, Verification, SeededHash].iterator waiting = state.verifications.begin()
    cdef int32_t count = 0
    while at != state.producers.end():
        if expired(state, &deref(at).second, now_ms):
            at = state.producers.erase(at)
            count += 1
        else:
            inc(at)
    while waiting != state.verifications.end():
        if now_ms - deref(waiting).second.started_ms >= state.expiration_ms:
            waiting = state.verifications.erase(waiting)
        else:
            inc(waiting)
    return count


cdef void producer_clear(ProducerStateManager* state, int64_t end_offset) noexcept nogil:
    state.producers.clear()
    state.ongoing.clear()
    state.unreplicated.clear()
    state.end_offset = end_offset
    state.snapshot_offset = 0


cdef void producer_snapshot_write(ProducerStateManager* state, ByteBuffer* out) noexcept nogil:
    cdef unordered_map[int64_t, ProducerEntry, SeededHash].iterator at = state.producers.begin()
    cdef ProducerEntry* entry
    cdef BatchMetadata* last
    cdef size_t start = out.size
    write_int16(out, SNAPSHOT_VERSION)
    write_int32(out, 0)
    write_int32(out, <int32_t>state.producers.size())
    while at != state.producers.end():
        entry = &deref(at).second
        last = &entry.batches[entry.count - 1] if entry.count else NULL
        write_int64(out, entry.producer_id)
        write_int16(out, entry.epoch)
        write_int32(out, last.last_sequence if last != NULL else -1)
        write_int64(out, last.last_offset if last != NULL else -1)
        write_int32(out, last.offset_delta if last != NULL else 0)
        write_int64(out, entry.last_timestamp)
        write_int32(out, entry.coordinator_epoch)
        write_int64(out, entry.transaction_start)
        inc(at)
    if not out.error:
        store_int32(out.data + start + SNAPSHOT_CRC_AT,
                    <int32_t>crc32c_of(0, out.data + start + SNAPSHOT_ENTRIES_AT,
                                       out.size - start - SNAPSHOT_ENTRIES_AT))


cdef bint producer_snapshot_read(ProducerStateManager* state, const uint8_t* data, int64_t size, int64_t offset,
                                 int64_t now_ms) noexcept nogil:
    cdef Cursor c
    cdef uint32_t crc
    cdef int32_t count, i
    cdef ProducerEntry entry
    cdef Transaction transaction
    producer_clear(state, offset)
    cursor_init(&c, data, size)
    if read_int16(&c) != SNAPSHOT_VERSION:
        return False
    crc = read_uint32(&c)
    if c.error or crc != crc32c_of(0, data + SNAPSHOT_ENTRIES_AT, <size_t>(size - SNAPSHOT_ENTRIES_AT)):
        return False
    count = read_int32(&c)
    if c.error or count < 0 or count != remaining(&c) // SNAPSHOT_ENTRY_SIZE or remaining(&c) % SNAPSHOT_ENTRY_SIZE:
        return False
    for i in range(count):
        memset(&entry, 0, sizeof(entry))
        entry.producer_id = read_int64(&c)
        entry.epoch = read_int16(&c)
        entry.batches[0].last_sequence = read_int32(&c)
        entry.batches[0].last_offset = read_int64(&c)
        entry.batches[0].offset_delta = read_int32(&c)
        entry.last_timestamp = read_int64(&c)
        entry.batches[0].timestamp = entry.last_timestamp
        entry.coordinator_epoch = read_int32(&c)
        entry.transaction_start = read_int64(&c)
        entry.count = 1 if entry.batches[0].last_offset >= 0 else 0
        if expired(state, &entry, now_ms):
            continue
        state.producers[entry.producer_id] = entry
        if entry.transaction_start >= 0:
            transaction.producer_id = entry.producer_id
            transaction.first_offset = entry.transaction_start
            transaction.last_offset = -1
            transaction.segment_base = -1
            transaction.position = -1
            state.ongoing[entry.transaction_start] = transaction
    state.snapshot_offset = offset
    return True


def read_snapshot(bytes data):
    """The producers of a snapshot file, as dicts with Kafka's field names; None when the file is corrupt. For tests and
    tools."""
    cdef ProducerStateManager* state = producer_state_new(0x7FFFFFFFFFFFFFFF)
    cdef unordered_map[int64_t, ProducerEntry, SeededHash].iterator at
    cdef ProducerEntry* entry
    try:
        if not producer_snapshot_read(state, data, len(data), 0, 0):
            return None
        found = []
        at = state.producers.begin()
        while at != state.producers.end():
            entry = &deref(at).second
            found.append(producer_dict(entry))
            inc(at)
        return sorted(found, key=lambda producer: producer["producer_id"])
    finally:
        producer_state_free(state)


cdef object producer_dict(ProducerEntry* entry):
    cdef BatchMetadata* last = &entry.batches[entry.count - 1] if entry.count else NULL
    return {
        "producer_id": entry.producer_id,
        "epoch": entry.epoch,
        "last_sequence": last.last_sequence if last != NULL else -1,
        "last_offset": last.last_offset if last != NULL else -1,
        "offset_delta": last.offset_delta if last != NULL else 0,
        "last_timestamp": entry.last_timestamp,
        "coordinator_epoch": entry.coordinator_epoch,
        "current_transaction_first_offset": entry.transaction_start,
    }
