"""Runs Produce, Fetch and OffsetCommit without sockets: one connection's view of the data plane, from Python, one step
at a time.

Tests, fuzzers and perf/request_bench.py use it. It takes the place of a Processor: it passes on the decoded header and
the body, and a request that parks becomes an `Exchange`, which the caller wakes, answers, times out or cancels.
"""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy
from libcpp.string cimport string
from libcpp.vector cimport vector
from posix.unistd cimport pread, usleep

from kafkapy._speedups.base.posix cimport (
    atomic_add,
    atomic_count,
    atomic_load,
    atomic_store,
    monotonic_ns,
    pthread_rwlock_destroy,
    pthread_rwlock_rdlock,
    pthread_rwlock_t,
    pthread_rwlock_unlock,
    pthread_rwlock_wrlock,
    rwlock_init,
)
from kafkapy._speedups.base.send cimport Send, send_leave
from kafkapy._speedups.base.threads cimport pthread_create, pthread_join, pthread_t
from kafkapy._speedups.requests.apis cimport data_plane_api, data_plane_forget
from kafkapy._speedups.requests.authorization cimport authorization_remember
from kafkapy._speedups.requests.client_quotas cimport (
    QuotaSensor,
    buckets_init,
    buckets_release,
    buckets_take,
    sensor_state,
)
from kafkapy._speedups.requests.data_plane cimport (
    API_FETCH,
    API_PRODUCE,
    ASK_CONVERT,
    ASK_SELECT,
    ASK_VALIDATE,
    ASK_VERIFY,
    GROUP_MEMBERS,
    OUTCOME_ASK,
    OUTCOME_CLOSE,
    OUTCOME_GATHERED,
    OUTCOME_NO_REPLY,
    OUTCOME_PARKED,
    OUTCOME_PYTHON,
    OUTCOME_REPLY,
    OUTCOME_RESUME,
    OUTCOME_WORKER,
    AuthorizationCache,
    ConnectionEnd,
    DataPlane,
    DataPlaneApi,
    DataPlaneState,
    Frame,
    Outcome,
    PartitionName,
    outcome_keeps_frame,
)
from kafkapy._speedups.requests.fetch.conversion cimport (
    fetch_give_records,
    fetch_read_records,
    fetch_records_to_convert,
    fetch_refuse_records,
)
from kafkapy._speedups.requests.fetch.replicas cimport FollowerView, Selection, fetch_select_replica, fetch_selection
from kafkapy._speedups.requests.produce.answers cimport (
    produce_batch_to_verify,
    produce_confirm_transaction,
    produce_records_to_validate,
    produce_refuse_records,
    produce_replace_records,
    produce_transactional_id,
)

REPLY = "reply"
NO_REPLY = "no_reply"
PARKED = "parked"
ASK = "ask"
CLOSE = "close"
WORKER = "worker"
GATHERED = "gathered"
RESUME = "resume"
PYTHON = "python"

cdef dict KINDS = {
    OUTCOME_REPLY: REPLY, OUTCOME_NO_REPLY: NO_REPLY, OUTCOME_PARKED: PARKED, OUTCOME_ASK: ASK,
    OUTCOME_CLOSE: CLOSE, OUTCOME_WORKER: WORKER, OUTCOME_GATHERED: GATHERED, OUTCOME_RESUME: RESUME,
    OUTCOME_PYTHON: PYTHON,
}


cdef void count_wake(void* owner, uint64_t token) noexcept nogil:
    atomic_add(<int64_t*>owner, 1)


cdef bytes send_bytes(Send* send):
    """The whole frame; file regions are read here, where a Processor would use sendfile."""
    cdef bytes out = b""
    cdef size_t i
    cdef int64_t have
    cdef int64_t got
    cdef bytearray joined = bytearray()
    cdef bytearray region
    cdef char* at
    for i in range(send.pieces.size()):
        if send.pieces[i].data != NULL:
            joined += (<const char*>send.pieces[i].data)[:send.pieces[i].remaining]
            continue
        region = bytearray(send.pieces[i].remaining)
        at = region
        have = 0
        while have < send.pieces[i].remaining:
            got = pread(send.pieces[i].fd, at + have, send.pieces[i].remaining - have, send.pieces[i].position + have)
            if got <= 0:
                raise OSError("a file region of a reply is shorter than it should be")
            have += got
        joined += region
    out = bytes(joined)
    return out


