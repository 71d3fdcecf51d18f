"""Fetched records on their way to the user: chunks by partition, and the order of the partitions.

    loop:   PartitionBuffer.add(chunk)  ->  waiting: [chunk, chunk ...]  ->  FetchBuffer.ready: [partition ...]
    user:   FetchBuffer.current  ->  its chunk being read  ->  record, record ...  ->  chunk done: next partition

A *chunk* holds the records of one partition in one Fetch response. The current partition stays current until its chunk
is done, then the next of `ready` has its turn, as in Kafka's FetchCollector: fair by chunks.

Two threads work on these objects, the user's (reads) and the client's loop (adds, clears, holds). The GIL protects
them: a method keeps it until its work is consistent, and releases it only in `tell_hungry` and `tell_ready`. Making
records may run the garbage collector, hence arbitrary code, and another thread: a method holds its own reference to its
chunk, and afterwards trusts no value that it read before.

The position of a partition, the offset of the user's next record, is that of its current chunk, else its own.
"""

from collections import deque

from libc.stdint cimport INT64_MAX, int64_t



cdef class RecordColumns:
    cpdef int64_t append(self, FetchedPartition partition, int64_t max_records, bint release_gil=False,
                         int64_t end_offset=INT64_MAX, int64_t max_bytes=INT64_MAX) except -1:
        raise NotImplementedError


cdef class PartitionBuffer:
    """The chunks of one assigned partition, and its position. `offset` -1: the partition has no position yet."""

    def __init__(self, object topic_partition, FetchBuffer owner not None):
        self.topic_partition = topic_partition
        self.owner = owner
        self.waiting = []
        self.offset = -1
        self.leader_epoch = -1

    @property
    def position(self):
        """The offset of the user's next record, -1 without a position."""
        return self.offset if self.chunk is None else self.chunk.next_offset

    @property
    def position_epoch(self):
        """The leader epoch of the last record before the position, -1 when it is unknown."""
        if self.chunk is None or self.chunk.leader_epoch < 0:
            return self.leader_epoch
        return self.chunk.leader_epoch

    @property
    def chunks(self):
        """The number of chunks, the current one included."""
        return len(self.waiting) + (self.chunk is not None)

    @property
    def end_offset(self):
        """The offset of this partition's next fetch: after the last chunk, or at the position."""
        cdef FetchedPartition last
        if self.waiting:
            last = <FetchedPartition>self.waiting[len(self.waiting) - 1]
            return last.end_offset
        return self.offset if self.chunk is None else self.chunk.end_offset

    @property
    def end_epoch(self):
        """The leader epoch of the last batch before `end_offset`, -1 when it is unknown."""
        cdef FetchedPartition last = self.chunk
        if self.waiting:
            last = <FetchedPartition>self.waiting[len(self.waiting) - 1]
        return self.leader_epoch if last is None or last.end_epoch < 0 else last.end_epoch

    @property
    def readable(self):
        """Whether the user may have records of this partition now."""
        return self.is_readable

    @readable.setter
    def readable(self, bint readable):
        if readable == self.is_readable:
            return
        self.is_readable = readable
        if not readable:
            if self.owner.current is self:
                self.owner.current = None
                self.owner.chunk = None
        elif self.chunk is not None or self.waiting:
            self.owner.enqueue(self)

    def seek(self, int64_t offset, int leader_epoch=-1):
        """Moves the position, and drops the chunks. On the loop's thread, while the user's thread is not reading."""
        self.drop_chunks()
        self.offset = offset
        self.leader_epoch = leader_epoch

    def rewind(self):
        """Drops the chunks; the position stays where it is."""
        cdef int64_t offset = self.position
        cdef int leader_epoch = self.position_epoch
        self.seek(offset, leader_epoch)

    def add(self, FetchedPartition chunk not None):
        """Takes a started chunk that begins at `end_offset`."""
        self.waiting.append(chunk)
        self.bytes += chunk.bytes
        self.owner.bytes += chunk.bytes
        if self.is_readable:
            self.owner.enqueue(self)

    cdef bint start_next(self) except -1:
        """Makes the next chunk the current one; false without a chunk."""
        if self.chunk is None:
            if not self.waiting:
                return False
            self.chunk = <FetchedPartition>self.waiting.pop(0)
        return True

    cdef int finish_chunk(self) except -1:
        """Finishes the current chunk: the position moves behind it."""
        cdef FetchedPartition chunk = self.chunk
        if chunk is None:
            return 0
        if chunk.next_offset > self.offset:
            self.offset = chunk.next_offset
        if chunk.leader_epoch >= 0:
            self.leader_epoch = chunk.leader_epoch
        self.chunk = None
        self.bytes -= chunk.bytes
        self.owner.bytes -= chunk.bytes
        return 0

    cdef int drop_chunks(self) except -1:
        if self.owner.current is self:
            self.owner.current = None
            self.owner.chunk = None
        self.chunk = None
        self.waiting = []
        self.owner.bytes -= self.bytes
        self.bytes = 0
        return 0


