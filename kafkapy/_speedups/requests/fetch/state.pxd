"""What a Fetch keeps from its first look to its reply; shared by decode.pyx, handle.pyx and reply.pyx."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from libcpp.string cimport string
from libcpp.unordered_set cimport unordered_set
from libcpp.vector cimport vector

from kafkapy._speedups.base.seeded_hash cimport SeededHash
from kafkapy._speedups.log.layout cimport LogState, ReadResult
from kafkapy._speedups.requests.data_plane cimport Ask, Frame
from kafkapy._speedups.requests.fetch_session cimport CachedPartition, FetchPartitionRequest, FetchSession, FetchTopic

cdef enum FetchContext:             # Kafka's FetchContext classes
    CONTEXT_SESSIONLESS = 0
    CONTEXT_FULL = 1                # a session is made from the reply
    CONTEXT_INCREMENTAL = 2
    CONTEXT_ERROR = 3               # state.error; no partitions

cdef enum FetchStage:
    FETCH_AUTHORIZE = 0
    FETCH_READ = 1
    FETCH_WAIT = 2
    FETCH_CONVERT = 3               # versions 0 to 3: a worker makes message sets of what was read
    FETCH_ANSWER = 4                # it has waited: what is read now is sent

cdef cppclass FetchPartition:
    FetchTopic* topic               # referenced
    FetchPartitionRequest request
    CachedPartition* cached         # incremental only; valid while the session's epoch is the one this request left
    bint refused                    # answered without a look at the log (Kafka's `erroneous`); the error is in
                                    # read.error
    LogState* log                   # referenced from the last read on
    ReadResult read                 # read.segment and read.aborted are owned
    # while parked
    int64_t end_offset              # of what the isolation lets be read, when `available` was counted
    int32_t leader_epoch            # then
    int64_t available               # bytes
    # versions 0 to 3
    uint8_t* converted              # a worker's message set, malloc'ed and owned, or NULL
    int64_t converted_size
    int64_t converted_end           # the offset behind what the worker has looked at; -1: not asked

cdef struct ForgottenPartition:
    FetchTopic* topic               # referenced
    int32_t partition

cdef cppclass FetchState:
    Frame frame                     # a copy; what it points to is the Processor's and outlives this
    int stage                       # FetchStage
    int context                     # FetchContext
    int16_t error                   # of the whole request
    int32_t replica_id              # -1: a consumer
    bint assigned                   # a follower that the assignment of some partition names
    bint sessionless                # something was asked for that no session keeps: unknown, not to be read, or by a
                                    # replica that is not assigned
    int32_t max_wait_ms
    int32_t min_bytes
    int32_t max_bytes
    int8_t isolation_level          # as asked: 1 is READ_COMMITTED
    int32_t session_id
    int32_t session_epoch
    FetchSession* session           # referenced; incremental only
    FetchTopic* last_topic          # referenced: the first that the request before named, whose memory this one may
                                    # use; or NULL
    vector[FetchPartition] partitions   # as asked (full), or the whole session's (incremental)
    vector[FetchPartition*] ordered     # as they are answered
    vector[ForgottenPartition] forgotten
    unordered_set[string, SeededHash] asked
    Ask ask
    vector[LogState*] waiting       # borrowed from partitions; empty: not parked yet
    vector[size_t] waits_for        # for each of them, the partition whose end is waited for
    int64_t deadline_ns             # 0: not parked yet
    # while all partitions are read, some at a time
    size_t next                     # how many have been
    int64_t limit                   # bytes that the reply still has room for
    int64_t accumulated             # bytes found
    bint min_one_batch              # nothing was found yet
    bint must_answer                # whatever min bytes says
    bint anything                   # one that is not refused
