"""Queues of batches by partition, and the built-in partitioner (see partition_queue.pxd)."""

cimport cython
from libc.stdint cimport uint32_t

from kafkapy._speedups.clients.producer.producer_batch cimport NO_SEQUENCE

from collections import deque
import random

from kafkapy.errors import IllegalStateError
from kafkapy.types import TopicPartition


@cython.final
cdef class PartitionQueue:
    """The batches of one partition. Its TopicQueue owns it; states of the sequence change on the loop's thread only."""

    def __init__(self, TopicQueue topic not None, int32_t partition):
        self.topic = topic
        self.partition = partition
        self.batches = deque()
        self.sent = []
        self.unacked = []
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.producer_id = -1
        self.producer_epoch = -1
        self.last_acked_sequence = -1
        self.last_acked_offset = -1
        self.unresolved_sequence = -1

    def __repr__(self):
        return f"<PartitionQueue {self.topic.name}-{self.partition}: {len(self.batches)} batches>"

    def __len__(self):
        return len(self.batches)

    @property
    def topic_partition(self):
        """The partition of this queue."""
        return TopicPartition(self.topic.name, self.partition)

    cdef int insert(self, ProducerBatch batch) except -1:
        """Inserts a batch for a retry by its sequence number; without one, at the front."""
        cdef ProducerBatch other
        cdef Py_ssize_t at = 0
        if batch.base_sequence != NO_SEQUENCE:
            for other in self.batches:
                if other.base_sequence == NO_SEQUENCE or not sequence_before(other.base_sequence, batch.base_sequence):
                    break
                at += 1
        self.batches.insert(at, batch)
        return 0

    # --- sequences ------------------------------------------------------------------------------------------------

    cdef int remember(self, ProducerBatch batch) except -1:
        """Keeps a batch with a sequence number until it has a result."""
        cdef ProducerBatch other
        cdef Py_ssize_t at = len(self.unacked)
        self.numbered += 1
        batch.number = self.numbered
        while at:
            other = self.unacked[at - 1]
            if (
                other.producer_id != batch.producer_id
                or other.producer_epoch != batch.producer_epoch
                or sequence_before(other.base_sequence, batch.base_sequence)
            ):
                break
            at -= 1
        self.unacked.insert(at, batch)
        return 0

    def forget(self, ProducerBatch batch not None):
        """Forgets a batch that has a result: it is neither sent nor unacknowledged any more."""
        for batches in (self.sent, self.unacked):
            for i, other in enumerate(batches):
                if other is batch:
                    del batches[i]
                    break

    def acknowledged(self, ProducerBatch batch not None, int64_t base_offset):
        """Moves the sequence's state on: the broker has the batch."""
        cdef int32_t last = batch.last_sequence
        if batch.producer_id == self.producer_id and batch.producer_epoch == self.producer_epoch and (
            self.last_acked_sequence < 0 or sequence_before(self.last_acked_sequence, last)
        ):
            self.last_acked_sequence = last
        if base_offset >= 0 and base_offset + batch.record_count - 1 > self.last_acked_offset:
            self.last_acked_offset = base_offset + batch.record_count - 1

    def is_next_sequence(self, int32_t sequence):
        """Whether the number follows the last acknowledged one."""
        if self.last_acked_sequence < 0:
            return sequence == 0
        return sequence == (self.last_acked_sequence + <uint32_t>1) & 0x7FFFFFFF

    def start_sequence(self, int64_t producer_id, int16_t producer_epoch):
        """Begins at 0 with this producer id and epoch; batches without a result get new numbers."""
        cdef ProducerBatch batch
        cdef int64_t sequence = 0
        for batch in self.unacked:
            batch.set_producer(producer_id, producer_epoch, sequence, batch.transactional)
            sequence += batch.record_count
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.next_sequence = <int32_t>(sequence & 0x7FFFFFFF)
        self.last_acked_sequence = -1

    def reset_sequence(self):
        """Resets the sequence to unknown; the next batch takes the producer's id and epoch and begins at 0."""
        self.producer_id = -1
        self.producer_epoch = -1
        self.next_sequence = 0
        self.last_acked_sequence = -1
        self.last_acked_offset = -1
        self.unresolved_sequence = -1
        self.unacked = []

    def close_gap(self, ProducerBatch failed not None):
        """Gives the numbers of a refused batch to the batches after it. IllegalStateError below 0."""
        cdef ProducerBatch batch
        if failed.producer_id != self.producer_id or failed.producer_epoch != self.producer_epoch:
            return
        if self.next_sequence < failed.record_count:
            raise IllegalStateError(f"the sequence of {self.topic.name}-{self.partition} would fall below 0")
        self.next_sequence -= failed.record_count
        for batch in self.unacked:
            if batch.base_sequence > failed.base_sequence:
                batch.set_producer(
                    batch.producer_id, batch.producer_epoch, batch.base_sequence - failed.record_count,
                    batch.transactional,
                )

    def take_sequence(self, int32_t count):
        """Returns the base sequence of the next batch of `count` records."""
        cdef int32_t sequence = self.next_sequence
        self.next_sequence = <int32_t>((<uint32_t>sequence + <uint32_t>count) & 0x7FFFFFFF)
        return sequence