cdef void end_connection(DataPlaneState* plane, ConnectionEnd* end) noexcept nogil:
    end.over = True
    if end.call != NULL:
        end.call(plane, end)
        end.call = NULL


@cython.no_gc_clear
cdef class RequestDriver:
    """One connection: owns its authorization cache. Single-threaded, like the Processor it stands for."""

    def __cinit__(self, DataPlane plane not None, int16_t listener_index=0, bint privileged=False):
        self.plane = plane
        self.authorization = new AuthorizationCache()
        self.authorization.epoch = plane.state.authorizer_epoch
        self.authorization.key_bytes = 0
        self.authorization.owner = 0
        self.end.call = NULL
        self.end.kept = NULL
        self.end.over = False
        self.listener_index = listener_index
        self.privileged = privileged
        self.next_token = 1
        buckets_init(&self.buckets)

    def __dealloc__(self):
        end_connection(self.plane.state, &self.end)
        buckets_release(&self.buckets)
        del self.authorization
        data_plane_forget(&self.left)

    def handle(self, int16_t api_key, int16_t api_version, int32_t correlation_id, client_id, bytes body,
               bint gathers=False):
        """Hands a request over; ValueError for an API the data plane does not serve. The Exchange says what came of
        it. `gathers`: as among other requests of one turn, so that it may be GATHERED."""
        cdef const DataPlaneApi* api = data_plane_api(api_key)
        if api == NULL:
            raise ValueError(f"the data plane does not serve api key {api_key}")
        cdef Exchange exchange = Exchange.__new__(Exchange)
        exchange.api = api
        exchange.driver = self
        exchange.api_key = api_key
        exchange.client_id = None if client_id is None else (<str>client_id).encode()
        exchange.body_size = len(body)
        exchange.body = <uint8_t*>malloc(max(exchange.body_size, 1))
        if exchange.body == NULL:
            raise MemoryError
        memcpy(exchange.body, <const char*>body, exchange.body_size)
        self.fill_frame(&exchange.frame, api_key, api_version, correlation_id, exchange.body, exchange.body_size)
        if exchange.client_id is not None:
            exchange.frame.client_id = <const uint8_t*><const char*>(<bytes>exchange.client_id)
            exchange.frame.client_id_size = len(exchange.client_id)
        exchange.frame.gathers = gathers
        exchange.frame.wake = count_wake
        exchange.wake_count = <int64_t*>calloc(1, sizeof(int64_t))
        if exchange.wake_count == NULL:
            raise MemoryError
        exchange.frame.wake_owner = exchange.wake_count
        atomic_count(&self.plane.state.apis[api_key].requests, 1)
        atomic_count(&self.plane.state.apis[api_key].request_bytes, exchange.body_size)
        with nogil:
            api.handle(self.plane.state, &exchange.frame, &exchange.outcome)
        exchange.settle()
        return exchange

    def decide(self, dict answers):
        """Puts decisions into the connection's cache: {question: bool}, the questions as an Exchange gives them."""
        cdef string key
        cdef bint allowed
        cdef int64_t epoch = atomic_load(&self.plane.state.authorizer_epoch)
        for question, allowed in answers.items():
            key = <bytes>question
            authorization_remember(self.authorization, epoch, key, allowed)

    def set_quotas(self, QuotaSensor produce=None, QuotaSensor fetch=None, QuotaSensor request=None,
                   QuotaSensor exempt=None):
        """Gives the connection these quotas; None: no quota."""
        buckets_take(&self.buckets, 0, NULL, -1, sensor_state(produce), sensor_state(fetch), sensor_state(request),
                     sensor_state(exempt))

    @property
    def throttle_ms(self):
        """The throttle time of the latest request."""
        return self.quota.throttle_ms

    def disconnect(self):
        """What the Processor does when the connection is gone."""
        with nogil:
            end_connection(self.plane.state, &self.end)

    def remembered(self):
        """(decisions in the connection's cache, bytes of their keys)."""
        return self.authorization.decisions.size(), self.authorization.key_bytes

    def measure(self, int16_t api_key, int16_t api_version, bytes body, int64_t count):
        """Nanoseconds for `count` requests with the same body, each to its final outcome, without Python in between. A
        request that parks or asks is cancelled and raises RuntimeError."""
        cdef Frame frame
        cdef Outcome outcome
        cdef int64_t size = len(body)
        cdef const char* source = body
        cdef uint8_t* copy = <uint8_t*>malloc(max(size, 1))
        cdef int64_t wakes = 0
        cdef int64_t started
        cdef int64_t elapsed
        cdef int64_t i
        cdef bint stuck = False
        cdef const DataPlaneApi* api = data_plane_api(api_key)
        if api == NULL:
            free(copy)
            raise ValueError(f"the data plane does not serve api key {api_key}")
        if copy == NULL:
            raise MemoryError
        self.fill_frame(&frame, api_key, api_version, 1, copy, size)
        frame.wake = count_wake
        frame.wake_owner = &wakes
        with nogil:
            started = monotonic_ns()
            for i in range(count):
                memcpy(copy, source, size)
                api.handle(self.plane.state, &frame, &outcome)
                while outcome.kind == OUTCOME_PARKED and wakes > 0:
                    # It has given others their turn, and goes on.
                    wakes = 0
                    api.resume(self.plane.state, outcome.parked, False, &outcome)
                if outcome.kind == OUTCOME_REPLY:
                    send_leave(outcome.send, &self.left.send)
                elif outcome.kind == OUTCOME_PARKED or outcome.kind == OUTCOME_ASK or outcome.kind == OUTCOME_WORKER:
                    api.cancel(self.plane.state, outcome.parked)
                    stuck = True
                    break
            elapsed = monotonic_ns() - started
        free(copy)
        if stuck:
            raise RuntimeError("a request that is measured must be answered at once")
        return elapsed

    cdef void fill_frame(self, Frame* frame, int16_t api_key, int16_t api_version, int32_t correlation_id,
                         uint8_t* body, int64_t size) noexcept:
        frame.api_key = api_key
        frame.api_version = api_version
        frame.correlation_id = correlation_id
        frame.client_id = NULL
        frame.client_id_size = -1
        frame.body = body
        frame.body_size = size
        frame.received_ns = monotonic_ns()
        frame.token = self.next_token
        self.next_token += 1
        frame.authorization = self.authorization
        frame.end = &self.end
        frame.left = &self.left
        frame.listener_index = self.listener_index
        frame.privileged = self.privileged
        frame.quota = NULL
        frame.gathers = False
        self.quota.throttle_ms = 0
        if self.buckets.epoch >= 0:
            self.quota.buckets = &self.buckets
            self.quota.size = size
            self.quota.spent_ns = 0
            self.quota.step_ns = frame.received_ns
            self.quota.exempt = False
            frame.quota = &self.quota


