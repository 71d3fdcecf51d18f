"""A producer's batch: appending, states, splitting (see producer_batch.pxd).

Source: org.apache.kafka.clients.producer.internals.ProducerBatch.
"""

cimport cython

from kafkapy._speedups.base.wire cimport Cursor, buffer_init, cursor_init, remaining
from kafkapy._speedups.records.record_batch cimport BATCH_HEADER_SIZE, BATCH_OK, NO_TIMESTAMP, record_read

import logging
import threading

from kafkapy.errors import IllegalStateError
from kafkapy.types import TopicPartition

log = logging.getLogger("kafkapy.producer")


@cython.final
@cython.no_gc_clear
@cython.freelist(64)
cdef class ProducerBatch:
    """A batch of records for one partition. The RecordAccumulator makes it, sending threads append to it, the loop's
    thread sends and completes it."""

    def __cinit__(self):
        buffer_init(&self.payload)
        self.base_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.leader_changed_at = -1
        self.leader_epoch = -1
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = NO_SEQUENCE
        self.base_offset = -1
        self.log_append_time = NO_TIMESTAMP

    def __init__(self):
        raise TypeError("batches are made by a RecordAccumulator")

    def __dealloc__(self):
        self.free_memory()

    def __len__(self):
        return self.record_count

    def __repr__(self):
        return (
            f"<ProducerBatch {self.topic}-{self.partition}: {self.record_count} records, "
            f"sequence {self.base_sequence}>"
        )

    @property
    def topic_partition(self):
        """The batch's partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self):
        """Bytes of the batch before compression, its header included."""
        return self.size_in_bytes()

    @property
    def full(self):
        """Whether the batch has no room for another usual record."""
        return self.is_full()

    @property
    def done(self):
        """Whether the result is known, or other batches have its records now."""
        return self.state != BATCH_INCOMPLETE_YET

    @property
    def has_sequence(self):
        """Whether it has a sequence number, and so may have been sent."""
        return self.base_sequence != NO_SEQUENCE

    @property
    def last_sequence(self):
        """The sequence number of its last record; numbers start again at 0 after 2**31 - 1."""
        return next_sequence(self.base_sequence, self.record_count - 1)

    @property
    def last_offset(self):
        """The offset of the last record; -1 while it is unknown."""
        return self.base_offset + self.record_count - 1 if self.base_offset >= 0 else -1

    # --- memory ---------------------------------------------------------------------------------------------------

    cdef void lend(self) noexcept:
        self.lent += 1

    cdef void give_back(self) noexcept:
        self.lent -= 1
        if self.lent == 0 and self.state != BATCH_INCOMPLETE_YET:
            self.free_memory()

    cdef void free_memory(self) noexcept:
        if self.payload.data != NULL:
            self.pool.release(self.payload.data, <int64_t>self.payload.capacity)
            buffer_init(&self.payload)

    # --- states ---------------------------------------------------------------------------------------------------

    def set_producer(self, int64_t producer_id, int16_t producer_epoch, int64_t base_sequence, bint transactional):
        """Gives the batch its place in the partition's sequence."""
        self.sequence_reset = self.base_sequence != NO_SEQUENCE
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = <int32_t>(base_sequence & 0x7FFFFFFF)
        self.transactional = transactional

    def reenqueued(self, int64_t now_ms):
        """Notes the batch's return to its queue after a failed attempt."""
        self.attempts += 1
        self.attempted_ms = now_ms

    def update_leader(self, int32_t leader_epoch):
        """Notes the partition's leader epoch; a batch in retry need not wait for a new leader."""
        if leader_epoch != -1 and leader_epoch > self.leader_epoch:
            if self.leader_epoch != -1:
                self.leader_changed_at = self.attempts
            self.leader_epoch = leader_epoch

    cdef int finish(self, int state) except -1:
        """Sets a final state and wakes the waiting threads; run_callbacks runs the callbacks."""
        self.state = state
        self.closed = True
        if self.lent == 0:
            self.free_memory()
        if self.event is not None:
            self.event.set()
        return 0

    def succeed(self, int64_t base_offset, int64_t log_append_time):
        """Completes the batch: the records are in the log (base_offset -1: at an unknown offset). Whether this call
        completed it."""
        if self.state != BATCH_INCOMPLETE_YET:
            return False
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self.finish(BATCH_SUCCEEDED)
        return True

    def fail(self, error, dict record_errors=None):
        """Completes the batch with an error: its records are not in the log, or may not be. Whether this call completed
        it."""
        if self.state != BATCH_INCOMPLETE_YET:
            return False
        self.error = error
        self.record_errors = record_errors
        self.finish(BATCH_FAILED)
        return True

    def split(self, int64_t limit):
        """Splits the batch into new batches of at most `limit` bytes (more for a single record), in order; this batch
        ends.

        The new batches continue this one's sequence, if it had one. IllegalStateError for a complete batch;
        MemoryError.
        """
        cdef Cursor cursor
        cdef RecordView record
        cdef ProducerBatch part = None
        cdef int32_t index = 0
        cdef int64_t timestamp
        cdef int64_t sequence = self.base_sequence
        cdef list parts = []
        if self.state != BATCH_INCOMPLETE_YET or self.payload.data == NULL:
            raise IllegalStateError(f"{self!r} is complete and cannot be split")
        cursor_init(&cursor, self.payload.data, <Py_ssize_t>self.payload.size)
        while remaining(&cursor):
            if record_read(&cursor, &record) != BATCH_OK:
                raise IllegalStateError(f"{self!r} cannot be read")
            timestamp = self.base_timestamp + record.timestamp_delta
            if part is None or part.append(&record, timestamp) < 0:
                part = new_batch(
                    self.topic,
                    self.partition,
                    self.pool,
                    max(limit, BATCH_HEADER_SIZE + record.size + MOST_GROWTH),
                    limit,
                    self.created_ms,
                    True,
                )
                parts.append((index, part))
                if part.append(&record, timestamp) < 0:
                    raise IllegalStateError(f"record {index} of {self!r} fits no batch")
            index += 1
        for index, part in parts:
            part.closed = True
            if sequence != NO_SEQUENCE:
                part.set_producer(self.producer_id, self.producer_epoch, sequence + index, self.transactional)
        self.parts = parts
        self.finish(BATCH_SPLIT)
        return [part for _, part in parts]

    # --- waiting threads and callbacks ----------------------------------------------------------------------------

    cdef int add_callback(self, object callback) except -1:
        if self.callbacks is None:
            self.callbacks = []
        self.callbacks.append(callback)
        return 0

    cdef object waiter(self):
        if self.event is None:
            event = threading.Event()
            # The event's creation ran Python code: another thread may have made one.
            if self.event is None:
                self.event = event
        return self.event

    @property
    def age(self):
        """The sort key of batches, the oldest first; the parts of a split batch take its place."""
        return self.created_ms, self.serial

    def on_done(self, callback):
        """Calls callback() once the batch has a result, on the loop's thread; at once when it has one. Follows
        splits."""
        if self.state == BATCH_INCOMPLETE_YET:
            self.add_callback(callback)
            # The list's creation may have run a garbage collection, and with it another thread that completed the
            # batch.
            if self.state != BATCH_INCOMPLETE_YET:
                self.run_callbacks()
        elif self.state == BATCH_SPLIT:
            follow(self.parts, callback)
        else:
            callback()

    def run_callbacks(self):
        """Calls the registered callbacks in order, each once; logs their exceptions. On the loop's thread, after a
        final state."""
        cdef list callbacks = self.callbacks
        if callbacks is None:
            return
        self.callbacks = None
        for callback in callbacks:
            if self.state == BATCH_SPLIT:
                follow(self.parts, callback)
                continue
            try:
                callback()
            except Exception:
                log.exception("A callback of a record for %s-%d failed", self.topic, self.partition)


