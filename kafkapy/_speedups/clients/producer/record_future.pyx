"""Futures over batches (see record_future.pxd). Any thread may use them; callbacks run on the producer's loop."""

cimport cython

from kafkapy._speedups.clients.producer.producer_batch cimport (
    BATCH_FAILED,
    BATCH_INCOMPLETE_YET,
    BATCH_SPLIT,
    BATCH_SUCCEEDED,
    BufferPool,
    ProducerBatch,
    new_batch,
)
from kafkapy._speedups.clients.producer.record_spans cimport RecordSpans, Span

import asyncio
import copy
import functools
import threading
import time

from kafkapy.errors import IllegalStateError, KafkaTimeoutError, RetriableError
from kafkapy.types import BulkMetadata, RecordMetadata, SentRecords, TopicPartition

SLICE_S = 0.5

cdef enum:
    NO_TIMESTAMP = -1


@cython.final
cdef class Leaf:
    """A batch that was not split and the record's index in it."""

    cdef ProducerBatch batch
    cdef int32_t index


cdef Leaf leaf_of(ProducerBatch batch, int32_t index):
    cdef Leaf leaf = Leaf.__new__(Leaf)
    cdef int32_t first
    while batch.state == BATCH_SPLIT:
        for first, part in reversed(batch.parts):
            if first <= index:
                batch = part
                index -= first
                break
    leaf.batch = batch
    leaf.index = index
    return leaf


cdef object error_of(Leaf leaf):
    """The exception of a record; None without an exception, or before the result."""
    if leaf.batch.state != BATCH_FAILED:
        return None
    if leaf.batch.record_errors is not None:
        return leaf.batch.record_errors.get(leaf.index, leaf.batch.error)
    return leaf.batch.error


cdef object copy_of(error):
    """Copies the exception for one more caller. Its traceback holds the caller's frame, and with it the future in most
    cases: on the batch's own exception that would be a permanent cycle, for the garbage collector does not look into
    futures."""
    try:
        copied = copy.copy(error)
    except Exception:       # a class from elsewhere, whose constructor differs
        return error
    if error.__cause__ is not None:
        copied.__cause__ = error.__cause__
    return copied


cdef int wait_for(ProducerBatch batch, int32_t index, object deadline, object timeout) except -1:
    """Waits until the record has a result. KafkaTimeoutError at the deadline (time.monotonic(), None: never);
    IllegalStateError."""
    cdef Leaf leaf = leaf_of(batch, index)
    while leaf.batch.state == BATCH_INCOMPLETE_YET:
        event = leaf.batch.waiter()
        # This thread makes the event and then reads the state; the completing thread sets the state and then the event:
        # one of the two sees the other.
        if leaf.batch.state == BATCH_INCOMPLETE_YET:
            if leaf.batch.pool.loop_thread == threading.get_ident():
                raise IllegalStateError("to wait for a result on the producer's own thread would be to wait for ever")
            left = SLICE_S if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise KafkaTimeoutError(f"no result for a record of {batch.topic}-{batch.partition} within {timeout} s")
            # In slices: a signal right before a wait does not end it.
            event.wait(min(left, SLICE_S))
        leaf = leaf_of(batch, index)
    return 0


cdef FutureRecordMetadata new_future(ProducerBatch batch, int32_t index, int64_t timestamp, int32_t key_size,
                                     int32_t value_size, int32_t headers_size):
    cdef FutureRecordMetadata future = FutureRecordMetadata.__new__(FutureRecordMetadata)
    future.batch = batch
    future.index = index
    future.timestamp = timestamp
    future.key_size = key_size
    future.value_size = value_size
    future.headers_size = headers_size
    return future


def failed_future(str topic, int32_t partition, error):
    """A future of a record that never reached a batch."""
    cdef ProducerBatch batch = new_batch(topic, partition, BufferPool(1, 1), 1, 1, 0, True)
    batch.fail(error)
    return new_future(batch, 0, NO_TIMESTAMP, -1, -1, -1)


