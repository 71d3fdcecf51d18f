"""FetchedPartition: one partition of a Fetch response, and its records, one at a time or many at once.

It reads as Kafka's CompletedFetch does: it skips records below the fetch offset and control batches, and with
read_committed the batches of aborted transactions. The response lists those as (producer id, first offset): a
transaction begins with the batch that reaches its first offset and ends with the abort marker of its producer. A batch
that compaction has emptied only moves the position.

`next_offset` is the offset of the next read: behind the last returned record, and behind skipped records that follow
it. An error (a wrong CRC, records that do not add up, a codec that fails) is raised when the position reaches its
batch, and again at each call; the records before it are returned first.

FetchResponseFrame.partitions() makes it; one thread at a time uses it, with the GIL. The records' bytes belong to the
response or to a slab of decompressed records; a record keeps them alive until its fields are made.
"""

from kafkapy._speedups.base.spare_memory cimport spare_give
from kafkapy._speedups.base.wire cimport cursor_init, load_int16, remaining
from kafkapy._speedups.clients.consumer.consumer_record cimport ConsumerRecord, memory_of, origin_of, record_of
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
)
from kafkapy._speedups.clients.consumer.fetched_batches cimport batch_open
from kafkapy._speedups.records.record_batch cimport (
    BATCH_OK,
    CONTROL_FLAG,
    MIN_RECORD_SIZE,
    TRANSACTIONAL_FLAG,
    RecordView,
    record_read,
)

from kafkapy.errors import (
    CorruptMessageError,
    IllegalStateError,
    KafkaProtocolError,
    MessageTooLargeError,
    UnsupportedCodecError,
)

cdef enum:
    NO_PRODUCER_ID = -1
    CONTROL_TYPE_AT = 2                 # in a control record's key: int16 version, int16 type
    CONTROL_KEY_SIZE = 4
    CONTROL_ABORT = 0

cdef dict PROBLEMS = {
    FETCHED_BAD_CRC: (CorruptMessageError, "its CRC is wrong"),
    FETCHED_BAD_LENGTH: (CorruptMessageError, "no batch has its length"),
    FETCHED_BAD_MAGIC: (CorruptMessageError, "its magic is none of Kafka's message formats (0, 1, 2)"),
    FETCHED_BAD_RECORDS: (CorruptMessageError, "its records do not add up"),
    FETCHED_BAD_CODEC: (UnsupportedCodecError, "it is compressed with a codec that is not known"),
    FETCHED_BAD_COMPRESSION: (CorruptMessageError, "it cannot be decompressed"),
    FETCHED_TOO_LARGE: (MessageTooLargeError, f"it opens to more than {MAX_OPENED_BYTES} bytes"),
    FETCHED_NO_MEMORY: (MemoryError, "there is no memory to open it"),
}


cdef PartitionData* partition_data_new() noexcept nogil:
    cdef PartitionData* data = new PartitionData()
    data.topic = NULL
    data.topic_size = 0
    data.topic_id = NULL
    data.partition = -1
    data.error_code = 0
    data.high_watermark = -1
    data.last_stable_offset = -1
    data.log_start_offset = -1
    data.preferred_read_replica = -1
    data.diverging_epoch.epoch = -1
    data.diverging_epoch.offset = -1
    data.snapshot_id.epoch = -1
    data.snapshot_id.offset = -1
    data.leader_id = -1
    data.leader_epoch = -1
    data.record_bytes = 0
    data.opened_bytes = 0
    return data


cdef void partition_data_free(PartitionData* data) noexcept nogil:
    cdef size_t i
    if data == NULL:
        return
    for i in range(data.slabs.size()):
        spare_give(data.slabs[i].data)
    del data


