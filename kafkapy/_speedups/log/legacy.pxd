"""Messages of format v0 and v1, which an old Kafka wrote, in replicas: copied as they are.

    v0    int64 offset | int32 size of what follows | uint32 CRC-32 | int8 magic 0 | int8 attributes | key | value
    v1    the same with magic 1 and an int64 timestamp (ms) behind the attributes

The offset of a compressed message is that of its last record. These messages have neither a leader epoch nor a producer
id.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkapy._speedups.log.layout cimport LogState

cdef enum LegacyStatus:
    LEGACY_APPENDED = 0
    LEGACY_REFUSED = 1          # `error` says why
    LEGACY_WAITS = 2            # the log needs its next segment, or changes its files

# Appends one whole message. With a `leader_epoch` of 0 or above, a log of another epoch refuses it. Such a message ends
# the knowledge of leader epochs.
cdef LegacyStatus append_legacy(LogState* log, const uint8_t* data, int64_t size, int32_t leader_epoch,
                                int16_t* error) noexcept nogil
