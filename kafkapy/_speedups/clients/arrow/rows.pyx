"""ArrowRows: the rows of one Arrow record batch, appended to a producer's accumulator straight from Arrow's memory.

    binary          row i is data[ends[i]:ends[i + 1]], null where bit i of `valid` is 0
    list            row i is the headers ends[i] to ends[i + 1]; a null list is no headers
    number          data[i]

kafkapy.arrow brings columns into these forms and checks their types; this module trusts its addresses. The maker of the
table has checked the ends: a table that fails pyarrow's validate(full=True) must not come here.

Runs with the GIL, which other threads get in turns. A record without room in the buffer waits as in RecordSender.send.
"""

from libc.stdint cimport uint32_t, uintptr_t
from libc.string cimport memcpy

from cpython.bytes cimport PyBytes_FromStringAndSize

from kafkapy._speedups.base.crc32c cimport crc32c_of
from kafkapy._speedups.base.wire cimport buffer_free, buffer_init, write_raw, write_varint
from kafkapy._speedups.clients.producer.partition_queue cimport ANY_PARTITION, PartitionQueue, TopicQueue
from kafkapy._speedups.clients.producer.producer_batch cimport ProducerBatch
from kafkapy._speedups.clients.producer.record_accumulator cimport (
    NOT_IN_TRANSACTION,
    NOT_OPEN,
    NO_PARTITION,
    NO_ROOM,
    RecordAccumulator,
    Refused,
)
from kafkapy._speedups.clients.producer.record_sender cimport RecordSender
from kafkapy._speedups.clients.producer.record_spans cimport RecordSpans
from kafkapy._speedups.records.record_batch cimport MIN_RECORD_SIZE, RecordView

cdef enum:
    TURN = 256          # rows between two chances for other threads
    MAX_SIZE = 0x7FFFFFFF


cdef inline bint is_valid(const uint8_t* valid, int64_t row) noexcept nogil:
    return valid == NULL or (valid[row >> 3] >> (row & 7)) & 1


cdef inline int64_t end_at(const BytesColumn* column, int64_t row) noexcept nogil:
    cdef int64_t wide
    cdef int32_t narrow
    if column.large:
        memcpy(&wide, column.ends + row * sizeof(int64_t), sizeof(int64_t))
        return wide
    memcpy(&narrow, column.ends + row * sizeof(int32_t), sizeof(int32_t))
    return narrow


cdef inline const uint8_t* bytes_at(const BytesColumn* column, int64_t row, int64_t* size) noexcept nogil:
    """Returns the row's bytes; NULL and size -1 for null."""
    cdef int64_t start
    row += column.first
    if not column.present or not is_valid(column.valid, row):
        size[0] = -1
        return NULL
    start = end_at(column, row)
    size[0] = end_at(column, row + 1) - start
    # Empty bytes have a pointer, too: NULL means null.
    return column.data + start if column.data != NULL else <const uint8_t*>b""


