"""The record bytes of a fetched partition as a list of batches: checked, decompressed, and converted from v0 and v1.

    batches_scan    walks the bytes once. A v2 batch (records/record_batch.pxd) gets an entry that points into them,
                    with its CRC checked and, within a budget of memory, its records decompressed. Batches beyond the
                    budget stay compressed until the consumer reaches them. Messages of format v0 and v1 become the
                    records of a new batch, one for a run of plain messages or for a wrapper (fetched_messages.pyx).

Decompressed records lie in slabs of up to 1 MiB, which consumers reuse; larger batches have their own slabs. Large
outputs are decompressed in their slab, small ones elsewhere, and copied when their size is known.

An incomplete batch at the end is left out, since brokers cut there; bytes without one whole batch become an entry. An
entry with an error keeps its place, so that a reader meets the error at its position; behind a bad length or magic
nothing can be read.

Nothing here takes the GIL, and all bytes are hostile until they are checked.
"""

from libc.stdlib cimport malloc, realloc
from libc.string cimport memcpy

from kafkapy._speedups.base.spare_memory cimport spare_take
from kafkapy._speedups.base.wire cimport ByteBuffer, buffer_init
from kafkapy._speedups.clients.consumer.fetched_batch cimport (
    FETCHED_BAD_CODEC,
    FETCHED_BAD_COMPRESSION,
    FETCHED_BAD_CRC,
    FETCHED_BAD_LENGTH,
    FETCHED_BAD_MAGIC,
    FETCHED_BAD_RECORDS,
    FETCHED_CLOSED,
    FETCHED_INCOMPLETE,
    FETCHED_NO_MEMORY,
    FETCHED_READY,
    FETCHED_TOO_LARGE,
    MAX_OPENED_BYTES,
    FetchedState,
)
from kafkapy._speedups.clients.consumer.fetched_messages cimport messages_convert
from kafkapy._speedups.records.compression cimport (
    COMPRESSION_CORRUPT,
    COMPRESSION_NO_MEMORY,
    COMPRESSION_OK,
    COMPRESSION_TOO_LARGE,
    decompress_into,
)
from kafkapy._speedups.records.record_batch cimport (
    BATCH_BAD_MAGIC,
    BATCH_HEADER_SIZE,
    BATCH_INCOMPLETE,
    BATCH_OK,
    CODEC_MASK,
    MAGIC_V2,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    BatchStatus,
    batch_check_crc,
    batch_header_parse,
)

cdef extern from * nogil:
    """
    #include <stdlib.h>

    /* Where a thread decompresses to before it copies: memory that stays in its cache. */
    struct KpScratch {
        uint8_t* data = nullptr;
        size_t capacity = 0;
        ~KpScratch() { free(data); }
    };
    static thread_local KpScratch kp_scratch;
    static const size_t KP_SCRATCH_MAX = 4 << 20;

    static void kp_scratch_take(uint8_t** data, size_t* capacity) {
        *data = kp_scratch.data;
        *capacity = kp_scratch.capacity;
        kp_scratch.data = nullptr;
        kp_scratch.capacity = 0;
    }
    static void kp_scratch_give(uint8_t* data, size_t capacity) {
        if (capacity > KP_SCRATCH_MAX || kp_scratch.data) {
            free(data);
            return;
        }
        kp_scratch.data = data;
        kp_scratch.capacity = capacity;
    }
    """
    void scratch_take "kp_scratch_take"(uint8_t** data, size_t* capacity)
    void scratch_give "kp_scratch_give"(uint8_t* data, size_t capacity)
    size_t SCRATCH_MAX "KP_SCRATCH_MAX"

cdef enum:
    SLAB_SIZE = 1 << 20
    SLACK = 4096                    # the unused end of a slab may be this large
    FIRST_RATIO = 4                 # expected output for an input
    SMALLEST_ROOM = 1 << 16         # an LZ4 block, opened in place where the slab has room for the largest output


cdef inline void entry_init(FetchedBatch* entry, int64_t offset, FetchedState state) noexcept nogil:
    entry.base_offset = offset
    entry.next_offset = offset
    entry.base_timestamp = 0
    entry.append_time = -1
    entry.producer_id = -1
    entry.leader_epoch = -1
    entry.record_count = 0
    entry.attributes = 0
    entry.magic = MAGIC_V2
    entry.timestamp_type = 0
    entry.has_append_time = False
    entry.state = state
    entry.records = NULL
    entry.size = 0
    entry.slab = -1


