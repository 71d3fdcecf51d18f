"""The state of a ShareFetch or ShareAcknowledge until its reply, shared by the kernels of this room."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t
from libcpp.string cimport string
from libcpp.unordered_set cimport unordered_set
from libcpp.vector cimport vector

from kafkapy._speedups.base.seeded_hash cimport SeededHash
from kafkapy._speedups.log.segment cimport SegmentState
from kafkapy._speedups.requests.data_plane cimport Ask, Frame
from kafkapy._speedups.requests.fetch_session cimport CachedPartition, FetchTopic
from kafkapy._speedups.requests.share.session cimport ShareSession
from kafkapy._speedups.requests.share.entries cimport ShareEntry, ShareWaiter, TicketWaiter
from kafkapy._speedups.share.layout cimport AcquiredRange, Acknowledgement

cdef enum ShareStage:
    STAGE_GROUP = 0                 # authorization of the group, then the session
    STAGE_TOPICS = 1                # authorization of the topics
    STAGE_FETCH = 2
    STAGE_WAIT = 3                  # for records
    STAGE_WRITE = 4                 # for the share coordinator, which stores the acknowledgements
    STAGE_REFUSED = 5               # waits before it is answered with an error
    STAGE_ACKNOWLEDGE = 6           # in the topics' partitions, some at a time

cdef enum:
    MAX_PARTITIONS = 200000         # in one request: bounds the memory of a frame of tiny partitions
    FINAL_SHARE_EPOCH = -1
    INITIAL_SHARE_EPOCH = 0

cdef cppclass SharePart:
    """One partition of the request, of its session, or of both."""
    FetchTopic* topic               # referenced
    int32_t partition
    int32_t leader_id               # with a leader error
    int32_t leader_epoch
    ShareEntry* entry               # referenced; NULL: not looked up
    # acknowledgements
    bint named                      # the request names it
    bint denied                     # the member may not read the topic
    bint answered                   # the reply has its acknowledge error
    size_t first_batch
    size_t batch_count
    int16_t acknowledge_error
    bint explained                  # the reply says why, if it has words for the error
    TicketWaiter ticket
    # records
    bint fetched                    # the session has it
    CachedPartition* cached         # valid while the session has this request's epoch
    bint refused                    # no records in this request; error says why
    int16_t error
    bint waits                      # the last try found nothing, and more may come
    ShareWaiter waiter
    int64_t readable                # bytes that were there, for min bytes
    SegmentState* segment           # referenced, or NULL without records
    int64_t position
    int64_t length
    size_t first_range
    size_t range_count

cdef struct ForgottenShare:
    FetchTopic* topic               # referenced
    int32_t partition

cdef struct BatchPlace:
    int64_t position                # in the segment's file
    int64_t size

cdef cppclass ShareState:
    Frame frame                     # a copy; the Processor owns its memory, which outlives this
    int stage                       # ShareStage
    bint fetches                    # ShareFetch; else ShareAcknowledge
    int16_t error                   # of the whole request
    string group
    string member
    bint has_group
    bint has_member
    int32_t session_epoch
    int32_t max_wait_ms
    int32_t min_bytes
    int32_t max_bytes
    int32_t max_records
    int32_t batch_size
    int8_t acquire_mode
    bint renews                     # IsRenewAck
    bint acknowledges               # some partition has batches
    vector[SharePart] parts         # complete before any waiter is queued, and not moved after
    vector[size_t] order            # of the session's parts
    vector[ForgottenShare] forgotten
    vector[Acknowledgement] batches     # their types point into the frame
    ShareSession* session           # referenced
    unordered_set[string, SeededHash] asked
    Ask ask
    int64_t deadline_ns             # of the wait for records; 0: not parked yet
    int64_t unwritten               # atomic: tickets that are not finished
    # while partitions are tried, some at a time
    bint counts                     # bytes are counted first, for min bytes
    size_t next                     # in `order`; of acknowledgements in `parts`
    bint final                      # the wait is over: the reply follows, whatever it has
    int64_t limit                   # bytes that the reply may still take
    int64_t records_left
    int64_t accumulated             # bytes
    vector[AcquiredRange] ranges
    int32_t lock_ms                 # of the group; -1: no share partition has told
    # quotas
    int64_t quota_bytes
    int32_t throttle_ms


cdef inline bint closes_session(const ShareState* state) noexcept nogil:
    return state.session_epoch == FINAL_SHARE_EPOCH
