"""NetworkRequest: a request that the control plane answers or decides (see network_request.pxd)."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libcpp.string cimport string
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport (
    atomic_count,
    atomic_load,
    monotonic_ns,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    wall_clock_ms,
)
from kafkapy._speedups.base.scram cimport scram_name
from kafkapy._speedups.base.send cimport Send, send_new, send_take_buffer
from kafkapy._speedups.base.wire cimport ByteBuffer, buffer_free, buffer_init, write_int32, write_raw
from kafkapy._speedups.network.connection cimport (
    LEVEL_ERROR,
    LEVEL_INFO,
    LOGGER_REQUEST_CHANNEL,
    ConnectionRegistry,
    connection_announce_close,
    network_log,
)
from kafkapy._speedups.network.mailbox cimport (
    MAIL_AUTHENTICATED,
    MAIL_BEGIN,
    MAIL_CLOSE,
    MAIL_NO_REPLY,
    MAIL_REFUSED,
    MAIL_REPLY,
    MAIL_RESUME,
    mailbox_post_token,
)
from kafkapy._speedups.network.pending_request cimport PendingRequest, pending_unref
from kafkapy._speedups.network.selector cimport STAGE_PRINCIPAL, STAGE_READY, STAGE_SASL
from kafkapy._speedups.requests.authorization cimport authorization_remember
from kafkapy._speedups.requests.client_quotas cimport (
    buckets_take,
    quota_charge_exempt,
    quota_charge_time,
    sensor_note_throttle,
    sensor_state,
)
from kafkapy._speedups.requests.data_plane cimport (
    ASK_AUTHORIZE as ASK_AUTHORIZE_,
    ASK_CONVERT as ASK_CONVERT_,
    ASK_PRINCIPAL as ASK_PRINCIPAL_,
    ASK_QUOTAS as ASK_QUOTAS_,
    ASK_SELECT as ASK_SELECT_,
    ASK_VALIDATE as ASK_VALIDATE_,
    ASK_VERIFY as ASK_VERIFY_,
    AuthorizationCache,
    PartitionName,
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
from kafkapy._speedups.requests.request_header cimport ApiTable, response_header_write

ASK_AUTHORIZE = <int>ASK_AUTHORIZE_
ASK_VALIDATE = <int>ASK_VALIDATE_
ASK_CONVERT = <int>ASK_CONVERT_
ASK_SELECT = <int>ASK_SELECT_
ASK_VERIFY = <int>ASK_VERIFY_
ASK_PRINCIPAL = <int>ASK_PRINCIPAL_
ASK_QUOTAS = <int>ASK_QUOTAS_
SASL_TOKEN = -36
"""The api_key of a SASL token that came without a request header."""

_STAGES = {STAGE_READY: "ready", STAGE_PRINCIPAL: "principal", STAGE_SASL: "sasl"}


cdef enum:
    LARGE_COPY = 1 << 18      # copies of more bytes release the GIL

cdef int64_t MAX_SESSION_MS = 100 * 365 * 86_400_000        # further ends would overflow in ns


cdef NetworkRequest network_request_make(object channel, PendingRequest* pending):
    cdef NetworkRequest request = NetworkRequest.__new__(NetworkRequest)
    request.pending = pending
    request.channel = channel
    request.asked = -1 if pending.ask == NULL else pending.ask.kind
    request.authorizer_epoch = atomic_load(&pending.plane.authorizer_epoch)
    return request


@cython.no_gc_clear
cdef class NetworkRequest:
    """A request that Python must answer (`ask_kind` None: with `reply`, `no_reply` or `close`), or a request of the
    data plane that waits for Python's decision (`ask_kind` ASK_AUTHORIZE: `answer_authorization`; ASK_VALIDATE:
    `accept_records`, `replace_records` or `refuse_records` for every question, then `resume`; ASK_CONVERT:
    `give_message_set` or `refuse_conversion` for every question, then `resume`; ASK_VERIFY: `confirm_transaction` or
    `refuse_records` for every question, then `resume`; ASK_PRINCIPAL: `authenticated` or `authentication_failed`, after
    a TLS handshake with a client's certificate; ASK_QUOTAS: `set_quotas`).

    On a SASL listener, ApiVersions, SaslHandshake and SaslAuthenticate (`stage` "sasl") come before all others. A reply
    goes on with the exchange; `authenticated` and `authentication_failed` end it.

    `RequestChannel.drain` makes it; any thread may answer it, once (RuntimeError after that). Its connection reads no
    more bytes until then. A request that is dropped without an answer closes its connection, so that no client waits
    for ever.
    """

    def __init__(self, *args, **kwargs):
        raise TypeError("requests come from RequestChannel.drain()")

    def __dealloc__(self):
        cdef PendingRequest* p = self.pending
        cdef ConnectionRegistry registry
        cdef bytes line
        if p == NULL:
            return
        if not self.answered:
            registry = self.channel.registry
            line = (
                f"A request (api key {p.frame.api_key}, version {p.frame.api_version}) of connection "
                f"{p.connection.id} was dropped without a response; the connection is closed"
            ).encode()
            network_log(registry.state, LEVEL_ERROR, LOGGER_REQUEST_CHANNEL, line)
        with nogil:
            if not self.answered:
                mailbox_post_token(p.mailbox, MAIL_CLOSE, p.frame.token, NULL)
            pending_unref(p)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.pending.frame.body, self.pending.frame.body_size, 1, flags)

    def __releasebuffer__(self, Py_buffer* view):
        pass

    def __repr__(self):
        return (
            f"<NetworkRequest api_key={self.api_key} version={self.api_version} correlation_id={self.correlation_id} "
            f"connection={self.connection_id} answered={bool(self.answered)}>"
        )

    # ---- the request ----

    @property
    def api_key(self):
        """The request's API, or SASL_TOKEN."""
        return SASL_TOKEN if self.pending.is_token else self.pending.frame.api_key

    @property
    def api_version(self):
        """The version of the client's request; for ApiVersions it may be unknown (see unsupported_version)."""
        return self.pending.frame.api_version

    @property
    def unsupported_version(self):
        """Whether this is an ApiVersions request in an unknown version: the answer has version 0 and
        UNSUPPORTED_VERSION."""
        return bool(self.pending.unsupported_version)

    @property
    def correlation_id(self):
        return self.pending.frame.correlation_id

    @property
    def client_id(self):
        """The client id, or None."""
        if self.pending.frame.client_id_size < 0:
            return None
        return (<bytes>self.pending.frame.client_id[:self.pending.frame.client_id_size]).decode("utf-8", "replace")

    @property
    def body(self):
        """The request after its header: a read-only memoryview that keeps this object alive."""
        return memoryview(self)

    @property
    def received_ns(self):
        """Arrival of the request's last byte: monotonic clock, ns."""
        return self.pending.frame.received_ns

    # ---- the connection ----

    @property
    def connection_id(self):
        """The connection's id: unique in this broker process, never used again."""
        return self.pending.connection.id

    @property
    def client_address(self):
        """The peer's IP address as text."""
        return (<bytes>self.pending.connection.peer_host).decode()

    @property
    def peer_host(self):
        return (<bytes>self.pending.connection.peer_host).decode()

    @property
    def peer_port(self):
        return self.pending.connection.peer_port

    @property
    def local_host(self):
        return (<bytes>self.pending.connection.local_host).decode()

    @property
    def local_port(self):
        return self.pending.connection.local_port

    @property
    def listener_index(self):
        return self.pending.connection.listener_index

    @property
    def listener_name(self):
        return self.channel.listeners[self.pending.connection.listener_index][0]

    @property
    def security_protocol(self):
        return self.channel.listeners[self.pending.connection.listener_index][1]

    @property
    def privileged(self):
        """Whether the request came through the inter-broker listener."""
        return bool(self.pending.connection.privileged)

    @property
    def connection_open(self):
        """False when the client is gone; answers are then dropped."""
        cdef ConnectionRegistry registry = self.channel.registry
        cdef bint closed
        pthread_mutex_lock(&registry.state.mutex)
        closed = self.pending.connection.closed
        pthread_mutex_unlock(&registry.state.mutex)
        return not closed

    @property
    def principal(self):
        """The authenticated principal ("User:name"); "User:ANONYMOUS" before authentication."""
        return self._get_text(&self.pending.connection.principal) or "User:ANONYMOUS"

    @principal.setter
    def principal(self, str name not None):
        self._set_text(&self.pending.connection.principal, name)

    @property
    def token_authenticated(self):
        """Whether the connection was authenticated by a delegation token."""
        return bool(self.pending.connection.token_authenticated)

    @property
    def stage(self):
        """The connection's stage when the request came: "ready", "sasl", or "principal" (ASK_PRINCIPAL)."""
        return _STAGES[self.pending.stage]

    @property
    def scram(self):
        """The SCRAM mechanism of a login whose SaslHandshake the data plane has answered; None without one."""
        return (<bytes>scram_name(self.pending.scram - 1)).decode() if self.pending.scram else None

    @property
    def tls_protocol(self):
        """The connection's TLS version ("TLSv1.3"); "" without TLS."""
        return self._get_text(&self.pending.connection.tls_protocol)

    @property
    def cipher_suite(self):
        """The connection's cipher suite under its Java name ("TLS_AES_256_GCM_SHA384"); "" without TLS."""
        return self._get_text(&self.pending.connection.cipher_suite)

    @property
    def peer_certificate(self):
        """The client's certificate in DER, which a trusted one has signed; None when it has shown none."""
        cdef ConnectionRegistry registry = self.channel.registry
        cdef string der
        pthread_mutex_lock(&registry.state.mutex)
        der = self.pending.connection.peer_certificate
        pthread_mutex_unlock(&registry.state.mutex)
        return <bytes>der if der.size() else None

    @property
    def client_software_name(self):
        """The client's software name, from ApiVersions v3+; "" when unknown."""
        return self._get_text(&self.pending.connection.software_name)

    @property
    def client_software_version(self):
        return self._get_text(&self.pending.connection.software_version)

    def set_client_software(self, str name not None, str version not None):
        """Stores the client's software name and version for metrics and listings."""
        self._set_text(&self.pending.connection.software_name, name)
        self._set_text(&self.pending.connection.software_version, version)

    @property
    def connection_data(self):
        """Python's data about this connection, or None. Only the control loop uses it."""
        return self.channel.connection_data.get(self.pending.connection.id)

    @connection_data.setter
    def connection_data(self, value):
        cdef ConnectionRegistry registry = self.channel.registry
        self.channel.connection_data[self.pending.connection.id] = value
        with nogil:
            connection_announce_close(registry.state, self.pending.connection)

    cdef str _get_text(self, string* field):
        cdef ConnectionRegistry registry = self.channel.registry
        cdef string text
        pthread_mutex_lock(&registry.state.mutex)
        text = field[0]
        pthread_mutex_unlock(&registry.state.mutex)
        return (<bytes>text).decode("utf-8", "replace")

    cdef int _set_text(self, string* field, str value) except -1:
        cdef ConnectionRegistry registry = self.channel.registry
        cdef string text = value.encode("utf-8", "replace")
        pthread_mutex_lock(&registry.state.mutex)
        field[0] = text
        pthread_mutex_unlock(&registry.state.mutex)
        return 0

    cdef int _log(self, str text) except -1:
        cdef ConnectionRegistry registry = self.channel.registry
        cdef bytes line = text.encode()
        network_log(registry.state, LEVEL_INFO, LOGGER_REQUEST_CHANNEL, line)
        return 0

    # ---- answers to a request ----

    cdef int _claim(self, int asked) except -1:
        if self.answered:
            raise RuntimeError(f"{self!r} was answered already")
        if asked != self.asked:
            if self.asked < 0:
                raise RuntimeError(f"{self!r} asks for no decision, it wants a reply")
            raise RuntimeError(f"{self!r} is the data plane's: it asks for a decision of kind {self.asked}")
        return 0

    cdef int _claim_produce(self) except -1:
        return self._claim(ASK_VERIFY_ if self.asked == ASK_VERIFY_ else ASK_VALIDATE_)

    @property
    def tokens_follow(self):
        """Whether the next frames of the connection are SASL tokens without a request header (after SaslHandshake
        version 0). Set it before the reply; it stays until the authentication ends."""
        return bool(self.pending.tokens_follow)

    @tokens_follow.setter
    def tokens_follow(self, bint follow):
        self.pending.tokens_follow = follow

    def authenticated(self, str principal not None, int64_t session_end_ms=0, reply=None,
                      bint token_authenticated=False):
        """Ends the authentication, also a repeated one, and serves the connection from now on.

        principal: "User:name". session_end_ms: wall clock; later requests close the connection (0: never). reply: the
        last response's body (`reply_frame` of tokens), None for ASK_PRINCIPAL."""
        cdef int64_t left = session_end_ms - wall_clock_ms()
        self._claim_stage()
        self.principal = principal
        self.pending.connection.token_authenticated = token_authenticated
        self.pending.connection.authorization.owner = <uint64_t><int64_t>hash(principal)
        self.pending.session_end_ns = 0
        if session_end_ms:
            self.pending.session_end_ns = monotonic_ns() + max(min(left, MAX_SESSION_MS), 0) * 1_000_000
        self._end_stage(MAIL_AUTHENTICATED, reply)

    def authentication_failed(self, reply=None, delay_ms=None, str reason=None):
        """Ends the authentication and closes the connection after its last reply (None: no reply), which waits for
        delay_ms (None: connection.failed.authentication.delay.ms). The log gets the reason."""
        self._claim_stage()
        if reason is not None:
            self._log(f"Failed authentication of connection {self.connection_id} from {self.peer_host}:"
                      f"{self.peer_port}: {reason}")
        self.pending.delay_ns = -1 if delay_ms is None else delay_ms * 1_000_000
        self._end_stage(MAIL_REFUSED, reply)

    cdef int _claim_stage(self) except -1:
        if self.asked == ASK_PRINCIPAL_:
            return self._claim(ASK_PRINCIPAL_)
        return self._claim(-1)

    cdef int _end_stage(self, int kind, reply) except -1:
        if reply is None:
            if self.asked < 0 and kind == MAIL_AUTHENTICATED:
                raise ValueError("the client waits for a reply")
            return self._finish(kind)
        return self._send(reply, not self.pending.is_token, kind)

    def reply(self, payload):
        """Answers with a response body (bytes-like, or a list of them, in the request's version), behind its header."""
        self._claim(-1)
        self._send(payload, True, MAIL_REPLY)

    def reply_frame(self, payload):
        """Answers with a whole response, its header included, without the frame size."""
        self._claim(-1)
        self._send(payload, False, MAIL_REPLY)

    cdef int _send(self, payload, bint with_header, int kind) except -1:
        cdef ByteBuffer out
        cdef Py_buffer view
        cdef Send* send
        cdef PendingRequest* p = self.pending
        cdef int64_t size = 0
        cdef ApiTable table = self.channel.apis
        parts = payload if isinstance(payload, (list, tuple)) else (payload,)
        for part in parts:
            size += memoryview(part).nbytes
        if size > 0x7FFFFFFF - 64:
            raise ValueError(f"a response of {size} bytes does not fit into a frame")
        buffer_init(&out)
        if with_header:
            response_header_write(table.state, &p.frame, size, &out)
        else:
            write_int32(&out, <int32_t>size)
        try:
            for part in parts:
                PyObject_GetBuffer(part, &view, PyBUF_SIMPLE)
                if view.len < LARGE_COPY:
                    write_raw(&out, view.buf, view.len)
                else:
                    with nogil:
                        write_raw(&out, view.buf, view.len)
                PyBuffer_Release(&view)
            if out.error:
                raise MemoryError
        except BaseException:
            buffer_free(&out)
            raise
        self.answered = True
        p.local_ns = monotonic_ns() - p.taken_ns
        atomic_count(&p.plane.apis[p.frame.api_key].local_ns, p.local_ns)
        with nogil:
            send = send_new()
            send_take_buffer(send, &out)
            mailbox_post_token(p.mailbox, kind, p.frame.token, send)
        return 0

    def no_reply(self):
        """Finishes a request without a reply, as the client expects; its connection goes on."""
        self._claim(-1)
        self._finish(MAIL_NO_REPLY)

    def close(self, reason=None):
        """Closes the connection instead of an answer. The log gets `reason`, if given."""
        if self.answered:
            raise RuntimeError(f"{self!r} was answered already")
        if reason is not None:
            self._log(f"Connection {self.connection_id} from {self.peer_host}:{self.peer_port} is closed: {reason}")
        self._finish(MAIL_CLOSE)

    cdef int _finish(self, int kind) except -1:
        self.answered = True
        with nogil:
            mailbox_post_token(self.pending.mailbox, kind, self.pending.frame.token, NULL)
        return 0

    # ---- quotas ----

    @property
    def counts_time(self):
        """Whether a quota bounds the thread time of the connection's requests, or counts it."""
        cdef PendingRequest* p = self.pending
        return p.frame.quota != NULL and (p.quota.buckets.request != NULL or p.quota.buckets.exempt != NULL)

    def charge_time(self, int64_t spent_ns, bint exempt=False):
        """Counts thread time of a request that Python answers; the throttle time of the request quota in ms.

        exempt: no quota bounds the request."""
        cdef PendingRequest* p = self.pending
        self._claim(-1)
        if p.frame.quota == NULL:
            return 0
        if exempt:
            p.quota.spent_ns = spent_ns
            p.quota.step_ns = monotonic_ns()
            quota_charge_exempt(&p.quota)
            return 0
        return quota_charge_time(&p.quota, spent_ns)

    def throttle(self, int64_t throttle_ms, bint of_time=True):
        """Mutes the connection for that time once the request is answered. of_time: the request quota is violated."""
        cdef PendingRequest* p = self.pending
        self._claim(-1)
        p.quota.throttle_ms = throttle_ms
        if of_time and throttle_ms > 0 and p.frame.quota != NULL and p.quota.buckets.request != NULL:
            sensor_note_throttle(p.quota.buckets.request, throttle_ms, monotonic_ns() // 1_000_000)

    def set_quotas(self, int64_t epoch, produce, fetch, request, exempt):
        """Answers ASK_QUOTAS: the QuotaSensors of the connection and client id, each None without a quota."""
        cdef PendingRequest* p = self.pending
        self._claim(ASK_QUOTAS_)
        buckets_take(&p.connection.buckets, epoch, p.frame.client_id, p.frame.client_id_size, sensor_state(produce),
                     sensor_state(fetch), sensor_state(request), sensor_state(exempt))
        self._finish(MAIL_BEGIN)

    # ---- answers to the data plane ----

    @property
    def ask_kind(self):
        """ASK_AUTHORIZE, ASK_VALIDATE, ASK_CONVERT, ASK_VERIFY, ASK_PRINCIPAL, ASK_SELECT, ASK_QUOTAS, or None for a
        request that Python answers itself."""
        return None if self.asked < 0 else self.asked

    @property
    def questions(self):
        """A list of bytes. ASK_AUTHORIZE: one byte operation, then the resource (AuthorizationCache in
        requests/data_plane.pxd).
        ASK_VALIDATE, ASK_CONVERT, ASK_VERIFY and ASK_SELECT: the indexes of the parts in question, as decimal text."""
        return self.questions_between(0, self.question_count)

    @property
    def question_count(self):
        """The number of questions."""
        return 0 if self.asked < 0 or self.answered else self.pending.ask.questions.size()

    def questions_between(self, size_t start, size_t stop):
        """Those of `questions` from `start` to `stop` - 1; a client may cause more than one turn can answer."""
        cdef size_t i
        cdef string question
        cdef list questions = []
        if self.asked < 0 or self.answered:
            return questions
        for i in range(start, min(stop, self.pending.ask.questions.size())):
            question = self.pending.ask.questions[i]
            questions.append(<bytes>question)
        return questions

    def answer_authorization(self, list decisions not None):
        """Gives the decisions (bool) about the next questions, in their order. The request goes on after the last one.
        When the authorizer's epoch has moved since the request was drained, the decisions may follow the old rules: the
        data plane drops them and asks again."""
        cdef AuthorizationCache* cache
        cdef int64_t epoch
        cdef string key
        cdef size_t i
        self._claim(ASK_AUTHORIZE_)
        cache = self.pending.frame.authorization
        epoch = self.authorizer_epoch
        if self.decided + len(decisions) > self.pending.ask.questions.size():
            raise ValueError(f"{self!r} has {self.pending.ask.questions.size()} questions, not more")
        for i in range(len(decisions)):
            key = self.pending.ask.questions[self.decided + i]
            authorization_remember(cache, epoch, key, bool(decisions[i]))
        self.decided += len(decisions)
        if self.decided == self.pending.ask.questions.size():
            self._finish(MAIL_RESUME)

    def records_to_validate(self, int32_t index):
        """(log id, topic, partition, records as bytes) of one part of a parked produce. Any thread."""
        cdef const uint8_t* data = NULL
        cdef int64_t size = 0
        cdef PartitionName name
        cdef bint known
        self._claim(ASK_VALIDATE_)
        known = produce_records_to_validate(self.pending.parked, index, &name, &data, &size)
        if data == NULL:
            raise IndexError(f"{self!r} has no records at {index}")
        records = <bytes>data[:size]
        if not known:
            return None, None, -1, records
        return name.log_id, (<bytes>name.topic).decode(), name.partition, records

    def replace_records(self, int32_t index, records):
        """Replaces the records of that part by these (validated, converted or recompressed) records; copies them."""
        cdef Py_buffer view
        self._claim(ASK_VALIDATE_)
        PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
        produce_replace_records(self.pending.parked, index, <const uint8_t*>view.buf, view.len)
        PyBuffer_Release(&view)

    def accept_records(self, int32_t index):
        """Accepts the records of that part unchanged."""
        self._claim(ASK_VALIDATE_)
        produce_replace_records(self.pending.parked, index, NULL, 0)

    @property
    def transactional_id(self):
        """The transactional id of a parked produce, or None."""
        cdef const uint8_t* text
        cdef int32_t size = -1
        self._claim(ASK_VERIFY_)
        text = produce_transactional_id(self.pending.parked, &size)
        return None if text == NULL else (<bytes>text[:size]).decode("utf-8", "replace")

    def batch_to_verify(self, int32_t index):
        """(topic, partition, producer id, producer epoch) of one part of a parked produce."""
        cdef int64_t producer_id = -1
        cdef int16_t producer_epoch = -1
        cdef PartitionName name
        self._claim(ASK_VERIFY_)
        if not produce_batch_to_verify(self.pending.parked, index, &name, &producer_id, &producer_epoch):
            raise IndexError(f"{self!r} has no batch to verify at {index}")
        return (<bytes>name.topic).decode(), name.partition, producer_id, producer_epoch

    def confirm_transaction(self, int32_t index):
        """Confirms that the transaction coordinator has the part's partition in the transaction."""
        self._claim(ASK_VERIFY_)
        produce_confirm_transaction(self.pending.parked, index)

    def refuse_records(self, int32_t index, int16_t error, str message=None, batch_indexes=()):
        """Refuses the records of that part: its error code, the message for the client, and the records at fault."""
        cdef bytes text = b"" if message is None else message.encode()
        cdef list indexes = list(batch_indexes)
        cdef Py_ssize_t count = len(indexes)
        cdef Py_ssize_t i
        cdef int32_t* at
        cdef const char* text_at = text
        self._claim_produce()
        at = <int32_t*>malloc(max(count, 1) * sizeof(int32_t))
        if at == NULL:
            raise MemoryError
        try:
            for i in range(count):
                at[i] = indexes[i]
            if message is None:
                text_at = NULL
            produce_refuse_records(self.pending.parked, index, error, text_at, len(text), at, <int32_t>count)
        finally:
            free(at)

    def records_to_convert(self, int32_t index):
        """(topic, partition, the offset of the read, the batches as bytes: the last one may be cut) of one part of a
        parked fetch. Any thread. OSError when they cannot be read."""
        cdef int64_t fetch_offset = -1
        cdef int64_t size = 0
        cdef bint whole
        cdef PartitionName name
        cdef uint8_t* into
        self._claim(ASK_CONVERT_)
        if not fetch_records_to_convert(self.pending.parked, index, &name, &fetch_offset, &size):
            raise IndexError(f"{self!r} has no records at {index}")
        records = PyBytes_FromStringAndSize(NULL, size)
        into = <uint8_t*>PyBytes_AS_STRING(records)
        with nogil:
            whole = fetch_read_records(self.pending.parked, index, into)
        if not whole:
            raise OSError("a segment is shorter than it should be, or cannot be read")
        return (<bytes>name.topic).decode(), name.partition, fetch_offset, records

    def give_message_set(self, int32_t index, message_set, int64_t end_offset):
        """Gives the client's bytes for that part (copied), and the offset behind the last converted batch, also if the
        conversion dropped it."""
        cdef Py_buffer view
        cdef bint taken
        self._claim(ASK_CONVERT_)
        PyObject_GetBuffer(message_set, &view, PyBUF_SIMPLE)
        with nogil:
            taken = fetch_give_records(self.pending.parked, index, <const uint8_t*>view.buf, view.len, end_offset)
        PyBuffer_Release(&view)
        if not taken:
            raise MemoryError

    def refuse_conversion(self, int32_t index, int16_t error):
        """Gives the client that error for that part."""
        self._claim(ASK_CONVERT_)
        fetch_refuse_records(self.pending.parked, index, error)

    def replica_selection(self, int32_t index):
        """What a replica selector needs for one part of a parked fetch: (topic, partition, fetch offset, the consumer's
        rack, log end of the leader, [(replica id, its log end, ms since it was last caught up), ...])."""
        cdef Selection found
        cdef vector[FollowerView] views
        cdef string rack
        cdef size_t i
        self._claim(ASK_SELECT_)
        if not fetch_selection(self.pending.parked, index, &found, &views, &rack):
            raise IndexError(f"{self!r} selects no replica at {index}")
        followers = [(views[i].replica_id, views[i].log_end_offset, max(found.now_ms - views[i].caught_up_ms, 0))
                     for i in range(views.size())]
        return ((<bytes>found.name.topic).decode(), found.name.partition, found.fetch_offset,
                (<bytes>rack).decode("utf-8", "replace"), found.leader_end_offset, followers)

    def select_replica(self, int32_t index, int32_t replica_id):
        """Names the replica that the consumer should read from, -1: the leader."""
        self._claim(ASK_SELECT_)
        fetch_select_replica(self.pending.parked, index, replica_id)

    def resume(self):
        """Lets the request go on; all parts must have their answer."""
        if self.asked == ASK_CONVERT_ or self.asked == ASK_SELECT_:
            self._claim(self.asked)
        else:
            self._claim_produce()
        self._finish(MAIL_RESUME)