cdef inline void entry_of(const BatchHeader* header, const uint8_t* data, FetchedBatch* entry) noexcept nogil:
    entry.base_offset = header.base_offset
    entry.next_offset = header.base_offset + header.last_offset_delta + 1
    entry.base_timestamp = header.base_timestamp
    entry.append_time = header.max_timestamp
    entry.producer_id = header.producer_id
    entry.leader_epoch = header.leader_epoch
    entry.record_count = header.record_count
    entry.attributes = header.attributes
    entry.magic = MAGIC_V2
    entry.has_append_time = (header.attributes & TIMESTAMP_TYPE_FLAG) != 0
    entry.timestamp_type = entry.has_append_time
    entry.state = FETCHED_CLOSED if header.attributes & CODEC_MASK else FETCHED_READY
    entry.records = data + BATCH_HEADER_SIZE
    entry.size = header.size - BATCH_HEADER_SIZE
    entry.slab = -1


cdef inline void close_for_now(FetchedBatch* entry, const uint8_t* data, int64_t size, int64_t* budget) noexcept nogil:
    """Leaves the batch closed: the user must read the open batches before this one gets memory."""
    entry.state = FETCHED_CLOSED
    entry.records = data
    entry.size = size
    budget[0] = 0


cdef int64_t batches_scan(const uint8_t* data, int64_t size, bint check_crcs, int64_t* budget,
                          vector[FetchedBatch]* out, vector[Slab]* slabs) noexcept nogil:
    cdef BatchHeader header
    cdef FetchedBatch entry
    cdef BatchStatus status
    cdef int64_t at = 0
    cdef int64_t opened = 0
    cdef int64_t used
    while at < size:
        status = batch_header_parse(data + at, size - at, &header)
        if status == BATCH_BAD_MAGIC and 0 <= header.magic < MAGIC_V2:
            entry_init(&entry, header.base_offset, FETCHED_READY)
            entry.magic = header.magic
            used = messages_convert(data + at, size - at, max(min(budget[0], <int64_t>MAX_OPENED_BYTES), <int64_t>0),
                                    &entry, slabs)
            if used == 0:
                status = BATCH_INCOMPLETE
            else:
                if entry.state == FETCHED_TOO_LARGE and budget[0] < MAX_OPENED_BYTES:
                    close_for_now(&entry, data + at, used, budget)
                elif entry.slab >= 0:
                    opened += entry.size
                    budget[0] -= entry.size
                out.push_back(entry)
                at += used
                if entry.state == FETCHED_BAD_LENGTH:
                    return opened
                continue
        if status == BATCH_INCOMPLETE:
            break
        if status != BATCH_OK:
            entry_init(&entry, header.base_offset,
                       FETCHED_BAD_MAGIC if status == BATCH_BAD_MAGIC else FETCHED_BAD_LENGTH)
            out.push_back(entry)
            return opened
        entry_of(&header, data + at, &entry)
        if header.record_count < 0 or header.last_offset_delta < 0:
            entry.state = FETCHED_BAD_RECORDS
        elif check_crcs and batch_check_crc(data + at, header.size) != BATCH_OK:
            entry.state = FETCHED_BAD_CRC
        elif entry.state == FETCHED_CLOSED and budget[0] > 0:
            batch_open(&entry, min(budget[0], <int64_t>MAX_OPENED_BYTES), size - at - header.size, slabs)
            if entry.state == FETCHED_TOO_LARGE and budget[0] < MAX_OPENED_BYTES:
                close_for_now(&entry, data + at + BATCH_HEADER_SIZE, header.size - BATCH_HEADER_SIZE, budget)
            elif entry.slab >= 0:
                opened += entry.size
                budget[0] -= entry.size
        out.push_back(entry)
        at += header.size
    if out.size() == 0 and size > 0:
        entry_init(&entry, -1, FETCHED_INCOMPLETE)
        out.push_back(entry)
    return opened