@cython.final
@cython.no_gc
@cython.freelist(1024)
cdef class FutureRecordMetadata:
    """The result of one send: a RecordMetadata or an exception.

    `get(timeout)` waits; `await` works on the producer's own loop. Callbacks are called on the producer's loop once the
    record's batch is complete, or at once by add_callback when it already is.
    """

    def __init__(self):
        raise TypeError("futures are made by send()")

    def __repr__(self):
        state = "pending" if not self.is_done else "failed" if self.failed() else "succeeded"
        return f"<FutureRecordMetadata {self.batch.topic}-{self.batch.partition}: {state}>"

    @property
    def is_done(self):
        """Whether the record has a result."""
        return leaf_of(self.batch, self.index).batch.state != BATCH_INCOMPLETE_YET

    def done(self):
        """Whether the record has a result."""
        return self.is_done

    def succeeded(self):
        """Whether the record is in the log as far as acks asked."""
        return leaf_of(self.batch, self.index).batch.state == BATCH_SUCCEEDED

    def failed(self):
        """Whether the result is an exception."""
        return leaf_of(self.batch, self.index).batch.state == BATCH_FAILED

    def retriable(self):
        """Whether another attempt may succeed."""
        return isinstance(self.exception, RetriableError)

    @property
    def topic_partition(self):
        """The record's partition."""
        return TopicPartition(self.batch.topic, self.batch.partition)

    @property
    def exception(self):
        """The error of the record; None without an error, or before the result."""
        return error_of(leaf_of(self.batch, self.index))

    @property
    def value(self):
        """The RecordMetadata; None without one, or before the result."""
        cdef Leaf leaf = leaf_of(self.batch, self.index)
        cdef ProducerBatch batch = leaf.batch
        cdef int64_t timestamp
        if batch.state != BATCH_SUCCEEDED:
            return None
        timestamp = self.timestamp if batch.log_append_time == NO_TIMESTAMP else batch.log_append_time
        return RecordMetadata(
            batch.topic,
            batch.partition,
            TopicPartition(batch.topic, batch.partition),
            batch.base_offset + leaf.index if batch.base_offset >= 0 else -1,
            timestamp,
            None,
            self.key_size,
            self.value_size,
            self.headers_size,
        )

    def get(self, timeout=None):
        """Waits at most `timeout` s (None: without limit) for the RecordMetadata and returns it.

        KafkaTimeoutError without a result in time, which does not change the record's fate; else the record's error.
        """
        wait_for(self.batch, self.index, None if timeout is None else time.monotonic() + timeout, timeout)
        error = self.exception
        if error is not None:
            raise copy_of(error)
        return self.value

    def add_callback(self, fn, *args, **kwargs):
        """Calls fn(*args, RecordMetadata) after success. Returns the future."""
        call = functools.partial(fn, *args, **kwargs) if args or kwargs else fn

        def deliver():
            value = self.value
            if value is not None:
                call(value)

        self.batch.on_done(deliver)
        return self

    def add_errback(self, fn, *args, **kwargs):
        """Calls fn(*args, exception) after failure. Returns the future."""
        call = functools.partial(fn, *args, **kwargs) if args or kwargs else fn

        def deliver():
            error = self.exception
            if error is not None:
                call(error)

        self.batch.on_done(deliver)
        return self

    def add_both(self, fn, *args, **kwargs):
        """add_callback and add_errback with the same function. Returns the future."""
        return self.add_callback(fn, *args, **kwargs).add_errback(fn, *args, **kwargs)

    def add_done_callback_threadless(self, fn):
        """Calls fn(future) on the producer's loop after the result; for callers on that loop, where no thread waits."""
        self.batch.on_done(functools.partial(fn, self))

    def __await__(self):
        return in_loop(self).__await__()


async def in_loop(future):
    """Returns the result of get() for a coroutine of any loop."""
    await result_of(future.add_done_callback_threadless)
    return future.get()


async def result_of(register):
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()

    def finish():
        if not waiter.done():
            waiter.set_result(None)

    def deliver(_):
        try:
            loop.call_soon_threadsafe(finish)
        except RuntimeError:
            pass    # the waiting loop is closed: no coroutine waits

    register(deliver)
    await waiter


