"""A ReplicaFetcher whose thread and socket are the test: it takes the requests, and gives the responses.

    fetcher.connected(17)
    request = fetcher.next_request(now_ns)          # None: nothing is to fetch before `wakes_ns`
    fetcher.take_response(response, now_ns)         # or fetcher.lost(errno.ETIMEDOUT, now_ns)

What is asked, appended, truncated and told is decided by the fetcher's own code: `next_step` and `receive` of
kafkapy/_speedups/replica/loop.pyx, which its thread runs as well. Only the time comes from the test.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy, memset

from kafkapy._speedups.base.transport cimport Transport, TransportFunctions, transport_plaintext
from kafkapy._speedups.base.wire cimport ByteBuffer, buffer_free
from kafkapy._speedups.replica.fetcher cimport FollowedPartition, ReplicaFetcher
from kafkapy._speedups.replica.loop cimport STEP_SEND, FetcherStep, lose_connection, next_step, receive
from kafkapy._speedups.replica.state cimport MAIL_CONNECTION, FetcherMail, fetcher_mail

cdef struct Incoming:
    const uint8_t* data
    int64_t size


cdef int64_t read_memory(Transport* t, uint8_t* into, size_t size) noexcept nogil:
    cdef Incoming* incoming = <Incoming*>t.session
    cdef int64_t count = min(<int64_t>size, incoming.size)
    memcpy(into, incoming.data, <size_t>count)
    incoming.data += count
    incoming.size -= count
    return count


cdef void nothing(Transport* t) noexcept nogil:
    return


cdef const char* no_reason(Transport* t) noexcept nogil:
    return NULL


cdef TransportFunctions memory


cdef int set_functions() except -1:
    """The functions of a socket, of which a fetcher uses only these before it writes."""
    cdef Transport plain
    memset(&plain, 0, sizeof(plain))
    transport_plaintext(&plain, -1)
    memcpy(&memory, plain.functions, sizeof(memory))
    memory.read = read_memory
    memory.abort = nothing
    memory.close = nothing
    memory.error = no_reason
    return 0


set_functions()


cdef class SteppedFetcher(ReplicaFetcher):
    """A fetcher that a test drives, with one thread for both. `on_mail` is called after each mail."""

    cdef Incoming incoming
    cdef readonly int64_t wakes_ns
    """When `next_request` may have a request again; 0: after a mail."""
    cdef public object on_mail

    def start(self):
        """Starts no thread."""

    @property
    def ended(self):
        """Whether `stop` was called."""
        return self.state.stop

    cdef int mail(self, int kind, FollowedPartition partition, object argument) except -1:
        ReplicaFetcher.mail(self, kind, partition, argument)
        if self.on_mail is not None:
            self.on_mail()
        return 0

    def connected(self, int version):
        """A connection for the next request; `version`: the newest Fetch version of the leader."""
        cdef FetcherMail mail
        memset(&mail, 0, sizeof(mail))
        mail.kind = MAIL_CONNECTION
        mail.argument = version
        mail.transport.functions = &memory
        mail.transport.fd = 0x7FFFFFFF
        mail.transport.session = &self.incoming
        fetcher_mail(self.state, &mail)
        if self.on_mail is not None:
            self.on_mail()

    def next_request(self, int64_t now_ns):
        """The next request with its size, or None."""
        cdef ByteBuffer request
        cdef FetcherStep step
        cdef bytes out
        self.state.clock_ns = now_ns
        with nogil:
            step = next_step(self.state, &request, &self.wakes_ns)
        if step != STEP_SEND:
            return None
        if request.error:
            buffer_free(&request)
            raise MemoryError
        out = <bytes>(<char*>request.data)[:request.size]
        buffer_free(&request)
        return out

    def take_response(self, bytes frame not None, int64_t now_ns):
        """The response to the last request, with its size. False: it is of no use, and the connection is lost."""
        cdef int failure
        self.state.clock_ns = now_ns
        self.incoming.data = <const uint8_t*><const char*>frame
        self.incoming.size = len(frame)
        with nogil:
            failure = receive(self.state, 0)
            if failure:
                lose_connection(self.state, failure)
        return failure == 0

    def lost(self, int failure, int64_t now_ns):
        """The connection ends with an errno."""
        self.state.clock_ns = now_ns
        with nogil:
            lose_connection(self.state, failure)
