"""The unsent batches of one partition, its place in the producer's sequence, and the partitions of one topic.

Sources: RecordAccumulator's deques, TxnPartitionEntry (sequences) and BuiltInPartitioner (KIP-480, KIP-794) of
org.apache.kafka.clients.producer.internals. The GIL protects everything.
"""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.murmur2 cimport partition_of_key
from kafkapy._speedups.clients.producer.producer_batch cimport ProducerBatch

cdef enum:
    NO_LEADER = -1
    ANY_PARTITION = -1


@cython.final
cdef class PartitionQueue:
    cdef readonly TopicQueue topic
    cdef readonly int32_t partition
    cdef readonly object batches            # deque of ProducerBatch, the next to be sent first
    cdef ProducerBatch tail                 # the last of them while it takes records
    cdef readonly list sent                 # batches in requests without a response, oldest first
    cdef bint listed                        # in the accumulator's list of queues that may hold batches
    cdef readonly int32_t leader            # node id, or NO_LEADER
    cdef readonly int32_t leader_epoch
    cdef public bint muted                  # a request is in flight, and only one is allowed
    # --- idempotence ---
    cdef public bint in_transaction         # the coordinator knows that the partition belongs to the transaction
    cdef public bint joining                # the coordinator is being told: records wait in the queue
    cdef readonly int64_t producer_id       # of the sequence numbers below
    cdef readonly int16_t producer_epoch
    cdef readonly int32_t next_sequence
    cdef readonly int32_t last_acked_sequence   # -1: none
    cdef readonly int64_t last_acked_offset     # -1: none
    cdef int64_t numbered                   # number of batches with a sequence number
    cdef readonly list unacked              # batches with a sequence and no result, in sequence; sent or waiting for
                                            # another attempt
    cdef public int32_t unresolved_sequence # the next after expired batches with an unknown result; -1: none

    cdef int insert(self, ProducerBatch batch) except -1
    cdef int remember(self, ProducerBatch batch) except -1


@cython.final
cdef class TopicQueue:
    cdef readonly str name
    cdef public object topic_id             # uuid.UUID, or None when the brokers have no topic ids
    cdef readonly list partitions           # PartitionQueue by partition
    cdef vector[int32_t] available          # partitions with a leader
    # --- sticky partitioner ---
    cdef int32_t sticky                     # the partition of records without a key, -1: not chosen yet
    cdef int64_t sticky_bytes               # appended to it since it was chosen
    cdef int64_t sticky_limit
    cdef bint adaptive
    cdef vector[int32_t] load_partitions    # candidates of the next choice, with ...
    cdef vector[int64_t] load_table         # ... their cumulated weights; empty: all alike
    cdef uint64_t random_state

    cdef inline PartitionQueue choose(self, const uint8_t* key, int64_t key_size, bint ignore_keys):
        cdef int32_t partition
        if key != NULL and not ignore_keys:
            partition = partition_of_key(key, <Py_ssize_t>key_size, <int32_t>len(self.partitions))
            return <PartitionQueue>self.partitions[partition]
        return self.sticky_queue()

    cdef PartitionQueue sticky_queue(self)
    cdef void appended(self, PartitionQueue queue, int64_t size) noexcept
    cdef void switch(self) noexcept
