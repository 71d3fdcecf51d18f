"""The state of a Produce until its reply, shared by the kernels of this room."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libcpp.string cimport string
from libcpp.unordered_set cimport unordered_set
from libcpp.vector cimport vector

from kafkapy._speedups.base.seeded_hash cimport SeededHash
from kafkapy._speedups.log.layout cimport AppendResult, LogState
from kafkapy._speedups.requests.data_plane cimport Ask, Frame

cdef enum ProduceAcks:
    ACKS_ALL = -1
    ACKS_NONE = 0
    ACKS_LEADER = 1

cdef enum ProduceStage:
    PRODUCE_AUTHORIZE = 0       # questions may be out
    PRODUCE_APPEND = 1          # some partitions wait for a segment, a worker to look into their records, or the
                                # transaction coordinator
    PRODUCE_WAIT = 2            # all appended; acks=-1 waits for the high watermark

cdef enum PartitionStage:
    PARTITION_PENDING = 0
    PARTITION_WAITING = 1       # appended; the high watermark has not passed it
    PARTITION_DONE = 2          # result.error and the rest of the result are final

cdef cppclass ProduceTopic:
    const uint8_t* name         # borrowed from the frame; NULL in requests by id
    int32_t name_size
    const uint8_t* topic_id     # borrowed, 16 bytes; NULL in requests by name
    string resolved             # the name, whichever way it was asked; empty when the id is unknown
    size_t first                # of its partitions, in ProduceState.partitions
    size_t count

cdef cppclass ProducePartition:
    int32_t index
    const uint8_t* records      # borrowed from the frame, or `replaced`
    int64_t records_size        # -1: null
    uint8_t* replaced           # malloc'ed by produce_replace_records, or NULL
    bint validated
    bint checked                # CRC and records are right: parked after the check, or checked by a worker
    bint for_worker             # a worker is to check them; result.rules are what it needs
    int64_t asked_guard         # of a batch that the coordinator is asked about (LOG_PARK_VERIFY)
    int64_t guard               # the same when it has confirmed it; 0: not yet
    int stage                   # PartitionStage
    int64_t place               # in the log's queue of appends (log/turns.pxd); 0: not parked yet
    LogState* log               # referenced, NULL before it was looked up or when there is none
    AppendResult result         # result.record_errors is owned
    bint superseded             # a later entry of the request is for the same partition
    string message              # of a worker's refusal; empty: none
    size_t topic

cdef cppclass ProduceState:
    Frame frame                 # a copy; the Processor owns its targets, which outlive this
    int stage                   # ProduceStage
    const uint8_t* transactional_id     # NULL: null
    int32_t transactional_id_size
    int16_t acks
    int32_t timeout_ms
    vector[ProduceTopic] topics
    vector[ProducePartition] partitions
    unordered_set[string, SeededHash] asked
    bint repeated                   # a partition is there more than once
    Ask ask
    size_t appended                 # partitions before this one have had their turn
    int64_t segment_deadline_ns     # 0: not parked for a segment yet
    int64_t look_ns                 # when a parked append looks again by itself
    int64_t acks_deadline_ns        # 0: not waiting yet
    int32_t throttle_ms             # of the reply


cdef inline void fail_partition(ProducePartition* partition, int16_t error) noexcept nogil:
    partition.result.error = error
    partition.stage = PARTITION_DONE