cdef class FetchedPartition:
    """One partition of a Fetch response. `bytes` is the memory it holds. `end_offset` (-1 without a batch) and
    `end_epoch` belong to the last whole batch, and are known before the first read. `leader_epoch` belongs to the
    batch of the last read, -1 before.
    """

    def __cinit__(self):
        self.data = NULL
        self.end_offset = -1
        self.end_epoch = -1
        self.leader_epoch = -1
        self.next_offset = -1
        self.exhausted = True
        self.slab_index = -1

    def __init__(self):
        raise TypeError("a FetchedPartition comes from FetchResponseFrame.partitions()")

    def __dealloc__(self):
        partition_data_free(self.data)

    cdef void adopt(self, PartitionData* data, RecordMemory response) noexcept:
        """Takes over the I/O thread's result."""
        cdef size_t i
        self.data = data
        self.response = response
        self.bytes = data.record_bytes + data.opened_bytes
        for i in range(data.batches.size(), 0, -1):
            if data.batches[i - 1].state not in (FETCHED_BAD_LENGTH, FETCHED_BAD_MAGIC, FETCHED_INCOMPLETE):
                self.end_offset = data.batches[i - 1].next_offset
                self.end_epoch = data.batches[i - 1].leader_epoch
                break

    @property
    def partition(self):
        """The partition's number."""
        return self.data.partition

    @property
    def error_code(self):
        """The partition's error code, 0 for none."""
        return self.data.error_code

    @property
    def high_watermark(self):
        """The offset up to which all replicas have the partition, as the broker saw it."""
        return self.data.high_watermark

    @property
    def last_stable_offset(self):
        """The offset below which all transactions are decided; -1 when it is unknown."""
        return self.data.last_stable_offset

    @property
    def log_start_offset(self):
        """The first remaining offset; -1 when it is unknown."""
        return self.data.log_start_offset

    @property
    def preferred_read_replica(self):
        """The broker to fetch this partition from (KIP-392), or -1."""
        return self.data.preferred_read_replica

    @property
    def diverging_epoch(self):
        """(epoch, end offset) up to which the log and the fetcher's records agree, or None."""
        if self.data.diverging_epoch.offset < 0:
            return None
        return self.data.diverging_epoch.epoch, self.data.diverging_epoch.offset

    @property
    def snapshot_id(self):
        """(end offset, epoch) of the snapshot to load instead, or None."""
        return None if self.data.snapshot_id.offset < 0 else (self.data.snapshot_id.offset, self.data.snapshot_id.epoch)

    @property
    def current_leader(self):
        """(broker id, leader epoch) of the new leader, with an error that reports a new leader (KIP-951); else None."""
        if self.data.leader_id < 0 and self.data.leader_epoch < 0:
            return None
        return self.data.leader_id, self.data.leader_epoch

    @property
    def aborted_transactions(self):
        """[(producer id, first offset)] of the aborted transactions among the records."""
        cdef size_t i
        return [(self.data.aborted[i].producer_id, self.data.aborted[i].first_offset)
                for i in range(self.data.aborted.size())]

    @property
    def has_records(self):
        """Whether the response holds record bytes of the partition."""
        return self.data.record_bytes > 0

    def start(self, str topic not None, int64_t fetch_offset, bint read_committed, key_deserializer, value_deserializer,
              bint tuple_headers=False):
        """Prepares the partition for reads from fetch_offset on. Once. A deserializer is None, a callable, or has
        `deserialize` (consumer_record.pyx)."""
        if self.entered or not self.exhausted or self.next_offset >= 0:
            raise IllegalStateError(f"the records of {topic}-{self.data.partition} are being read already")
        self.topic = topic
        self.next_offset = fetch_offset
        self.read_committed = read_committed
        self.key_deserializer = key_deserializer
        self.value_deserializer = value_deserializer
        self.tuple_headers = tuple_headers
        self.settle()

    cdef void leave_batch(self) noexcept nogil:
        """Leaves the batch at `current`."""
        cdef FetchedBatch* batch = &self.data.batches[self.current]
        if batch.next_offset > self.next_offset:
            self.next_offset = batch.next_offset
        self.entered = False
        self.left = 0
        self.current += 1

    cdef bint is_aborted(self, FetchedBatch* batch) noexcept nogil:
        """Whether the batch belongs to an aborted transaction. Follows the transactions; called once per batch, in
        order."""
        cdef RecordView record
        cdef Cursor c
        if batch.producer_id == NO_PRODUCER_ID:
            return False
        while (self.aborted_at < self.data.aborted.size()
               and self.data.aborted[self.aborted_at].first_offset < batch.next_offset):
            self.aborting.insert(self.data.aborted[self.aborted_at].producer_id)
            self.aborted_at += 1
        if batch.attributes & CONTROL_FLAG:
            if batch.state == FETCHED_READY and batch.record_count > 0:
                cursor_init(&c, batch.records, batch.size)
                if record_read(&c, &record) == BATCH_OK and record.key_size >= CONTROL_KEY_SIZE:
                    if load_int16(record.key + <int>CONTROL_TYPE_AT) == CONTROL_ABORT:
                        self.aborting.erase(batch.producer_id)
            return False
        return batch.attributes & TRANSACTIONAL_FLAG and self.aborting.count(batch.producer_id) > 0

    cdef bint settle(self) noexcept nogil:
        """Goes on to the next batch with visible records, or with an error: True. False after the last batch; the
        partition is then exhausted."""
        cdef FetchedBatch* batch
        self.exhausted = False
        while self.current < self.data.batches.size():
            batch = &self.data.batches[self.current]
            if batch.state != FETCHED_READY and batch.state != FETCHED_CLOSED:
                return True
            if self.read_committed and self.is_aborted(batch):
                self.leave_batch()
                continue
            if batch.attributes & CONTROL_FLAG or batch.record_count == 0 and batch.state == FETCHED_READY:
                self.leave_batch()
                continue
            if batch.next_offset <= self.next_offset:
                self.leave_batch()
                continue
            return True
        self.exhausted = True
        return False

    cdef int fail(self, int state) except -1:
        """Raises the error of the batch at `current`."""
        cdef int64_t offset = self.next_offset
        if state == FETCHED_INCOMPLETE:
            raise KafkaProtocolError(
                f"the broker has sent {self.data.record_bytes} bytes of {self.topic}-{self.data.partition} "
                f"at offset {offset} without one whole batch"
            )
        cls, problem = PROBLEMS[state]
        raise cls(
            f"a record batch of {self.topic}-{self.data.partition} at offset {offset} cannot be read: {problem}; "
            "seek past it to go on"
        )

    cdef bint step_in(self) noexcept nogil:
        """Enters the batch at `current`, if that takes no Python object: it is open, and in the response or in the slab
        of an earlier batch."""
        cdef FetchedBatch* batch
        if self.exhausted:
            return False
        batch = &self.data.batches[self.current]
        if (batch.state != FETCHED_READY or batch.slab >= 0 and batch.slab != self.slab_index
                or batch.record_count < 0 or batch.record_count > batch.size // MIN_RECORD_SIZE):
            return False
        self.batch = batch
        self.leader_epoch = batch.leader_epoch
        self.left = batch.record_count
        cursor_init(&self.cursor, batch.records, batch.size)
        self.entered = True
        return True

    cdef bint enter_batch(self) except -1:
        """Opens and enters the batch at `current`. False after the last batch."""
        cdef FetchedBatch* batch
        if self.exhausted:
            return False
        batch = &self.data.batches[self.current]
        if batch.state == FETCHED_CLOSED:
            batch_open(batch, MAX_OPENED_BYTES, -1, &self.data.slabs)
        if batch.state != FETCHED_READY:
            self.fail(batch.state)
        if batch.record_count < 0 or batch.record_count > batch.size // MIN_RECORD_SIZE:
            batch.state = FETCHED_BAD_RECORDS
            self.fail(batch.state)
        if batch.slab >= 0 and batch.slab != self.slab_index:
            self.slab = memory_of(self.data.slabs[batch.slab].data)
            self.slab_index = batch.slab
            self.data.slabs[batch.slab].data = NULL
        return self.step_in()

    cdef int make_origin(self) except -1:
        """Makes what the records of the entered batch have in common."""
        self.memory = self.response if self.batch.slab < 0 else self.slab
        self.origin = origin_of(self.topic, self.data.partition, self.batch.leader_epoch, self.batch.timestamp_type,
                                self.key_deserializer, self.value_deserializer, self.tuple_headers)
        self.origin_at = self.current
        return 0

    cdef void end_batch(self) noexcept nogil:
        """Ends a batch after all its records were read."""
        if remaining(&self.cursor):
            self.batch.state = FETCHED_BAD_RECORDS
            self.entered = False
        else:
            self.leave_batch()
            self.settle()

    cdef ConsumerRecord read_record(self):
        """Reads the next record of the open batch; None at the batch's end or for a bad record."""
        cdef RecordView view
        cdef ConsumerRecord record
        cdef int64_t offset, timestamp
        if self.origin is None or self.origin_at != self.current:
            self.make_origin()
        while self.left > 0:
            if record_read(&self.cursor, &view) != BATCH_OK:
                self.batch.state = FETCHED_BAD_RECORDS
                self.entered = False
                return None
            self.left -= 1
            offset = self.batch.base_offset + view.offset_delta
            if offset < self.next_offset:
                continue
            self.next_offset = offset + 1
            timestamp = self.batch.base_timestamp + view.timestamp_delta
            if self.batch.has_append_time:
                timestamp = self.batch.append_time
            record = record_of(self.origin, self.memory, offset, timestamp, &view)
            if self.left == 0:
                self.end_batch()
            return record
        self.end_batch()
        return None

    cpdef object next(self):
        """The next record, or None at the end. Raises CorruptMessageError and its siblings as the head of this module
        says."""
        cdef ConsumerRecord record
        while True:
            if not self.entered and not self.enter_batch():
                return None
            record = self.read_record()
            if record is not None:
                return record

    cpdef list take(self, Py_ssize_t max_records):
        """Takes up to max_records; fewer only at the end, or before an error, which the next call raises."""
        cdef list records = []
        cdef ConsumerRecord record
        while len(records) < max_records:
            if not self.entered:
                try:
                    if not self.enter_batch():
                        break
                except Exception:
                    if records:
                        break
                    raise
            record = self.read_record()
            if record is not None:
                records.append(record)
        return records
