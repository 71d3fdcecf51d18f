"""Quotas of the connections of a Processor: which sensors a request counts in, and the throttle times of channels.

A throttled channel is muted until its time is over, whatever happens to its reply meanwhile (KIP-219): the two mute
reasons are independent, and the channel is read again when neither is left.
"""

from libc.stdint cimport int64_t

from kafkapy._speedups.network.channel_handler cimport ProcessorState
from kafkapy._speedups.network.pending_request cimport PendingRequest
from kafkapy._speedups.network.selector cimport KafkaChannel

# Whether the connection of a request has its quotas; the request counts in them from now on. False: Python must decide.
cdef bint quotas_ready(ProcessorState* p, PendingRequest* pending) noexcept nogil
# Lets a request count in its connection's sensors from a time on (monotonic ns), if there are any.
cdef void quotas_use(PendingRequest* pending, int64_t started) noexcept nogil
# Before a reply: sets the sensor that counts its sending, and mutes the channel for the request's throttle time.
cdef void quotas_before_reply(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Mutes a channel for the throttle time of its request, which begins now; without one, does nothing.
cdef void quotas_throttle(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Counts the time of sending since `started` in channel.send_sensor.
cdef void quotas_count_sending(KafkaChannel* channel, int64_t started) noexcept nogil