@cython.no_gc_clear
cdef class Exchange:
    """One request and what came of it. Owns the body, as a Processor owns the frame, until the request is final or
    cancelled."""

    def __init__(self):
        raise TypeError("an Exchange is made by RequestDriver.handle")

    def __dealloc__(self):
        self.drop()
        free(self.body)

    cdef void drop(self) noexcept:
        if self.is_open:
            self.is_open = False
            with nogil:
                self.api.cancel(self.driver.plane.state, self.outcome.parked)

    cdef int settle(self) except -1:
        self.is_open = (outcome_keeps_frame(&self.outcome) or self.outcome.kind == OUTCOME_GATHERED
                        or self.outcome.kind == OUTCOME_RESUME)
        if self.outcome.kind == OUTCOME_REPLY:
            try:
                self.frame_bytes = send_bytes(self.outcome.send)
            finally:
                send_leave(self.outcome.send, &self.driver.left.send)
                self.outcome.send = NULL
            atomic_count(&self.driver.plane.state.apis[self.api_key].response_bytes, len(self.frame_bytes))
        return 0

    @property
    def kind(self):
        """REPLY, NO_REPLY, PARKED, ASK, WORKER, CLOSE, PYTHON, GATHERED, or RESUME: `resume` follows at once."""
        return KINDS[self.outcome.kind]

    @property
    def reply(self):
        """The whole reply frame with its size, or None."""
        return self.frame_bytes

    @property
    def message(self):
        """Why the connection is closed, or None."""
        return None if self.outcome.message == NULL else (<bytes>self.outcome.message).decode()

    @property
    def wakes(self):
        """How often a log has woken this request since the last resume."""
        return atomic_load(self.wake_count)

    @property
    def deadline_ns(self):
        """Monotonic; 0 when the request is not parked."""
        return self.outcome.deadline_ns if self.outcome.kind == OUTCOME_PARKED else 0

    @property
    def questions(self):
        """What Python must decide: keys of the authorization cache, or numbers of partition entries as text; empty when
        it is not asked."""
        cdef size_t i
        cdef bytes question
        out = []
        if self.outcome.kind == OUTCOME_ASK and self.is_open:
            for i in range(self.outcome.ask.questions.size()):
                question = self.outcome.ask.questions[i]
                out.append(question)
        return out

    @property
    def asks_validation(self):
        """True when the questions are partitions whose records a worker must look into."""
        return self.outcome.kind == OUTCOME_ASK and self.is_open and self.outcome.ask.kind == ASK_VALIDATE

    @property
    def asks_conversion(self):
        """True when the questions are partitions of which a worker must make message sets."""
        return self.outcome.kind == OUTCOME_ASK and self.is_open and self.outcome.ask.kind == ASK_CONVERT

    @property
    def asks_selection(self):
        """True when the questions are partitions of which a replica selector must name the best replica."""
        return self.outcome.kind == OUTCOME_ASK and self.is_open and self.outcome.ask.kind == ASK_SELECT

    def replica_selection(self, int32_t index):
        """See NetworkRequest.replica_selection."""
        cdef Selection found
        cdef vector[FollowerView] views
        cdef string rack
        cdef size_t i
        if not fetch_selection(self.outcome.parked, index, &found, &views, &rack):
            raise IndexError(f"no replica is selected at {index}")
        followers = [(views[i].replica_id, views[i].log_end_offset) for i in range(views.size())]
        return ((<bytes>found.name.topic).decode(), found.name.partition, found.fetch_offset, (<bytes>rack).decode(),
                found.leader_end_offset, sorted(followers))

    def select_replica(self, int32_t index, int32_t replica_id):
        """See NetworkRequest.select_replica."""
        fetch_select_replica(self.outcome.parked, index, replica_id)

    @property
    def asks_verification(self):
        """True when the questions are partitions whose transaction the coordinator must confirm."""
        return self.outcome.kind == OUTCOME_ASK and self.is_open and self.outcome.ask.kind == ASK_VERIFY

    def resume(self, bint timed_out=False):
        """What the Processor does when a log woke the request, its deadline passed, or Python answered. RuntimeError
        when it is final."""
        if not self.is_open:
            raise RuntimeError("the request is not parked")
        cdef void* parked = self.outcome.parked
        atomic_store(self.wake_count, 0)
        with nogil:
            self.api.resume(self.driver.plane.state, parked, timed_out, &self.outcome)
        self.settle()
        return self

    @property
    def group(self):
        """Of a GATHERED request: requests with the same number may go on together."""
        return <uint64_t>self.outcome.group

    def work(self):
        """What a thread of the worker pool does with a request of the kind WORKER, and then the Processor. RuntimeError
        for another kind."""
        if not self.is_open or self.outcome.kind != OUTCOME_WORKER:
            raise RuntimeError("the request is not for a worker")
        with nogil:
            self.api.work(self.outcome.parked)
        return self.resume()

    def cancel(self):
        """What the Processor does when the connection is gone; nothing happens when the request is final."""
        self.drop()

    def records(self, int32_t index):
        """The record bytes of a partition entry that a worker is asked about; KeyError when it is not pending."""
        cdef const uint8_t* data
        cdef int64_t size
        cdef PartitionName name
        self.check_produce()
        if not produce_records_to_validate(self.outcome.parked, index, &name, &data, &size):
            raise KeyError(index)
        return (<const char*>data)[:size]

    def replace_records(self, int32_t index, records):
        """A worker's answer: other bytes, or None when the records are good as they are."""
        self.check_produce()
        if records is None:
            produce_replace_records(self.outcome.parked, index, NULL, 0)
        else:
            produce_replace_records(self.outcome.parked, index, <const uint8_t*><const char*>(<bytes>records),
                                    len(records))

    def refuse_records(self, int32_t index, int16_t error, str message="", batch_indexes=()):
        """A worker's answer: the error code, why, and the records it is about."""
        cdef vector[int32_t] indexes = batch_indexes
        cdef bytes text = message.encode()
        self.check_produce()
        produce_refuse_records(self.outcome.parked, index, error, text, len(text), indexes.data(),
                               <int32_t>indexes.size())

    def records_to_convert(self, int32_t index):
        """(fetch offset, batches) of a partition entry that a worker is asked about; KeyError when it is not asked
        about."""
        cdef int64_t fetch_offset = -1
        cdef int64_t size = 0
        cdef PartitionName name
        cdef bytearray into
        self.check_fetch()
        if not fetch_records_to_convert(self.outcome.parked, index, &name, &fetch_offset, &size):
            raise KeyError(index)
        into = bytearray(size)
        if not fetch_read_records(self.outcome.parked, index, <uint8_t*>into):
            raise OSError("the segment cannot be read")
        return fetch_offset, bytes(into)

    def give_message_set(self, int32_t index, bytes records, int64_t end_offset):
        """A worker's answer: the message set, and the offset behind what it has looked at."""
        self.check_fetch()
        if not fetch_give_records(self.outcome.parked, index, <const uint8_t*><const char*>records, len(records),
                                  end_offset):
            raise KeyError(index)

    def refuse_conversion(self, int32_t index, int16_t error):
        """A worker's answer: the error code."""
        self.check_fetch()
        fetch_refuse_records(self.outcome.parked, index, error)

    cdef int check_fetch(self) except -1:
        if not self.is_open or self.api_key != API_FETCH:
            raise RuntimeError("not a parked Fetch")
        return 0

    def batch_to_verify(self, int32_t index):
        """(topic, partition, producer id, producer epoch) that the coordinator is asked about; KeyError when it is
        not."""
        cdef int64_t producer_id = -1
        cdef int16_t producer_epoch = -1
        cdef PartitionName name
        self.check_produce()
        if not produce_batch_to_verify(self.outcome.parked, index, &name, &producer_id, &producer_epoch):
            raise KeyError(index)
        return (<bytes>name.topic).decode(), name.partition, producer_id, producer_epoch

    @property
    def transactional_id(self):
        """Of a parked Produce, as bytes; None when it has none."""
        cdef int32_t size = -1
        cdef const uint8_t* text
        self.check_produce()
        text = produce_transactional_id(self.outcome.parked, &size)
        return None if text == NULL else <bytes>text[:size]

    def confirm_transaction(self, int32_t index):
        """The coordinator's yes; its no is `refuse_records`."""
        self.check_produce()
        produce_confirm_transaction(self.outcome.parked, index)

    cdef int check_produce(self) except -1:
        if not self.is_open or self.api_key != API_PRODUCE:
            raise RuntimeError("not a parked Produce")
        return 0


