"""A fetcher as the control loop sees it: partitions in, events out.

    fetcher = ReplicaFetcher("broker-2-fetcher-0", 2, events, throttle)
    fetcher.configure(...)
    fetcher.add(FollowedPartition(log, topic_id, leader_epoch, throttled))
    fetcher.connect(io, channel, version)       # the answer to WANTS_CONNECTION
    fetcher.stop(); fetcher.join()

The methods send mails and return at once; `join` waits for the thread. The events stand in `events`, an EventQueue that
several fetchers share.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.errno cimport errno
from libc.stdint cimport int32_t, int64_t
from libc.stdio cimport snprintf
from libc.string cimport memset
from libcpp.string cimport string

from kafkapy._speedups.base.event_queue cimport EventQueue
from kafkapy._speedups.base.posix cimport (
    EFD_CLOEXEC,
    EFD_NONBLOCK,
    atomic_add,
    atomic_load,
    eventfd,
    eventfd_write,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kafkapy._speedups.base.threads cimport pthread_create, pthread_join
from kafkapy._speedups.base.transport cimport Transport
from kafkapy._speedups.clients.io.client_io cimport ClientIo
from kafkapy._speedups.log.state cimport log_ref
from kafkapy._speedups.replica.fetch_response cimport NEWEST_FETCH, OLDEST_FETCH
from kafkapy._speedups.replica.loop cimport fetcher_thread
from kafkapy._speedups.replica.state cimport (
    FETCHER_DIVERGED,
    FETCHER_EPOCHS,
    FETCHER_ERROR,
    FETCHER_FAILED,
    FETCHER_OUT_OF_RANGE,
    FETCHER_STRADDLES,
    FETCHER_WANTS_CONNECTION,
    MAIL_ADD,
    MAIL_CONNECTION,
    MAIL_NO_CONNECTION,
    MAIL_REMOVE,
    MAIL_RESUME,
    MAIL_THROTTLE,
    fetcher_mail,
    fetcher_unref,
    partition_unref,
)
from kafkapy._speedups.replica.throttle cimport ReplicationThrottle

WANTS_CONNECTION = FETCHER_WANTS_CONNECTION
DIVERGED = FETCHER_DIVERGED
OUT_OF_RANGE = FETCHER_OUT_OF_RANGE
FAILED = FETCHER_FAILED
STRADDLES = FETCHER_STRADDLES
EPOCHS = FETCHER_EPOCHS
ERROR = FETCHER_ERROR

OLDEST_VERSION = OLDEST_FETCH
NEWEST_VERSION = NEWEST_FETCH

cdef int64_t next_handle = 0


cdef int64_t new_handle() noexcept:
    global next_handle
    return atomic_add(&next_handle, 1)


cdef class FollowedPartition:
    """A partition for one fetcher, once. `topic_id`: 16 bytes; all zero when the topic has none."""

    def __cinit__(self, PartitionLog log not None, bytes topic_id not None, int32_t leader_epoch, bint throttled=False):
        cdef FetchPartition* p
        if len(topic_id) != 16:
            raise ValueError(f"a topic id has 16 bytes, not {len(topic_id)}")
        p = new FetchPartition()
        self.state = p
        self.log = log
        p.references = 1
        p.handle = new_handle()
        p.log = log.state
        log_ref(p.log)
        p.topic_name = log.state.topic
        if any(topic_id):
            p.topic_id = string(<const char*>PyBytes_AS_STRING(topic_id), 16)
        p.partition = log.state.partition
        p.leader_epoch = leader_epoch
        p.throttled = throttled
        p.lag = -1

    def __dealloc__(self):
        if self.state != NULL:
            partition_unref(self.state)

    @property
    def handle(self):
        """The number of this partition in events."""
        return self.state.handle

    @property
    def leader_epoch(self):
        return self.state.leader_epoch

    @property
    def lag(self):
        """Records behind the leader's high watermark; -1 before the first answer."""
        return atomic_load(&self.state.lag)


cdef cppclass ConnectionOnItsWay:
    FetcherState* fetcher
    int64_t version


cdef void take_channel(void* owner, Transport* transport) noexcept nogil:
    """The end of `connect`, on the client's I/O thread: a socket, or NULL when it was lost on the way."""
    cdef ConnectionOnItsWay* way = <ConnectionOnItsWay*>owner
    cdef FetcherMail mail
    memset(&mail, 0, sizeof(mail))
    if transport == NULL:
        mail.kind = MAIL_NO_CONNECTION
    else:
        mail.kind = MAIL_CONNECTION
        mail.argument = way.version
        mail.transport = transport[0]
    fetcher_mail(way.fetcher, &mail)
    fetcher_unref(way.fetcher)
    del way


