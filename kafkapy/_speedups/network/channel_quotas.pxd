"""Quotas of the connections of a Processor: which sensors a request counts in, and the throttle times of channels.

A throttled channel is muted until its time is over, whatever happens to its reply meanwhile (KIP-219): the two mute
reasons are independent, and the channel is read again when neither is left.
"""

from libc.stdint cimport int64_t

from kafkapy._speedups.base.time_counter cimport TimeCounter
from kafkapy._speedups.network.pending_request cimport PendingRequest
from kafkapy._speedups.network.purgatory cimport PurgatoryState
from kafkapy._speedups.network.selector cimport KafkaChannel

# Whether the connection of a request has its quotas of the epoch; the request counts in them from now on. False: Python
# must decide.
cdef bint quotas_ready(int64_t epoch, PendingRequest* pending) noexcept nogil
# Lets a request count in its connection's sensors from a time on (monotonic ns), if there are any.
cdef void quotas_use(PendingRequest* pending, int64_t started) noexcept nogil
# Before a reply: sets the sensor that counts its sending, and mutes the channel for the request's throttle time.
cdef void quotas_before_reply(KafkaChannel* channel, PurgatoryState* throttled,
                              TimeCounter* times) noexcept nogil
# Mutes a channel for the throttle time of its request, which begins now and is counted; without one, does nothing.
# `throttled` holds the channels until their time is over.
cdef void quotas_throttle(KafkaChannel* channel, PurgatoryState* throttled, TimeCounter* times) noexcept nogil
# Counts the time of sending since `started` in channel.send_sensor.
cdef void quotas_count_sending(KafkaChannel* channel, int64_t started) noexcept nogil
