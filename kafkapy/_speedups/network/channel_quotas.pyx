"""Quotas of the connections of a Processor (see channel_quotas.pxd)."""

from libc.stdint cimport uint64_t

from kafkapy._speedups.base.posix cimport monotonic_ns
from kafkapy._speedups.base.time_counter cimport count_time_alone
from kafkapy._speedups.network.purgatory cimport purgatory_add
from kafkapy._speedups.network.selector cimport MUTE_THROTTLED, STAGE_READY
from kafkapy._speedups.requests.client_quotas cimport (
    QUOTAS_OFF,
    ConnectionBuckets,
    QuotaUse,
    buckets_fit,
    sensor_record,
    thread_share,
)

cdef enum:
    NS_PER_MS = 1000000


cdef bint quotas_ready(int64_t epoch, PendingRequest* pending) noexcept nogil:
    if epoch == QUOTAS_OFF or pending.stage != STAGE_READY:
        return True
    if not buckets_fit(&pending.connection.buckets, epoch, pending.frame.client_id, pending.frame.client_id_size):
        return False
    quotas_use(pending, pending.frame.received_ns)
    return True


cdef void quotas_use(PendingRequest* pending, int64_t started) noexcept nogil:
    cdef ConnectionBuckets* buckets = &pending.connection.buckets
    if buckets.produce == NULL and buckets.fetch == NULL and buckets.request == NULL and buckets.exempt == NULL:
        return
    pending.quota.buckets = buckets
    pending.quota.size = pending.frame_size
    pending.quota.spent_ns = 0
    pending.quota.step_ns = started
    pending.quota.exempt = False
    pending.frame.quota = &pending.quota


cdef void quotas_before_reply(KafkaChannel* channel, PurgatoryState* throttled,
                              TimeCounter* times) noexcept nogil:
    cdef const QuotaUse* quota = channel.request.frame.quota
    channel.send_sensor = NULL
    if quota != NULL:
        channel.send_sensor = quota.buckets.exempt if quota.exempt else quota.buckets.request
    quotas_throttle(channel, throttled, times)


cdef void quotas_throttle(KafkaChannel* channel, PurgatoryState* throttled, TimeCounter* times) noexcept nogil:
    cdef int64_t throttle_ms = channel.request.quota.throttle_ms
    if throttle_ms > 0:
        channel.mute |= MUTE_THROTTLED
        channel.throttle.token = <uint64_t>channel.info.id
        purgatory_add(throttled, &channel.throttle, monotonic_ns() + throttle_ms * NS_PER_MS)
        count_time_alone(times, throttle_ms * NS_PER_MS)


cdef void quotas_count_sending(KafkaChannel* channel, int64_t started) noexcept nogil:
    cdef int64_t now_ns = monotonic_ns()
    if channel.send_sensor != NULL:
        sensor_record(channel.send_sensor, thread_share(now_ns - started), now_ns // NS_PER_MS, False)
