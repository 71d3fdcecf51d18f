"""A fetcher thread's state, and the partitions that it copies.

The control loop (with the GIL) sends mails; the thread sends events through an EventQueue. A FetchPartition has two
references: the thread's and that of its FollowedPartition (fetcher.pxd). Only the thread touches its fields, except
those that are marked atomic.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.event_queue cimport EventQueueState
from kafkapy._speedups.base.posix cimport pthread_mutex_t
from kafkapy._speedups.base.threads cimport pthread_t
from kafkapy._speedups.base.transport cimport Transport
from kafkapy._speedups.log.layout cimport LogState
from kafkapy._speedups.replica.throttle cimport ReplicationThrottleState

cdef enum FetcherEvent:             # kinds of events; handle: the partition's, or the fetcher's
    FETCHER_WANTS_CONNECTION = 100  # argument: errno of the lost connection, 0: the first; text: why it was lost
    FETCHER_DIVERGED = 101          # argument: end offset; text: the epoch in decimal
    FETCHER_OUT_OF_RANGE = 102
    FETCHER_FAILED = 103            # argument: Kafka error; text: why
    FETCHER_STRADDLES = 104         # an empty log starts within the leader's batch. argument: its base offset; text:
                                    # the records
    FETCHER_EPOCHS = 105            # the leader epochs' file must be written
    FETCHER_ERROR = 106             # argument: Kafka error that the partition now gets, 0: none any more; text: why

cdef enum FetchState:
    STATE_FETCHING = 0
    STATE_PARKED = 1                # the control loop has an event, and resumes or removes the partition

cdef cppclass FetchTopic:           # the partitions of a name, or of a topic id
    unordered_map[int32_t, FetchPartition*] partitions

cdef cppclass FetchPartition:
    int64_t references              # atomic
    int64_t handle
    LogState* log                   # referenced
    string topic_name
    string topic_id                 # 16 bytes; empty: none
    int32_t partition
    int32_t leader_epoch
    bint throttled
    int64_t lag                     # atomic; records behind the leader's high watermark, -1: not known yet
    # For the thread only.
    FetchTopic* topic               # by its name
    int state                       # FetchState
    int64_t delayed_until_ns        # 0: not delayed
    bint queued                     # in FetcherState.changed
    bint held                       # in FetcherState.held: the throttle leaves it out
    int64_t fetch_offset            # the log end
    int64_t log_start_offset
    int32_t last_epoch
    int64_t epochs_version
    int16_t last_error
    int retries                     # answers in a row that say that the leader has not heard of the epoch yet
    # What the fetch session, or the last full request, has.
    bint asked
    int64_t asked_offset
    int64_t asked_log_start
    int32_t asked_last_epoch
    int64_t answered                # number of the last request with an answer

cdef struct FetcherSettings:
    int32_t replica_id
    int64_t broker_epoch
    int32_t max_wait_ms
    int32_t min_bytes
    int32_t max_bytes
    int32_t partition_max_bytes
    int64_t max_batch_bytes
    int64_t backoff_ms
    int64_t timeout_ms

cdef cppclass ForgottenPartition:
    string topic_name
    string topic_id
    int32_t partition

cdef enum FetcherMailKind:
    MAIL_ADD = 0
    MAIL_REMOVE = 1
    MAIL_RESUME = 2                 # argument: delay in ms
    MAIL_THROTTLE = 3               # argument: whether the replica is throttled
    MAIL_CONNECTION = 4             # argument: Fetch version
    MAIL_NO_CONNECTION = 5

cdef struct FetcherMail:
    int kind
    int64_t handle
    int64_t argument
    FetchPartition* partition
    Transport transport

cdef cppclass FetcherState:
    pthread_mutex_t mutex           # over mails, stop and settings; no thread waits for the GIL while holding it
    int64_t references              # atomic: of the Python object, and of connections on their way
    int64_t id
    vector[FetcherMail] mails
    bint stop
    FetcherSettings settings
    int wake_fd                     # eventfd
    pthread_t thread
    EventQueueState* events
    ReplicationThrottleState* throttle
    string client_id
    char name[16]                   # of the thread
    # Atomic counters.
    int64_t requests
    int64_t bytes
    int64_t left_out                # by the throttle
    int64_t connected
    # For the thread only.
    int64_t clock_ns                # the simulated time; 0: the monotonic clock
    FetcherSettings now
    unordered_map[int64_t, FetchPartition*] partitions
    unordered_map[string, FetchTopic*] by_name
    unordered_map[string, FetchTopic*] by_id
    int64_t without_id              # partitions whose topic has no id
    Transport transport
    int version                     # newest Fetch version of the connection
    Transport next                  # a second connection, for the next request
    int next_version
    bint has_next
    bint asked_connection
    int low_water                   # SO_RCVLOWAT of the socket
    int session_version             # of the last request
    int32_t session_id
    int32_t session_epoch           # of the next request; 0: a full one
    int64_t session_size            # partitions that were asked for
    int32_t correlation_id
    int64_t request                 # its number
    int64_t rotation                # of full requests without a session
    vector[FetchPartition*] changed
    vector[FetchPartition*] delayed
    vector[FetchPartition*] held
    vector[FetchPartition*] chosen  # of the request being built
    vector[ForgottenPartition] forgotten
    int64_t next_look_ns            # at the log starts
    uint8_t* buffer
    int64_t capacity

# The monotonic clock, or the simulated one.
cdef int64_t fetcher_now_ns(const FetcherState* f) noexcept nogil
cdef void partition_unref(FetchPartition* p) noexcept nogil
cdef void fetcher_unref(FetcherState* f) noexcept nogil
# Under the mutex or not: appends a mail and wakes the thread.
cdef void fetcher_mail(FetcherState* f, FetcherMail* mail) noexcept nogil
# The partition in the map of names or ids; NULL: it is not followed.
cdef FetchPartition* find_partition(unordered_map[string, FetchTopic*]* topics, const string& topic,
                                    int32_t partition) noexcept nogil
# Puts a partition into `changed`, for the next request.
cdef void requeue(FetcherState* f, FetchPartition* p) noexcept nogil
cdef void delay(FetcherState* f, FetchPartition* p, int64_t until_ns) noexcept nogil
# Puts a partition aside until the control loop resumes it.
cdef void park(FetcherState* f, FetchPartition* p) noexcept nogil
# Carries out the mails. False: the thread must end.
cdef bint take_mails(FetcherState* f) noexcept nogil
# Queues what is delayed no longer. The earliest time of the others; 0: none.
cdef int64_t release_delayed(FetcherState* f, int64_t now_ns) noexcept nogil
# Begins again with a full request: the connection or the session is lost.
cdef void reset_session(FetcherState* f, int32_t session_id) noexcept nogil