cdef class FetchBuffer:
    """The partitions of one consumer that have records, in turn.

    `tell_hungry` is called on the user's thread after a chunk while `telling` is set, which the call clears;
    `tell_ready` on the loop's thread when an empty buffer gets records. `attention`: the user's thread has other work
    to do before its next record. `tells_all`: a caller waits for certain partitions, so `tell_ready` is called for
    every empty partition that gets records. `calls`, `records` and `bytes` (in memory now) are counters.
    """

    def __init__(self, tell_hungry, tell_ready):
        self.ready = deque()
        self.tell_hungry = tell_hungry
        self.tell_ready = tell_ready

    def partition(self, object topic_partition):
        """Makes an empty buffer for one partition of this consumer."""
        return PartitionBuffer(topic_partition, self)

    @property
    def empty(self):
        """Whether the buffer has nothing to read now. Chunks with invisible records only still count."""
        return self.current is None and not self.ready

    cdef int enqueue(self, PartitionBuffer partition) except -1:
        cdef bint was_empty
        if partition.queued or partition is self.current:
            return 0
        was_empty = self.current is None and not self.ready
        partition.queued = True
        self.ready.append(partition)
        if was_empty or self.tells_all:
            self.tell_ready()
        return 0

    cdef int tell(self) except -1:
        if self.telling:
            self.telling = False
            self.tell_hungry()
        return 0

    cdef bint advance(self) except -1:
        """Ends the current chunk, if any, and begins the next partition's; false when no partition has records."""
        cdef PartitionBuffer partition = self.current
        if partition is not None:
            self.current = None
            self.chunk = None
            partition.finish_chunk()
            if partition.waiting:
                self.enqueue(partition)
            self.tell()
        while self.ready:
            partition = <PartitionBuffer>self.ready.popleft()
            partition.queued = False
            if partition.is_readable and partition.start_next():
                self.current = partition
                self.chunk = partition.chunk
                return True
        return False

    cdef object next_record(self):
        """Returns the next record; None when the buffer is empty."""
        cdef FetchedPartition chunk
        cdef object record
        self.calls += 1
        while True:
            chunk = self.chunk
            if chunk is not None:
                record = chunk.next()
                if record is not None:
                    self.records += 1
                    return record
            if not self.advance():
                return None

    def next(self):
        """The next record; None when the buffer is empty. CorruptMessageError, again at each call."""
        return self.next_record()

    def take(self, Py_ssize_t max_records):
        """Takes up to max_records, {topic-partition: [record, ...]}. CorruptMessageError when the first record is
        corrupt."""
        cdef dict taken = {}
        cdef list records
        cdef PartitionBuffer partition
        cdef FetchedPartition chunk
        cdef Py_ssize_t left = max_records
        self.calls += 1
        while left > 0:
            partition = self.current
            chunk = self.chunk
            if partition is not None:
                try:
                    records = chunk.take(left)
                except Exception:
                    if taken:
                        break
                    raise
                if records:
                    left -= len(records)
                    if partition.topic_partition in taken:
                        taken[partition.topic_partition] += records
                    else:
                        taken[partition.topic_partition] = records
                    continue
            if not self.advance():
                break
        self.records += max_records - left
        return taken

    def take_list(self, Py_ssize_t max_records):
        """Takes up to max_records in one list, in the order of their partitions' turns. Errors as `take`."""
        cdef list taken = []
        cdef list records
        cdef FetchedPartition chunk
        cdef Py_ssize_t left = max_records
        self.calls += 1
        while left > 0:
            chunk = self.chunk
            if chunk is not None:
                try:
                    records = chunk.take(left)
                except Exception:
                    if taken:
                        break
                    raise
                if records:
                    left -= len(records)
                    if taken:
                        taken += records
                    else:
                        taken = records
                    continue
            if not self.advance():
                break
        self.records += max_records - left
        return taken

    def take_columns(self, RecordColumns columns not None, int64_t max_records, int64_t max_bytes, dict ends=None):
        """Appends up to max_records to `columns`, batch by batch until the columns have max_bytes; returns how many.
        Errors as `take`.

        ends: {topic-partition: offset} as limits, for a consumer without a group, whose chunks no other thread takes
        away: the call releases the GIL.
        """
        cdef PartitionBuffer partition
        cdef FetchedPartition chunk
        cdef int64_t taken = 0
        cdef int64_t rows
        self.calls += 1
        while taken < max_records and columns.bytes < max_bytes:
            partition = self.current
            chunk = self.chunk
            if partition is not None:
                try:
                    if ends is None:
                        rows = columns.append(chunk, max_records - taken, False, INT64_MAX, max_bytes)
                    else:
                        rows = columns.append(chunk, max_records - taken, True, ends[partition.topic_partition],
                                              max_bytes)
                except Exception:
                    if taken:
                        break
                    raise
                if rows:
                    taken += rows
                    continue
            if not self.advance():
                break
        self.records += taken
        return taken


cdef class RecordIterator:
    """Base of a consumer: `for record in consumer` makes no Python call per record while the buffer has records.

    A subclass sets `fetch_buffer` through `__init__` and has `next_slowly()`: the next record when the buffer is empty
    or `attention` is set; StopIteration ends the iteration.
    """

    def __init__(self, FetchBuffer fetch_buffer not None):
        self.fetch_buffer = fetch_buffer

    def __iter__(self):
        return self

    def __next__(self):
        cdef object record
        if not self.fetch_buffer.attention:
            record = self.fetch_buffer.next_record()
            if record is not None:
                return record
        return self.next_slowly()

    def next_slowly(self):
        """The next record, or StopIteration."""
        raise NotImplementedError
