"""One connection of a Processor: bytes to frames, frames to requests, outcomes to replies.

Everything here runs on the Processor's thread, without the GIL. The way of a request: whole frame -> header -> Produce
and Fetch are called in place, everything else goes to the RequestChannel -> Outcome (requests/data_plane.pxd) -> reply
written at once, the rest when the socket takes it -> next frame. A connection has one request in flight at a time.

A frame that outlives the call of its handler must not lie in the scratch buffer. Small frames are copied before the
call; a large Produce is handled in place, and if it parks, the request takes the whole scratch buffer and the reader
gets a new one.
"""

from libc.stdint cimport int64_t

from kafkapy._speedups.base.send cimport Send
from kafkapy._speedups.network.pending_request cimport PendingRequest
from kafkapy._speedups.network.processor_state cimport ProcessorState
from kafkapy._speedups.network.selector cimport KafkaChannel
from kafkapy._speedups.requests.data_plane cimport Outcome

# Goes on with a request as its API says.
cdef void carry_out(ProcessorState* p, KafkaChannel* channel, Outcome* outcome) noexcept nogil
# Goes on after another thread has sent a reply.
cdef void channel_sent(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Closes a connection, which is freed at the end of the turn (channels_free_closed); reason is a CloseReason.
cdef void channel_close(ProcessorState* p, KafkaChannel* channel, int reason) noexcept nogil
cdef void channel_log_closing(ProcessorState* p, KafkaChannel* channel, int level, const char* why) noexcept nogil
# Drops a request after its final outcome, or with its connection (then the last reference cancels it).
cdef void channel_forget_request(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Ends an authentication: the connection gets no more requests, sends that reply (NULL: none) after the delay, and is
# closed.
cdef void channel_fail(ProcessorState* p, KafkaChannel* channel, Send* farewell, int64_t delay_ns) noexcept nogil
# Sends the last reply of such a connection.
cdef void channel_say_farewell(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Gives a request to Python.
cdef void hand_to_python(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Queues a connection with received bytes for the end of this turn or the next.
cdef void channel_be_ready(ProcessorState* p, KafkaChannel* channel) noexcept nogil
cdef void channel_unmute(ProcessorState* p, KafkaChannel* channel, int reason) noexcept nogil
# Counts the times of a request that ends without a reply.
cdef void channel_count(ProcessorState* p, const PendingRequest* pending) noexcept nogil
# Takes a request out of the purgatory, before its deadline.
cdef void leave_purgatory(ProcessorState* p, PendingRequest* pending) noexcept nogil
# Ends a request, after its reply or without one.
cdef void channel_finish(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Starts to send a reply; takes over `send`.
cdef void channel_start_reply(ProcessorState* p, KafkaChannel* channel, Send* send) noexcept nogil
# Pushes requests that found the RequestChannel full, as many as fit now.
cdef void request_push_backlog(ProcessorState* p) noexcept nogil
# Begins a request whose connection has its quotas now.
cdef void request_begin(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Resumes a parked or asked request.
cdef void request_resume(ProcessorState* p, KafkaChannel* channel, bint timed_out) noexcept nogil
# Wakes a request that may be parked, asked about or away.
cdef void request_wake(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Carries out the outcome that another thread left in a request.
cdef void request_come_back(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Handles the received whole frames, until one stays in flight.
cdef void channel_handle_frames(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Writes as much of the reply as the socket takes.
cdef void channel_write(ProcessorState* p, KafkaChannel* channel) noexcept nogil