@cython.no_gc
cdef class ReplicaFetcher:
    """One thread that copies partitions from one leader. ReplicaFetcherManager owns it; the control loop calls it,
    `join` excepted."""

    def __cinit__(self, str client_id not None, int32_t replica_id, EventQueue events not None,
                  ReplicationThrottle throttle not None, *, str name="kafkapy-fetcher"):
        """`name`: of the thread, at most 15 characters."""
        cdef FetcherState* f = new FetcherState()
        cdef bytes text = name.encode()[:15]
        self.state = f
        self.events = events
        pthread_mutex_init(&f.mutex, NULL)
        f.references = 1
        f.id = new_handle()
        f.stop = False
        memset(&f.settings, 0, sizeof(f.settings))
        f.settings.replica_id = replica_id
        f.settings.broker_epoch = -1
        f.events = events.state
        f.throttle = throttle.state
        atomic_add(&throttle.state.references, 1)
        f.client_id = client_id.encode()
        snprintf(f.name, sizeof(f.name), "%s", <const char*>text)
        f.transport.fd = -1
        f.low_water = 1
        f.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
        if f.wake_fd < 0:
            raise OSError(errno, "no descriptor can be had for a fetcher")

    def __dealloc__(self):
        if self.state != NULL:
            self.stop()
            self.join()
            fetcher_unref(self.state)

    @property
    def handle(self):
        """The number of this fetcher in WANTS_CONNECTION."""
        return self.state.id

    def configure(self, *, int64_t broker_epoch, int32_t max_wait_ms, int32_t min_bytes, int32_t max_bytes,
                  int32_t partition_max_bytes, int64_t max_batch_bytes, int64_t backoff_ms, int64_t timeout_ms):
        """Sets what the next request says, and how long it may take: the keys replica.fetch.* and
        replica.socket.timeout.ms. `max_batch_bytes`: of the largest batch that a leader can have."""
        cdef FetcherState* f = self.state
        pthread_mutex_lock(&f.mutex)
        f.settings.broker_epoch = broker_epoch
        f.settings.max_wait_ms = max_wait_ms
        f.settings.min_bytes = min_bytes
        f.settings.max_bytes = max_bytes
        f.settings.partition_max_bytes = partition_max_bytes
        f.settings.max_batch_bytes = max(max_batch_bytes, <int64_t>partition_max_bytes)
        f.settings.backoff_ms = backoff_ms
        f.settings.timeout_ms = timeout_ms
        pthread_mutex_unlock(&f.mutex)

    def start(self):
        """Starts the thread, after `configure`. OSError."""
        cdef int status
        if not self.running:
            status = pthread_create(&self.state.thread, NULL, fetcher_thread, self.state)
            if status:
                raise OSError(status, "no thread can be had for a fetcher")
            self.running = True

    cdef int mail(self, int kind, FollowedPartition partition, object argument) except -1:
        cdef FetcherMail mail
        memset(&mail, 0, sizeof(mail))
        mail.kind = kind
        mail.handle = partition.state.handle
        mail.argument = argument
        if kind == MAIL_ADD:
            mail.partition = partition.state
            atomic_add(&partition.state.references, 1)
        fetcher_mail(self.state, &mail)
        return 0

    def add(self, FollowedPartition partition not None):
        """Copies the partition from its log's end on, until `remove`."""
        self.mail(MAIL_ADD, partition, 0)

    def remove(self, FollowedPartition partition not None):
        """Copies it no longer. An answer that the thread is working on may still be appended, unless the log has
        another leader epoch by then."""
        self.mail(MAIL_REMOVE, partition, 0)

    def resume(self, FollowedPartition partition not None, int64_t delay_ms=0):
        """Goes on with a partition that an event has parked, from its log's present end, after `delay_ms`."""
        self.mail(MAIL_RESUME, partition, delay_ms)

    def set_throttled(self, FollowedPartition partition not None, bint throttled):
        """Sets whether the throttle holds for the partition."""
        self.mail(MAIL_THROTTLE, partition, throttled)

    def connect(self, ClientIo io not None, int64_t channel, int version):
        """Takes an idle channel over from a client's I/O thread, for the next request and all later ones. `version`:
        the newest Fetch version that the leader serves."""
        cdef ConnectionOnItsWay* way
        if not OLDEST_FETCH <= version <= NEWEST_FETCH:
            raise ValueError(f"a fetcher does not speak Fetch version {version}")
        way = new ConnectionOnItsWay()
        way.fetcher = self.state
        way.version = version
        atomic_add(&self.state.references, 1)
        try:
            io.give_channel(channel, take_channel, way)
        except BaseException:
            fetcher_unref(self.state)
            del way
            raise

    def counters(self):
        """(answered requests, bytes of appended records, partitions left out by the throttle, connected)."""
        cdef FetcherState* f = self.state
        return (atomic_load(&f.requests), atomic_load(&f.bytes), atomic_load(&f.left_out),
                atomic_load(&f.connected) != 0)

    def stop(self):
        """Ends the thread after what it is appending."""
        cdef FetcherState* f = self.state
        pthread_mutex_lock(&f.mutex)
        f.stop = True
        pthread_mutex_unlock(&f.mutex)
        eventfd_write(f.wake_fd, 1)

    def join(self):
        """Waits for the end of the thread, after `stop`. Blocking; any thread, one at a time."""
        cdef FetcherState* f = self.state
        if self.running:
            self.running = False
            with nogil:
                pthread_join(f.thread, NULL)
