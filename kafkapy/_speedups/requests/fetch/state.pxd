"""The state of a Fetch until its reply, shared by decode.pyx, handle.pyx and reply.pyx."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from libcpp.string cimport string
from libcpp.unordered_set cimport unordered_set
from libcpp.vector cimport vector

from kafkapy._speedups.base.seeded_hash cimport SeededHash
from kafkapy._speedups.log.layout cimport (
    READ_COMMITTED,
    READ_LOG_END,
    READ_UNCOMMITTED,
    FetchIsolation,
    LogState,
    ReadResult,
)
from kafkapy._speedups.requests.data_plane cimport Ask, Frame
from kafkapy._speedups.requests.fetch_session cimport CachedPartition, FetchPartitionRequest, FetchSession, FetchTopic

cdef enum FetchContext:             # Kafka's FetchContext classes
    CONTEXT_SESSIONLESS = 0
    CONTEXT_FULL = 1                # the reply makes a session
    CONTEXT_INCREMENTAL = 2
    CONTEXT_ERROR = 3               # state.error; no partitions

cdef enum FetchStage:
    FETCH_AUTHORIZE = 0
    FETCH_READ = 1
    FETCH_WAIT = 2
    FETCH_CONVERT = 3               # versions 0 to 3: a worker makes message sets of the batches
    FETCH_ANSWER = 4                # after the wait: the next read is sent
    FETCH_SELECT = 5                # before the first read: Python selects replicas for a consumer

cdef cppclass FetchPartition:
    FetchTopic* topic               # referenced
    FetchPartitionRequest request
    CachedPartition* cached         # incremental only; valid while the session has this request's epoch
    bint refused                    # refused before a read (Kafka's `erroneous`); read.error has the error
    LogState* log                   # referenced from the last read on
    ReadResult read                 # read.segment and read.aborted are owned
    int standing                    # FollowerStanding of the follower that asks
    int32_t selected                # replica that Python's selector names; -1: none
    int32_t preferred               # preferred read replica of the reply; -1: none
    # while parked
    int64_t end_offset              # of the readable offsets (isolation), at the count of `available`
    int32_t leader_epoch            # at that count
    int64_t available               # bytes
    # versions 0 to 3
    uint8_t* converted              # a worker's message set, malloc'ed and owned, or NULL
    int64_t converted_size
    int64_t converted_end           # the offset behind the worker's last batch; -1: not asked

cdef struct ForgottenPartition:
    FetchTopic* topic               # referenced
    int32_t partition

cdef cppclass FetchState:
    Frame frame                     # a copy; the Processor owns its memory, which outlives this
    int stage                       # FetchStage
    int context                     # FetchContext
    int16_t error                   # of the whole request
    int32_t replica_id              # -1: a consumer
    int64_t replica_epoch           # the follower's broker epoch, -1 when not sent
    bint assigned                   # a follower that the assignment of some partition names
    bint sessionless                # the request names partitions that no session keeps: unknown or forbidden ones, or
                                    # any of an unassigned replica
    int32_t max_wait_ms
    int32_t min_bytes
    int32_t max_bytes
    int8_t isolation_level          # as asked: 1 is READ_COMMITTED
    string rack                     # of the consumer; empty: none
    int32_t session_id
    int32_t session_epoch
    FetchSession* session           # referenced; incremental only
    FetchTopic* last_topic          # referenced: the first topic of the request before, whose memory this one may use;
                                    # or NULL
    vector[FetchPartition] partitions   # as asked (full), or the whole session's (incremental)
    vector[FetchPartition*] ordered     # in the order of the reply
    vector[ForgottenPartition] forgotten
    unordered_set[string, SeededHash] asked
    Ask ask
    vector[LogState*] waiting       # borrowed from partitions; empty: not parked yet
    vector[size_t] waits_for        # for each of them, its partition
    int64_t deadline_ns             # 0: not parked yet
    # while all partitions are read, some at a time
    size_t next                     # number of read partitions
    int64_t limit                   # remaining bytes of the reply
    int64_t accumulated             # bytes found
    bint min_one_batch              # no bytes found yet
    bint must_answer                # regardless of min bytes
    bint anything                   # a partition is not refused
    # quotas
    int64_t quota_bytes             # the most bytes that no quota forbids for sure
    bint charged
    int32_t throttle_ms             # of the reply, which then has no records

cdef enum:
    FOLLOWER_READS_VERSION = 11     # first version whose consumers may read from followers (KIP-392)


cdef inline bint from_follower(const FetchState* state) noexcept nogil:
    return state.replica_id >= 0


cdef inline FetchIsolation isolation_of(const FetchState* state) noexcept nogil:
    if from_follower(state):
        return READ_LOG_END
    return READ_COMMITTED if state.isolation_level == 1 else READ_UNCOMMITTED


cdef inline bint needs_leader(const FetchState* state) noexcept nogil:
    return from_follower(state) or state.frame.api_version < FOLLOWER_READS_VERSION