def bulk_future(RecordSpans spans not None):
    """One future for the records of `spans`."""
    cdef BulkFuture future = BulkFuture.__new__(BulkFuture)
    future.spans = spans
    return future


cdef ProducerBatch batch_of(Span span):
    return <ProducerBatch>span.batch


@cython.final
cdef class BulkFuture:
    """The result of many records, of send_many. len() is their number."""

    def __init__(self):
        raise TypeError("futures are made by send_many()")

    def __len__(self):
        return self.spans.count

    def __repr__(self):
        return f"<BulkFuture of {self.spans.count} records: {'complete' if self.is_done else 'pending'}>"

    @property
    def is_done(self):
        """Whether every record has a result."""
        cdef ProducerBatch batch
        cdef Span span
        cdef size_t at
        for at in range(self.spans.spans.size()):
            span = self.spans.spans[at]
            batch = batch_of(span)
            if batch.state != BATCH_SUCCEEDED and not all_parts_done(batch):
                return False
        return True

    def done(self):
        """Whether every record has a result."""
        return self.is_done

    def succeeded(self):
        """Whether every record is in the log as far as acks asked."""
        return self.is_done and self.exception is None

    def failed(self):
        """Whether every record has a result, and at least one is an error."""
        return self.is_done and self.exception is not None

    @property
    def exception(self):
        """The error of the first failed record; None without a failure, or before the result."""
        cdef ProducerBatch batch
        cdef Span span
        cdef size_t at
        cdef int32_t i
        for at in range(self.spans.spans.size()):
            span = self.spans.spans[at]
            batch = batch_of(span)
            if batch.state == BATCH_SUCCEEDED or batch.state == BATCH_INCOMPLETE_YET:
                continue
            for i in range(span.count):
                error = error_of(leaf_of(batch, span.first + i))
                if error is not None:
                    return error
        return None

    def wait(self, timeout=None):
        """Waits until every record has a result. KafkaTimeoutError after `timeout` s; else the error of the first
        failed record."""
        cdef ProducerBatch batch
        cdef Span span
        cdef size_t at
        cdef int32_t i
        deadline = None if timeout is None else time.monotonic() + timeout
        for at in range(self.spans.spans.size()):
            span = self.spans.spans[at]
            batch = batch_of(span)
            if batch.state == BATCH_SUCCEEDED:
                continue
            wait_for(batch, span.first, deadline, timeout)
            if batch.state == BATCH_SPLIT:
                for i in range(1, span.count):
                    wait_for(batch, span.first + i, deadline, timeout)
        error = self.exception
        if error is not None:
            raise error

    def get(self, timeout=None):
        """Waits as wait() does; returns the offset of every record, in order, as a BulkMetadata: SentRecords for each
        stretch.
        """
        cdef ProducerBatch batch
        cdef Span span
        cdef size_t at
        cdef Leaf leaf
        cdef int32_t i, j
        self.wait(timeout)
        stretches = BulkMetadata()
        for at in range(self.spans.spans.size()):
            span = self.spans.spans[at]
            batch = batch_of(span)
            i = 0
            while i < span.count:
                leaf = leaf_of(batch, span.first + i)
                j = min(span.count, i + leaf.batch.record_count - leaf.index)
                offset = leaf.batch.base_offset + leaf.index if leaf.batch.base_offset >= 0 else -1
                stretches.append(SentRecords(TopicPartition(batch.topic, batch.partition), offset, j - i))
                i = j
        return stretches

    def add_done_callback_threadless(self, fn):
        """Calls fn(future) on the producer's loop when every record has a result."""
        cdef ProducerBatch batch
        batches = self.spans.batches()
        left = [len(batches)]

        def one_done():
            left[0] -= 1
            if not left[0]:
                fn(self)

        if not left[0]:
            fn(self)
        for batch in batches:
            batch.on_done(one_done)

    def __await__(self):
        return in_loop(self).__await__()


cdef bint all_parts_done(ProducerBatch batch) except -1:
    if batch.state != BATCH_SPLIT:
        return batch.state != BATCH_INCOMPLETE_YET
    for _, part in batch.parts:
        if not all_parts_done(part):
            return False
    return True