cdef enum:
    MOST_GROWTH = 32        # the varints of a record may grow by this when its deltas change


cdef int64_t last_serial = 0


cdef ProducerBatch new_batch(str topic, int32_t partition, BufferPool pool, int64_t capacity, int64_t limit,
                             int64_t now_ms, bint forced):
    """Makes an empty batch in a buffer of `capacity` bytes; None when the pool has no room. MemoryError for a forced
    batch."""
    global last_serial
    cdef ProducerBatch batch = ProducerBatch.__new__(ProducerBatch)
    cdef uint8_t* data = pool.allocate(capacity, forced)
    if data == NULL:
        if forced:
            raise MemoryError
        return None
    last_serial += 1
    batch.serial = last_serial
    batch.topic = topic
    batch.partition = partition
    batch.pool = pool
    batch.payload.data = data
    batch.payload.capacity = <size_t>capacity
    batch.limit = limit
    batch.created_ms = now_ms
    batch.attempted_ms = now_ms
    return batch


def next_sequence(int64_t sequence, int64_t increment):
    """The sequence number `increment` records later: after 2**31 - 1 comes 0."""
    return (sequence + increment) & 0x7FFFFFFF


cdef follow(list parts, callback):
    """Calls callback() once every part has a result."""
    left = [len(parts)]

    def one_done():
        left[0] -= 1
        if not left[0]:
            callback()

    for _, part in parts:
        part.on_done(one_done)
