"""One batch of a producer: records of one partition, the state of sending them, and the result for their futures.

Records are encoded at their append (records/record_batch.pxd) and never change: the request that carries a batch writes
its header, so a batch can be sent again with other sequence numbers while an older request still holds its bytes. The
memory goes back to the pool once the batch is complete and no request lends it (`lent`).

The GIL protects everything. Only `run_callbacks` and the making of a result run Python code.
"""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkapy._speedups.base.wire cimport ByteBuffer
from kafkapy._speedups.clients.producer.buffer_pool cimport BufferPool
from kafkapy._speedups.records.record_batch cimport BATCH_HEADER_SIZE, RecordView
from kafkapy._speedups.records.record_encoding cimport put_record, record_body_size, varlong_size

cdef enum BatchState:
    BATCH_INCOMPLETE_YET = 0
    BATCH_SUCCEEDED = 1
    BATCH_FAILED = 2
    BATCH_SPLIT = 3                     # its records are in `parts` now

cdef enum:
    NO_SEQUENCE = -1


@cython.final
cdef class ProducerBatch:
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef ByteBuffer payload             # the records; `data` belongs to the pool
    cdef BufferPool pool
    cdef int64_t serial                 # number in the order of creation
    cdef int64_t limit                  # bytes of the batch, its header included
    cdef int lent
    cdef readonly int32_t record_count
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t max_record_size   # in bytes
    cdef public bint closed             # takes no more records
    # --- sending ---
    cdef public int64_t created_ms      # monotonic, as all times but the records'
    cdef public int64_t attempted_ms    # of the last return to the queue, or created_ms
    cdef public int64_t drained_ms
    cdef public int attempts
    cdef public int leader_changed_at   # the attempt of the last change of leader
    cdef public int32_t leader_epoch
    cdef readonly int64_t producer_id
    cdef readonly int16_t producer_epoch
    cdef readonly int32_t base_sequence
    cdef int64_t number                 # among the partition's batches with a sequence number
    cdef readonly bint transactional
    cdef readonly bint sequence_reset   # its numbers have changed since it was last sent
    # --- result ---
    cdef readonly int state             # BatchState
    cdef readonly int64_t base_offset
    cdef readonly int64_t log_append_time
    cdef readonly object error
    cdef readonly dict record_errors    # index -> exception, for records with their own error
    cdef readonly list parts            # after a split: pairs of the index of its first record and the ProducerBatch
    cdef list callbacks
    cdef object event

    cdef inline int32_t append(self, RecordView* record, int64_t timestamp) noexcept:
        """Appends a record. Returns its index, or -1: the batch is closed or has no room for it."""
        cdef int64_t body, size
        if self.closed:
            return -1
        if self.record_count == 0:
            self.base_timestamp = timestamp
        record.timestamp_delta = timestamp - self.base_timestamp
        record.offset_delta = self.record_count
        body = record_body_size(record)
        size = body + varlong_size(body)
        # The first record is always taken: the buffer was made for it. The limit of the others is within the buffer.
        if size > <int64_t>(self.payload.capacity - self.payload.size) or (
            self.record_count and BATCH_HEADER_SIZE + <int64_t>self.payload.size + size > self.limit
        ):
            return -1
        put_record(self.payload.data + self.payload.size, record, body)
        self.payload.size += <size_t>size
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        if size > self.max_record_size:
            self.max_record_size = size
        self.record_count += 1
        return self.record_count - 1

    cdef inline bint is_full(self) noexcept:
        return self.closed or BATCH_HEADER_SIZE + <int64_t>self.payload.size >= self.limit

    cdef inline int64_t size_in_bytes(self) noexcept:
        return BATCH_HEADER_SIZE + <int64_t>self.payload.size

    cdef void lend(self) noexcept
    cdef void give_back(self) noexcept
    cdef void free_memory(self) noexcept
    cdef int finish(self, int state) except -1
    cdef int add_callback(self, object callback) except -1
    cdef object waiter(self)

cdef ProducerBatch new_batch(str topic, int32_t partition, BufferPool pool, int64_t capacity, int64_t limit,
                             int64_t now_ms, bint forced)
