"""send() and send_many() (see record_sender.pxd). Any thread may call them."""

from kafkapy._speedups.base.posix cimport wall_clock_ms
from kafkapy._speedups.clients.producer.partition_queue cimport ANY_PARTITION
from kafkapy._speedups.clients.producer.record_accumulator cimport (
    NOT_IN_TRANSACTION,
    NOT_OPEN,
    NO_PARTITION,
    NO_ROOM,
    Refused,
)
from kafkapy._speedups.clients.producer.record_spans cimport RecordSpans

from kafkapy._speedups.clients.producer.record_future import bulk_future

cdef enum:
    TURN = 256      # records of send_many between two chances for other threads


cdef class RecordSender:
    """The sending half of a producer. A subclass handles a record that cannot be appended at once:

    refuse(): the accumulator is not open; raises.
    await_topic(topic, partition, deadline): waits until the topic (and partition, None: any) is known.
    join_transaction(queue): the coordinator must learn of the partition.
    await_room(room, deadline): waits until the buffer may have so many bytes free.

    The two waiting methods take and return the deadline of this send, None at first. With interceptors,
    send_intercepted is called instead.
    """

    def send(self, topic, value=None, key=None, headers=None, partition=None, timestamp_ms=None, callback=None):
        """Sends a record, and returns the future of its RecordMetadata.

        topic: name. value, key: bytes-like or None, or any input of the configured serializers. headers: (str, bytes or
        None) pairs. partition: number; None: the partitioner chooses. timestamp_ms: since the epoch; None: now.
        callback(metadata, exception): called on the producer's own thread after the result, one of the two None.

        KafkaTimeoutError: no metadata, or no room in the buffer (BufferExhaustedError), within max.block.ms.
        RecordTooLargeError. TypeError. ValueError: a negative partition or timestamp. IllegalStateError: the producer
        is closed, or no transaction is open. TopicAuthorizationFailedError, InvalidTopicError.
        """
        cdef FutureRecordMetadata future
        if self.interceptors is not None:
            return self.send_intercepted(topic, value, key, headers, partition, timestamp_ms, callback)
        future = self.send_one(topic, value, key, headers, partition,
                               wall_clock_ms() if timestamp_ms is None else timestamp_ms)
        if callback is not None:
            deliver_to(future, callback)
        return future

    def send_plain(self, topic, value=None, key=None, headers=None, partition=None, timestamp_ms=None):
        """send() without the interceptors."""
        return self.send_one(topic, value, key, headers, partition,
                             wall_clock_ms() if timestamp_ms is None else timestamp_ms)

    def send_many(self, topic, values, keys=None, headers=None, partition=None, timestamp_ms=None):
        """Sends a record for each of `values`, and returns one future for all of them.

        keys: as many as values, or None. headers, partition, timestamp_ms: of every record, as for send(). When a
        record cannot be sent, its error is raised, and the records before it are on their way. ValueError: the numbers
        of keys and values differ.
        """
        cdef FutureRecordMetadata future
        cdef RecordSpans spans = RecordSpans.__new__(RecordSpans)
        cdef int64_t timestamp = wall_clock_ms() if timestamp_ms is None else timestamp_ms
        cdef object each_key = None if keys is None else iter(keys)
        key = None
        for value in values:
            if each_key is not None:
                try:
                    key = next(each_key)
                except StopIteration:
                    raise ValueError(f"there are {spans.count} keys, but more values") from None
            if self.interceptors is not None:
                future = self.send_intercepted(topic, value, key, headers, partition, timestamp_ms, None)
            else:
                future = self.send_one(topic, value, key, headers, partition, timestamp)
            spans.add(future.batch, future.index)
            if spans.count % TURN == 0:
                # This loop runs no bytecode, so no other thread would get the GIL.
                with nogil:
                    pass
        if each_key is not None and next(each_key, self) is not self:
            raise ValueError(f"there are {spans.count} values, but more keys")
        return bulk_future(spans)

    cdef FutureRecordMetadata send_one(self, object topic, object value, object key, object headers, object partition,
                                       int64_t timestamp):
        cdef FutureRecordMetadata future
        cdef Refused refused
        cdef int32_t number
        cdef object deadline = None
        cdef object raw_key = key
        cdef object raw_value = value
        if type(topic) is not str:
            if not isinstance(topic, str):
                raise TypeError(f"a topic is a str, not {type(topic).__name__}")
            topic = str.__str__(topic)
        if timestamp < 0:
            raise ValueError(f"timestamp {timestamp} is negative")
        if headers is not None:
            if type(headers) is not list and type(headers) is not tuple:
                headers = list(headers)     # a wait may append the record again, and an iterator gives its
                                            # items once
            if not headers:
                headers = None
        if self.key_serializer is not None:
            raw_key = self.key_serializer(topic, headers, key)
        if self.value_serializer is not None:
            raw_value = self.value_serializer(topic, headers, value)
        number = ANY_PARTITION
        if partition is not None:
            number = partition
            if number < 0:
                raise ValueError(f"partition {number} is negative")
        elif self.partitioner is not None:
            while topic not in self.accumulator.topics or not self.accumulator.topics[topic].partitions:
                if not self.accumulator.open:
                    self.refuse()
                deadline = self.await_topic(topic, None, deadline)
            number = self.partitioner(topic, key, raw_key, value, raw_value)
            if number < 0:
                raise ValueError(f"the partitioner has chosen partition {number} of {topic}")
        while True:
            refused.reason = 0
            future = self.accumulator.try_append(<str>topic, number, timestamp, raw_key, raw_value, headers, &refused)
            if refused.reason == 0:
                return future
            if refused.reason == NOT_OPEN:
                self.refuse()
            elif refused.reason == NO_PARTITION:
                deadline = self.await_topic(topic, None if number == ANY_PARTITION else number, deadline)
            elif refused.reason == NOT_IN_TRANSACTION:
                self.join_transaction(self.accumulator.asked)
            elif refused.reason == NO_ROOM:
                deadline = self.await_room(refused.room, deadline)


def deliver_to(FutureRecordMetadata future, callback):
    """Calls callback(metadata, exception) when the record has a result."""

    def deliver():
        callback(future.value, future.exception)

    future.batch.on_done(deliver)