cdef bint sequence_before(int32_t a, int32_t b) noexcept:
    """Whether a comes before b, if the two are less than 2**30 apart and numbers wrap at 2**31."""
    return a != b and ((<uint32_t>b - <uint32_t>a) & <uint32_t>0x7FFFFFFF) < <uint32_t>0x40000000


@cython.final
cdef class TopicQueue:
    """The partitions of one topic from the metadata, and the sticky partition for records without a key.

    A partition is sticky until it has got batch.size bytes; the next is chosen at random, with weights against long
    queues when `adaptive`.
    """

    def __init__(self, str name not None, int64_t sticky_limit, bint adaptive):
        self.name = name
        self.partitions = []
        self.sticky = ANY_PARTITION
        self.sticky_limit = sticky_limit
        self.adaptive = adaptive
        self.random_state = random.getrandbits(64) | 1

    def __len__(self):
        return len(self.partitions)

    def update(self, list leaders not None, object topic_id=None):
        """Applies the metadata: (node id or -1, leader epoch) of every partition. A removed partition stays while it
        has batches."""
        cdef PartitionQueue queue
        cdef int32_t leader, epoch
        cdef list partitions = list(self.partitions)
        while len(partitions) < len(leaders):
            partitions.append(PartitionQueue(self, <int32_t>len(partitions)))
        while len(partitions) > len(leaders):
            queue = partitions[len(partitions) - 1]
            queue.leader = NO_LEADER
            if queue.batches or queue.sent or queue.unacked:
                break
            partitions.pop()
        self.topic_id = topic_id
        self.partitions = partitions
        self.load_table.clear()
        self.available.clear()
        for index, (leader, epoch) in enumerate(leaders):
            queue = partitions[index]
            queue.leader = leader
            if epoch > queue.leader_epoch:
                queue.leader_epoch = epoch
            if leader != NO_LEADER:
                self.available.push_back(index)
        if self.sticky >= len(partitions) or (
            self.sticky != ANY_PARTITION and (<PartitionQueue>partitions[self.sticky]).leader == NO_LEADER
        ):
            self.sticky = ANY_PARTITION

    def update_load(self, object excluded):
        """Computes the weights of the next choices from the queues' lengths; `excluded` are node ids that accept no
        requests."""
        cdef PartitionQueue queue
        cdef int64_t longest = 0
        cdef int64_t length, total
        cdef int64_t first = -1
        cdef bint alike = True
        cdef size_t i
        self.load_table.clear()
        self.load_partitions.clear()
        if not self.adaptive or len(self.partitions) < 2:
            return
        for queue in self.partitions:
            if queue.leader == NO_LEADER or (excluded and queue.leader in excluded):
                continue
            length = len(queue.batches)
            longest = max(longest, length)
            alike = alike and (first < 0 or length == first)
            first = length
            self.load_partitions.push_back(queue.partition)
            self.load_table.push_back(length)
        if self.load_table.empty() or (alike and self.load_table.size() == self.available.size()):
            self.load_table.clear()
            return
        total = 0
        for i in range(self.load_table.size()):
            total += longest + 1 - self.load_table[i]
            self.load_table[i] = total

    def next_partition(self):
        """Chooses another partition for records without a key, and returns it. IllegalStateError without a
        partition."""
        if not self.partitions:
            raise IllegalStateError(f"no partition of {self.name} is known")
        self.switch()
        return self.sticky

    cdef PartitionQueue sticky_queue(self):
        cdef PartitionQueue queue
        if self.sticky == ANY_PARTITION:
            self.switch()
        queue = self.partitions[self.sticky]
        # The last batch had room, so the switch was postponed; now the batch is full or sent.
        if self.sticky_bytes >= self.sticky_limit and (queue.tail is None or queue.tail.is_full()):
            self.switch()
            queue = self.partitions[self.sticky]
        return queue

    cdef void appended(self, PartitionQueue queue, int64_t size) noexcept:
        """Counts the bytes of the sticky partition. A batch with room is filled first, up to twice the limit."""
        self.sticky_bytes += size
        if self.sticky_bytes >= self.sticky_limit and (
            queue.tail is None or queue.tail.is_full() or self.sticky_bytes >= 2 * self.sticky_limit
        ):
            self.switch()

    cdef void switch(self) noexcept:
        cdef uint64_t x = self.random_state
        cdef int64_t point
        cdef size_t i = 0
        x ^= x << 13
        x ^= x >> 7
        x ^= x << 17
        self.random_state = x
        x >>= 1
        self.sticky_bytes = 0
        if self.load_table.size():
            point = <int64_t>(x % <uint64_t>self.load_table.back())
            while self.load_table[i] <= point:
                i += 1
            self.sticky = self.load_partitions[i]
        elif self.available.size():
            self.sticky = self.available[x % self.available.size()]
        else:
            self.sticky = <int32_t>(x % <uint64_t>len(self.partitions))