cdef inline uint64_t mixed(uint64_t z) noexcept nogil:
    """Mixes the bits: each bit of the result depends on all of z (the finalizer of SplitMix64), so sums of similar
    hashes are not similar."""
    z = (z ^ (z >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * <uint64_t>0x94D049BB133111EB
    return z ^ (z >> 31)


cdef BytesColumn bytes_column(parts) except *:
    cdef BytesColumn column
    column.present = parts is not None
    column.valid = NULL
    column.ends = NULL
    column.data = NULL
    column.first = 0
    column.large = False
    if parts is not None:
        valid, ends, data, first, large = parts
        column.valid = <const uint8_t*><uintptr_t>valid
        column.ends = <const uint8_t*><uintptr_t>ends
        column.data = <const uint8_t*><uintptr_t>data
        column.first = first
        column.large = large
    return column


cdef NumberColumn number_column(parts) except *:
    cdef NumberColumn column
    column.present = parts is not None
    column.valid = NULL
    column.data = NULL
    column.first = 0
    if parts is not None:
        valid, data, first = parts
        column.valid = <const uint8_t*><uintptr_t>valid
        column.data = <const uint8_t*><uintptr_t>data
        column.first = first
    return column


cdef class ArrowRows:
    """`rows` rows of columns that `owner` keeps alive. Addresses, 0 for none; None for an absent column.

    key, value: (valid, ends, data, first row, whether ends are int64); headers: three of these: the lists, names,
    values; topic: (valid, int32 indexes, first row) into `topics`; partition, timestamp: (valid, int32 or int64 data,
    first row).
    """

    def __cinit__(self, int64_t rows, owner, *, key=None, value=None, headers=None, topic=None, topics=None,
                  partition=None, timestamp=None):
        self.rows = rows
        self.owner = owner
        self.key = bytes_column(key)
        self.value = bytes_column(value)
        lists, names, values = (None, None, None) if headers is None else headers
        self.header_lists = bytes_column(lists)
        self.header_names = bytes_column(names)
        self.header_values = bytes_column(values)
        self.topic = number_column(topic)
        self.topics = topics
        self.partition = number_column(partition)
        self.timestamp = number_column(timestamp)

    cdef int32_t encode_headers(self, int64_t row, ByteBuffer* into) except -1:
        """Writes the row's headers in a record's encoding, and returns how many."""
        cdef const uint8_t* at
        cdef int64_t i, size
        cdef int64_t start, end
        into.size = 0
        row += self.header_lists.first
        if not self.header_lists.present or not is_valid(self.header_lists.valid, row):
            return 0
        start = end_at(&self.header_lists, row)
        end = end_at(&self.header_lists, row + 1)
        for i in range(start, end):
            at = bytes_at(&self.header_names, i, &size)
            if at == NULL:
                raise ValueError(f"a header of row {row - self.header_lists.first} has no name")
            if size > MAX_SIZE:
                raise ValueError(f"the name of a header of row {row - self.header_lists.first} has {size} bytes")
            write_varint(into, <int32_t>size)
            write_raw(into, at, <size_t>size)
            at = bytes_at(&self.header_values, i, &size)
            if size > MAX_SIZE:
                raise ValueError(f"a header of row {row - self.header_lists.first} has {size} bytes")
            write_varint(into, <int32_t>size)
            if size > 0:
                write_raw(into, at, <size_t>size)
        if into.error:
            raise MemoryError()
        return <int32_t>(end - start)

    cdef str topic_of(self, int64_t row, str default):
        cdef int32_t index
        if default is not None:
            return default
        row += self.topic.first
        if not self.topic.present or not is_valid(self.topic.valid, row):
            raise ValueError(f"row {row - self.topic.first} names no topic")
        memcpy(&index, self.topic.data + row * sizeof(int32_t), sizeof(int32_t))
        return <str>self.topics[index]

    cdef int32_t partition_of(self, int64_t row) except? -1:
        """Returns the row's partition, or ANY_PARTITION without one."""
        cdef int32_t partition
        row += self.partition.first
        if not self.partition.present or not is_valid(self.partition.valid, row):
            return ANY_PARTITION
        memcpy(&partition, self.partition.data + row * sizeof(int32_t), sizeof(int32_t))
        if partition < 0:
            raise ValueError(f"row {row - self.partition.first} is for partition {partition}")
        return partition

    def checksum(self):
        """The sum over all rows, modulo 2**64, of a hash of key and value: the order and the batches of the rows do not
        matter. Null differs from empty."""
        cdef uint64_t out
        with nogil:
            out = self.checksum_of()
        return out

    cdef uint64_t checksum_of(self) noexcept nogil:
        cdef const uint8_t* at
        cdef int64_t row, size
        cdef uint32_t key_crc, value_crc
        cdef uint64_t sizes
        cdef uint64_t out = 0
        for row in range(self.rows):
            at = bytes_at(&self.key, row, &size)
            key_crc = crc32c_of(0, at, <size_t>size) if at != NULL else 0
            sizes = <uint64_t>(size + 2) << 32
            at = bytes_at(&self.value, row, &size)
            value_crc = crc32c_of(key_crc, at, <size_t>size) if at != NULL else key_crc
            sizes += <uint64_t>(size + 2)
            out += mixed((<uint64_t>key_crc << 32 | value_crc) ^ mixed(sizes))
        return out

    cdef list queues_of(self, RecordAccumulator accumulator, str topic):
        """Returns the TopicQueue of each of `topics`, or the one of `topic`; None for an unknown topic."""
        return [accumulator.topics.get(name) for name in ([topic] if topic is not None else self.topics or ())]

    cdef int64_t send_open(self, RecordAccumulator accumulator, list queues, bint one_topic, int64_t row, int64_t last,
                           int64_t now_ms, RecordSpans spans, ByteBuffer* headers) except -1:
        """Appends rows from `row` on while each is a valid record and fits an open batch. Returns the first row that is
        not or does not, or `last`. Runs no Python code, except to wake the sender at the end, and never releases the
        GIL."""
        cdef BytesColumn keys = self.key
        cdef BytesColumn values = self.value
        cdef NumberColumn partitions = self.partition
        cdef NumberColumn timestamps = self.timestamp
        cdef RecordView record
        cdef TopicQueue topic
        cdef PartitionQueue queue
        cdef int64_t key_size, value_size, size, timestamp
        cdef int64_t at
        cdef int32_t number
        cdef int appended = 1
        cdef bint sticky
        if not accumulator.open:
            return row
        record.headers = NULL
        record.headers_size = 0
        record.header_count = 0
        while row < last and appended == 1:
            number = 0
            if not one_topic:
                at = row + self.topic.first
                if not is_valid(self.topic.valid, at):
                    break
                memcpy(&number, self.topic.data + at * sizeof(int32_t), sizeof(int32_t))
            if queues[number] is None:
                break
            topic = <TopicQueue>queues[number]
            record.key = bytes_at(&keys, row, &key_size)
            record.value = bytes_at(&values, row, &value_size)
            size = max(key_size, 0) + max(value_size, 0)
            if size > accumulator.small:
                break
            sticky = False
            at = row + partitions.first
            if partitions.present and is_valid(partitions.valid, at):
                memcpy(&number, partitions.data + at * sizeof(int32_t), sizeof(int32_t))
                if not 0 <= number < len(topic.partitions):
                    break
                queue = <PartitionQueue>topic.partitions[number]
            elif topic.partitions:
                sticky = record.key == NULL or accumulator.ignore_keys
                queue = topic.choose(record.key, key_size, accumulator.ignore_keys)
            else:
                break
            if accumulator.transactional and not queue.in_transaction and not queue.joining:
                break
            timestamp = now_ms
            at = row + timestamps.first
            if timestamps.present and is_valid(timestamps.valid, at):
                memcpy(&timestamp, timestamps.data + at * sizeof(int64_t), sizeof(int64_t))
                if timestamp < 0:
                    break
            if self.header_lists.present:
                record.header_count = self.encode_headers(row, headers)
                record.headers = headers.data
                record.headers_size = <int64_t>headers.size
                if size + record.headers_size > accumulator.small:
                    break
            record.key_size = <int32_t>key_size
            record.value_size = <int32_t>value_size
            appended = accumulator.append_tail(queue, &record, timestamp)
            if not appended:
                break
            if spans is not None:
                spans.add(queue.tail, queue.tail.record_count - 1)
            if sticky:
                topic.appended(queue, size + record.headers_size + MIN_RECORD_SIZE)
            row += 1
        if appended == 2:
            accumulator.ask_wake()
        return row

    def send(self, RecordSender sender not None, str topic, int64_t now_ms, RecordSpans spans=None):
        """Appends every row, to `topic` where it is not None, and adds their batches to `spans`.

        Waits and raises as RecordSender.send does; ValueError for a row that names no topic or a partition below 0.
        After a failure, `spans` has the rows before the failed one.
        """
        cdef ByteBuffer headers
        cdef ProducerBatch batch
        cdef str name
        cdef const uint8_t* key
        cdef const uint8_t* value
        cdef int64_t key_size, value_size, timestamp, row, at
        cdef int32_t partition, header_count
        cdef int32_t index = 0
        cdef Refused refused
        cdef list queues = None
        buffer_init(&headers)
        try:
            row = 0
            while row < self.rows:
                if sender.partitioner is None:
                    if queues is None:
                        queues = self.queues_of(sender.accumulator, topic)
                    at = row
                    row = self.send_open(sender.accumulator, queues, topic is not None, row, min(row + TURN, self.rows),
                                         now_ms, spans, &headers)
                    if row > at:
                        # This loop runs no bytecode, so no other thread would get the GIL.
                        with nogil:
                            pass
                        continue
                name = self.topic_of(row, topic)
                partition = self.partition_of(row)
                key = bytes_at(&self.key, row, &key_size)
                value = bytes_at(&self.value, row, &value_size)
                if key_size > MAX_SIZE or value_size > MAX_SIZE:
                    raise ValueError(f"the key or value of row {row} has more than {MAX_SIZE} bytes")
                header_count = self.encode_headers(row, &headers)
                timestamp = now_ms
                at = row + self.timestamp.first
                if self.timestamp.present and is_valid(self.timestamp.valid, at):
                    memcpy(&timestamp, self.timestamp.data + at * sizeof(int64_t), sizeof(int64_t))
                    if timestamp < 0:
                        raise ValueError(f"row {row} has timestamp {timestamp}, which is negative")
                deadline = None
                if partition == ANY_PARTITION and sender.partitioner is not None:
                    while name not in sender.accumulator.topics or not sender.accumulator.topics[name].partitions:
                        if not sender.accumulator.open:
                            sender.refuse()
                        deadline = sender.await_topic(name, None, deadline)
                    raw_key = PyBytes_FromStringAndSize(<const char*>key, key_size) if key != NULL else None
                    raw_value = PyBytes_FromStringAndSize(<const char*>value, value_size) if value != NULL else None
                    partition = sender.partitioner(name, raw_key, raw_key, raw_value, raw_value)
                    if partition < 0:
                        raise ValueError(f"the partitioner has chosen partition {partition} of {name}")
                while True:
                    refused.reason = 0
                    batch = sender.accumulator.append_chosen(
                        name, partition, timestamp, key, key_size, value, value_size, headers.data,
                        <int64_t>headers.size, header_count, &index, &refused,
                    )
                    if batch is not None:
                        break
                    if refused.reason == NOT_OPEN:
                        sender.refuse()
                    elif refused.reason == NO_PARTITION:
                        deadline = sender.await_topic(name, None if partition == ANY_PARTITION else partition, deadline)
                        queues = None
                    elif refused.reason == NOT_IN_TRANSACTION:
                        sender.join_transaction(sender.accumulator.asked)
                    elif refused.reason == NO_ROOM:
                        deadline = sender.await_room(refused.room, deadline)
                if spans is not None:
                    spans.add(batch, index)
                row += 1
                if row % TURN == 0:
                    with nogil:
                        pass
        finally:
            buffer_free(&headers)