cdef void batch_open(FetchedBatch* batch, int64_t max_bytes, int64_t bytes_behind, vector[Slab]* slabs) noexcept nogil:
    cdef ByteBuffer into
    cdef bint alone = bytes_behind < 0
    cdef int status
    if batch.magic < MAGIC_V2:
        messages_convert(batch.records, batch.size, max_bytes, batch, slabs)
        return
    if not alone and open_in_slab(batch, max_bytes, bytes_behind, slabs):
        return
    buffer_init(&into)
    if not alone:
        scratch_take(&into.data, &into.capacity)
    status = decompress_into(batch.attributes & CODEC_MASK, batch.records, batch.size, max_bytes, &into)
    if status != COMPRESSION_OK:
        scratch_give(into.data, into.capacity)
        if status == COMPRESSION_TOO_LARGE:
            batch.state = FETCHED_TOO_LARGE
        elif status == COMPRESSION_NO_MEMORY:
            batch.state = FETCHED_NO_MEMORY
        elif status == COMPRESSION_CORRUPT:
            batch.state = FETCHED_BAD_COMPRESSION
        else:
            batch.state = FETCHED_BAD_CODEC
        return
    if alone or into.capacity > SCRATCH_MAX:
        slab_adopt(slabs, &into)
    elif not slab_copy(slabs, &into, into.size + FIRST_RATIO * <size_t>bytes_behind):
        batch.state = FETCHED_NO_MEMORY
        return
    batch.slab = <int32_t>slabs.size() - 1
    batch.size = into.size
    batch.records = slabs.back().data + slabs.back().size - into.size
    batch.state = FETCHED_READY


cdef bint open_in_slab(FetchedBatch* batch, int64_t max_bytes, int64_t bytes_behind,
                       vector[Slab]* slabs) noexcept nogil:
    """Decompresses the batch to its final place. False without room or for a damaged batch; then nothing has
    changed."""
    cdef size_t room = max(<size_t>SMALLEST_ROOM, FIRST_RATIO * <size_t>batch.size)
    cdef ByteBuffer into
    cdef Slab* last
    if slabs.size() == 0 or slabs.back().capacity - slabs.back().size < room:
        if (room > SLAB_SIZE or FIRST_RATIO * (batch.size + bytes_behind) < SLAB_SIZE // 2
                or not slab_new(slabs, SLAB_SIZE)):
            return False
    last = &slabs.back()
    buffer_init(&into)
    into.data = last.data
    into.size = last.size
    into.capacity = last.capacity
    # With this limit the buffer neither grows nor moves.
    max_bytes = min(max_bytes, <int64_t>(last.capacity - last.size) - 1)
    if decompress_into(batch.attributes & CODEC_MASK, batch.records, batch.size, max_bytes, &into) != COMPRESSION_OK:
        return False
    batch.slab = <int32_t>slabs.size() - 1
    batch.records = last.data + last.size
    batch.size = into.size - last.size
    batch.state = FETCHED_READY
    last.size = into.size
    return True


cdef void slab_adopt(vector[Slab]* slabs, ByteBuffer* into) noexcept nogil:
    """Makes the buffer a slab, and returns its unused memory."""
    cdef Slab slab
    cdef uint8_t* data
    if into.capacity - into.size > SLACK:
        data = <uint8_t*>realloc(into.data, max(into.size, <size_t>1))
        if data != NULL:
            into.data = data
    slab.data = into.data
    slab.size = into.size
    slab.capacity = into.size
    slabs.push_back(slab)


cdef bint slab_new(vector[Slab]* slabs, size_t capacity) noexcept nogil:
    """Adds an empty slab behind the others. False: no memory."""
    cdef Slab slab
    slab.capacity = capacity
    slab.size = 0
    slab.data = spare_take(capacity)
    if slab.data == NULL:
        slab.data = <uint8_t*>malloc(max(capacity, <size_t>1))
    if slab.data == NULL:
        return False
    slabs.push_back(slab)
    return True


cdef bint slab_copy(vector[Slab]* slabs, ByteBuffer* into, size_t wanted) noexcept nogil:
    """Copies the scratch buffer behind the last slab's bytes, or into a new slab; returns the scratch memory. False: no
    memory."""
    cdef Slab* last
    if slabs.size() == 0 or slabs.back().capacity - slabs.back().size < into.size:
        if not slab_new(slabs, max(into.size, min(wanted, <size_t>SLAB_SIZE))):
            scratch_give(into.data, into.capacity)
            return False
    last = &slabs.back()
    memcpy(last.data + last.size, into.data, into.size)
    last.size += into.size
    scratch_give(into.data, into.capacity)
    return True