def settle_group(list exchanges):
    """What the Processor does with GATHERED requests of one group. ValueError for others, or for too many."""
    cdef Outcome outcomes[GROUP_MEMBERS]
    cdef void* parked[GROUP_MEMBERS]
    cdef size_t count = len(exchanges), i
    cdef Exchange exchange
    cdef const DataPlaneApi* api = NULL
    cdef DataPlaneState* plane = NULL
    groups = {exchange.group for exchange in exchanges if exchange.kind == GATHERED}
    if len(groups) != 1 or not 1 <= count <= GROUP_MEMBERS or any(e.kind != GATHERED for e in exchanges):
        raise ValueError("not gathered requests of one group")
    for i in range(count):
        exchange = <Exchange?>exchanges[i]
        parked[i] = exchange.outcome.parked
        api = exchange.api
        plane = exchange.driver.plane.state
    with nogil:
        api.settle(plane, parked, count, outcomes)
    for i in range(count):
        exchange = <Exchange>exchanges[i]
        exchange.outcome = outcomes[i]
        exchange.settle()


cdef extern from "<pthread.h>" nogil:
    int pthread_rwlock_tryrdlock(pthread_rwlock_t*)


cdef void* write_once(void* lock) noexcept nogil:
    pthread_rwlock_wrlock(<pthread_rwlock_t*>lock)
    pthread_rwlock_unlock(<pthread_rwlock_t*>lock)
    return NULL


def waiting_writer_keeps_readers_out():
    """Whether a reader is refused while another one has the table's kind of lock and a writer waits for it; False after
    ten seconds."""
    cdef pthread_rwlock_t lock
    cdef pthread_t writer
    cdef bint refused = False
    cdef int turn
    with nogil:
        rwlock_init(&lock)
        pthread_rwlock_rdlock(&lock)
        if pthread_create(&writer, NULL, write_once, &lock) == 0:
            for turn in range(10000):
                refused = pthread_rwlock_tryrdlock(&lock) != 0
                if refused:
                    break
                pthread_rwlock_unlock(&lock)
                usleep(1000)
            pthread_rwlock_unlock(&lock)
            pthread_join(writer, NULL)
        pthread_rwlock_destroy(&lock)
    return refused
