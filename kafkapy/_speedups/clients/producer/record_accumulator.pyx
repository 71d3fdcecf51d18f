"""Appending, draining and completing batches (see record_accumulator.pxd)."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject

from kafkapy._speedups.base.posix cimport monotonic_ns, wall_clock_ms
from kafkapy._speedups.base.wire cimport ByteBuffer, buffer_free, buffer_init, write_raw, write_varint
from kafkapy._speedups.clients.producer.partition_queue cimport ANY_PARTITION, NO_LEADER
from kafkapy._speedups.clients.producer.producer_batch cimport NO_SEQUENCE, new_batch
from kafkapy._speedups.clients.producer.record_future cimport new_future
from kafkapy._speedups.records.record_batch cimport BATCH_HEADER_SIZE, MIN_RECORD_SIZE, RecordView

from collections import deque
from operator import attrgetter

from kafkapy.errors import KafkaError, RecordTooLargeError

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef enum:
    INT32_MAX = 0x7FFFFFFF
    MOST_OVERHEAD = 21 + 5 * 5      # of a record besides key, value and headers: attributes and varints
    MOST_REMEMBERED = 5             # batches of a producer that a broker recognizes again, on whichever
                                    # connection
    NEVER_MS = 0x7FFFFFFFFFFF


by_age = attrgetter("age")


cdef int64_t now_ms() noexcept:
    return monotonic_ns() // 1000000


cdef int64_t most_bytes(int64_t size) noexcept:
    """The most bytes of a batch with one record of `size` bytes of key, value and headers."""
    return BATCH_HEADER_SIZE + MOST_OVERHEAD + size


@cython.final
cdef class RecordAccumulator:
    """All unsent records of one producer.

    buffer_memory, batch_size, max_request_size in bytes; linger_ms; ignore_keys: records with a key are spread like
    records without; adaptive: long queues get fewer records without a key (KIP-794); backoff_ms: waits before a batch
    is sent again, by attempt.
    """

    def __init__(self, int64_t buffer_memory, int64_t batch_size, int64_t linger_ms, int64_t max_request_size,
                 list backoff_ms not None, *, bint ignore_keys=False, bint adaptive=True):
        self.pool = BufferPool(buffer_memory, max(batch_size, 1))
        self.linger_ms = linger_ms
        self.max_request_size = max_request_size
        self.topics = {}
        self.set_batch_size(batch_size)
        self.backoff_ms = backoff_ms
        self.ignore_keys = ignore_keys
        self.adaptive = adaptive
        self.incomplete = set()
        self.listed = deque()
        self.room_waiters = []
        self.open = True
        self.sending_allowed = True
        self.producer_id = -1
        self.producer_epoch = -1

    def set_batch_size(self, int64_t batch_size):
        """Sets the size of new batches in bytes; open batches stay as they are."""
        cdef TopicQueue queues
        self.batch_size = max(batch_size, BATCH_HEADER_SIZE + 1)
        self.small = min(self.batch_size, self.max_request_size) // 2
        self.pool.resize(self.batch_size)
        for queues in list(self.topics.values()):
            queues.sticky_limit = self.batch_size

    # --- appending ------------------------------------------------------------------------------------------------

    cdef int append_raw(self, PartitionQueue queue, int64_t timestamp, const uint8_t* key, int64_t key_size,
                        const uint8_t* value, int64_t value_size, const uint8_t* headers, int64_t headers_size,
                        int32_t header_count) except -2:
        cdef RecordView record
        cdef ProducerBatch batch
        cdef int64_t size = max(key_size, 0) + max(value_size, 0) + headers_size
        cdef int64_t most = most_bytes(size)
        cdef int appended
        if queue.tail is None or size > self.small:
            # Only here can a record be too large: a record that fits an open batch was compared with its limit.
            if most > self.max_request_size or most > INT32_MAX:
                raise RecordTooLargeError(
                    f"a record of {most} bytes when serialized is larger than max.request.size allows "
                    f"({self.max_request_size})"
                )
            if most > self.pool.total:
                raise RecordTooLargeError(f"a record of {most} bytes is larger than buffer.memory ({self.pool.total})")
        record.key = key
        record.key_size = <int32_t>key_size
        record.value = value
        record.value_size = <int32_t>value_size
        record.headers = headers
        record.headers_size = headers_size
        record.header_count = header_count
        while True:
            appended = self.append_tail(queue, &record, timestamp)
            if appended:
                return appended
            if queue.tail is not None:
                queue.tail.closed = True
                queue.tail = None
            batch = new_batch(
                queue.topic.name,
                queue.partition,
                self.pool,
                self.room_for(size),
                self.batch_size,
                now_ms(),
                False,
            )
            if batch is None:
                if queue.tail is not None:
                    continue
                return 0
            # Another thread may have appended while this one made a batch: that thread's batch goes on.
            if queue.tail is not None:
                continue
            queue.batches.append(batch)
            self.incomplete.add(batch)
            queue.tail = batch
            if not queue.listed:
                queue.listed = True
                self.listed.append(queue)

    cdef int64_t room_for(self, int64_t size) noexcept:
        """Bytes of the buffer for a new batch with a record of `size` bytes of key, value and headers."""
        return max(self.batch_size, most_bytes(size))

    cdef int ask_wake(self) except -1:
        if not self.wake_asked and self.wake is not None:
            self.wake_asked = True
            self.wake()
        return 0

    cdef ProducerBatch append_chosen(self, str topic, int32_t partition, int64_t timestamp, const uint8_t* key,
                                     int64_t key_size, const uint8_t* value, int64_t value_size, const uint8_t* headers,
                                     int64_t headers_size, int32_t header_count, int32_t* index, Refused* refused):
        """Reads and changes the queues: runs no Python code, except where append_raw says so."""
        cdef PyObject* found
        cdef TopicQueue queues
        cdef PartitionQueue queue
        cdef ProducerBatch batch
        cdef int appended
        cdef bint sticky = False
        if not self.open:
            refused.reason = NOT_OPEN
            return None
        found = PyDict_GetItem(self.topics, topic)
        if found == NULL:
            refused.reason = NO_PARTITION
            return None
        queues = <TopicQueue>found
        if partition == ANY_PARTITION:
            if not queues.partitions:
                refused.reason = NO_PARTITION
                return None
            sticky = key == NULL or self.ignore_keys
            queue = queues.choose(key, key_size, self.ignore_keys)
        elif partition < 0 or partition >= len(queues.partitions):
            refused.reason = NO_PARTITION
            return None
        else:
            queue = <PartitionQueue>queues.partitions[partition]
        if self.transactional and not queue.in_transaction and not queue.joining:
            refused.reason = NOT_IN_TRANSACTION
            self.asked = queue
            return None
        appended = self.append_raw(queue, timestamp, key, key_size, value, value_size, headers, headers_size,
                                   header_count)
        if not appended:
            refused.reason = NO_ROOM
            refused.room = self.room_for(max(key_size, 0) + max(value_size, 0) + headers_size)
            return None
        batch = queue.tail
        index[0] = batch.record_count - 1
        if sticky:
            queues.appended(queue, max(key_size, 0) + max(value_size, 0) + headers_size + MIN_RECORD_SIZE)
        if appended == 2:
            self.ask_wake()
        return batch

    cdef FutureRecordMetadata try_append(self, str topic, int32_t partition, int64_t timestamp, object key,
                                         object value, object headers, Refused* refused):
        """Appends a record: its future; or None and `refused`, without a change. TypeError; RecordTooLargeError."""
        cdef ProducerBatch batch
        cdef Py_buffer key_view
        cdef Py_buffer value_view
        cdef ByteBuffer encoded
        cdef const uint8_t* key_data = NULL
        cdef const uint8_t* value_data = NULL
        cdef int64_t key_size = -1
        cdef int64_t value_size = -1
        cdef int64_t headers_size = -1
        cdef int32_t header_count = 0
        cdef int32_t index = 0
        cdef bint key_held = False
        cdef bint value_held = False
        buffer_init(&encoded)
        try:
            if key is not None:
                if PyBytes_CheckExact(key):
                    key_data = <const uint8_t*>PyBytes_AS_STRING(key)
                    key_size = PyBytes_GET_SIZE(key)
                else:
                    hold(key, &key_view, "key")
                    key_held = True
                    key_data = <const uint8_t*>key_view.buf if key_view.buf != NULL else <const uint8_t*>b""
                    key_size = key_view.len
            if value is not None:
                if PyBytes_CheckExact(value):
                    value_data = <const uint8_t*>PyBytes_AS_STRING(value)
                    value_size = PyBytes_GET_SIZE(value)
                else:
                    hold(value, &value_view, "value")
                    value_held = True
                    value_data = <const uint8_t*>value_view.buf
                    value_size = value_view.len
            if headers is not None:
                header_count = encode_headers(headers, &encoded, &headers_size)
            batch = self.append_chosen(
                topic, partition, timestamp, key_data, key_size, value_data, value_size, encoded.data,
                <int64_t>encoded.size, header_count, &index, refused,
            )
            if batch is None:
                return None
            return new_future(batch, index, timestamp, <int32_t>key_size, <int32_t>value_size, <int32_t>headers_size)
        finally:
            if key_held:
                PyBuffer_Release(&key_view)
            if value_held:
                PyBuffer_Release(&value_view)
            buffer_free(&encoded)

    def append(self, str topic not None, partition, timestamp_ms, key, value, headers=None):
        """Appends a record (partition None: the built-in partitioner chooses; timestamp None: now). Its future, or
        None.

        None: the topic or partition is unknown yet, the transaction does not know the partition, or the buffer has no
        room. TypeError for a value other than bytes; RecordTooLargeError; KafkaError when the producer accepts no
        records.
        """
        cdef Refused refused
        cdef FutureRecordMetadata future
        refused.reason = 0
        future = self.try_append(
            topic,
            ANY_PARTITION if partition is None else <int32_t>partition,
            wall_clock_ms() if timestamp_ms is None else <int64_t>timestamp_ms,
            key,
            value,
            headers,
            &refused,
        )
        if refused.reason == NOT_OPEN:
            raise KafkaError("the producer takes no records now")
        return future

    def topic(self, str name not None):
        """The queues of a topic, made on first use."""
        queues = self.topics.get(name)
        if queues is None:
            queues = self.topics.setdefault(name, TopicQueue(name, self.batch_size, self.adaptive))
        return queues

    def queue(self, str topic not None, int32_t partition):
        """The queue of a partition that the metadata has named. KeyError."""
        cdef TopicQueue queues = self.topics[topic]
        if not 0 <= partition < len(queues.partitions):
            raise KeyError(partition)
        return queues.partitions[partition]

    def listed_topics(self):
        """The names of topics with recent records."""
        cdef PartitionQueue queue
        return {queue.topic.name for queue in list(self.listed)}

    def has_room(self, int64_t room):
        """Whether the buffer has `room` free bytes, as await_room waits for."""
        return room <= self.pool.available

    def wait_for_room(self, waiter):
        """Calls waiter() once the buffer has room again, or no batch is left that could make room. Everything is sent
        at once until then."""
        self.room_waiters.append(waiter)
        self.pool.waiting = <int>len(self.room_waiters)
        self.ask_wake()

    def stop_waiting(self, waiter):
        """Undoes wait_for_room, unless the waiter has been called."""
        try:
            self.room_waiters.remove(waiter)
        except ValueError:
            pass
        self.pool.waiting = <int>len(self.room_waiters)

    def tell_room(self, always=False):
        """Calls the waiters once an eighth of the buffer is free: a wake-up for every batch would cost more than it
        gains."""
        if not self.room_waiters:
            return
        if always or not self.incomplete or self.pool.available >= self.pool.total // 8:
            waiters = self.room_waiters
            self.room_waiters = []
            self.pool.waiting = 0
            for waiter in waiters:
                waiter()

    # --- sending --------------------------------------------------------------------------------------------------

    def update_loads(self, excluded):
        """Updates the weights of partitions for records without a key; see TopicQueue.update_load."""
        cdef PartitionQueue queue
        if self.adaptive:
            for topic in {queue.topic for queue in list(self.listed)}:
                (<TopicQueue>topic).update_load(excluded)

    cdef int64_t backoff_of(self, ProducerBatch batch) except -1:
        """The back-off of a failed batch, in ms."""
        cdef list waits = self.backoff_ms
        return waits[min(batch.attempts, <int>len(waits)) - 1]

    def ready(self, int64_t now):
        """(node ids with batches to send, ms until the next batch may be ready, names of topics with batches but no
        leader).

        A batch is ready when linger.ms (for a retry: its back-off) is over, it is full, the buffer is full, or
        everything has to go (flush, close, the end of a transaction).
        """
        cdef PartitionQueue queue
        cdef ProducerBatch first
        cdef int64_t next_ms = NEVER_MS
        cdef int64_t waited, wait
        cdef bint backing_off
        cdef bint everything = self.pool.waiting > 0 or self.closed or self.flushes > 0 or self.completing
        nodes = []
        leaderless = set()
        for queue in self.listed:
            if not queue.batches:
                continue
            first = queue.batches[0]
            if queue.leader == NO_LEADER:
                leaderless.add(queue.topic.name)
                continue
            if queue.muted:
                continue
            first.update_leader(queue.leader_epoch)
            waited = now - first.attempted_ms
            wait = self.linger_ms
            backing_off = False
            if first.attempts > 0:
                wait = self.backoff_of(first)
                backing_off = waited < wait and first.leader_changed_at != first.attempts
            if not backing_off and (
                everything or first.attempts > 0 or len(queue.batches) > 1 or first.is_full() or waited >= wait
            ):
                if queue.leader not in nodes:
                    nodes.append(queue.leader)
            else:
                next_ms = min(next_ms, max(wait - waited, 0))
        return nodes, None if next_ms == NEVER_MS else next_ms, leaderless

    cdef bint may_send(self, PartitionQueue queue, ProducerBatch first) except -1:
        if not self.idempotent:
            return True
        if not self.sending_allowed or self.producer_id < 0 or (self.transactional and not queue.in_transaction):
            return False
        if first.base_sequence == NO_SEQUENCE:
            # Batches sent under another id or epoch must be done first, or a batch that starts at 0 could come before
            # them; and no batch gets a number while the numbers that the broker has seen are unknown.
            if queue.unresolved_sequence >= 0:
                return False
            # The first batch of a sequence goes alone: a broker without the sequence would accept the second batch
            # without the first.
            return not queue.unacked or (
                queue.producer_id == self.producer_id
                and queue.producer_epoch == self.producer_epoch
                and queue.last_acked_sequence >= 0
                and queue.numbered + 1 - (<ProducerBatch>queue.unacked[0]).number < MOST_REMEMBERED
            )
        # A retry is sent when it is the next in line, so that one request at a time is in flight until all is well
        # again.
        return not queue.unacked or queue.unacked[0] is first

    def drain(self, int32_t node, int64_t max_bytes, int64_t now, bint one_at_a_time=False):
        """Drains the batches of the next request to a node: at most one of each partition, together at most max_bytes
        (but one in any case).

        The batches get their sequence numbers here, and are in `sent` of their queues from now on. one_at_a_time mutes
        their partitions.
        """
        cdef PartitionQueue queue
        cdef ProducerBatch first
        cdef int64_t total = 0
        cdef bint full = False
        cdef Py_ssize_t left = len(self.listed)
        drained = []
        served = []
        # Queues leave the list at its left and return at its right, where other threads add queues: the list is right
        # at any time.
        while left:
            left -= 1
            queue = self.listed.popleft()
            if not queue.batches:
                queue.listed = False
                continue
            first = queue.batches[0]
            if (
                full
                or queue.leader != node
                or queue.muted
                or (
                    first.attempts > 0
                    and now - first.attempted_ms < self.backoff_of(first)
                    and first.leader_changed_at != first.attempts
                )
                or not self.may_send(queue, first)
            ):
                self.listed.append(queue)
                continue
            if drained and total + first.size_in_bytes() > max_bytes:
                full = True
                self.listed.append(queue)
                continue
            first.closed = True
            if queue.tail is first:
                queue.tail = None
            queue.batches.popleft()
            if self.idempotent and first.base_sequence == NO_SEQUENCE:
                if queue.producer_id != self.producer_id or queue.producer_epoch != self.producer_epoch:
                    queue.start_sequence(self.producer_id, self.producer_epoch)
                first.set_producer(
                    self.producer_id, self.producer_epoch, queue.take_sequence(first.record_count), self.transactional
                )
                queue.remember(first)
            first.sequence_reset = False
            queue.sent.append(first)
            queue.muted = one_at_a_time
            first.drained_ms = now
            total += first.size_in_bytes()
            drained.append(first)
            served.append(queue)
        # The next request looks at the queues just served last.
        self.listed.extend(served)
        return drained

    cdef int put_back(self, PartitionQueue queue, ProducerBatch batch) except -1:
        queue.insert(batch)
        if not queue.listed:
            queue.listed = True
            self.listed.append(queue)
        return 0

    @property
    def undrained(self):
        """Whether any queue holds a batch."""
        cdef PartitionQueue queue
        for queue in self.listed:
            if queue.batches:
                return True
        return False

    # --- results, on the loop's thread ----------------------------------------------------------------------------

    def succeed(self, ProducerBatch batch not None, int64_t base_offset, int64_t log_append_time):
        """Completes a batch that the broker has: its futures get their results, its callbacks run."""
        cdef PartitionQueue queue = self.queue(batch.topic, batch.partition)
        if self.idempotent:
            queue.acknowledged(batch, base_offset)
        queue.forget(batch)
        if batch.succeed(base_offset, log_append_time):
            # Behind a batch that expired in flight, the next may be in flight to another leader.
            queue.muted = False
            self.incomplete.discard(batch)
            batch.run_callbacks()

    def fail(self, ProducerBatch batch not None, error, record_errors=None):
        """Fails the batch for good. Whether it had no result before."""
        cdef PartitionQueue queue = self.queue(batch.topic, batch.partition)
        if queue.tail is batch:
            queue.tail = None
        queue.forget(batch)
        queue.muted = False
        if not batch.fail(error, record_errors):
            return False
        if self.failure is None:
            self.failure = record_errors[min(record_errors)] if record_errors else error
        self.incomplete.discard(batch)
        batch.run_callbacks()
        return True

    def retry(self, ProducerBatch batch not None, int64_t now):
        """Returns the batch to its queue for another attempt after its back-off."""
        cdef PartitionQueue queue = self.queue(batch.topic, batch.partition)
        queue.muted = False
        for i, other in enumerate(queue.sent):
            if other is batch:
                del queue.sent[i]
                break
        batch.reenqueued(now)
        self.put_back(queue, batch)

    def split(self, ProducerBatch batch not None):
        """Replaces a batch that is too large for its topic by smaller batches. Returns their number."""
        cdef PartitionQueue queue = self.queue(batch.topic, batch.partition)
        cdef ProducerBatch part
        # The limit is at least half the batch, so that the splits end however small the topic's limit is.
        parts = batch.split(min(self.batch_size, max(batch.size_in_bytes() // 2, BATCH_HEADER_SIZE + 1)))
        queue.forget(batch)
        queue.muted = False
        self.incomplete.update(parts)
        self.incomplete.discard(batch)
        for part in reversed(parts):
            if part.base_sequence != NO_SEQUENCE:
                queue.remember(part)
            self.put_back(queue, part)
        batch.run_callbacks()
        return len(parts)

    def take_expired(self, int64_t now, int64_t delivery_timeout_ms):
        """(batches older than delivery_timeout_ms, taken off their queues, oldest first; ms until the next may expire,
        None without other batches)."""
        cdef ProducerBatch batch
        cdef int64_t oldest = NEVER_MS
        expired = []
        for batch in list(self.incomplete):
            if now - batch.created_ms >= delivery_timeout_ms:
                expired.append(batch)
            else:
                oldest = min(oldest, batch.created_ms)
        expired.sort(key=by_age)
        self.take_off(expired)
        return expired, None if oldest == NEVER_MS else max(oldest + delivery_timeout_ms - now, 0)

    def take_undrained(self):
        """Takes the unsent batches off their queues: an aborted transaction omits them."""
        cdef ProducerBatch batch
        undrained = [batch for batch in list(self.incomplete) if batch.drained_ms == 0
                     and batch.base_sequence == NO_SEQUENCE]
        undrained.sort(key=by_age)
        self.take_off(undrained)
        return undrained

    def take_all(self):
        """Takes every batch without a result off the queues."""
        batches = sorted(self.incomplete, key=by_age)
        self.take_off(batches)
        return batches

    cdef int take_off(self, list batches) except -1:
        cdef ProducerBatch batch
        cdef PartitionQueue queue
        for batch in batches:
            queue = self.queue(batch.topic, batch.partition)
            batch.closed = True
            if queue.tail is batch:
                queue.tail = None
            try:
                queue.batches.remove(batch)
            except ValueError:
                pass    # the batch is in flight
        return 0


cdef int hold(object data, Py_buffer* view, str what) except -1:
    try:
        PyObject_GetBuffer(data, view, PyBUF_SIMPLE)
    except (TypeError, BufferError):
        raise TypeError(
            f"a record's {what} must be bytes, bytearray, memoryview or None, not {type(data).__name__}"
        ) from None
    return 0


cdef int32_t encode_headers(object headers, ByteBuffer* into, int64_t* size) except -1:
    """Appends (name, value) pairs in a record's encoding. Returns their number; `size` becomes the bytes of names and
    values, -1 without headers."""
    cdef Py_buffer view
    cdef Py_ssize_t name_size
    cdef const char* name_data
    cdef int32_t count = 0
    cdef int64_t total = 0
    for header in headers:
        if type(header) is not tuple and type(header) is not list or len(header) != 2 or not isinstance(header[0], str):
            raise TypeError(f"a header must be a (str, bytes) pair, not {header!r}")
        name, value = header
        name_data = PyUnicode_AsUTF8AndSize(name, &name_size)
        if name_size > INT32_MAX:
            raise RecordTooLargeError("a header's name fits no record")
        write_varint(into, <int32_t>name_size)
        write_raw(into, name_data, <size_t>name_size)
        total += name_size
        if value is None:
            write_varint(into, -1)
        else:
            hold(value, &view, "header")
            try:
                if view.len > INT32_MAX:
                    raise RecordTooLargeError("a header's value fits no record")
                write_varint(into, <int32_t>view.len)
                write_raw(into, view.buf, <size_t>view.len)
                total += view.len
            finally:
                PyBuffer_Release(&view)
        count += 1
    if into.error:
        raise MemoryError
    size[0] = total if count else -1
    return count
