"""The unsent records of a producer: by topic and partition, in batches, in bounded memory.

Source: org.apache.kafka.clients.producer.internals.RecordAccumulator. Any thread appends; the loop's thread asks for
ready batches and drains them. The GIL is the only lock: a method allocates all objects (which may run a garbage
collection, and so another thread) before it reads the queues, and then neither runs Python code nor releases the GIL
until they are consistent again.

A full batch, or the first batch of a queue, wakes the sender, unless it would look by itself: `timer_set` (it looks
again before the linger of a new batch is over) and `saturated` (a response comes before it could send more).
"""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkapy._speedups.clients.producer.buffer_pool cimport BufferPool
from kafkapy._speedups.clients.producer.partition_queue cimport PartitionQueue, TopicQueue
from kafkapy._speedups.clients.producer.producer_batch cimport ProducerBatch
from kafkapy._speedups.clients.producer.record_future cimport FutureRecordMetadata
from kafkapy._speedups.records.record_batch cimport RecordView

cdef enum Refusal:
    NOT_OPEN = 1            # closed, in an error, or no transaction is open
    NO_PARTITION = 2        # unknown topic or partition
    NOT_IN_TRANSACTION = 3  # the coordinator must add the partition first: `asked` is its queue
    NO_ROOM = 4             # in the buffer

cdef struct Refused:
    int reason              # Refusal; 0: the record was appended
    int64_t room            # with NO_ROOM: bytes of the buffer that the record's batch needs


cdef inline int64_t bytes_of(const RecordView* record) noexcept nogil:
    return max(<int64_t>record.key_size, 0) + max(<int64_t>record.value_size, 0) + record.headers_size


@cython.final
cdef class RecordAccumulator:
    cdef readonly BufferPool pool
    cdef readonly dict topics               # name -> TopicQueue
    cdef readonly set incomplete            # every batch without a result
    cdef object listed                      # deque of PartitionQueues that may hold batches
    cdef list room_waiters                  # callables
    cdef readonly int64_t batch_size
    cdef readonly int64_t max_request_size
    cdef int64_t small                      # bytes of a record that needs no check of its size
    cdef public int64_t linger_ms
    cdef readonly bint ignore_keys
    cdef readonly bint adaptive
    # --- set by the sender and the transaction manager ---
    cdef public bint open                   # accepts records
    cdef public object wake                 # callable without arguments; runs the sender soon
    cdef public bint wake_asked
    cdef public bint timer_set
    cdef public bint saturated
    cdef public int flushes                 # running flushes
    cdef public bint closed                 # all batches are sent at once
    cdef public bint idempotent
    cdef public bint transactional
    cdef public bint completing             # a transaction completes: all batches are sent at once
    cdef public bint sending_allowed        # False after a fatal error
    cdef public int64_t producer_id
    cdef public int16_t producer_epoch
    cdef public object backoff_ms           # list of ms by the number of attempts - 1; the last for all later ones
    cdef readonly PartitionQueue asked      # of the last NOT_IN_TRANSACTION
    cdef readonly object failure            # the error of the first lost record, or None
    # --- counters ---
    cdef readonly int64_t records_appended
    cdef readonly int64_t bytes_appended    # encoded, before compression

    cdef inline int append_tail(self, PartitionQueue queue, RecordView* record, int64_t timestamp) noexcept:
        """append_raw to the open batch of a queue. 0: no batch is open, or it has no room for the record. A record of
        more than `small` bytes may be too large for a request; this function does not check that."""
        cdef ProducerBatch batch = queue.tail
        if batch is None or batch.append(record, timestamp) < 0:
            return 0
        self.records_appended += 1
        self.bytes_appended += bytes_of(record)
        if self.wake_asked or (self.saturated if batch.is_full() else batch.record_count > 1 or self.timer_set):
            return 1
        return 2

    # Appends a record. 0: no room for a batch, nothing was done. 1: the record is the last one in queue.tail. 2: the
    # same, and the caller must call ask_wake(), which runs Python code, once it has read the queue. Sizes in bytes, -1
    # for null; `headers` in the encoding of a record. RecordTooLargeError, MemoryError (-2).
    cdef int append_raw(self, PartitionQueue queue, int64_t timestamp, const uint8_t* key, int64_t key_size,
                        const uint8_t* value, int64_t value_size, const uint8_t* headers, int64_t headers_size,
                        int32_t header_count) except -2
    # append_raw to a partition of a topic (ANY_PARTITION: the built-in partitioner chooses). Returns the record's batch
    # and sets `index`, its index there; or None and `refused`, without a change.
    cdef ProducerBatch append_chosen(self, str topic, int32_t partition, int64_t timestamp, const uint8_t* key,
                                     int64_t key_size, const uint8_t* value, int64_t value_size, const uint8_t* headers,
                                     int64_t headers_size, int32_t header_count, int32_t* index, Refused* refused)
    # A record's future, or None and `refused`.
    cdef FutureRecordMetadata try_append(self, str topic, int32_t partition, int64_t timestamp, object key,
                                         object value, object headers, Refused* refused)
    cdef int64_t room_for(self, int64_t size) noexcept
    cdef int ask_wake(self) except -1
    cdef int64_t backoff_of(self, ProducerBatch batch) except -1
    cdef int put_back(self, PartitionQueue queue, ProducerBatch batch) except -1
    cdef int take_off(self, list batches) except -1
    cdef bint may_send(self, PartitionQueue queue, ProducerBatch first) except -1
