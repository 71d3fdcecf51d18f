"""What a fetcher thread does with the log of a partition that this broker follows.

Each function names the leader epoch that the bytes were fetched for, and changes nothing when the log has another one
or leads: a late answer never gets into the log of a new leader. Any thread, without the GIL. Source:
kafka.server.ReplicaFetcherThread.processPartitionData, kafka.cluster.Partition.appendRecordsToFollowerOrFutureReplica.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkapy._speedups.log.layout cimport LogState

cdef struct FollowerPosition:
    int64_t log_start_offset
    int64_t log_end_offset
    int64_t high_watermark
    int32_t last_epoch          # the newest known leader epoch; -1: none
    int64_t epochs_version      # another number when the leader epochs have changed, and their file must be written

cdef enum FollowStatus:
    FOLLOW_APPENDED = 0
    FOLLOW_REFUSED = 1          # `error` says why; the batches before the refused one are in the log
    FOLLOW_WAITS = 2            # the log needs its next segment, or changes its files: fetch again soon

cdef struct FollowResult:
    int64_t log_end_offset      # after the append
    int64_t appended            # bytes
    int16_t error               # Kafka error code
    const char* message         # static text or NULL
    bint shortage               # with KAFKA_STORAGE_ERROR: descriptors or memory are short; the log is unchanged
    int64_t first_offset        # of the refused batch, with OFFSET_OUT_OF_RANGE
    int64_t last_offset

# 0, or the Kafka error of a log that cannot be followed in this epoch.
cdef int follower_position(LogState* log, int32_t leader_epoch, FollowerPosition* out) noexcept nogil
# Appends the leader's batches with their offsets and epochs. Of a cut last batch nothing is taken, nor of a batch of a
# newer epoch than `leader_epoch` and those behind it (KAFKA-18723).
cdef FollowStatus follower_append(LogState* log, uint8_t* data, int64_t size, int32_t leader_epoch,
                                  FollowResult* result) noexcept nogil
# Takes over the leader's high watermark, up to the own log end, and then its log start. 0 or a Kafka error; `out` is
# the position afterwards.
cdef int follower_advance(LogState* log, int32_t leader_epoch, int64_t high_watermark, int64_t log_start_offset,
                          FollowerPosition* out) noexcept nogil
